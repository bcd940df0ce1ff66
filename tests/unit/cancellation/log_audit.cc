// Of LogWorld: what must hold behind an operation that was destroyed, or is done.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "fabric/internal/rpc_client_state.h"
#include "log/internal/log_client_state.h"
#include "log/internal/log_service_state.h"
#include "tests/unit/cancellation/log_world.h"

namespace pmstore::cancellation {

using base::Task;

namespace {

// No lease has run out by then: whoever has gone, or was closed, has given it back.
constexpr uint64_t kTakeOverNs = 100 * kMillisecond;

// The inside of what is looked into, which only its own files see.
struct ClientState {
  friend auto inside(ClientState, log::LogClient& of);
};
struct ServiceState {
  friend auto inside(ServiceState, log::LogService& of);
};
struct RpcState {
  friend auto inside(RpcState, fabric::RpcClient& of);
};
template <typename Tag, typename Of, auto kMember>
struct Inside {
  friend auto inside(Tag, Of& of) { return (of.*kMember).get(); }
};
template struct Inside<ClientState, log::LogClient, &log::LogClient::state_>;
template struct Inside<ServiceState, log::LogService, &log::LogService::state_>;
template struct Inside<RpcState, fabric::RpcClient, &fabric::RpcClient::state_>;

// Again and again while the one before has it.
Task<Result<std::unique_ptr<log::LogProducer>>> open_patiently(log::LogClient& client, uint64_t id,
                                                               log::LogProducerOptions options) {
  while (true) {
    auto opened = co_await log::LogProducer::open(client, id, options);
    if (opened || opened.code() != ErrorCode::kBusy) co_return opened;
    co_await client.executor().sleep_for(kMillisecond);
  }
}

template <typename T>
std::string said(const std::optional<Result<T>>& result) {
  if (!result) return "it waits for ever";
  return result->has_value() ? "it succeeds" : result->error().to_string();
}

}  // namespace

void LogWorld::audit(uint64_t point, bool done) {
  if (client != nullptr) {
    use_client();
    if (reader != nullptr) use_reader();
    if (producer != nullptr) use_producer(!done);
    expect_nothing_leaked();
  }
  ASSERT_TRUE(run_until(executor_, kBoundNs, [this] { return host_ != nullptr; }));
  if (weather_ == Weather::kServerGone) {
    other_ = std::move(*run(connect()));
  }
  expect_effect(done && !failed_);
  const auto there = run(other_->open(kLog));
  if (there) {
    // Of those whose producer still has it every other one is stolen from.
    const bool steal = producer != nullptr && point % 2 == 1;
    if (!steal) drop_client();
    if (!there->sealed) take_over(steal ? log::Takeover::kSteal : log::Takeover::kIfFree);
    if (steal && !there->sealed) expect_fenced();
    if (!there->sealed) append_and_close();
    const auto found = within(executor_, kBoundNs, read_log(*other_, id, reader_options()));
    EXPECT_TRUE(found && *found) << "another client reads the log: " << said(found);
    if (found && *found) attempts_.expect(**found, true, trims());
  }
  drop_client();
  erase_logs();
  expect_nothing_left();
}

// ---- the client whose operation was destroyed ----

void LogWorld::expect_others_end() {
  const auto ends = [this](auto& task, const char* what) -> std::optional<Result<log::Appended>> {
    EXPECT_TRUE(run_until(executor_, kBoundNs, [&] { return task->done(); }))
        << what << " waits for ever";
    std::optional<Result<log::Appended>> result;
    if (task->done()) result = task->take();
    task.reset();
    return result;
  };
  if (beside_) {
    const auto appended = ends(beside_, "an append to another log");
    if (appended && *appended) beside_least_ = (*appended)->index + 1;
    if (appended && !*appended) expect_failure(appended->error());
  }
  if (!behind_) return;
  const auto appended = ends(behind_, "another append of the same producer");
  if (appended && *appended) behind_attempt_->last_index = (*appended)->index;
  if (!appended || *appended) return;
  const bool may_fail = appends() || breaks_sessions(weather_);
  EXPECT_TRUE(may_fail) << appended->error().to_string();
}

void LogWorld::use_client() {
  const auto use = [](LogWorld& world) -> Task<Status> {
    ++world.beside_most_;
    PMSTORE_CO_TRY(const auto appended,
                   co_await world.client->append(world.beside_id_, bytes_of(kBesideText)));
    world.beside_least_ = appended.index + 1;
    PMSTORE_CO_TRY(const auto all, co_await world.client->list());
    EXPECT_GE(all.size(), 1u);
    PMSTORE_CO_TRY(const auto info, co_await world.client->open("beside"));
    EXPECT_EQ(info.next_index, world.beside_least_);
    co_return Status{};
  };
  const auto used = within(executor_, kBoundNs, use(*this));
  ASSERT_TRUE(used) << "the same client waits for ever";
  if (!*used) expect_failure(used->error());
}

void LogWorld::use_reader() {
  if (case_->effect == LogEffect::kErases) return;
  const auto found = within(executor_, kBoundNs, read_all(*reader));
  ASSERT_TRUE(found) << "the same reader waits for ever";
  if (!*found) return expect_failure(found->error());
  attempts_.expect(**found, false, trims());
}

void LogWorld::use_producer(bool destroyed) {
  if (case_->effect == LogEffect::kCloses) {
    const auto closed = within(executor_, kBoundNs, producer->close());
    EXPECT_TRUE(closed) << "close() again waits for ever";
    return;
  }
  Attempt& more = attempt({"used"}, true);
  auto appended = within(executor_, kBoundNs, append(*producer, more));
  ASSERT_TRUE(appended) << "the same producer waits for ever";
  if (*appended) {
    more.last_index = (*appended)->index;
    return;
  }
  const bool may_fail = (destroyed && appends()) || breaks_sessions(weather_);
  EXPECT_TRUE(may_fail) << "the same producer: " << appended->error().to_string();
}

void LogWorld::expect_nothing_leaked() {
  if (breaks_sessions(weather_)) return;
  let_pass(executor_, kMillisecond);  // completions and replies that nobody waits for
  auto& state = *inside(ClientState{}, *client);
  EXPECT_EQ(state.link->connection().completions().leased_or_abandoned(), 0u);
  const auto& rpc = *inside(RpcState{}, state.link->rpc());
  EXPECT_EQ(rpc.free_slots.size(), rpc.slots.size());
  EXPECT_EQ(rpc.first_waiting, nullptr);
  state.retire(nullptr);
  EXPECT_TRUE(state.retired.empty());
}

// ---- another client ----

void LogWorld::take_over(log::Takeover how) {
  log::LogProducerOptions options = producer_options();
  options.takeover = how;
  options.membership = run(other_->open(kLog))->membership;
  auto opened = within(executor_, kTakeOverNs, open_patiently(*other_, id, options));
  ASSERT_TRUE(opened && *opened) << "another producer: " << said(opened);
  others_producer_ = std::move(**opened);
}

void LogWorld::expect_fenced() {
  Attempt& late = attempt({"late"}, true);
  auto appended = within(executor_, kBoundNs, append(*producer, late));
  ASSERT_TRUE(appended) << "the producer that was stolen from waits for ever";
  EXPECT_FALSE(*appended);
  const auto closed = within(executor_, kBoundNs, producer->close());
  EXPECT_TRUE(closed) << "the producer that was stolen from cannot be closed";
}

void LogWorld::append_and_close() {
  ASSERT_NE(others_producer_, nullptr);
  // What is durable on its only replica counts.
  others_producer_->acknowledge(others_producer_->tail_lsn());
  Attempt& more = attempt({"taken over"}, true);
  auto appended = within(executor_, kBoundNs, append(*others_producer_, more));
  EXPECT_TRUE(appended && *appended) << said(appended);
  if (appended && *appended) more.last_index = (*appended)->index;
  const auto closed = within(executor_, kBoundNs, others_producer_->close());
  EXPECT_TRUE(closed && *closed) << said(closed);
  others_producer_.reset();
}

// ---- what is there ----

void LogWorld::expect_effect(bool done) {
  const auto now = run(other_->open(kLog));
  const auto created = run(other_->open(kCreated));
  if (case_->effect != LogEffect::kErases) {
    EXPECT_TRUE(now) << now.error().to_string();
  }
  if (case_->effect != LogEffect::kCreates) {
    EXPECT_FALSE(created);
  }
  if (now && now->sealed) {
    EXPECT_EQ(case_->effect, LogEffect::kSeals);
  }
  if (!done) return;
  EXPECT_EQ(now.has_value(), case_->effect != LogEffect::kErases);
  EXPECT_EQ(created.has_value(), case_->effect == LogEffect::kCreates);
  EXPECT_EQ(now && now->sealed, case_->effect == LogEffect::kSeals);
}

void LogWorld::erase_logs() {
  const auto beside = run(other_->open("beside"));
  ASSERT_TRUE(beside);
  EXPECT_GE(beside->next_index, beside_least_) << "what was acknowledged beside is lost";
  EXPECT_LE(beside->next_index, beside_most_) << "what was appended beside is there twice";
  beside_least_ = beside_most_ = beside->next_index;
  for (const char* name : {kLog, kCreated}) {
    const auto info = run(other_->open(name));
    if (!info) continue;
    const Status erased = run(other_->erase(info->id));
    EXPECT_TRUE(erased) << erased.error().to_string();
  }
  EXPECT_EQ(run(other_->list())->size(), 1u) << "there is a log of nobody";
}

void LogWorld::expect_nothing_left() {
  const auto& service = *inside(ServiceState{}, host_->service());
  const auto open = [&] { return service.sessions.sessions() + service.producers.sessions(); };
  EXPECT_TRUE(run_until(executor_, kTakeOverNs, [&] { return open() == 1; }))
      << "the server keeps " << open() << " connections";
  EXPECT_EQ(service.producers.sessions(), 0u);
  EXPECT_TRUE(service.sessions.group().empty());
}

}  // namespace pmstore::cancellation
