#include "pmstore/shard/range_scan.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

namespace pmstore::internal {

namespace {

// Fills a page while the index is walked. The memory of each record is asked for some keys before
// the record is read: the records of neighbouring keys lie anywhere. It is asked for in batches:
// one such instruction may wait for the translation of its address, and only those that follow each
// other closely wait together.
class Filler {
 public:
  Filler(const RecordStore& records, const RangeScanRequest& request, uint64_t most_bytes,
         RangeScan::Page& page)
      : records_(records), request_(request), most_bytes_(most_bytes), page_(page) {}

  bool add_leaf(OrderedIndex::Leaf leaf) {
    if (leaf.version % 2 == 1) {
      // The page may end before this leaf.
      if (!add_all_ahead()) return false;
      return is_full() ? more() : fail(make_error(ErrorCode::kConflict));
    }
    if (bytes(head_.leaves.size() + 1) > most_bytes_) {
      if (!add_all_ahead()) return false;
      if (head_.records > 0) return more();
      return fail(make_error(ErrorCode::kTooLarge, "no room for a leaf in a scan page"));
    }
    head_.leaves.push_back(
        {KeyIndex::unit_of_leaf(static_cast<TableId>(request_.table), leaf.id), leaf.version});
    return true;
  }

  bool add_key(const OrderedIndex::Entry& entry) {
    PMSTORE_CHECK(entry.record && !entry.in_change, "a stable leaf has stable entries");
    if (is_full()) return add_all_ahead() && more();
    queue_[(oldest_ + ahead_++) % queue_.size()] = {*entry.record, head_.leaves.size()};
    if (++unasked_ < kBatch) return true;
    ask_for_records();
    while (ahead_ > kBatch) {
      if (!add_oldest()) return false;
    }
    return true;
  }

  Result<RangeScan::Head> finish() {
    // Leaves that were added while records were ahead may leave no room.
    if (add_all_ahead() && bytes(head_.leaves.size()) > most_bytes_) more();
    if (!status_) return status_.error();
    if (!are_of_one_moment()) return make_error(ErrorCode::kConflict);
    return std::move(head_);
  }

 private:
  static constexpr size_t kBatch = 16;  // keys; more than a CPU has misses under way

  bool is_full() const { return head_.records + ahead_ == request_.most_records; }
  // Of the page with so many leaves, and the records that it has.
  uint64_t bytes(size_t leaves) const {
    return sizeof(RangeScanReply) + leaves * sizeof(LeafSeen) + item_bytes_;
  }

  void ask_for_records() {
    for (; unasked_ > 0; --unasked_) {
      records_.prefetch(queue_[(oldest_ + ahead_ - unasked_) % queue_.size()].entry);
    }
  }

  bool add_all_ahead() {
    ask_for_records();
    while (ahead_ > 0 && add_oldest()) {
    }
    return status_ && !head_.more;
  }

  bool add_oldest() {
    const auto [entry, leaves] = queue_[oldest_];
    oldest_ = (oldest_ + 1) % queue_.size();
    --ahead_;
    const auto record = records_.record_at(entry);
    if (!record) return fail(record.error());
    const size_t more_bytes = sizeof(RangeItem) + record->key.size() + record->value.size();
    const size_t all = bytes(leaves) + more_bytes;
    if (all > most_bytes_ || (head_.records > 0 && all > request_.max_bytes)) {
      if (head_.records > 0) return more();
      return fail(make_error(ErrorCode::kTooLarge, "a record of " + std::to_string(more_bytes) +
                                                       " bytes does not fit in a scan page"));
    }
    const RangeItem item{raw(entry.slot),
                         record->version(),
                         static_cast<uint32_t>(record->value.size()),
                         static_cast<uint16_t>(record->key.size()),
                         {}};
    page_.add(item, record->key, record->value);
    item_bytes_ += more_bytes;
    ++head_.records;
    if (!records_.is_sole_writer()) seen_.push_back({item.slot, item.version});
    leaves_of_records_ = leaves;
    return true;
  }

  // Clients commit one-sided meanwhile. A version only grows: so records that still have theirs had
  // them all when the last one was copied.
  bool are_of_one_moment() const {
    return std::all_of(seen_.begin(), seen_.end(), [&](const ReadCheck& seen) {
      return records_.words().load(SlotOffset{seen.slot}) == LockWord::unlocked(seen.version);
    });
  }

  // The page ends with its last record: leaves behind it do not matter to the page.
  bool more() {
    PMSTORE_CHECK(head_.records > 0, "a page that goes on has a record to go on behind");
    head_.leaves.resize(leaves_of_records_);
    head_.more = true;
    ahead_ = unasked_ = 0;
    return false;
  }
  bool fail(Error why) {
    status_ = std::move(why);
    ahead_ = unasked_ = 0;
    return false;
  }

  const RecordStore& records_;
  const RangeScanRequest& request_;
  const uint64_t most_bytes_;
  RangeScan::Page& page_;
  struct Ahead {
    IndexEntry entry;
    size_t leaves;  // that the page has with this record
  };
  std::array<Ahead, 2 * kBatch> queue_;  // what is not added yet
  size_t oldest_ = 0;
  size_t ahead_ = 0;
  size_t unasked_ = 0;  // the youngest ones, whose memory has not been asked for
  RangeScan::Head head_;
  size_t leaves_of_records_ = 0;  // so many leaves have the records so far
  uint64_t item_bytes_ = 0;
  std::vector<ReadCheck> seen_;  // lock discipline rnic
  Status status_;
};

// Records in a reply. They are written behind the head, and moved when the leaves are known, which
// come before them.
class ReplyPage final : public RangeScan::Page {
 public:
  explicit ReplyPage(std::span<std::byte> room) : room_(room) {}

  void add(const RangeItem& item, std::string_view key, std::string_view value) override {
    MessageWriter writer(room_.subspan(at_));
    writer.put(item);
    writer.put_bytes(key);
    writer.put_bytes(value);
    PMSTORE_CHECK(!writer.overflowed(), "its size was compared with the room");
    at_ += writer.bytes();
  }

  size_t finish(const RangeScan::Head& head) {
    const size_t leaves_bytes = head.leaves.size() * sizeof(LeafSeen);
    const size_t records_at = kRecordsAt + leaves_bytes;
    const size_t records_bytes = at_ - kRecordsAt;
    PMSTORE_CHECK(records_at + records_bytes <= room_.size(), "what is added has had room");
    std::memmove(room_.data() + records_at, room_.data() + kRecordsAt, records_bytes);
    const RangeScanReply reply{static_cast<uint32_t>(head.leaves.size()),
                               head.records,
                               static_cast<uint8_t>(head.more ? 1 : 0),
                               0,
                               {}};
    std::memcpy(room_.data(), &reply, sizeof(reply));
    if (leaves_bytes > 0) std::memcpy(room_.data() + kRecordsAt, head.leaves.data(), leaves_bytes);
    return records_at + records_bytes;
  }

 private:
  static constexpr size_t kRecordsAt = sizeof(RangeScanReply);

  const std::span<std::byte> room_;
  size_t at_ = kRecordsAt;
};

}  // namespace

Result<RangeScan::Head> RangeScan::page(const RangeScanRequest& request, OrderedIndex::Range range,
                                        uint64_t most_bytes, Page& page) const {
  const auto table = static_cast<TableId>(request.table);
  if (!records_.catalog().exists(table)) return records_.catalog().unknown(table);
  if (!is_ordered(table)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the table is not ordered; make one with `pmstore table create --ordered`");
  }
  if (request.most_records == 0) {
    return make_error(ErrorCode::kInvalidArgument, "a page has at least one record");
  }
  const OrderedIndex* const index = records_.index().ordered(table);
  PMSTORE_CHECK(index != nullptr, "an ordered table has its index from its first moment on");
  Filler filler(records_, request, most_bytes, page);
  const auto direction = request.backwards != 0 ? OrderedIndex::Direction::kBackward
                                                : OrderedIndex::Direction::kForward;
  index->walk(
      range, direction, [&](OrderedIndex::Leaf leaf) { return filler.add_leaf(leaf); },
      [&](OrderedIndex::LeafKey, const OrderedIndex::Entry& entry) {
        return filler.add_key(entry);
      });
  return filler.finish();
}

Result<size_t> RangeScan::page(const RangeScanRequest& request, OrderedIndex::Range range,
                               std::span<std::byte> room) const {
  if (room.size() < sizeof(RangeScanReply)) {
    return make_error(ErrorCode::kTooLarge, "no room for the reply");
  }
  ReplyPage reply(room);
  PMSTORE_TRY(const Head head, page(request, range, room.size(), reply));
  return reply.finish(head);
}

}  // namespace pmstore::internal
