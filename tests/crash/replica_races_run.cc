#include "tests/crash/replica_races_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "fabric/uri.h"
#include "log/log_client.h"
#include "log/log_producer.h"
#include "log/replicated_log.h"
#include "tests/crash/replica_servers.h"
#include "tests/crash/uncut_replicas_run.h"
#include "tests/unit/log/log_entries.h"

namespace pmstore::crash {
namespace {

using base::Task;
using log::ReplicatedLog;
using log::ReplicatedLogOptions;
using log::TestEntry;

class ReplicaRacesRun final : public UncutReplicasRun {
 public:
  ReplicaRacesRun(const std::string& scenario, uint64_t seed)
      : UncutReplicasRun(scenario, seed, kServers) {
    for (uint64_t i = 0; take_it_from_each_other(i); ++i) {
      PMSTORE_CHECK(i < kMostTurns, "a takeover comes to an end");
    }
    for (uint64_t i = 0; open_while_one_is_added(i); ++i) {
      PMSTORE_CHECK(i < kMostTurns, "a takeover comes to an end");
    }
    for (uint64_t i = 0; both_add_one(i); ++i) {
      PMSTORE_CHECK(i < kMostTurns, "an add comes to an end");
    }
    add_behind_a_change();
    decide_twice();
    end();
  }

 private:
  static constexpr size_t kServers = 2;
  static constexpr uint64_t kMostTurns = 100'000;

  bool take_it_from_each_other(uint64_t turns);
  bool open_while_one_is_added(uint64_t turns);
  bool both_add_one(uint64_t turns);
  void add_behind_a_change();
  void decide_twice();

  static ReplicatedLogOptions stealing() {
    ReplicatedLogOptions options;
    options.producer.takeover = log::Takeover::kSteal;
    return options;
  }
  void create(const std::vector<std::string>& uris) {
    must(executor_.run(
        ReplicatedLog::create(executor_, kReplicatedName, {.bytes = kReplicatedBytes}, uris, {})));
  }
  void erase() {
    must(executor_.run(
        ReplicatedLog::erase(executor_, kReplicatedName, servers_->uris(), servers_->client())));
  }
  // A producer on an executor of its own; the test gives it its turns.
  struct Producer {
    Producer(base::VirtualClock& clock, std::string called)
        : executor(clock), name(std::move(called)) {}
    base::Executor executor;
    std::string name;
    std::unique_ptr<ReplicatedLog> log;
    bool asked = false;  // to open it, or to append, and is not done
  };
  Task<void> open(Producer& producer);
  Task<void> append(Producer& producer);
  Task<void> add(Producer& producer, size_t server);
  Task<void> close(Producer& producer);
  // One of each: the servers' and this one's. So no time passes.
  void turn(Producer& producer) {
    producer.executor.run_once();
    executor_.run_once();
  }
  void finish(Producer& producer) {
    for (uint64_t turns = 0; producer.asked; ++turns) {
      PMSTORE_CHECK(turns < kMostTurns, "it comes to an end");
      turn(producer);
    }
  }

  // Runs one task alone.
  void whole(Producer& producer, Task<void> task) {
    producer.asked = true;
    producer.executor.spawn(std::move(task));
    finish(producer);
  }

  std::vector<TestEntry> told_;
};

Task<void> ReplicaRacesRun::open(Producer& producer) {
  auto opened = co_await ReplicatedLog::open(producer.executor, kReplicatedName, servers_->uris(),
                                             stealing());
  if (opened) producer.log = std::move(*opened);
  producer.asked = false;
}

Task<void> ReplicaRacesRun::append(Producer& producer) {
  const std::string text = fmt::format("of {}", producer.name);
  const auto bytes = std::as_bytes(std::span(text));
  const auto appended = co_await producer.log->append(bytes);
  if (appended) told_.push_back({appended->index, text});
  producer.asked = false;
}

Task<void> ReplicaRacesRun::add(Producer& producer, size_t server) {
  const Status added = co_await producer.log->add(ReplicaServers::uri(server), true);
  PMSTORE_CHECK(added || added.code() == ErrorCode::kFenced ||
                    added.code() == ErrorCode::kDisconnected ||
                    added.code() == ErrorCode::kAlreadyExists || added.code() == ErrorCode::kBusy,
                added ? "" : added.error().message.c_str());
  producer.asked = false;
}

// Everything acknowledged is then published, except by a fenced producer.
Task<void> ReplicaRacesRun::close(Producer& producer) {
  const Status closed = co_await producer.log->close();
  PMSTORE_CHECK(
      closed || closed.code() == ErrorCode::kFenced || closed.code() == ErrorCode::kDisconnected,
      closed ? "" : closed.error().message.c_str());
  producer.asked = false;
}

// The first producer waits after so many turns until the second one has finished. A producer that
// went on without all leases would leave an entry on some replicas, and the other one could leave
// another entry with the same index on the rest. Gives whether the first producer waited.
bool ReplicaRacesRun::take_it_from_each_other(uint64_t turns) {
  create(servers_->uris());
  told_.clear();
  bool waited = false;
  {
    Producer first(clock_, "the first");
    Producer second(clock_, "the second");
    for (Producer* each : {&first, &second}) each->asked = true;
    first.executor.spawn(open(first));
    for (; turns > 0 && first.asked; --turns) turn(first);
    waited = first.asked;
    second.executor.spawn(open(second));
    finish(second);
    finish(first);
    PMSTORE_CHECK(first.log != nullptr || second.log != nullptr, "one of them gets it");
    for (Producer* each : {&first, &second}) {
      if (each->log == nullptr) continue;
      whole(*each, append(*each));
    }
    for (Producer* each : {&first, &second}) each->log.reset();
  }
  auto opened =
      executor_.run(ReplicatedLog::open(executor_, kReplicatedName, servers_->uris(), stealing()));
  PMSTORE_CHECK(opened.has_value(), opened ? "" : opened.error().message.c_str());
  must(executor_.run((*opened)->close()));
  std::vector<std::vector<TestEntry>> found;
  for (size_t i = 0; i < kServers; ++i) {
    auto entries = log::read_entries(servers_->host(i).store(), kReplicatedName);
    PMSTORE_CHECK(entries.has_value(), entries ? "" : entries.error().message.c_str());
    found.push_back(std::move(*entries));
  }
  PMSTORE_CHECK(found[0] == found[1], "all replicas have the same entries");
  for (const TestEntry& each : told_) {
    PMSTORE_CHECK(each.index <= found[0].size() && found[0][each.index - 1] == each,
                  "what was told is there");
  }
  opened->reset();
  erase();
  return waited;
}

// The first one waits after so many turns of opening a log of one member, until the second one has
// added another: to append to the one alone would be told what the other one does not have. Gives
// whether the first one waited.
bool ReplicaRacesRun::open_while_one_is_added(uint64_t turns) {
  create({ReplicaServers::uri(0)});
  told_.clear();
  bool waited = false;
  {
    Producer first(clock_, "who opens");
    Producer second(clock_, "who adds");
    whole(second, open(second));
    PMSTORE_CHECK(second.log != nullptr, "nobody has the lease");
    first.asked = true;
    first.executor.spawn(open(first));
    for (; turns > 0 && first.asked; --turns) turn(first);
    waited = first.asked;
    whole(second, add(second, 1));
    finish(first);
    for (Producer* each : {&first, &second}) {
      if (each->log == nullptr) continue;
      whole(*each, append(*each));
      whole(*each, close(*each));
    }
    const size_t members = servers_->info(0)->replicas.size();
    for (size_t i = 0; i < members; ++i) {
      const auto entries = log::read_entries(servers_->host(i).store(), kReplicatedName);
      PMSTORE_CHECK(entries.has_value(), entries ? "" : entries.error().message.c_str());
      for (const TestEntry& each : told_) {
        PMSTORE_CHECK(std::find(entries->begin(), entries->end(), each) != entries->end(),
                      "every member has what was told");
      }
    }
    for (Producer* each : {&first, &second}) each->log.reset();
  }
  erase();
  return waited;
}

// Both producers have the log of one member, one after the other, and add the same server. The
// first one has had so many turns when the second one takes the log, adds the server, appends, and
// ends. The first one must not change that afterwards. Gives whether the first one waited.
bool ReplicaRacesRun::both_add_one(uint64_t turns) {
  create({ReplicaServers::uri(0)});
  told_.clear();
  bool waited = false;
  {
    Producer first(clock_, "who adds first");
    Producer second(clock_, "who adds then");
    whole(first, open(first));
    PMSTORE_CHECK(first.log != nullptr, "nobody has the lease");
    first.asked = true;
    first.executor.spawn(add(first, 1));
    for (; turns > 0 && first.asked; --turns) turn(first);
    waited = first.asked;
    if (waited) {
      whole(second, open(second));
      if (second.log != nullptr && second.log->replicas().size() == 1) {
        whole(second, add(second, 1));
      }
      if (second.log != nullptr) {
        whole(second, append(second));
        whole(second, close(second));
      }
      second.log.reset();
      for (int i = 0; i < 100; ++i) turn(second);  // the servers know that it is gone
    }
    finish(first);
    first.log.reset();
    for (int i = 0; i < 100; ++i) turn(first);
  }
  for (size_t i = 0; i < servers_->info(0)->replicas.size(); ++i) {
    const auto entries = log::read_entries(servers_->host(i).store(), kReplicatedName);
    PMSTORE_CHECK(entries.has_value(), entries ? "" : entries.error().message.c_str());
    for (const TestEntry& each : told_) {
      PMSTORE_CHECK(std::find(entries->begin(), entries->end(), each) != entries->end(),
                    "every member has what was told");
    }
  }
  for (size_t i = 0; i < kServers; ++i) {
    log::LogStore& store = servers_->host(i).store();
    const auto left = servers_->info(i);
    if (left) must(store.erase(left->id));
  }
  return waited;
}

// A fenced producer does not replace a member that another one has added, even if no member knows
// yet that this last change was agreed.
void ReplicaRacesRun::add_behind_a_change() {
  create({ReplicaServers::uri(0)});
  told_.clear();
  {
    Producer first(clock_, "who was fenced");
    Producer second(clock_, "who has fenced it");
    const auto wait_for = [&](Producer& producer, Task<void> task) {
      producer.asked = true;
      producer.executor.spawn(std::move(task));
      finish(producer);
    };
    wait_for(first, open(first));
    wait_for(second, open(second));
    wait_for(second, add(second, 1));
    wait_for(second, append(second));
    wait_for(second, close(second));
    second.log.reset();
    for (int i = 0; i < 100; ++i) turn(second);  // the servers know that it is gone
    PMSTORE_CHECK(told_.size() == 1, "it was added, and has it");
    for (size_t i = 0; i < kServers; ++i) {
      const log::ReplicaPlace place{servers_->uris(), i, 3};
      must(servers_->host(i).store().set_membership(servers_->info(i)->id, 2, place));
    }
    wait_for(first, add(first, 1));
    first.log.reset();
    for (int i = 0; i < 100; ++i) turn(first);
  }
  const auto entries = log::read_entries(servers_->host(1).store(), kReplicatedName);
  PMSTORE_CHECK(entries && *entries == told_, "nothing was erased there");
  erase();
}

// A member records only one of two decisions that follow from the same membership.
void ReplicaRacesRun::decide_twice() {
  create(servers_->uris());
  const auto info = servers_->info(0);
  PMSTORE_CHECK(info.has_value(), "it was made");
  auto client = executor_.run(log::LogClient::connect(
      executor_, *fabric::parse_uri(ReplicaServers::uri(0)), servers_->client()));
  PMSTORE_CHECK(client.has_value(), "the server runs");
  log::LogProducerOptions producing;
  producing.replica = true;
  producing.membership = info->membership;
  auto producer = executor_.run(log::LogProducer::open(**client, info->id, producing));
  PMSTORE_CHECK(producer.has_value(), "nobody has the lease");
  log::ReplicaPlace place{{ReplicaServers::uri(0)}, 0, info->membership + 1};
  must(executor_.run((*producer)->set_membership(info->membership, place)));
  place = {servers_->uris(), 0, info->membership + 2};
  const Status again = executor_.run((*producer)->set_membership(info->membership, place));
  PMSTORE_CHECK(!again && again.code() == ErrorCode::kConflict, "it follows from one left behind");
  PMSTORE_CHECK(servers_->info(0)->replicas.size() == 1, "the first decision stands");
}

}  // namespace

std::unique_ptr<RecordedRun> replica_races_run(const std::string& scenario, uint64_t seed) {
  return std::make_unique<ReplicaRacesRun>(scenario, seed);
}

}  // namespace pmstore::crash
