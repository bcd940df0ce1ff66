#include "pmstore/client/leaf_page.h"

#include <algorithm>
#include <array>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "pmstore/client/leaf_routes.h"
#include "pmstore/client/settled_buffer.h"
#include "pmstore/layout/record.h"
#include "pmstore/layout/size_class.h"
#include "pmstore/shard/ordered_index.h"

namespace pmstore::internal {
namespace {

// A page has parts of so many leaves, at most.
constexpr size_t kMostLeaves = 8;
// Where the room for records ends a page with fewer, the server's answer is cheaper.
constexpr size_t kFewRecords = 16;

// The words of an OpBuffer as this file uses them: the version of a leaf before it is READ; then
// the lock words of the records, and behind them the versions of the leaves.
constexpr size_t kVersionBefore = 0;
constexpr size_t kMostRecords = OpBuffer::kWords - kMostLeaves;

// A page on its way: what its leaves have said, what is to be READ, and what has come.
class LeafPage {
 public:
  LeafPage(ClientSession& session, const LeafPageRequest& request)
      : session_(session), request_(request) {}

  // The leaf in which the page begins, or goes on. False: no route leads there.
  bool find_next_leaf();
  // READs it.
  void plan_leaf(OpBuffer& buffer) const;
  enum class Step { kNextLeaf, kComplete, kAskServer };
  // Takes what plan_leaf() has READ.
  Step take_leaf(const OpBuffer& buffer);

  // Adds READs to the batch until it is full. True: no READ is left.
  bool plan_records(OpBuffer& buffer);
  // What they have READ. nullopt: something has changed.
  std::optional<RangePage> finish(const OpBuffer& buffer) const;
  // A record in a frame whose region is not known.
  std::optional<SlotOffset> unknown() const { return unknown_; }

 private:
  struct Entry {
    IndexEntry where;
    std::string key;
    uint32_t at;  // of the record in the buffer
  };
  struct Leaf {
    fabric::RemoteAddress address;
    LeafSeen seen;
  };

  bool is_the_next(const TreeNode& leaf) const;
  bool ends_range(const TreeNode& leaf) const;
  Step take_entries(const TreeNode& leaf);
  bool has_room(IndexEntry where);

  ClientSession& session_;
  const LeafPageRequest& request_;
  NodeId next_ = kNoNode;
  fabric::RemoteAddress next_address_{};
  std::string low_;    // of the route to next_
  std::string fence_;  // of the last leaf, where the next one begins
  std::vector<Leaf> leaves_;
  std::vector<Entry> entries_;
  uint32_t record_bytes_ = 0;
  bool more_ = false;
  std::optional<SlotOffset> unknown_;
  size_t planned_ = 0;  // READs of records, of words and of versions
};

bool LeafPage::find_next_leaf() {
  LeafRoutes& routes = session_.leaf_routes();
  if (leaves_.empty()) {
    auto found = request_.forward ? routes.leaf_of(request_.table, request_.range.from)
                                  : routes.leaf_before(request_.table, request_.range.to);
    if (!found) return false;
    next_ = found->leaf;
    low_ = std::move(found->low);
  }
  const auto address = routes.address_of(request_.table, next_);
  if (!address) return false;
  next_address_ = *address;
  return true;
}

// The lines of one READ may come in any order, so the version that lies in the page says nothing
// about its other lines. One that is READ before the page does, together with the one that finish()
// compares: a page of a version that has changed meanwhile is of no use, and is given up then.
void LeafPage::plan_leaf(OpBuffer& buffer) const {
  buffer.batch.clear();
  buffer.batch.read(buffer.word_at(kVersionBefore), next_address_)
      .read(buffer.at(0, kNodeBytes), next_address_);
}

// Fences of neighbours meet: so no key lies between the leaves of a page.
bool LeafPage::is_the_next(const TreeNode& leaf) const {
  if (!leaves_.empty()) return (request_.forward ? leaf.low() : leaf.high()) == fence_;
  const KeyRange& range = request_.range;
  if (request_.forward) return leaf.covers(range.from);
  if (range.to.empty()) return leaf.high().empty();
  return leaf.low() < range.to && (leaf.high().empty() || range.to <= leaf.high());
}

bool LeafPage::ends_range(const TreeNode& leaf) const {
  const KeyRange& range = request_.range;
  if (!request_.forward) return leaf.low() <= range.from;
  return leaf.high().empty() || (!range.to.empty() && range.to <= leaf.high());
}

LeafPage::Step LeafPage::take_leaf(const OpBuffer& buffer) {
  const TreeNode& leaf = *std::launder(reinterpret_cast<const TreeNode*>(buffer.data));
  const uint64_t version = buffer.word(kVersionBefore);
  if (version % 2 == 1 || version != leaf.load_version()) return Step::kAskServer;
  LeafRoutes& routes = session_.leaf_routes();
  const bool is_leaf = leaf.level() == 0 && leaf.table == raw(request_.table) && leaf.well_formed();
  if (!is_leaf || !is_the_next(leaf)) {
    if (leaves_.empty()) routes.forget(request_.table, low_);
    return Step::kAskServer;
  }
  routes.learn(request_.table, next_, {leaf.low(), leaf.high()});
  leaves_.push_back({next_address_, {leaf_unit(request_.table, next_), version}});
  return take_entries(leaf);
}

bool LeafPage::has_room(IndexEntry where) {
  if (where.size_class >= kSizeClasses || entries_.size() == kMostRecords) return false;
  const uint32_t bytes = kSlotBytes[where.size_class];
  if (record_bytes_ + bytes > kMaxOneSidedSlotBytes) return false;
  if (session_.in_records(where.slot, bytes)) return true;
  if (session_.in_slot_space(where.slot, bytes)) unknown_ = where.slot;
  return false;
}

LeafPage::Step LeafPage::take_entries(const TreeNode& leaf) {
  const KeyRange& range = request_.range;
  TreeNode::KeyRoom room;
  const uint16_t first = leaf.low() < range.from ? leaf.find(range.from).index : 0;
  const bool ends_here = !range.to.empty() && (leaf.high().empty() || range.to < leaf.high());
  const uint16_t end = ends_here ? leaf.find(range.to).index : leaf.count();
  for (uint16_t n = 0; first + n < end; ++n) {
    const auto i = static_cast<uint16_t>(request_.forward ? first + n : end - 1 - n);
    const OrderedIndex::Entry entry = OrderedIndex::unpack(leaf.value(i));
    if (!entry.record || entry.in_change) return Step::kAskServer;
    more_ = true;
    if (entries_.size() == request_.most_records) return Step::kComplete;
    if (!has_room(*entry.record)) {
      if (entries_.size() < kFewRecords) return Step::kAskServer;
      if (n == 0) leaves_.pop_back();  // the page ends before this leaf
      return Step::kComplete;
    }
    entries_.push_back({*entry.record, std::string(leaf.key(i, room)), record_bytes_});
    record_bytes_ += kSlotBytes[entry.record->size_class];
  }
  more_ = !ends_range(leaf);
  if (!more_ || entries_.size() == request_.most_records) return Step::kComplete;
  fence_ = request_.forward ? leaf.high() : leaf.low();
  next_ = request_.forward ? leaf.next : leaf.previous;
  if (leaves_.size() < kMostLeaves && find_next_leaf()) return Step::kNextLeaf;
  return entries_.empty() ? Step::kAskServer : Step::kComplete;
}

// All records, then all lock words, then all versions: docs/ordered-tables.md says why.
bool LeafPage::plan_records(OpBuffer& buffer) {
  buffer.batch.clear();
  const size_t records = entries_.size();
  const size_t all = 2 * records + leaves_.size();
  for (; planned_ < all && !buffer.batch.full(); ++planned_) {
    if (planned_ >= 2 * records) {
      const size_t i = planned_ - 2 * records;
      buffer.batch.read(buffer.word_at(records + i), leaves_[i].address);
      continue;
    }
    const size_t i = planned_ % records;
    const Entry& entry = entries_[i];
    if (planned_ < records) {
      buffer.batch.read(buffer.at(entry.at, kSlotBytes[entry.where.size_class]),
                        session_.record_at(entry.where.slot));
    } else {
      buffer.batch.read(buffer.word_at(i), session_.word_at(entry.where.slot));
    }
  }
  return planned_ == all;
}

std::optional<RangePage> LeafPage::finish(const OpBuffer& buffer) const {
  RangePage page;
  page.more = more_;
  for (size_t i = 0; i < leaves_.size(); ++i) {
    if (buffer.word(entries_.size() + i) != leaves_[i].seen.version) return std::nullopt;
    page.leaves.push_back(leaves_[i].seen);
  }
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    const auto record = check_record({buffer.data + entry.at, kSlotBytes[entry.where.size_class]},
                                     entry.where.slot);
    const LockWord word{buffer.word(i)};
    if (!record || word.is_locked()) return std::nullopt;
    if (word.version() != record->version()) return std::nullopt;
    const bool same =
        record->live() && record->header->table == raw(request_.table) && record->key == entry.key;
    if (!same) return std::nullopt;
    page.checks.push_back({raw(entry.where.slot), record->version()});
    page.records.add(record->key, record->value);
  }
  return page;
}

base::Task<Status> execute(ClientSession& session, OpBuffer& buffer) {
  Status read = co_await session.execute(buffer);
  if (!read) read = co_await session.execute_after(std::move(read), buffer);
  co_return std::move(read);
}

}  // namespace

base::Task<Result<std::optional<RangePage>>> read_leaf_page(CommitTasks& tasks, SessionRef session,
                                                            LeafPageRequest request) {
  const KeyRange& range = request.range;
  const bool is_empty = !range.to.empty() && range.from >= range.to;
  LeafPage page(*session, request);
  if (is_empty || !page.find_next_leaf()) co_return std::optional<RangePage>();
  BufferLease lease = session->buffers().try_take();
  if (!lease) lease = co_await session->buffers().take();
  const SettledBuffer buffer(tasks, session, std::move(lease));
  auto step = LeafPage::Step::kNextLeaf;
  while (step == LeafPage::Step::kNextLeaf) {
    page.plan_leaf(*buffer);
    PMSTORE_CO_TRY_STATUS(co_await execute(*session, *buffer));
    step = page.take_leaf(*buffer);
  }
  if (const auto slot = page.unknown()) {
    PMSTORE_CO_TRY_STATUS(co_await fetch_frame(*session, *slot));  // for the pages that follow
  }
  if (step == LeafPage::Step::kAskServer) co_return std::optional<RangePage>();
  while (!page.plan_records(*buffer)) {
    PMSTORE_CO_TRY_STATUS(co_await session->post(*buffer, false));
  }
  PMSTORE_CO_TRY_STATUS(co_await execute(*session, *buffer));
  co_return page.finish(*buffer);
}

}  // namespace pmstore::internal
