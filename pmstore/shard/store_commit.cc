// Store::commit(): the one-RPC transaction of lock discipline cpu. Lock, validate, log, apply, in
// one go.

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "base/check.h"
#include "pmstore/layout/record.h"
#include "pmstore/shard/store.h"

namespace pmstore::internal {

namespace {

constexpr uint16_t kServerOwner = 0;

template <typename T>
T read_at(std::span<const std::byte> array, size_t index) {
  T value;
  std::memcpy(&value, array.data() + index * sizeof(T), sizeof(T));
  return value;
}

}  // namespace

std::optional<CommitView> decode_commit(uint64_t client, std::span<const std::byte> request) {
  CommitRequest header;
  if (request.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, request.data(), sizeof(header));
  auto rest = request.subspan(sizeof(header));
  const uint64_t reads_bytes = uint64_t{header.reads} * sizeof(ReadCheck);
  const uint64_t absences_bytes = uint64_t{header.absences} * sizeof(AbsenceCheck);
  if ((header.sequence == 0 && header.writes > 0) || reads_bytes > rest.size() ||
      absences_bytes > rest.size() - reads_bytes) {
    return std::nullopt;
  }
  CommitView view{client,
                  header.sequence,
                  rest.first(reads_bytes),
                  rest.subspan(reads_bytes, absences_bytes),
                  rest.subspan(reads_bytes + absences_bytes),
                  header.writes};
  // The writes have different sizes: walk them once, so that everything after this may trust them.
  uint64_t at = 0;
  for (uint32_t i = 0; i < header.writes; ++i) {
    WriteOp op;
    if (view.writes.size() - at < sizeof(op)) return std::nullopt;
    std::memcpy(&op, view.writes.data() + at, sizeof(op));
    const uint64_t body = (uint64_t{op.key_bytes} + op.value_bytes + 7) / 8 * 8;
    if (body > view.writes.size() - at - sizeof(op)) return std::nullopt;
    if (op.kind < WriteKind::kPut || op.kind > WriteKind::kErase) return std::nullopt;
    if (op.kind == WriteKind::kErase && op.value_bytes != 0) return std::nullopt;
    at += sizeof(op) + body;
  }
  if (at != view.writes.size()) return std::nullopt;
  return view;
}

Status Store::check_reads(const CommitView& request) const {
  for (size_t i = 0; i < request.reads.size() / sizeof(ReadCheck); ++i) {
    const auto check = read_at<ReadCheck>(request.reads, i);
    if (check.slot % 64 != 0 || check.slot >= arena_.bytes()) {
      return make_error(ErrorCode::kInvalidArgument, "a read set names a slot outside the records");
    }
    if (words_.load(static_cast<SlotOffset>(check.slot)) != LockWord::unlocked(check.version)) {
      return make_error(ErrorCode::kConflict);
    }
  }
  for (size_t i = 0; i < request.absences.size() / sizeof(AbsenceCheck); ++i) {
    const auto check = read_at<AbsenceCheck>(request.absences, i);
    if (check.bucket >= index_.bucket_count()) {
      return make_error(ErrorCode::kInvalidArgument, "a read set names a bucket that there is not");
    }
    if (check.version % 2 == 1 || index_.version(check.bucket) != check.version) {
      return make_error(ErrorCode::kConflict);
    }
  }
  return {};
}

// Decides where one write goes and locks what it changes.
Status Store::plan_write(Planned& write, uint64_t expected_slot, uint64_t expected_version) {
  if (!catalog_.exists(write.table)) return catalog_.unknown(write.table);
  if (write.key.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "a key has 1 to 255 bytes");
  }
  if (write.value.size() > kMaxValueBytes) {
    return make_error(ErrorCode::kTooLarge, "a value has at most 1 MiB");
  }
  std::optional<SlotOffset> damaged;
  const auto found = find(write.table, write.key, write.hash, damaged);
  if (!found && damaged) return damaged_key(*damaged);
  write.exists = found.has_value();
  if (found) {
    write.old_slot = found->slot;
    write.size_class = found->size_class;
    const LockWord word = words_.load(found->slot);
    if (word.is_locked()) {
      return make_error(ErrorCode::kInvalidArgument, "a transaction writes a key at most once");
    }
    write.old_version = word.version();
  }
  if (expected_version != 0 && (!write.exists || raw(write.old_slot) != expected_slot ||
                                write.old_version != expected_version)) {
    return make_error(ErrorCode::kConflict);
  }
  if (write.kind == WriteKind::kInsert && write.exists)
    return make_error(ErrorCode::kAlreadyExists);
  if (write.kind == WriteKind::kErase && !write.exists) return make_error(ErrorCode::kNotFound);
  write.slot = write.old_slot;
  const uint64_t bytes = record_bytes(write.key.size(), write.value.size());
  if (!write.exists || (write.kind != WriteKind::kErase && bytes > kSlotBytes[write.size_class])) {
    write.size_class = size_class_of(bytes);
    auto slot = arena_.allocate(write.size_class);
    if (!slot) return slot.error();
    write.slot = *slot;
    write.fresh = true;
  }
  if (write.exists) words_.store(write.old_slot, LockWord::locked(write.old_version, kServerOwner));
  if (write.fresh || write.kind == WriteKind::kErase)
    index_.begin_change(index_.bucket_of(write.hash));
  return {};
}

Status Store::plan_writes(const CommitView& request) {
  plan_.clear();
  // A key that is inserted twice is in no record and so has no lock to show it.
  constexpr size_t kCompareAll = 64;
  std::unordered_set<uint64_t> hashes;
  uint64_t at = 0;
  for (uint32_t i = 0; i < request.write_count; ++i) {
    WriteOp op;
    std::memcpy(&op, request.writes.data() + at, sizeof(op));
    const auto* body = reinterpret_cast<const char*>(request.writes.data() + at + sizeof(op));
    at += sizeof(op) + (uint64_t{op.key_bytes} + op.value_bytes + 7) / 8 * 8;
    Planned write{};
    write.kind = op.kind;
    write.table = static_cast<TableId>(op.table);
    write.key = {body, op.key_bytes};
    write.value = {body + op.key_bytes, op.value_bytes};
    write.hash = hash_key(write.table, write.key);
    const bool may_repeat =
        request.write_count <= kCompareAll || !hashes.insert(write.hash.value).second;
    if (may_repeat && i > 0) {
      for (const Planned& other : plan_) {
        if (other.hash.value == write.hash.value && other.table == write.table &&
            other.key == write.key) {
          return make_error(ErrorCode::kInvalidArgument, "a transaction writes a key at most once");
        }
      }
    }
    PMSTORE_TRY_STATUS(plan_write(write, op.expected_slot, op.expected_version));
    plan_.push_back(write);
  }
  return {};
}

void Store::give_up_plan() {
  for (auto write = plan_.rbegin(); write != plan_.rend(); ++write) {
    if (write->fresh || write->kind == WriteKind::kErase) {
      index_.end_change(index_.bucket_of(write->hash));
    }
    if (write->exists) words_.store(write->old_slot, LockWord::unlocked(write->old_version));
    if (write->fresh) arena_.free_slot(write->slot);
  }
  plan_.clear();
}

// Truncates the older half of what is in the ring.
Status Store::make_room(log::Ring& ring, uint64_t payload_bytes) {
  const log::RingPosition& position = ring.position();
  const uint64_t used = position.tail_lsn - position.start_lsn;
  const uint64_t need = std::max(used / 2, log::entry_room(payload_bytes) * 2);
  return truncate_through(ring, position.start_lsn + std::min(used, need));
}

Status Store::log_writes(log::Ring& ring, const CommitView& request) {
  uint64_t payload_bytes = redo_header_bytes(1);
  for (const Planned& write : plan_) {
    const uint64_t value_bytes = write.kind == WriteKind::kErase ? 0 : write.value.size();
    payload_bytes += redo_write_bytes(record_bytes(write.key.size(), value_bytes));
    if (write.exists && write.fresh)
      payload_bytes += redo_write_bytes(record_bytes(write.key.size(), 0));
  }
  const uint64_t limit = log::max_payload_bytes(ring.position().data_bytes);
  if (payload_bytes > limit) {
    return make_error(ErrorCode::kTooLarge,
                      "the transaction needs " + std::to_string(payload_bytes) +
                          " bytes of redo log and this pool allows " + std::to_string(limit) +
                          "; split it, or create the pool with larger --ring-bytes");
  }
  const auto room = redo_room_.subspan(sizeof(log::EntryHeader));
  RedoBuilder redo(room, request.client, catalog_.header().pool);
  for (Planned& write : plan_) {
    if (write.exists && write.fresh) {
      write.old_image = redo.add(write.old_slot, write.table, write.old_version + 1,
                                 RecordState::kTombstone, write.key, {});
    }
    const uint64_t version = (write.fresh ? version_of(write.slot) : write.old_version) + 1;
    const bool erase = write.kind == WriteKind::kErase;
    write.image = redo.add(write.slot, write.table, version,
                           erase ? RecordState::kTombstone : RecordState::kLive, write.key,
                           erase ? std::string_view() : write.value);
  }
  PMSTORE_CHECK(redo.finish().size() == payload_bytes,
                "the size was computed from the same writes");
  auto appended = ring.append_in(request.sequence, redo_room_, payload_bytes);
  if (!appended && appended.code() == ErrorCode::kBackPressure) {
    PMSTORE_TRY_STATUS(make_room(ring, payload_bytes));
    appended = ring.append_in(request.sequence, redo_room_, payload_bytes);
  }
  if (!appended) return appended.error();
  auto durable = memory().drain();
  if (!durable) {
    failed_ = true;
    return make_error(ErrorCode::kCommitUnknown, "the redo log could not be made durable (" +
                                                     durable.error().message +
                                                     "); stop the server and look at the storage");
  }
  return {};
}

void Store::apply_writes() {
  for (const Planned& write : plan_) {
    if (!write.old_image.empty()) write_record(write.old_slot, write.old_image);
    write_record(write.slot, write.image);
    if (write.fresh) {
      if (write.exists) index_.erase(write.hash, write.old_slot);
      index_.insert(write.hash, write.size_class, write.slot);
    } else if (write.kind == WriteKind::kErase) {
      index_.erase(write.hash, write.slot);
    }
  }
  // Only now that everything is in place may anything of it be seen: a reader that sees one new
  // record and then validates an old one finds its word locked or changed.
  for (const Planned& write : plan_) {
    const uint64_t version = reinterpret_cast<const RecordHeader*>(write.image.data())->version;
    if (!write.old_image.empty()) {
      words_.store(write.old_slot, LockWord::unlocked(write.old_version + 1));
      arena_.free_slot(write.old_slot);
    }
    words_.store(write.slot, LockWord::unlocked(version));
    if (write.kind == WriteKind::kErase) arena_.free_slot(write.slot);
    if (write.fresh || write.kind == WriteKind::kErase) {
      index_.end_change(index_.bucket_of(write.hash));
    }
  }
}

Status Store::commit(log::Ring& ring, const CommitView& request) {
  if (failed_) {
    return make_error(ErrorCode::kIo,
                      "the server can no longer make anything durable; see its messages");
  }
  PMSTORE_TRY_STATUS(check_reads(request));
  if (request.write_count == 0) return {};
  Status planned = plan_writes(request);
  if (planned) planned = log_writes(ring, request);
  if (!planned) {
    give_up_plan();
    return planned;
  }
  apply_writes();
  ++transactions_;
  return {};
}

}  // namespace pmstore::internal
