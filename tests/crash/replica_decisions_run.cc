#include "tests/crash/replica_decisions_run.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "tests/crash/replica_content.h"
#include "tests/crash/replica_servers.h"
#include "tests/crash/uncut_replicas_run.h"

namespace pmstore::crash {
namespace {

using base::Task;
using log::ReplicatedLog;
using log::ReplicatedLogOptions;
using Opened = Result<std::unique_ptr<ReplicatedLog>>;

constexpr uint64_t kRaces = 48;
constexpr uint64_t kQuietNs = 1'000'000;
// Of virtual time: more than all time-outs of a client together.
constexpr uint64_t kPatienceNs = 600'000'000'000;

class ReplicaDecisionsRun final : public UncutReplicasRun {
 public:
  ReplicaDecisionsRun(const std::string& scenario, uint64_t seed)
      : UncutReplicasRun(scenario, seed, kServers) {
    must(executor_.run(ReplicatedLog::create(
        executor_, kReplicatedName, {.bytes = kReplicatedBytes, .identity = kReplicatedIdentity},
        servers_->uris(), {})));
    refused();
    unfinished();
    another_log();
    for (uint64_t i = 0; i < kRaces; ++i) take_it_from_each_other(i);
    for (uint64_t i = 0; interrupt_one_of_three(i); ++i) {
      PMSTORE_CHECK(i < kMostTurns, "a drop comes to an end");
    }
    for (const bool reversed : {false, true}) two_decisions(reversed);
    change({0, 1}, {2});
    for (uint64_t i = 0; i < kRaces; ++i) open_while_one_is_added(i / 2, i % 2);
    for (uint64_t i = 0; i < kRaces; ++i) lose_one_and_then_the_other(i / 2, i % 2);
    for (uint64_t i = 0; i < kRaces; ++i) steal_from_who_appends(i);
    for (size_t server = 0; server < 2; ++server) end_and_come_back(server);
    log_.reset();
    end();
  }

 private:
  static constexpr size_t kServers = 3;
  static constexpr uint64_t kMostTurns = 2000;

  // ---- what the run consists of ----
  void refused();
  void unfinished();
  void another_log();
  void two_decisions(bool reversed);
  void take_it_from_each_other(uint64_t turns);
  void open_while_one_is_added(uint64_t turns, size_t stays);
  void lose_one_and_then_the_other(uint64_t turns, size_t first);
  void steal_from_who_appends(uint64_t turns);
  bool interrupt_one_of_three(uint64_t turns);
  void end_and_come_back(size_t server);

  // ---- the pieces ----
  Task<Opened> open(Servers named, Servers dropped, bool gone) {
    ReplicatedLogOptions options;
    options.producer.takeover = log::Takeover::kSteal;
    options.drop = uris(dropped);
    options.dropped_are_gone = gone;
    return ReplicatedLog::open(executor_, kReplicatedName, uris(named), options);
  }
  // In the order of the log's list, of which the first one breaks ties.
  std::array<size_t, kServers> all_members() const {
    const std::vector<std::string> uris = log_->replicas();
    PMSTORE_CHECK(uris.size() == kServers, "all servers are members");
    std::array<size_t, kServers> members;
    std::transform(uris.begin(), uris.end(), members.begin(), ReplicaServers::number_of);
    return members;
  }
  // From here on these are the members.
  void change(const Servers& named, const Servers& dropped, bool gone = false) {
    log_.reset();
    auto opened = executor_.run(open(named, dropped, gone));
    PMSTORE_CHECK(opened.has_value(), opened ? "" : opened.error().message.c_str());
    log_ = std::move(*opened);
    all_have_the_same();
  }
  // Io: nobody listens there, and it is no file.
  void must_fail(ErrorCode code, const Servers& named, const Servers& dropped) {
    const auto opened = executor_.run(open(named, dropped, false));
    PMSTORE_CHECK(!opened && opened.code() == code,
                  opened ? "it must not be opened so" : opened.error().message.c_str());
  }
  void append() {
    const auto appended = executor_.run(append_texts(*log_, 1));
    PMSTORE_CHECK(appended.has_value(), appended ? "" : appended.error().message.c_str());
    PMSTORE_CHECK(told_.insert(appended->index).second, "an index is given once");
    make_room();
  }
  void make_room() {
    if (log_->next_index() > 5) must(executor_.run(log_->trim_below_index(log_->next_index() - 3)));
  }
  void add(size_t server) {
    must(executor_.run(log_->add(ReplicaServers::uri(server), true)));
    all_have_the_same();
  }
  void all_have_the_same() {
    const auto content = replica_content(*servers_, *log_);
    PMSTORE_CHECK(content.has_value(), content ? "" : content.error().message.c_str());
    PMSTORE_CHECK(told_.empty() || content->last >= *told_.rbegin(), "what was told is there");
  }
  // Takes it over after so long, and appends six entries, one after the other.
  Task<void> take_and_append(uint64_t turns, Servers named, std::optional<size_t> adds);
  // Without those, and one entry. `done` behind that.
  Task<void> drop_and_append(Servers named, Servers dropped, bool& done);
  // The membership that is recorded when a change that follows from the log's membership is
  // interrupted.
  void record(size_t server, const Servers& members, uint64_t membership) {
    log::ReplicaPlace place;
    place.replicas = uris(members);
    place.self =
        static_cast<size_t>(std::find(members.begin(), members.end(), server) - members.begin());
    place.membership = membership;
    const auto info = servers_->info(server);
    PMSTORE_CHECK(info.has_value(), "a member has the log");
    log::LogStore& store = servers_->host(server).store();
    must(store.set_membership(info->id, info->membership, place));
  }
  // Somebody who reaches only these drops the others: false when that is refused.
  bool goes_on(const Servers& named, const Servers& dropped);
  // Until so many are, or one is refused.
  Task<void> append_some(ReplicatedLog& log, uint64_t count);
  // The newest entry that readers of this server are shown.
  uint64_t shown(size_t server) const {
    const auto info = servers_->info(server);
    PMSTORE_CHECK(info.has_value(), info ? "" : info.error().message.c_str());
    return info->next_index - 1;
  }
  void pass(uint64_t ns) {
    executor_.run([](base::Executor& executor, uint64_t for_ns) -> Task<void> {
      co_await executor.sleep_for(for_ns);
    }(executor_, ns));
  }
  void wait() {
    executor_.run([](base::Executor& executor, const uint64_t& left) -> Task<void> {
      const uint64_t end_ns = executor.now_ns() + kPatienceNs;
      while (left > 0 && executor.now_ns() < end_ns) co_await executor.sleep_for(1000);
    }(executor_, under_way_));
    PMSTORE_CHECK(under_way_ == 0, "whoever is under way comes to an end");
  }
  bool is_member(size_t server) const {
    const std::vector<std::string> members = log_->replicas();
    return std::find(members.begin(), members.end(), ReplicaServers::uri(server)) != members.end();
  }

  std::unique_ptr<ReplicatedLog> log_;
  std::set<uint64_t> told_;  // indexes that were acknowledged
  uint64_t under_way_ = 0;
};

// Too few would stay; a member cannot be asked.
void ReplicaDecisionsRun::refused() {
  change({0}, {});
  append();
  log_.reset();
  must_fail(ErrorCode::kConflict, {0}, {1, 2});
  servers_->kill(1);
  must_fail(ErrorCode::kIo, {0}, {});
  must(servers_->start(1));
  change({2}, {1});
  append();
  log_.reset();
  must_fail(ErrorCode::kConflict, {2}, {0});  // one of two, and not the first
  servers_->kill(0);
  servers_->kill(2);
  must_fail(ErrorCode::kIo, {1}, {});
  must(servers_->start(0));
  must(servers_->start(2));
  change({1}, {});  // which knows only who the others were
  PMSTORE_CHECK(log_->replicas() == uris({0, 2}), "what was dropped stays so");
  append();
  add(1);
  append();
}

// A decision that one member only has recorded.
void ReplicaDecisionsRun::unfinished() {
  change({0, 2}, {1});
  log_.reset();
  const auto info = servers_->info(0);
  PMSTORE_CHECK(info && info->replicas == uris({0, 2}), "one was dropped");
  log::ReplicaPlace place;
  place.replicas = uris({0, 2, 1});
  place.membership = info->membership + 1;
  must(servers_->host(0).store().set_membership(info->id, info->membership, place));
  must_fail(ErrorCode::kConflict, {0, 2}, {1});
  change({2, 0}, {});
  PMSTORE_CHECK(log_->replicas() == uris({0, 2, 1}), "it is finished");
  append();
}

// Two decisions of one number, and the member that knows which one counts is lost for good. First
// one of the decisions counts and the other two members know it, in whatever order they are asked;
// then neither counts, and no member can know.
void ReplicaDecisionsRun::two_decisions(bool reversed) {
  const auto [first, second, third] = all_members();
  const uint64_t next = log_->membership() + 1;
  log_.reset();
  record(first, {first, second}, next);
  servers_->kill(first);
  change({second, third}, {first});
  PMSTORE_CHECK(log_->membership() == next, "it follows from the same one");
  append();
  must(executor_.run(log_->close()));
  log_.reset();
  servers_->kill(second);
  must(servers_->start(first));
  change(reversed ? Servers{third, first} : Servers{first, third}, {second}, true);
  PMSTORE_CHECK(log_->replicas() == uris({third}), "the one that went on counts");
  must(servers_->start(second));
  add(second);
  add(first);
  const uint64_t last = log_->membership() + 1;
  log_.reset();
  record(third, {third, second}, last);
  record(first, {second, first}, last);
  servers_->kill(second);
  const Servers rest = reversed ? Servers{first, third} : Servers{third, first};
  const auto refused = executor_.run(open(rest, {second}, true));
  PMSTORE_CHECK(!refused && refused.code() == ErrorCode::kConflict,
                "nobody knows which one counts");
  must(servers_->start(second));
  record(second, {third, second}, last);
  change({third, second}, {});
  add(first);
  append();
}

// Not one of the members', but of that name.
void ReplicaDecisionsRun::another_log() {
  change({0}, {1});
  append();
  log::LogStore& store = servers_->host(1).store();
  must(store.erase(servers_->info(1)->id));
  const auto other = store.create(kReplicatedName, {.bytes = kReplicatedBytes}, {});
  PMSTORE_CHECK(other.has_value(), "there is room again");
  const Status added = executor_.run(log_->add(ReplicaServers::uri(1), true));
  PMSTORE_CHECK(!added && added.code() == ErrorCode::kConflict, "it is not this log's");
  log_.reset();
  must_fail(ErrorCode::kConflict, {0, 1}, {});
  must(store.erase(other->id));
  change({0}, {});
  add(1);
  append();
}

// Of one from whom another one has taken the log meanwhile.
bool lost_to_another(ErrorCode code) {
  return code == ErrorCode::kFenced || code == ErrorCode::kConflict ||
         code == ErrorCode::kDisconnected;
}

Task<void> ReplicaDecisionsRun::take_and_append(uint64_t turns, Servers named,
                                                std::optional<size_t> adds) {
  for (; turns > 0; --turns) co_await executor_.yield();
  auto opened = co_await open(std::move(named), {}, false);
  if (opened && adds) {
    const Status added = co_await (*opened)->add(ReplicaServers::uri(*adds), true);
    PMSTORE_CHECK(added || lost_to_another(added.code()),
                  added ? "" : added.error().message.c_str());
  }
  for (int i = 0; opened && i < 6; ++i) {
    const auto appended = co_await append_texts(**opened, 1);
    if (!appended) break;
    PMSTORE_CHECK(told_.insert(appended->index).second, "an index is given once");
  }
  --under_way_;
}

void ReplicaDecisionsRun::take_it_from_each_other(uint64_t turns) {
  log_.reset();
  under_way_ = 2;
  executor_.spawn(take_and_append(0, {0}, {}));
  executor_.spawn(take_and_append(turns, {2}, {}));
  wait();
  change({1}, {});
  make_room();
}

// One who has asked for the members before, and appends behind that, may not be believed by fewer
// than all of them: the first one of before is gone then.
void ReplicaDecisionsRun::open_while_one_is_added(uint64_t turns, size_t stays) {
  const size_t other = 1 - stays;
  change({stays}, {other}, true);
  log_.reset();
  under_way_ = 2;
  executor_.spawn(take_and_append(0, {stays}, other));
  executor_.spawn(take_and_append(turns, {stays}, {}));
  wait();
  // It counts from the moment on when this one has recorded it, be it told or not.
  if (servers_->info(stays)->replicas.size() == 1) {
    change({stays}, {});
    return add(other);
  }
  servers_->kill(stays);
  change({other}, {stays}, true);
  must(servers_->start(stays));
  make_room();
  add(stays);
}

Task<void> ReplicaDecisionsRun::append_some(ReplicatedLog& log, uint64_t count) {
  for (; count > 0; --count) {
    const auto appended = co_await append_texts(log, 1);
    if (!appended) break;
    PMSTORE_CHECK(told_.insert(appended->index).second, "an index is given once");
  }
  --under_way_;
}

// One is lost while an entry is on its way, and comes back when the other one is gone for good.
// Whatever was told or shown to readers meanwhile, it has.
void ReplicaDecisionsRun::lose_one_and_then_the_other(uint64_t turns, size_t first) {
  const size_t second = 1 - first;
  under_way_ = 1;
  executor_.spawn(append_some(*log_, 1));
  for (; turns > 0; --turns) executor_.run_once();
  servers_->kill(first);
  wait();
  pass(kQuietNs);  // the producer has published what it would
  uint64_t seen = shown(second);
  log_.reset();
  pass(kQuietNs);  // the server knows that its producer is gone
  seen = std::max(seen, shown(second));
  servers_->kill(second);
  must(servers_->start(first));
  change({first}, {second}, true);
  PMSTORE_CHECK(log_->next_index() > seen, "what readers saw is there");
  must(servers_->start(second));
  make_room();
  add(second);
}

// The old producer goes on as long as it can, also behind the takeover.
void ReplicaDecisionsRun::steal_from_who_appends(uint64_t turns) {
  const std::unique_ptr<ReplicatedLog> old = std::move(log_);
  under_way_ = 1;
  executor_.spawn(append_some(*old, 6));
  for (; turns > 0; --turns) executor_.run_once();
  change({0, 1}, {});
  wait();
  under_way_ = 1;
  executor_.spawn(append_some(*old, 1));
  wait();
  append();
  all_have_the_same();
}

Task<void> ReplicaDecisionsRun::drop_and_append(Servers named, Servers dropped, bool& done) {
  auto opened = co_await open(std::move(named), std::move(dropped), false);
  if (opened) {
    const auto appended = co_await append_texts(**opened, 1);
    done = appended.has_value();
    PMSTORE_CHECK(!done || told_.insert(appended->index).second, "an index is given once");
  }
  --under_way_;
}

bool ReplicaDecisionsRun::goes_on(const Servers& named, const Servers& dropped) {
  auto opened = executor_.run(open(named, dropped, false));
  if (!opened) {
    PMSTORE_CHECK(opened.code() == ErrorCode::kConflict, opened.error().message.c_str());
    return false;
  }
  log_ = std::move(*opened);
  all_have_the_same();
  append();
  log_.reset();
  return true;
}

// A client that drops the third of three members is interrupted after so many turns. Then a client
// that cannot reach the second member drops it, and a client that cannot reach the first member
// drops that one: at most one of them goes on. False when the first client was not interrupted.
bool ReplicaDecisionsRun::interrupt_one_of_three(uint64_t turns) {
  const auto members = all_members();
  const auto [first, second, third] = members;
  log_.reset();
  under_way_ = 1;
  bool done = false;
  executor_.spawn(drop_and_append({first, second}, {third}, done));
  for (; turns > 0; --turns) executor_.run_once();
  const bool ended = done;
  for (const size_t server : members) servers_->kill(server);
  wait();
  must(servers_->start(first));
  must(servers_->start(third));
  const bool one = goes_on({first, third}, {second});
  PMSTORE_CHECK(one || !ended, "what was agreed upon may be changed");
  servers_->kill(first);
  must(servers_->start(second));
  const bool other = goes_on({second, third}, {first});
  PMSTORE_CHECK(!one || !other, "there is one log");
  must(servers_->start(first));
  change({first, second, third}, {});
  for (const size_t server : members) {
    if (!is_member(server)) add(server);
  }
  append();
  return !ended;
}

// Readers see the same entries as before when the server is back, although no producer has taken
// the log over.
void ReplicaDecisionsRun::end_and_come_back(size_t server) {
  append();
  must(executor_.run(log_->publish()));
  const uint64_t seen = shown(server);
  PMSTORE_CHECK(seen == *told_.rbegin(), "it is shown");
  log_.reset();
  pass(kQuietNs);
  servers_->kill(server);
  must(servers_->start(server));
  PMSTORE_CHECK(shown(server) >= seen, "what readers saw is shown again");
  change({0, 1}, {});
}

}  // namespace

std::unique_ptr<RecordedRun> replica_decisions_run(const std::string& scenario, uint64_t seed) {
  return std::make_unique<ReplicaDecisionsRun>(scenario, seed);
}

}  // namespace pmstore::crash
