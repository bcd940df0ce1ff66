// Of ReplicatedWorld: what must hold behind an operation that was destroyed, or is done.
#include <gtest/gtest.h>

#include "log/internal/log_service_state.h"
#include "tests/unit/cancellation/replicated_world.h"
#include "tests/unit/log/log_entries.h"

namespace pmstore::cancellation {

using base::Task;

namespace {

// No lease has run out by then: whoever has gone, or was closed, has given it back.
constexpr uint64_t kTakeOverNs = 100 * kMillisecond;

struct ServiceState {
  friend auto inside(ServiceState, log::LogService& of);
};
template <typename Tag, typename Of, auto kMember>
struct Inside {
  friend auto inside(Tag, Of& of) { return (of.*kMember).get(); }
};
template struct Inside<ServiceState, log::LogService, &log::LogService::state_>;

// Again and again while the one before has it.
Task<Result<std::unique_ptr<log::ReplicatedLog>>> open_patiently(
    base::Executor& executor, std::vector<std::string> servers, log::ReplicatedLogOptions options) {
  while (true) {
    auto opened =
        co_await log::ReplicatedLog::open(executor, ReplicatedWorld::kLog, servers, options);
    if (opened || opened.code() != ErrorCode::kBusy) co_return opened;
    co_await executor.sleep_for(kMillisecond);
  }
}

bool is(const Status& status, ErrorCode code) { return !status && status.code() == code; }

}  // namespace

template <typename T>
Result<T> ReplicatedWorld::in_time(const char* what, Task<Result<T>> task) {
  auto result = within(executor_, kBoundNs, std::move(task));
  EXPECT_TRUE(result) << what << " waits for ever";
  if (!result) return make_error(ErrorCode::kTimeout, "it waits for ever");
  return std::move(*result);
}

void ReplicatedWorld::audit(uint64_t point, bool done) {
  const bool steal = log != nullptr && point % 2 == 1;
  if (log != nullptr) use_log(!done);
  if (reader != nullptr) use_reader();
  if (log != nullptr && !steal) {
    const Status closed = in_time("close()", log->close());
    if (!closed) {
      EXPECT_TRUE(breaks_sessions(weather_) || !done) << closed.error().to_string();
    }
  }
  if (!steal) drop_client();
  ASSERT_TRUE(run_until(executor_, kBoundNs, [this] { return servers_[1].host != nullptr; }));
  repeat(!done || failed_);
  if (case_->effect != ReplicatedEffect::kErases) {
    if (case_->effect != ReplicatedEffect::kSeals) {
      take_over(steal);
      if (other_ == nullptr) return;
      if (steal) expect_fenced();
      if (case_->effect == ReplicatedEffect::kAdds) add_again();
      if (case_->effect == ReplicatedEffect::kDrops) members_ = other_->replicas().size();
      append_and_close();
    }
    expect_equal();
    erase_log();
  }
  drop_client();
  expect_nothing_left();
}

// ---- the client whose operation was destroyed ----

void ReplicatedWorld::use_log(bool destroyed) {
  using Effect = ReplicatedEffect;
  const Effect effect = case_->effect;
  if (case_->parts == ReplicatedParts::kFull) {
    const Status trimmed = in_time("a trim", log->trim_below_index(3));
    EXPECT_TRUE(trimmed || breaks_sessions(weather_)) << trimmed.error().to_string();
  }
  // Twice: the first one may be refused because of one before it that nobody has.
  Result<log::Appended> result;
  for (const char* payload : {"used", "used again"}) {
    Attempt& more = attempt({payload});
    result = in_time("the same producer", append(more));
    if (result) more.last_index = result->index;
  }
  const bool ended = effect == Effect::kCloses || effect == Effect::kSeals;
  const bool may_fail = effect == Effect::kAppends || effect == Effect::kAdds;
  EXPECT_TRUE(result || ended || breaks_sessions(weather_) || (destroyed && may_fail))
      << "the same producer: " << result.error().to_string();
}

void ReplicatedWorld::use_reader() {
  const auto found = in_time("the same reader", read_all(*reader));
  if (!found) return expect_failure(found.error());
  attempts_.expect(*found, true, false);
}

// ---- others ----

// What was interrupted is done once more: that finishes it.
void ReplicatedWorld::repeat(bool destroyed) {
  Status again;
  switch (case_->effect) {
    case ReplicatedEffect::kCreates:
      again = in_time("create()", log::ReplicatedLog::create(executor_, kLog, shape(),
                                                             uris(members_), options()));
      EXPECT_TRUE(again || is(again, ErrorCode::kAlreadyExists)) << again.error().to_string();
      break;
    case ReplicatedEffect::kSeals: {
      log::ReplicatedLogOptions stealing = options();
      stealing.producer.takeover = log::Takeover::kSteal;
      again =
          in_time("seal()", log::ReplicatedLog::seal(executor_, kLog, uris(members_), stealing));
      EXPECT_TRUE(again) << again.error().to_string();
      break;
    }
    case ReplicatedEffect::kErases:
      again = in_time("erase()",
                      log::ReplicatedLog::erase(executor_, kLog, uris(members_), options().client));
      EXPECT_TRUE(again || is(again, ErrorCode::kNotFound)) << again.error().to_string();
      break;
    default: break;
  }
  if (!destroyed && !again) {
    EXPECT_TRUE(is(again, ErrorCode::kAlreadyExists) || is(again, ErrorCode::kNotFound));
  }
}

void ReplicatedWorld::take_over(bool steal) {
  log::ReplicatedLogOptions how = options();
  if (steal) how.producer.takeover = log::Takeover::kSteal;
  auto opened = within(executor_, kTakeOverNs, open_patiently(executor_, uris(members_), how));
  ASSERT_TRUE(opened) << "it stays another one's";
  ASSERT_TRUE(*opened) << opened->error().to_string();
  other_ = std::move(**opened);
}

void ReplicatedWorld::expect_fenced() {
  Attempt& late = attempt({"late"});
  const auto result = in_time("the producer that was stolen from", append(late));
  EXPECT_FALSE(result);
  const auto closed = within(executor_, kBoundNs, log->close());
  EXPECT_TRUE(closed) << "the producer that was stolen from cannot be closed";
  drop_client();
}

void ReplicatedWorld::add_again() {
  members_ = other_->replicas().size();
  if (members_ == kServers) return;
  const Status added = in_time("add() again", other_->add(uris(1, 2)[0], true));
  EXPECT_TRUE(added) << added.error().to_string();
  members_ = other_->replicas().size();
  EXPECT_EQ(members_, kServers);
}

void ReplicatedWorld::append_and_close() {
  if (case_->parts == ReplicatedParts::kFull) {
    EXPECT_TRUE(in_time("a trim", other_->trim_below_index(4)));
  }
  Attempt& more = attempt({"taken over"});
  const auto payloads = bytes_of(more.payloads);
  const auto result = in_time("another producer", other_->append_batch(payloads));
  EXPECT_TRUE(result) << result.error().to_string();
  if (result) more.last_index = result->index;
  const Status closed = in_time("another producer's close()", other_->close());
  EXPECT_TRUE(closed) << closed.error().to_string();
  other_.reset();
}

// Every replica has the same, and everything that was acknowledged; one may be trimmed further.
void ReplicatedWorld::expect_equal() {
  const bool trims =
      case_->effect == ReplicatedEffect::kTrims || case_->parts == ReplicatedParts::kFull;
  const auto status =
      within(executor_, kBoundNs,
             log::ReplicatedLog::status(executor_, kLog, uris(members_), options().client));
  EXPECT_TRUE(status && status->agreed) << "members have recorded different memberships";
  std::vector<FoundEntry> first;
  for (size_t i = 0; i < members_; ++i) {
    const auto entries = log::read_entries(servers_[i].host->store(), kLog);
    ASSERT_TRUE(entries) << entries.error().to_string();
    std::vector<FoundEntry> found;
    for (const auto& entry : *entries) found.push_back({entry.index, entry.payload});
    attempts_.expect(found, true, trims);
    if (i == 0) first = found;
    EXPECT_TRUE(trims || found.size() == first.size()) << "replicas differ";
    ASSERT_FALSE(found.empty());
    EXPECT_EQ(found.back().index, first.back().index) << "replicas differ";
    const auto info = servers_[i].host->store().find(kLog);
    EXPECT_EQ(info->sealed, case_->effect == ReplicatedEffect::kSeals);
  }
}

void ReplicatedWorld::erase_log() {
  const Status erased = in_time(
      "erase()", log::ReplicatedLog::erase(executor_, kLog, uris(members_), options().client));
  EXPECT_TRUE(erased) << erased.error().to_string();
  // What was dropped stays where it was.
  const bool drops = case_->effect == ReplicatedEffect::kDrops;
  for (size_t i = members_; i < kServers && (drops || case_->parts == ReplicatedParts::kReader);
       ++i) {
    log::LogStore& dropped = servers_[i].host->store();
    if (const auto there = dropped.find(kLog)) {
      EXPECT_TRUE(dropped.erase(there->id));
    }
  }
}

void ReplicatedWorld::expect_nothing_left() {
  for (const Server& server : servers_) {
    const auto& service = *inside(ServiceState{}, server.host->service());
    const auto open = [&] { return service.sessions.sessions() + service.producers.sessions(); };
    EXPECT_TRUE(run_until(executor_, kTakeOverNs, [&] { return open() == 0; }))
        << "a server keeps " << open() << " connections";
    EXPECT_TRUE(server.host->store().list().empty()) << "there is a log of nobody";
  }
}

}  // namespace pmstore::cancellation
