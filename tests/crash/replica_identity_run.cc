#include "tests/crash/replica_identity_run.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "fabric/uri.h"
#include "log/log_reader.h"
#include "log/replicated_log.h"
#include "tests/crash/replica_servers.h"
#include "tests/crash/uncut_replicas_run.h"
#include "tests/unit/log/log_entries.h"

namespace pmstore::crash {
namespace {

using base::Task;
using log::ReplicatedLog;
using log::ReplicatedLogOptions;
using Opened = Result<std::unique_ptr<ReplicatedLog>>;

constexpr uint64_t kSoonNs = 1'000'000'000;
constexpr uint64_t kLaterNs = 60'000'000'000;
constexpr uint64_t kOfSomebodyElse = 7;

class ReplicaIdentityRun final : public UncutReplicasRun {
 public:
  ReplicaIdentityRun(const std::string& scenario, uint64_t seed)
      : UncutReplicasRun(scenario, seed, kServers) {
    make_again();
    stale_server();
    stale_followers();
    add_the_stale_one();
    replaced_member();
    half_made();
    for (uint64_t i = 0; replaced_amid_open(i); ++i) PMSTORE_CHECK(i < kMostTurns, "it ends");
    for (uint64_t i = 0; made_amid_create(i); ++i) PMSTORE_CHECK(i < kMostTurns, "it ends");
    log_.reset();
    old_reader_.reset();
    old_ = {};
    end();
  }

 private:
  static constexpr size_t kServers = 3;
  static constexpr uint64_t kMostTurns = 2000;

  // ---- what the run consists of ----
  void make_again();
  void stale_server();
  void stale_followers();
  void add_the_stale_one();
  void replaced_member();
  void half_made();
  bool replaced_amid_open(uint64_t turns);
  bool made_amid_create(uint64_t turns);

  // ---- the pieces ----
  template <typename T>
  T run(Task<T> task) {
    return executor_.run(std::move(task));
  }
  template <typename R>
  static void must_conflict(const R& result) {
    PMSTORE_CHECK(!result && result.code() == ErrorCode::kConflict,
                  result ? "it must be refused" : result.error().message.c_str());
  }
  Task<Opened> open(Servers named, Servers dropped = {}) {
    ReplicatedLogOptions options;
    options.producer.takeover = log::Takeover::kSteal;
    options.drop = uris(dropped);
    return ReplicatedLog::open(executor_, kReplicatedName, uris(named), options);
  }
  void take(const Servers& named, const Servers& dropped = {}) {
    log_.reset();
    auto opened = run(open(named, dropped));
    PMSTORE_CHECK(opened.has_value(), opened ? "" : opened.error().message.c_str());
    log_ = std::move(*opened);
  }
  void close() {
    must(run(log_->close()));
    log_.reset();
  }
  void append(uint64_t count) {
    const auto appended = run(append_texts(*log_, count));
    PMSTORE_CHECK(appended.has_value(), appended ? "" : appended.error().message.c_str());
  }
  void create(const Servers& servers) {
    must(run(ReplicatedLog::create(executor_, kReplicatedName, {.bytes = kReplicatedBytes},
                                   uris(servers), {})));
  }
  Status erase(const Servers& named) {
    return run(ReplicatedLog::erase(executor_, kReplicatedName, uris(named), servers_->client()));
  }
  Result<uint64_t> trim(const Servers& named) {
    const log::TrimPlace until{0, 2};
    return run(
        ReplicatedLog::trim(executor_, kReplicatedName, uris(named), until, servers_->client()));
  }
  log::LogInfo info(size_t server) const {
    const auto found = servers_->info(server);
    PMSTORE_CHECK(found.has_value(), found ? "" : found.error().message.c_str());
    return *found;
  }
  bool has(size_t server) const { return servers_->info(server).has_value(); }
  uint64_t entries(size_t server) {
    const auto found = log::read_entries(servers_->host(server).store(), kReplicatedName);
    PMSTORE_CHECK(found.has_value(), found ? "" : found.error().message.c_str());
    return found->size();
  }
  // By somebody else, on this server alone.
  void erase_at(size_t server) { must(servers_->host(server).store().erase(info(server).id)); }
  void make_at(size_t server, const Servers& members, uint64_t membership = 1) {
    log::ReplicaPlace place;
    place.replicas = uris(members);
    const auto self = std::find(members.begin(), members.end(), server);
    place.membership = membership;
    if (self != members.end()) place.self = static_cast<size_t>(self - members.begin());
    const log::LogOptions options{kReplicatedBytes, log::FullPolicy::kBackPressure,
                                  kOfSomebodyElse};
    const auto made = servers_->host(server).store().create(kReplicatedName, options, place);
    PMSTORE_CHECK(made.has_value(), made ? "" : made.error().message.c_str());
  }
  void pass(uint64_t ns) {
    run([](base::Executor& executor, uint64_t for_ns) -> Task<void> {
      co_await executor.sleep_for(for_ns);
    }(executor_, ns));
  }
  Task<void> open_and_append(Servers named) {
    auto opened = co_await open(std::move(named));
    if (opened) co_await append_texts(**opened, 1);
    done_ = true;
  }
  Task<void> create_on(std::vector<std::string> uris) {
    log::LogOptions options;
    options.bytes = kReplicatedBytes;
    const ReplicatedLogOptions how;
    created_ = co_await ReplicatedLog::create(executor_, kReplicatedName, options, uris, how);
    done_ = true;
  }
  // Runs so many turns of the spawned tasks.
  void turns(uint64_t count) {
    for (; count > 0 && !done_; --count) executor_.run_once();
  }
  void finish() {
    for (uint64_t slices = 0; !done_; ++slices) {
      PMSTORE_CHECK(slices < kMostTurns, "it comes to an end");
      pass(kSoonNs);
    }
  }

  std::unique_ptr<ReplicatedLog> log_;
  log::CurrentReplica old_;  // of the log before, on the first server
  std::unique_ptr<log::LogReader> old_reader_;
  Status created_;
  bool done_ = false;
};

// On the third: membership 3 of the old log, with nine entries. The new one has 1, and two.
void ReplicaIdentityRun::make_again() {
  create({0, 1, 2});
  take({0});
  append(3);
  close();
  auto at =
      run(log::open_current_replica(executor_, kReplicatedName, uris({0}), servers_->client()));
  PMSTORE_CHECK(at.has_value(), "all members say the same");
  old_ = std::move(*at);
  log::LogReaderOptions reading;
  reading.current_replica = true;
  auto reader = run(log::LogReader::open(*old_.client, old_.info.id, reading));
  PMSTORE_CHECK(reader.has_value(), "it is there");
  old_reader_ = std::move(*reader);
  take({0}, {2});
  must(run(log_->add(ReplicaServers::uri(2), true)));
  append(6);
  close();
  servers_->kill(2);
  take({0}, {2});
  close();
  must(erase({0, 1}));
  create({0, 1});
  take({0});
  append(2);
  close();
  must(servers_->start(2));
  PMSTORE_CHECK(info(2).membership > info(0).membership, "the old one has the higher number");
  PMSTORE_CHECK(info(0).identity != 0 && info(0).identity != info(2).identity, "they are two logs");
}

void ReplicaIdentityRun::stale_server() {
  for (const Servers& named : {Servers{0, 1, 2}, Servers{2, 1}}) {
    take(named);
    PMSTORE_CHECK(log_->replicas() == uris({0, 1}), "it is no member of the new one");
    append(1);
    close();
  }
  PMSTORE_CHECK(entries(0) == 4 && entries(1) == 4, "those of the new log, and no others");
  PMSTORE_CHECK(entries(2) == 9 && info(2).membership == 3, "nothing was written there");
  must_conflict(run(open({2})));
  must_conflict(trim({2}));
  const Status erased = erase({2});
  PMSTORE_CHECK(!erased && erased.code() == ErrorCode::kConflict, "it is not known which is meant");
  PMSTORE_CHECK(entries(0) == 4 && entries(2) == 9, "nothing is lost");
}

void ReplicaIdentityRun::stale_followers() {
  take({0}, {1});
  PMSTORE_CHECK(log_->membership() > old_.info.membership, "a member was dropped");
  must(run(log_->add(ReplicaServers::uri(1), true)));
  close();
  const auto none = run(old_reader_->follow(kSoonNs));
  PMSTORE_CHECK(!none && none.code() == ErrorCode::kInvalidArgument, "its log was deleted");
  const Status moved = run(log::move_to_current_replica({}, servers_->client(), old_, old_reader_));
  PMSTORE_CHECK(!moved && moved.code() == ErrorCode::kInvalidArgument,
                "it does not go on in the new one");
  const auto uri = fabric::parse_uri(ReplicaServers::uri(2));
  const auto client = run(log::LogClient::connect(executor_, *uri, servers_->client()));
  PMSTORE_CHECK(client.has_value(), "the server runs");
  const auto known = run((*client)->open(kReplicatedName));
  PMSTORE_CHECK(known.has_value(), "it has the old log");
  log::LogReaderOptions reading;
  reading.current_replica = true;
  const auto reader = run(log::LogReader::open(**client, known->id, reading));
  PMSTORE_CHECK(reader.has_value(), "and nine entries of it");
  for (int i = 0; i < 9; ++i) PMSTORE_CHECK(run((*reader)->next()).has_value(), "one of them");
  const auto told = run((*reader)->follow(kLaterNs));
  PMSTORE_CHECK(!told && told.code() == ErrorCode::kInvalidArgument, "the others have another log");
}

void ReplicaIdentityRun::add_the_stale_one() {
  take({0});
  const Status refused = run(log_->add(ReplicaServers::uri(2), true));
  PMSTORE_CHECK(!refused && refused.code() == ErrorCode::kConflict, "it is not this log's");
  PMSTORE_CHECK(entries(2) == 9, "so it is not deleted");
  erase_at(2);
  must(run(log_->add(ReplicaServers::uri(2), true)));
  append(1);
  close();
  take({2});
  PMSTORE_CHECK(log_->replicas() == uris({0, 1, 2}), "it is a member");
  append(1);
  close();
  for (size_t i = 0; i < kServers; ++i) PMSTORE_CHECK(entries(i) == 6, "all have the same");
}

// The same members and the same number, but another client made the log.
void ReplicaIdentityRun::replaced_member() {
  must(erase({0}));
  create({0, 1, 2});
  take({0});
  append(3);
  close();
  erase_at(2);
  make_at(2, {0, 1, 2});
  must_conflict(run(open({0})));
  must_conflict(trim({1}));
  PMSTORE_CHECK(entries(0) == 3 && entries(2) == 0, "nothing was changed");
  must(erase({0}));
  PMSTORE_CHECK(!has(0) && !has(1) && has(2), "what is not of this log stays");
  erase_at(2);
  // It names itself otherwise.
  create({0, 1});
  make_at(2, {0, 1});
  const auto current =
      run(log::open_current_replica(executor_, kReplicatedName, uris({2, 0}), servers_->client()));
  PMSTORE_CHECK(current && current->info.identity == info(0).identity, "it is not of this log");
  erase_at(2);
  make_at(2, {0, 1, 2}, 3);
  must(erase({2, 0}));
  PMSTORE_CHECK(!has(0) && !has(1) && has(2), "the number of another log does not count");
  erase_at(2);
  // Both could go on: the first alone, and the other two without it.
  create({0, 1, 2});
  erase_at(0);
  make_at(0, {0});
  for (const Servers& named : {Servers{0, 1, 2}, Servers{1, 2, 0}, Servers{1}}) {
    must_conflict(run(open(named)));
  }
  take({0});
  close();
  take({1}, {0});
  close();
  for (size_t i = 0; i < kServers; ++i) erase_at(i);
}

void ReplicaIdentityRun::half_made() {
  make_at(0, {0, 1, 2});
  create({0, 1, 2});
  for (size_t i = 0; i < kServers; ++i) {
    PMSTORE_CHECK(info(i).identity == kOfSomebodyElse, "it is finished");
  }
  must(erase({0}));
}

// The third member's replica is replaced by another one after so many turns of a client that opens
// the log, unless the client has the log by then. Gives whether it was replaced.
bool ReplicaIdentityRun::replaced_amid_open(uint64_t count) {
  create({0, 1, 2});
  take({0});
  append(3);
  close();
  done_ = false;
  executor_.spawn(open_and_append({0, 1, 2}));
  turns(count);
  const bool replaced = !done_ && !info(2).exclusive;
  if (replaced) {
    erase_at(2);
    make_at(2, {0, 1, 2});
  }
  finish();
  pass(kSoonNs);
  PMSTORE_CHECK(replaced ? info(2).next_index == 1 : info(2).next_index >= 4,
                "it is not filled with what another has");
  for (size_t i = 0; i < kServers; ++i) erase_at(i);
  return replaced;
}

// Somebody else makes a log on the second one after so many turns of a create. Gives whether he
// could.
bool ReplicaIdentityRun::made_amid_create(uint64_t count) {
  done_ = false;
  created_ = Status{};
  executor_.spawn(create_on(uris({0, 1})));
  turns(count);
  const bool made = !has(1);
  if (made) make_at(1, {0, 1});
  finish();
  PMSTORE_CHECK(!created_ || info(0).identity == info(1).identity, "what was made is one log");
  for (size_t i = 0; i < 2; ++i) {
    if (has(i)) erase_at(i);
  }
  return made;
}

}  // namespace

std::unique_ptr<RecordedRun> replica_identity_run(const std::string& scenario, uint64_t seed) {
  return std::make_unique<ReplicaIdentityRun>(scenario, seed);
}

}  // namespace pmstore::crash
