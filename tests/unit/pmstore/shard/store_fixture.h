// A store in a plain region, without any connection, and transactions built as messages.
#pragma once

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "persist/pool.h"
#include "pmstore/server.h"
#include "pmstore/shard/store.h"
#include "tests/crash/crash_image.h"

namespace pmstore::internal {

// The body of a kCommit request.
class TransactionMessage {
 public:
  explicit TransactionMessage(uint64_t sequence) { header_.sequence = sequence; }
  TransactionMessage& read(uint64_t slot, uint64_t version) {
    append(reads_, ReadCheck{slot, version});
    ++header_.reads;
    return *this;
  }
  TransactionMessage& absent(uint64_t bucket, uint64_t version) {
    append(absences_, AbsenceCheck{bucket, version});
    ++header_.absences;
    return *this;
  }
  TransactionMessage& write(WriteKind kind, TableId table, std::string_view key,
                            std::string_view value, uint64_t expected_slot = 0,
                            uint64_t expected_version = 0) {
    append(writes_, WriteOp{expected_slot,
                            expected_version,
                            static_cast<uint32_t>(value.size()),
                            raw(table),
                            static_cast<uint16_t>(key.size()),
                            kind,
                            {}});
    for (const std::string_view part : {key, value}) {
      const auto bytes = std::as_bytes(std::span(part));
      writes_.insert(writes_.end(), bytes.begin(), bytes.end());
    }
    writes_.resize((writes_.size() + 7) / 8 * 8);
    ++header_.writes;
    return *this;
  }
  std::vector<std::byte> message() const {
    std::vector<std::byte> all;
    append(all, header_);
    for (const auto* part : {&reads_, &absences_, &writes_}) {
      all.insert(all.end(), part->begin(), part->end());
    }
    return all;
  }

 private:
  template <typename T>
  static void append(std::vector<std::byte>& to, const T& value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    to.insert(to.end(), bytes.begin(), bytes.end());
  }
  CommitRequest header_{};
  std::vector<std::byte> reads_;
  std::vector<std::byte> absences_;
  std::vector<std::byte> writes_;
};

// A value and where it was found.
struct Got {
  GetReply reply{};
  std::string value;
  bool found() const { return reply.found != FoundRecord::kNo; }
};

inline Result<Got> get_from(const Store& store, TableId table, std::string_view key) {
  static std::vector<std::byte> room(sizeof(GetReply) + kMaxValueBytes);  // zeroed once
  auto bytes = store.get(table, key, room);
  if (!bytes) return bytes.error();
  Got got;
  std::memcpy(&got.reply, room.data(), sizeof(got.reply));
  got.value.assign(reinterpret_cast<const char*>(room.data()) + sizeof(GetReply),
                   *bytes - sizeof(GetReply));
  return got;
}

// What an orderly stop has left: the next start reads all records.
inline void forget_checkpoint(persist::Pool& pool) {
  const std::vector<persist::Extent> extents = pool.info().extents;
  for (const persist::Extent& extent : extents) {
    if (extent.kind != persist::ExtentKind::kCheckpoint) continue;
    PMSTORE_CHECK(pool.free_extent(extent).has_value(), "memory can always be drained");
  }
}

// One client at a store in a region of its own.
class StoreInRegion {
 public:
  static constexpr uint64_t kClient = 77;

  explicit StoreInRegion(uint64_t region_bytes, FormatOptions format = {2, 64 << 10},
                         persist::Domain domain = persist::Domain::kMemoryController,
                         const persist::PaddingRules& padding = {})
      : region_(region_bytes), domain_(domain) {
    pool_ =
        std::move(*persist::Pool::in_region(region_.bytes(), domain, true, 256, nullptr, padding));
    if (format.shard_log_bytes == 0) format.shard_log_bytes = format.ring_bytes;
    const Status formatted = format_store(*pool_, format);
    PMSTORE_CHECK(formatted.has_value(), "the region is large enough");
    open(*pool_);
    table_ = *store_->catalog().create_table("t");
  }
  // As after an end of the process; the region keeps what was stored.
  void reopen() {
    store_.reset();
    pool_ = std::move(*persist::Pool::in_region(region_.bytes(), domain_, false));
    open(*pool_);
  }
  // The same, and whoever watches the memory goes on watching it.
  void restart() {
    store_.reset();
    open(*pool_);
  }
  // The same on `pool`, which shows what there is in pool().
  void restart_on(persist::Pool& pool) {
    store_.reset();
    open(pool);
  }
  // The redo record of an update of present records is in the CPU's caches, and nothing else has
  // happened: a one-sided client's WRITE, or a process that has died there.
  void land(const std::vector<std::pair<std::string, std::string>>& updates,
            std::optional<uint64_t> sequence = std::nullopt) {
    std::vector<std::byte> entry(log::entry_room(16 << 10));
    const auto room = std::span(entry).subspan(sizeof(log::EntryHeader));
    ShardRedoBuilder redo(room, kClient, store_->catalog().header().epoch);
    for (const auto& [key, value] : updates) {
      const GetReply at = get(key)->reply;
      redo.add(SlotOffset{at.slot}, table_, at.version + 1, RecordState::kLive, key, value);
    }
    const size_t bytes = redo.finish().size();
    const log::RingPosition& position = ring().position();
    const log::PlannedEntry plan = log::plan_entry(position, bytes, true).value();
    PMSTORE_CHECK(plan.pad_bytes == 0, "the test leaves room before the wrap");
    log::seal_entry(entry, plan, position, bytes, sequence ? *sequence : next_sequence_++);
    std::byte* const data = pool_->memory().at(ring().data_offset());
    pool_->memory().store(data + plan.lsn % position.data_bytes, entry.data(), plan.bytes);
  }
  Store& store() { return *store_; }
  persist::Pool& pool() { return *pool_; }
  TableId table() const { return table_; }
  // Of a coordinator of lock discipline rnic; commit() logs in the shard log.
  log::Ring& ring() { return store_->rings().at(0); }

  Status commit(TransactionMessage message) {
    const auto bytes = message.message();
    const auto view = decode_commit(kClient, bytes);
    if (!view) return make_error(ErrorCode::kProtocol);
    return store_->commit(*view);
  }
  // From here on the transactions are those of a session, which is asked about by its numbers.
  void begin_session() { next_sequence_ = store_->begin_session().value(); }
  TxId last_id() const { return {kClient, next_sequence_ - 1}; }
  TransactionMessage transaction() { return TransactionMessage(next_sequence_++); }
  Status put(std::string_view key, std::string_view value) {
    return commit(transaction().write(WriteKind::kPut, table_, key, value));
  }
  Status erase(std::string_view key) {
    return commit(transaction().write(WriteKind::kErase, table_, key, {}));
  }
  Result<Got> get(std::string_view key) { return get_from(*store_, table_, key); }

 private:
  void open(persist::Pool& pool) {
    auto opened = Store::open(pool);
    PMSTORE_CHECK(opened.has_value(), opened ? "" : opened.error().message.c_str());
    store_ = std::move(*opened);
    while (store_->rings().count() < store_->rings().most()) {
      PMSTORE_CHECK(store_->make_ring().has_value(), "the pool has room for its rings");
    }
    PMSTORE_CHECK(store_->take_ring(0, kClient, 0, 0).has_value(), "the ring is sound");
  }
  crash::PageBytes region_;
  persist::Domain domain_;
  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<Store> store_;
  TableId table_{};
  uint64_t next_sequence_ = 1;
};

}  // namespace pmstore::internal
