#include "pmstore/server/direct_calls.h"

#include <utility>

#include "base/check.h"
#include "pmstore/server/commit_end.h"
#include "pmstore/server/server_state.h"

namespace pmstore::internal {
namespace {

template <typename T>
base::Task<T> behind_others(base::Executor& executor, T answer) {
  co_await executor.yield();
  co_return std::move(answer);
}

base::Task<Status> wait_for(std::unique_ptr<CommitEnd> owned) {
  CommitEnd& end = *owned;
  co_return co_await end;
}

size_t value_bytes(const CommitView& request) {
  size_t bytes = 0;
  CommitWrites writes = request.writes;
  for (uint32_t i = 0; i < request.write_count; ++i) bytes += writes.next().value.size();
  return bytes;
}

// The records of a page as their reader gets them.
class OwnPage final : public TableScan::Page {
 public:
  OwnPage(ScanPage& page, uint64_t most_bytes) : page_(page), left_(most_bytes) {}
  bool add(const RecordView& record) override {
    const uint64_t bytes = sizeof(ScanItem) + record.key.size() + record.value.size();
    if (bytes > left_) return false;
    left_ -= bytes;
    page_.records.add(record.key, record.value);
    return true;
  }

 private:
  ScanPage& page_;
  uint64_t left_;
};

class OwnRangePage final : public RangeScan::Page {
 public:
  explicit OwnRangePage(RangePage& page) : page_(page) {}
  void add(const RangeItem& item, std::string_view key, std::string_view value) override {
    page_.checks.push_back({item.slot, item.version});
    page_.records.add(key, value);
    bytes_ += sizeof(item) + key.size() + value.size();
  }
  size_t bytes() const { return bytes_; }
  void clear() {
    bytes_ = 0;
    page_.checks.clear();
    page_.records.clear();
  }

 private:
  RangePage& page_;
  size_t bytes_ = 0;
};

}  // namespace

DirectCalls::DirectCalls(ServerCore& core, std::shared_ptr<Session> session,
                         std::shared_ptr<const uint64_t> known_through)
    : core_(core), session_(std::move(session)), known_through_(std::move(known_through)) {
  PMSTORE_CHECK(core_.discipline == LockDiscipline::kCpu, "under rnic clients lock by themselves");
  PMSTORE_CHECK(connected(), "a session that has ended is not called");
}

bool DirectCalls::connected() const { return !session_->ended; }

Status DirectCalls::begin() {
  if (!connected()) {
    return make_error(ErrorCode::kDisconnected, "the server in this process has ended the session");
  }
  core_.host.count(*session_);
  PMSTORE_CHECK(*known_through_ >= session_->known_through, "what is known stays known");
  if (session_->known_through != *known_through_) {
    session_->known_through = *known_through_;
    TwoPhase& two_phase = core_.store->two_phase();
    if (!two_phase.empty()) two_phase.forget_through({session_->client, *known_through_});
  }
  if (!core_.store->failed()) [[likely]]
    return {};
  core_.look_for_failure();
  return core_.store->failure();
}

bool DirectCalls::is_turn_over(size_t bytes) {
  since_turn_ += static_cast<uint32_t>(1 + bytes / kBytesLikeACall);
  if (since_turn_ < kCallsPerTurn) return false;
  since_turn_ = 0;
  return true;
}

base::Answer<Status> DirectCalls::commit(const CommitView& request) {
  if (Status begun = begin(); !begun) return begun;
  PMSTORE_CHECK(request.write_count == 0 || request.client == session_->client,
                "a client commits its own transactions");
  PMSTORE_CHECK(core_.use_number(*session_, request), "a number is executed once");
  std::optional<Status> committed = core_.group.commit(*session_, request);
  if (!committed) {
    auto caller = std::make_unique<WaitingCaller>();
    auto end = std::make_unique<CommitEnd>(caller->end, core_.executor);
    core_.group.wait_for_the_drain(session_, std::move(caller));
    return wait_for(std::move(end));
  }
  core_.count_commit(*session_, *committed);
  core_.look_for_failure();
  core_.follow_frames();
  if (is_turn_over(value_bytes(request))) {
    return behind_others(core_.executor, std::move(*committed));
  }
  return std::move(*committed);
}

base::Answer<Result<GetReply>> DirectCalls::get(TableId table, std::string_view key,
                                                uint32_t /*room*/, ValueRoom value) {
  using Answered = Result<GetReply>;
  if (Status begun = begin(); !begun) return Answered(std::move(begun.error()));
  ++core_.totals.gets;
  auto found = core_.store->read(table, key, value.buffer());
  if (!found && found.code() == ErrorCode::kConflict && core_.group.finish()) {
    found = core_.store->read(table, key, value.buffer());
  }
  if (!found) return Answered(std::move(found.error()));
  if (found->copied) {
    value.leave(found->value.size());
  } else if (!value.is_view()) {
    value.take(found->value);
  } else if (found->reply.found == FoundRecord::kWithValue) {
    const SlotOffset slot{found->reply.slot};
    Status held = value.take_view(core_.store->viewed_slots(), slot, found->value);
    if (!held) return Answered(std::move(held.error()));
  }
  if (is_turn_over(found->value.size())) {
    return behind_others(core_.executor, Answered(found->reply));
  }
  return Answered(found->reply);
}

void DirectCalls::prefetch(TableId table, std::span<const std::string_view> keys) {
  if (connected()) core_.store->prefetch(table, keys);
}

base::Answer<Result<ScanPage>> DirectCalls::scan(const ScanRequest& request, uint32_t reply_bytes) {
  using Answered = Result<ScanPage>;
  if (Status begun = begin(); !begun) return Answered(std::move(begun.error()));
  PMSTORE_CHECK(reply_bytes >= sizeof(ScanReply), "a page has a head");
  ++core_.totals.scans;
  ScanPage page;
  OwnPage records(page, reply_bytes - sizeof(ScanReply));
  auto head = core_.store->scan(request, records);
  if (!head && head.code() == ErrorCode::kConflict && core_.group.finish()) {
    head = core_.store->scan(request, records);
  }
  if (!head) return Answered(std::move(head.error()));
  page.cursor = head->cursor;
  page.damaged = head->damaged;
  since_turn_ = 0;  // a page takes long: each one lets others work
  return behind_others(core_.executor, Answered(std::move(page)));
}

base::Answer<Result<RangePage>> DirectCalls::range_scan(const RangeScanRequest& request,
                                                        const KeyRange& range,
                                                        uint32_t reply_bytes) {
  using Answered = Result<RangePage>;
  if (Status begun = begin(); !begun) return Answered(std::move(begun.error()));
  ++core_.totals.scans;
  RangePage page;
  OwnRangePage records(page);
  const OrderedIndex::Range keys{range.from, range.to};
  auto head = core_.store->range_scan(request, keys, reply_bytes, records);
  if (!head && head.code() == ErrorCode::kConflict && core_.group.finish()) {
    records.clear();
    head = core_.store->range_scan(request, keys, reply_bytes, records);
  }
  if (!head) return Answered(std::move(head.error()));
  page.leaves = std::move(head->leaves);
  page.more = head->more;
  if (is_turn_over(records.bytes())) {
    return behind_others(core_.executor, Answered(std::move(page)));
  }
  return Answered(std::move(page));
}

}  // namespace pmstore::internal
