// TransactionScan: see pmstore/client.h.

#include <algorithm>
#include <utility>

#include "pmstore/client/leaf_page.h"
#include "pmstore/client/transaction_state.h"
#include "pmstore/layout/protocol.h"

namespace pmstore {

namespace {

using internal::RangePage;

// A part of a range is locked while a commit is made durable; a scan gives up when that lasts.
constexpr unsigned kAttempts = 64;
constexpr uint64_t kFirstPauseNs = 1'000;
constexpr uint64_t kLongestPauseNs = 4'000'000;

}  // namespace

struct TransactionScan::State {
  bool forward() const { return direction == ScanDirection::kForward; }
  bool before(std::string_view a, std::string_view b) const { return forward() ? a < b : b < a; }
  bool covers(std::string_view key) const {
    return key >= rest.from && (rest.to.empty() || key < rest.to);
  }
  Error failed(Error why) const {
    transaction->fail(why);
    return why;
  }

  Status check() const;
  Task<Result<RangePage>> read(uint32_t most) const;
  // Puts the transaction's own writes among the records, up to where the page ends.
  void add_own_writes(RangePage& page) const;
  // The scan goes on behind this key.
  void go_on_behind(std::string_view key) {
    if (forward()) rest.from.assign(key).push_back('\0');
    if (!forward()) rest.to.assign(key);
    ended = !forward() && rest.to.empty();
  }

  // What was scanned since `before` was the rest.
  KeyRange scanned_since(KeyRange before) const {
    if (ended || only_own_left) return before;
    if (forward()) before.to = rest.from;
    if (!forward()) before.from = rest.to;
    return before;
  }

  Transaction::Ref transaction;
  TableId table;
  KeyRange rest;  // what was not scanned yet
  ScanDirection direction;
  bool only_own_left = false;  // records of others have been scanned up to the end of the range
  bool ended = false;
};

Status TransactionScan::State::check() const {
  if (transaction->over) return Transaction::State::over_error();
  if (!is_ordered(table)) {
    return make_error(ErrorCode::kInvalidArgument,
                      "the table is not ordered; make one with `pmstore table create --ordered`");
  }
  // One byte more: the first key behind the longest one.
  if (rest.from.size() > kMaxKeyBytes + 1 || rest.to.size() > kMaxKeyBytes + 1) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a bound of a range is at most as long as a key");
  }
  return {};
}

Task<Result<RangePage>> TransactionScan::State::read(uint32_t most) const {
  PMSTORE_CO_TRY(const internal::Participant* const holder, co_await transaction->bind());
  const internal::SessionRef session = holder->session;
  internal::Reader& reader = transaction->client.reader;
  const bool one_sided = session->misses() == MissPath::kOneSided;
  if (one_sided && reader.knows_table(table)) {
    const internal::LeafPageRequest leaves{table, rest, forward(), most};
    PMSTORE_CO_TRY(auto page,
                   co_await internal::read_leaf_page(transaction->client.commits, session, leaves));
    if (page) co_return std::move(*page);
  }
  constexpr uint32_t kLeast = sizeof(RangeScanReply) + 64 * sizeof(LeafSeen) + sizeof(RangeItem) +
                              kMaxKeyBytes + kMaxValueBytes;
  const uint32_t capacity = std::min(kLeast, session->rpc().max_reply_bytes());
  RangeScanRequest request{};
  request.most_records = most;
  request.max_bytes = session->calls().range_page_bytes();
  request.table = raw(table);
  request.backwards = forward() ? 0 : 1;
  request.routes = one_sided ? 1 : 0;
  Executor& executor = transaction->client.executor;
  uint64_t pause_ns = kFirstPauseNs;
  for (unsigned attempt = 1;; ++attempt) {
    auto page = co_await session->calls().range_scan(request, rest, capacity);
    if (page) reader.saw_table(table);
    if (page || page.code() != ErrorCode::kConflict || attempt == kAttempts) {
      co_return std::move(page);
    }
    co_await executor.sleep_for(executor.random().below(pause_ns));
    pause_ns = std::min(2 * pause_ns, kLongestPauseNs);
  }
}

void TransactionScan::State::add_own_writes(RangePage& page) const {
  const internal::ItemSet& items = transaction->items;
  std::vector<const internal::TxItem*> own;
  for (const internal::TxItem& item : items) {
    if (item.table != table || !item.writes() || !covers(items.key(item))) continue;
    if (page.more && before(page.records.back().key, items.key(item))) continue;
    own.push_back(&item);
  }
  if (own.empty()) return;
  std::sort(own.begin(), own.end(),
            [&](const auto* a, const auto* b) { return before(items.key(*a), items.key(*b)); });
  RecordPage merged;
  auto next = own.begin();
  const auto add_own = [&] {
    const internal::TxItem& item = **next++;
    if (item.leave == internal::TxItem::Leave::kNothing) return;
    merged.add(items.key(item), items.value(item));
  };
  for (const RecordRef record : page.records) {
    while (next != own.end() && before(items.key(**next), record.key)) add_own();
    const bool overwritten = next != own.end() && items.key(**next) == record.key;
    overwritten ? add_own() : merged.add(record.key, record.value);
  }
  while (next != own.end()) add_own();
  page.records = std::move(merged);
}

TransactionScan::TransactionScan(std::unique_ptr<State> state) : state_(std::move(state)) {}
TransactionScan::TransactionScan(TransactionScan&&) noexcept = default;
TransactionScan& TransactionScan::operator=(TransactionScan&&) noexcept = default;
TransactionScan::~TransactionScan() = default;

Task<Result<RecordPage>> TransactionScan::next(uint32_t most) {
  State& scan = *state_;
  Transaction::State& transaction = *scan.transaction;
  most = std::max<uint32_t>(most, 1);
  while (!scan.ended) {
    if (const Status can = scan.check(); !can) co_return scan.failed(can.error());
    Result<RangePage> page = RangePage();
    if (!scan.only_own_left) page = co_await scan.read(most);
    if (!page) co_return scan.failed(page.error());
    if (transaction.over) co_return Transaction::State::over_error();
    // Nothing larger than a request can be committed.
    const size_t bytes = transaction.scanned.bytes() + page->leaves.size() * sizeof(AbsenceCheck) +
                         page->checks.size() * sizeof(ReadCheck);
    if (bytes > transaction.client.connector.largest_commit_bytes()) {
      co_return scan.failed(make_error(ErrorCode::kTooLarge,
                                       "a transaction cannot validate so large a scan; scan less, "
                                       "or in several transactions"));
    }
    if (!scan.only_own_left) transaction.scanned.add_page(page->leaves, page->checks);
    KeyRange before = scan.rest;
    const std::string last = page->more ? std::string(page->records.back().key) : std::string();
    scan.add_own_writes(*page);
    RecordPage& records = page->records;
    if (records.size() > most) {
      records.truncate(most);
    } else if (!page->more) {
      scan.only_own_left = true;
    }
    if (!records.empty()) {
      // The caller stands at this record, and may still write ahead of it.
      scan.go_on_behind(records.back().key);
    } else if (page->more) {
      scan.go_on_behind(last);
    } else {
      scan.ended = true;
    }
    transaction.scanned.add_range(scan.table, scan.scanned_since(std::move(before)));
    if (!records.empty()) co_return std::move(records);
  }
  co_return RecordPage();
}

TransactionScan Transaction::scan(TableId table, KeyRange range, ScanDirection direction) {
  auto state = std::make_unique<TransactionScan::State>();
  state->transaction = state_->hold();
  state->table = table;
  state->rest = std::move(range);
  state->direction = direction;
  return TransactionScan(std::move(state));
}

namespace {

Task<Result<Record>> no_key_before_the_empty_one() {
  co_return make_error(ErrorCode::kInvalidArgument, "a key is empty, so none is before it");
}

Task<Result<Record>> next_of(TransactionScan scan) {
  PMSTORE_CO_TRY(const RecordPage one, co_await scan.next(1));
  if (one.empty()) co_return make_error(ErrorCode::kNotFound);
  co_return one.front().copy();
}

}  // namespace

Task<Result<Record>> Transaction::first(TableId table, KeyRange range) {
  return next_of(scan(table, std::move(range)));
}

Task<Result<Record>> Transaction::last(TableId table, KeyRange range) {
  return next_of(scan(table, std::move(range), ScanDirection::kBackward));
}

// No default arguments: see base/task.h on braced temporaries.
Task<Result<Record>> Transaction::first(TableId table) { return first(table, KeyRange()); }

Task<Result<Record>> Transaction::last(TableId table) { return last(table, KeyRange()); }

Task<Result<Record>> Transaction::next(TableId table, std::string_view key) {
  KeyRange behind;
  if (!key.empty()) behind.from.assign(key).push_back('\0');
  return next_of(scan(table, std::move(behind)));
}

Task<Result<Record>> Transaction::previous(TableId table, std::string_view key) {
  // As the end of a range an empty key would be behind all keys.
  if (key.empty()) return no_key_before_the_empty_one();
  return next_of(scan(table, {"", std::string(key)}, ScanDirection::kBackward));
}

}  // namespace pmstore
