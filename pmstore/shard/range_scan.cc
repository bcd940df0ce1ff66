#include "pmstore/shard/range_scan.h"

#include <cstring>
#include <string>
#include <vector>

namespace pmstore::internal {

namespace {

// An answer that is being filled. The records are written behind the place that the leaves will
// take, and moved when there are more leaves than expected.
class Page {
 public:
  Page(const RecordStore& records, const RangeScanRequest& request, std::span<std::byte> room)
      : records_(records), request_(request), room_(room) {}

  bool add_leaf(OrderedIndex::Leaf leaf) {
    if (leaf.version % 2 == 1) return is_full() ? more() : fail(make_error(ErrorCode::kConflict));
    if (bytes() + sizeof(LeafSeen) > room_.size()) {
      if (items_ > 0) return more();
      return fail(make_error(ErrorCode::kTooLarge, "no room for a leaf in a scan page"));
    }
    leaves_.push_back(
        {KeyIndex::unit_of_leaf(static_cast<TableId>(request_.table), leaf.id), leaf.version});
    return true;
  }

  bool add(std::string_view key, const OrderedIndex::Entry& entry) {
    if (!status_) return false;
    if (is_full()) return more();
    PMSTORE_CHECK(entry.record && !entry.in_change, "a stable leaf has stable entries");
    const auto record = records_.record_at(*entry.record);
    if (!record) return fail(record.error());
    const size_t more_bytes = sizeof(RangeItem) + key.size() + record->value.size();
    const size_t all = bytes() + more_bytes;
    if (all > room_.size() || (items_ > 0 && all > request_.max_bytes)) {
      if (items_ > 0) return more();
      return fail(make_error(ErrorCode::kTooLarge, "a record of " + std::to_string(more_bytes) +
                                                       " bytes does not fit in a scan page"));
    }
    MessageWriter writer(room_.subspan(at_));
    writer.put(RangeItem{raw(entry.record->slot),
                         record->version(),
                         static_cast<uint32_t>(record->value.size()),
                         static_cast<uint16_t>(key.size()),
                         {}});
    writer.put_bytes(key);
    writer.put_bytes(record->value);
    PMSTORE_CHECK(!writer.overflowed(), "its size was compared with the room");
    at_ += writer.bytes();
    ++items_;
    leaves_of_items_ = leaves_.size();
    return true;
  }

  Result<size_t> finish() {
    if (!status_) return status_.error();
    const size_t leaves_bytes = leaves_.size() * sizeof(LeafSeen);
    const size_t before = sizeof(RangeScanReply) + leaves_bytes;
    PMSTORE_CHECK(bytes() <= room_.size(), "what is added has had room");
    std::memmove(room_.data() + before, room_.data() + kRecordsAt, used());
    const RangeScanReply reply{static_cast<uint32_t>(leaves_.size()), items_, more_, {}};
    std::memcpy(room_.data(), &reply, sizeof(reply));
    std::memcpy(room_.data() + sizeof(reply), leaves_.data(), leaves_bytes);
    return bytes();
  }

 private:
  static constexpr size_t kRecordsAt = sizeof(RangeScanReply);

  bool is_full() const { return items_ == request_.most_records; }
  size_t used() const { return at_ - kRecordsAt; }
  size_t bytes() const {
    return sizeof(RangeScanReply) + leaves_.size() * sizeof(LeafSeen) + used();
  }
  // The page ends with its last record: leaves behind it do not matter to the page.
  bool more() {
    PMSTORE_CHECK(items_ > 0, "a page that goes on has a record to go on behind");
    leaves_.resize(leaves_of_items_);
    more_ = 1;
    return false;
  }
  bool fail(Error why) {
    status_ = std::move(why);
    return false;
  }

  const RecordStore& records_;
  const RangeScanRequest& request_;
  const std::span<std::byte> room_;
  std::vector<LeafSeen> leaves_;
  size_t leaves_of_items_ = 0;  // so many of them have the records so far
  size_t at_ = kRecordsAt;
  uint32_t items_ = 0;
  uint8_t more_ = 0;
  Status status_;
};

}  // namespace

Result<size_t> RangeScan::page(const RangeScanRequest& request, OrderedIndex::Range range,
                               std::span<std::byte> room) const {
  const auto table = static_cast<TableId>(request.table);
  if (!records_.catalog().exists(table)) return records_.catalog().unknown(table);
  if (!is_ordered(table)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the table is not ordered; make one with `pmstore table create --ordered`");
  }
  if (request.most_records == 0) {
    return make_error(ErrorCode::kInvalidArgument, "a page has at least one record");
  }
  if (room.size() < sizeof(RangeScanReply)) {
    return make_error(ErrorCode::kTooLarge, "no room for the reply");
  }
  const OrderedIndex* const index = records_.index().ordered(table);
  PMSTORE_CHECK(index != nullptr, "an ordered table has its index from its first moment on");
  Page page(records_, request, room);
  const auto direction = request.backwards != 0 ? OrderedIndex::Direction::kBackward
                                                : OrderedIndex::Direction::kForward;
  index->walk(
      range, direction, [&](OrderedIndex::Leaf leaf) { return page.add_leaf(leaf); },
      [&](std::string_view key, const OrderedIndex::Entry& entry) { return page.add(key, entry); });
  return page.finish();
}

}  // namespace pmstore::internal
