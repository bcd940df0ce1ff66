#include "pmstore/client/reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "pmstore/layout/record.h"
#include "pmstore/layout/size_class.h"

namespace pmstore::internal {
namespace {

constexpr unsigned kAttempts = 16;
// After this many READs of a cached slot that is locked or torn, the index is read again.
constexpr unsigned kCachedAttempts = 4;
constexpr uint64_t kLongestPauseNs = 64'000;

uint64_t pause_limit(unsigned attempt) {
  return std::min(kLongestPauseNs, uint64_t{500} << attempt);
}

enum class Seen { kTheRecord, kAnother, kBusy };

// The words of an OpBuffer as this file uses them.
constexpr size_t kLockWord = 0;
constexpr size_t kBucketVersion = 1;
constexpr size_t kBucketVersionBefore = 2;

bool one_sided(const ClientSession& session, BucketEntry where) {
  if (where.size_class() >= kSizeClasses) return false;
  const uint32_t bytes = kSlotBytes[where.size_class()];
  return bytes <= kMaxOneSidedSlotBytes && session.in_records(where.slot(), bytes);
}

// Asks for the region of a frame that is not known, if a record there can be read one-sided.
base::Task<Status> name_frame(ClientSession& session, BucketEntry where) {
  const bool small =
      where.size_class() < kSizeClasses && kSlotBytes[where.size_class()] <= kMaxOneSidedSlotBytes;
  if (!small || !session.in_slot_space(where.slot(), kSlotBytes[where.size_class()])) {
    co_return Status{};
  }
  co_return co_await fetch_frame(session, where.slot());
}

[[gnu::hot]] void plan_record(OpBuffer& buffer, ClientSession& session, BucketEntry where) {
  const SlotOffset slot = where.slot();
  buffer.batch.clear();
  buffer.batch.read(buffer.at(0, kSlotBytes[where.size_class()]), session.record_at(slot))
      .read(buffer.word_at(kLockWord), session.word_at(slot));
}

// What plan_record() has read. kAnother is as certain as kTheRecord: an unlocked word that shows
// the same version as a whole record proves that this is what the slot held.
[[gnu::hot]] Seen examine(const OpBuffer& buffer, BucketEntry where, TableId table,
                          std::string_view key, std::optional<RecordView>& record) {
  const LockWord word{buffer.word(kLockWord)};
  record = check_record({buffer.data, kSlotBytes[where.size_class()]}, where.slot());
  if (!record || word.is_locked() || word.version() != record->version()) return Seen::kBusy;
  const bool same = record->header->table == raw(table) && record->key == key && record->live();
  return same ? Seen::kTheRecord : Seen::kAnother;
}

// `sure`: the entry was still in the index when the record was read. A cached entry may be older
// than its slab's present size class; what is certain then is only that the record fits its slot.
[[gnu::hot]] Located found_at(BucketEntry where, bool sure, const RecordView& record,
                              const ValueRoom& value) {
  value.take(record.value);
  Located located;
  located.found = true;
  located.size_class = sure ? where.size_class() : size_class_of(record.bytes());
  located.slot = where.slot();
  located.version = record.version();
  return located;
}

// A bucket as READ: itself at the start of the buffer, its version before and after in words. The
// lines of one READ may come in any order, so the version that lies in the bucket says nothing
// about its second line; READs of their own, one before and one after on the same queue pair, do.
void plan_bucket(OpBuffer& buffer, ClientSession& session, uint64_t bucket) {
  buffer.batch.clear();
  const fabric::RemoteAddress from = session.bucket_at(bucket);
  buffer.batch.read(buffer.word_at(kBucketVersionBefore), from)
      .read(buffer.at(0, sizeof(Bucket)), from)
      .read(buffer.word_at(kBucketVersion), from);
}

// Whether what plan_bucket() has read is the whole bucket, at one moment.
bool is_whole(const OpBuffer& buffer, const Bucket& bucket) {
  const uint64_t version = buffer.word(kBucketVersion);
  return version % 2 == 0 && version == buffer.word(kBucketVersionBefore) &&
         version == bucket.version;
}

}  // namespace

base::Task<Status> Reader::read_bucket(SessionRef session, KeyHash hash, OpBuffer& buffer,
                                       BucketSeen& seen) {
  seen.stable = seen.reachable = false;
  std::optional<uint64_t> number = session->bucket_count().bucket_of(hash);
  for (unsigned hop = 0; hop < BucketCountHint::kMostHops; ++hop) {
    if (!session->knows_bucket(*number)) {
      PMSTORE_CO_TRY_STATUS(
          co_await fetch_regions(*session, RegionKind::kBuckets, *number / kBucketsPerPiece));
      if (!session->knows_bucket(*number)) co_return Status{};
    }
    plan_bucket(buffer, *session, *number);
    Status read = co_await session->execute(buffer);
    if (!read) read = co_await session->execute_after(std::move(read), buffer);
    if (!read) co_return std::move(read);
    Bucket bucket;
    std::memcpy(&bucket, buffer.data, sizeof(bucket));
    const bool whole = is_whole(buffer, bucket);
    seen.number = *number;
    number = session->bucket_count().next(hash, *number, bucket.shape);
    if (number) continue;
    seen.reachable = true;
    seen.stable = whole && bucket.shape.holds(hash, seen.number);
    seen.version = buffer.word(kBucketVersion);
    seen.overflow = bucket.shape.overflow();
    seen.count = 0;
    for (const uint64_t bits : bucket.entries) {
      const BucketEntry entry{bits};
      if (entry.used() && entry.tag() == hash.tag()) seen.candidates[seen.count++] = entry;
    }
    co_return Status{};
  }
  co_return Status{};
}

Error Reader::no_view_error() {
  return make_error(
      ErrorCode::kUnsupported,
      "a view needs the server in this process, under lock discipline cpu; use get(), "
      "or open the pool as local:PATH with ClientOptions::local_discipline kCpu");
}

[[gnu::hot]] base::Answer<Result<Located>> Reader::locate(const SessionRef& session, TableId table,
                                                          std::string_view key, ValueRoom value) {
  if (session->in_process()) return locate_in_process(session, table, key, value);
  const KeyHash hash = hash_key(table, key);
  return session->one_sided_reads() ? locate_one_sided(session, table, key, hash, value)
                                    : locate_by_call(session, table, key, hash, value);
}

[[gnu::hot]] base::Task<Result<Located>> Reader::locate_one_sided(SessionRef session, TableId table,
                                                                  std::string_view key,
                                                                  KeyHash hash, ValueRoom value) {
  BucketEntry cached = cache_.find(hash, session->shard());
  // The leaves of an ordered table are the server's own.
  const bool misses_by_rpc = session->misses() == MissPath::kRpc || is_ordered(table);
  if (misses_by_rpc && !cached.used()) {
    co_return co_await locate_by_call(std::move(session), table, key, hash, value);
  }
  auto buffer = session->buffers().try_take();
  if (!buffer) buffer = co_await session->buffers().take();
  std::optional<RecordView> record;
  bool ask_the_server = false;
  for (unsigned attempt = 0; attempt < kAttempts && !ask_the_server; ++attempt) {
    if (attempt > 2) {
      co_await executor_.sleep_for(executor_.random().below(pause_limit(attempt)));
    } else if (attempt > 0) {
      co_await executor_.yield();
    }
    if (cached.used() && !one_sided(*session, cached)) {
      PMSTORE_CO_TRY_STATUS(co_await name_frame(*session, cached));
      if (!one_sided(*session, cached)) break;
    }
    if (cached.used() && attempt < kCachedAttempts) {
      plan_record(*buffer, *session, cached);
      Status read = co_await session->execute(*buffer);
      if (!read) read = co_await session->execute_after(std::move(read), *buffer);
      if (!read) co_return std::move(read.error());
      const Seen seen = examine(*buffer, cached, table, key, record);
      if (seen == Seen::kTheRecord) co_return found_at(cached, false, *record, value);
      if (seen == Seen::kBusy) continue;
      cache_.remove(hash);
      cached = {};
    }
    if (misses_by_rpc) break;
    BucketSeen seen_bucket;
    Status read = co_await read_bucket(session, hash, *buffer, seen_bucket);
    if (!read) co_return std::move(read.error());
    if (!seen_bucket.reachable) break;
    bool sure = seen_bucket.stable;
    for (size_t i = 0; sure && i < seen_bucket.count; ++i) {
      const BucketEntry where = seen_bucket.candidates[i];
      if (!one_sided(*session, where)) {
        PMSTORE_CO_TRY_STATUS(co_await name_frame(*session, where));
        if ((ask_the_server = !one_sided(*session, where))) break;
      }
      plan_record(*buffer, *session, where);
      buffer->batch.read(buffer->word_at(kBucketVersion), session->bucket_at(seen_bucket.number));
      read = co_await session->execute(*buffer);
      if (!read) read = co_await session->execute_after(std::move(read), *buffer);
      if (!read) co_return std::move(read.error());
      const Seen seen = examine(*buffer, where, table, key, record);
      const bool same_bucket = buffer->word(kBucketVersion) == seen_bucket.version;
      if (seen == Seen::kTheRecord) {
        cache_.put(hash, session->shard(), where.size_class(), where.slot());
        co_return found_at(where, same_bucket, *record, value);
      }
      // Another key's record rules this candidate out only while the bucket still is what it was:
      // else ours may have moved away from here since.
      sure = seen == Seen::kAnother && same_bucket;
    }
    if (!sure || ask_the_server) continue;
    if (seen_bucket.overflow != 0 || !knows_table(table)) break;
    PMSTORE_CHECK(seen_bucket.version % 2 == 0, "a bucket under change proves no absence");
    Located absent;
    absent.bucket = seen_bucket.number;
    absent.bucket_version = seen_bucket.version;
    co_return absent;
  }
  buffer = {};
  co_return co_await locate_by_call(session, table, key, hash, value);
}

namespace {

// Room for a value of which nothing is known: most are smaller.
constexpr uint32_t kUsualRoom = 4096 - sizeof(GetReply);

// `where`: what the location cache says; perhaps nothing.
[[gnu::hot]] uint32_t room_for(BucketEntry where) {
  if (!where.used() || where.size_class() >= kSizeClasses) return kUsualRoom;
  return std::clamp<uint32_t>(kSlotBytes[where.size_class()], kUsualRoom, kMaxValueBytes);
}

[[gnu::hot]] Located located_by(const GetReply& reply) {
  Located located;
  located.found = reply.found != FoundRecord::kNo;
  if (located.found) {
    located.size_class = reply.size_class;
    located.slot = SlotOffset{reply.slot};
    located.version = reply.version;
  } else {
    located.bucket = reply.bucket;
    located.bucket_version = reply.bucket_version;
  }
  return located;
}

}  // namespace

[[gnu::hot]] base::Task<Result<Located>> Reader::locate_by_call(SessionRef session, TableId table,
                                                                std::string_view key, KeyHash hash,
                                                                ValueRoom value) {
  uint32_t room = room_for(cache_.find(hash, session->shard()));
  for (unsigned attempt = 1;; ++attempt) {
    const auto answer = co_await session->calls().get(table, key, room, value);
    if (!answer) {
      if (answer.code() != ErrorCode::kConflict || attempt >= kAttempts) {
        co_return Error(answer.error());
      }
      // Locked by a transaction that is committing: usually for a moment.
      co_await executor_.sleep_for(executor_.random().below(pause_limit(attempt)));
      continue;
    }
    Located located = located_by(*answer);
    saw_table(table);
    if (!located.found) {
      cache_.remove(hash);
      co_return located;
    }
    cache_.put(hash, session->shard(), located.size_class, located.slot);
    if (answer->found == FoundRecord::kWithValue || !value.is_wanted()) co_return located;
    if (!value.has_room_for(answer->value_bytes)) {
      value.leave(answer->value_bytes);
      co_return located;
    }
    const auto where = BucketEntry::make(hash.tag(), located.size_class, located.slot);
    if (session->one_sided_reads() && one_sided(*session, where)) {
      PMSTORE_CO_TRY(located, co_await read_at(session, where, table, key, value));
      if (located.found) co_return located;
    }
    room = answer->value_bytes;
  }
}

base::Answer<Result<Located>> Reader::locate_in_process(const SessionRef& session, TableId table,
                                                        std::string_view key, ValueRoom value) {
  auto first = session->calls().get(table, key, kMaxValueBytes, value);
  const Result<GetReply>* const answer = first.value();
  if (answer != nullptr && *answer) [[likely]]
    return Result<Located>(located_by(**answer));
  return end_in_process(session, table, key, value, std::move(first));
}

base::Task<Result<Located>> Reader::end_in_process(SessionRef session, TableId table,
                                                   std::string_view key, ValueRoom value,
                                                   base::Answer<Result<GetReply>> first) {
  auto answer = co_await std::move(first);
  for (unsigned attempt = 1; !answer; ++attempt) {
    if (answer.code() != ErrorCode::kConflict || attempt >= kAttempts) {
      co_return std::move(answer.error());
    }
    co_await executor_.sleep_for(executor_.random().below(pause_limit(attempt)));
    answer = co_await session->calls().get(table, key, kMaxValueBytes, value);
  }
  co_return located_by(*answer);
}

base::Task<Result<Located>> Reader::read_at(SessionRef session, BucketEntry where, TableId table,
                                            std::string_view key, ValueRoom value) {
  auto buffer = session->buffers().try_take();
  if (!buffer) buffer = co_await session->buffers().take();
  if (!one_sided(*session, where)) co_return Located{};  // its frame is to go
  plan_record(*buffer, *session, where);
  Status read = co_await session->execute(*buffer);
  if (!read) read = co_await session->execute_after(std::move(read), *buffer);
  if (!read) co_return std::move(read.error());
  std::optional<RecordView> record;
  if (examine(*buffer, where, table, key, record) != Seen::kTheRecord) co_return Located{};
  co_return found_at(where, false, *record, value);
}

}  // namespace pmstore::internal
