#include "tests/crash/replica_run.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "model/crash_recorder.h"
#include "model/page_bytes.h"
#include "tests/crash/crash_machine.h"
#include "tests/crash/replica_content.h"
#include "tests/crash/replica_servers.h"

namespace pmstore::crash {
namespace {

using base::Task;
using log::ReplicatedLog;
using log::ReplicatedLogOptions;
using Members = std::vector<size_t>;

constexpr auto kDomain = persist::Domain::kMemoryController;

// Invariants: entries up to acknowledged_ are on every member, and none is above started_; the
// members are one of members_, the oldest entry of each replica is one of firsts_: the last one of
// both as soon as what is under way is over.
class ReplicaRun final : public RecordedRun {
 public:
  ReplicaRun(const std::string& scenario, uint64_t seed, const ReplicaRunOptions& what);

  uint64_t samples() const override { return 12; }
  uint64_t most_exhaustive() const override { return 64; }
  uint64_t inner_samples() const override { return 4; }
  uint64_t death_every() const override { return 64; }
  Result<std::unique_ptr<Restarted>> restart(std::span<std::byte> memory) const override {
    return RestartedReplicas::open(memory, what_.servers, kDomain);
  }

 private:
  // ---- what a run consists of ----
  void script();
  void draw();
  void draw_one();

  void open() { take_over(members_.back(), {}); }
  void append(uint64_t count);
  // Under way at the same time, one entry each.
  void together(uint64_t count);
  // The same, while another producer takes the log.
  void stolen_amid(uint64_t count, uint64_t after_ns);
  void trim(uint64_t kept);
  void drop(size_t server);
  void add(size_t server);
  // It stops in order and comes back.
  void bounce(size_t server);

  // ---- the pieces of them ----
  base::Executor& executor() { return machine_ ? machine_->executor() : *executor_; }
  model::CrashRecorder& recorder() { return machine_ ? machine_->recorder() : *recorder_; }
  template <typename T>
  T run(Task<T> task) {
    return executor().run(std::move(task));
  }
  void make_log();
  void pass(uint64_t ns);
  // The allowed contents from here on, at the beginning, and from the next mark on.
  void allow_now();
  void promise();
  void start_entries(uint64_t count);
  // All that is under way is over.
  void settled();
  void take_over(const Members& members, const std::vector<std::string>& dropped);
  void make_room_for(uint64_t entries);
  void all_have_the_same() {
    if (machine_) pass(20'000);  // the RNIC holds what it has acknowledged
    const auto content = replica_content(*servers_, *log_);
    PMSTORE_CHECK(content.has_value(), content ? "" : content.error().message.c_str());
  }
  Task<void> append_one(ReplicatedLog& log, bool may_fail);
  static void must(const Status& done) {
    PMSTORE_CHECK(done.has_value(), done ? "" : done.error().to_string().c_str());
  }

  ReplicaRunOptions what_;
  Random random_;
  base::VirtualClock clock_;
  std::optional<base::Executor> executor_;
  std::optional<CrashMachine> machine_;
  model::PageBytes memory_;
  std::optional<ReplicaServers> servers_;
  std::optional<model::CrashRecorder> recorder_;
  std::unique_ptr<ReplicatedLog> log_;
  uint64_t under_way_ = 0;
  uint64_t acknowledged_ = 0;
  uint64_t started_ = 0;
  std::vector<Members> members_;
  std::vector<uint64_t> firsts_ = {1};
};

// The log is made before anything is recorded: that is the run of a log area (log_run.h).
void ReplicaRun::make_log() {
  ReplicaServers::format(memory_.bytes(), what_.servers, kDomain);
  base::Executor executor(clock_);
  ReplicaServers servers(executor, memory_.bytes(), what_.servers, kDomain);
  must(servers.open());
  for (size_t i = 0; i < what_.servers; ++i) must(servers.start(i));
  must(executor.run(ReplicatedLog::create(
      executor, kReplicatedName, {.bytes = kReplicatedBytes, .identity = kReplicatedIdentity},
      servers.uris(), {})));
  for (size_t i = 0; i < what_.servers; ++i) must(servers.host(i).stop());
}

ReplicaRun::ReplicaRun(const std::string& scenario, uint64_t seed, const ReplicaRunOptions& what)
    : RecordedRun(scenario, seed),
      what_(what),
      random_(seed),
      memory_(ReplicaServers::memory_bytes(what.servers)) {
  make_log();
  if (what.rnic) {
    static constexpr double kHoldNs[] = {4000, 0, 700};
    machine_.emplace(CrashMachine::Options{.hold_ns = kHoldNs[seed % 3],
                                           .slow_memory = seed % 2 == 0,
                                           .seed = seed + 1,
                                           .servers = static_cast<uint32_t>(what.servers)});
  } else {
    executor_.emplace(clock_, base::ExecutorOptions{.seed = seed + 1});
  }
  servers_.emplace(executor(), memory_.bytes(), what.servers, kDomain,
                   machine_ ? &*machine_ : nullptr);
  must(servers_->open());
  const auto memories = servers_->memories();
  if (machine_) {
    machine_->record(memories, memory_.bytes());
  } else {
    recorder_.emplace(memories, memory_.bytes());
  }
  members_.emplace_back();
  for (size_t i = 0; i < what.servers; ++i) members_.back().push_back(i);
  allow_now();
  servers_->doubt_who_is_gone();
  for (size_t i = 0; i < what.servers; ++i) must(servers_->start(i));
  seed == 0 ? script() : draw();
  must(run(log_->close()));
  log_.reset();
  trace_ = machine_ ? machine_->take() : recorder_->take();
  servers_.reset();
  recorder_.reset();
  machine_.reset();
  executor_.reset();
}

void ReplicaRun::script() {
  const size_t last = what_.servers - 1;
  open();
  for (const uint64_t count : {1, 1, 3}) append(count);
  together(4);
  trim(6);
  stolen_amid(3, 3000);
  append(2);
  bounce(last);
  append(3);
  drop(last);
  append(3);
  trim(4);
  for (const uint64_t count : {1, 2, 1}) append(count);
  add(last);
  together(3);
  stolen_amid(2, 9000);
  append(4);
  if (what_.servers > 2) drop(0);
  append(2);
}

void ReplicaRun::draw() {
  open();
  for (uint64_t steps = 10 + random_.below(8); steps > 0; --steps) draw_one();
}

void ReplicaRun::draw_one() {
  const Members& now = members_.back();
  const uint64_t what = random_.below(16);
  if (what < 6) return append(1 + random_.below(4));
  if (what < 9) return together(1 + random_.below(4));
  if (what < 11) return stolen_amid(1 + random_.below(4), random_.below(20'000));
  if (what == 11) return trim(random_.below(4));
  if (what == 12) return bounce(now[random_.below(now.size())]);
  if (now.size() < what_.servers) {
    Members others;
    for (size_t i = 0; i < what_.servers; ++i) {
      if (std::find(now.begin(), now.end(), i) == now.end()) others.push_back(i);
    }
    return add(others[random_.below(others.size())]);
  }
  // If there are two members, only the second one may be dropped.
  drop(now.size() > 2 ? now[random_.below(now.size())] : now.back());
}

// ---- what is right ----

void ReplicaRun::allow_now() {
  std::set<uint64_t> digests;
  ReplicaContent content;
  for (content.gone = 0; content.gone <= what_.servers; ++content.gone) {
    for (const Members& members : members_) {
      content.members = members;
      std::erase(content.members, content.gone);
      for (content.last = acknowledged_; content.last <= started_; ++content.last) {
        for (const uint64_t least : firsts_) {
          for (const uint64_t most : firsts_) {
            if (least > most) continue;
            content.least_first = least;
            content.most_first = most;
            digests.insert(content.digest());
            describe(content.digest(), content.text());
          }
        }
      }
    }
  }
  allow({digests.begin(), digests.end()});
}

void ReplicaRun::promise() {
  recorder().mark();
  allow_now();
}

void ReplicaRun::settled() {
  acknowledged_ = started_ = log_->next_index() - 1;
  members_ = {members_.back()};
  firsts_ = {firsts_.back()};
  promise();
}

// ---- steps ----

void ReplicaRun::pass(uint64_t ns) {
  run([](base::Executor& executor, uint64_t for_ns) -> Task<void> {
    co_await executor.sleep_for(for_ns);
  }(executor(), ns));
}

void ReplicaRun::make_room_for(uint64_t entries) {
  constexpr uint64_t kMost = 2500;  // an entry, and its share of a pad
  const auto info = servers_->info(members_.back().front());
  PMSTORE_CHECK(info.has_value(), "a member has the log");
  if (log_->tail_lsn() + entries * kMost > info->start_lsn + kReplicatedBytes) trim(1);
}

void ReplicaRun::start_entries(uint64_t count) {
  started_ = log_->next_index() - 1 + count;
  promise();
}

void ReplicaRun::append(uint64_t count) {
  make_room_for(count);
  start_entries(count);
  const auto appended = run(append_texts(*log_, count));
  PMSTORE_CHECK(appended.has_value(), appended ? "" : appended.error().message.c_str());
  settled();
}

Task<void> ReplicaRun::append_one(ReplicatedLog& log, bool may_fail) {
  const auto appended = co_await append_texts(log, 1);
  PMSTORE_CHECK(appended || may_fail, appended ? "" : appended.error().message.c_str());
  // While others are under way, what is acknowledged is.
  if (appended) acknowledged_ = std::max(acknowledged_, appended->index);
  if (appended) promise();
  --under_way_;
}

void ReplicaRun::together(uint64_t count) {
  make_room_for(count);
  start_entries(count);
  under_way_ = count;
  for (uint64_t i = 0; i < count; ++i) executor().spawn(append_one(*log_, false));
  while (under_way_ > 0) pass(1000);
  settled();
}

void ReplicaRun::stolen_amid(uint64_t count, uint64_t after_ns) {
  make_room_for(count);
  start_entries(count);
  under_way_ = count;
  const std::unique_ptr<ReplicatedLog> old = std::move(log_);
  for (uint64_t i = 0; i < count; ++i) executor().spawn(append_one(*old, true));
  pass(after_ns);
  take_over(members_.back(), {});
  while (under_way_ > 0) pass(1000);
  PMSTORE_CHECK(acknowledged_ == log_->next_index() - 1, "nothing is told behind a takeover");
}

void ReplicaRun::trim(uint64_t kept) {
  const uint64_t index = std::max(log_->next_index() - kept, firsts_.back());
  firsts_.push_back(index);
  promise();
  must(run(log_->trim_below_index(index)));
  settled();
}

void ReplicaRun::take_over(const Members& members, const std::vector<std::string>& dropped) {
  ReplicatedLogOptions options;
  options.client = servers_->client();
  options.producer.takeover = log::Takeover::kSteal;
  options.drop = dropped;
  std::vector<std::string> named;
  for (const size_t member : members) named.push_back(ReplicaServers::uri(member));
  auto opened = run(ReplicatedLog::open(executor(), kReplicatedName, named, options));
  PMSTORE_CHECK(opened.has_value(), opened ? "" : opened.error().message.c_str());
  log_ = std::move(*opened);
  PMSTORE_CHECK(log_->next_index() > acknowledged_, "what was acknowledged is there");
  all_have_the_same();
  settled();
}

void ReplicaRun::drop(size_t server) {
  log_.reset();
  Members left = members_.back();
  std::erase(left, server);
  members_.push_back(left);
  promise();
  take_over(left, {ReplicaServers::uri(server)});
}

void ReplicaRun::add(size_t server) {
  members_.push_back(members_.back());
  members_.back().push_back(server);
  promise();
  must(run(log_->add(ReplicaServers::uri(server), true)));
  all_have_the_same();
  settled();
}

void ReplicaRun::bounce(size_t server) {
  log_.reset();
  must(servers_->host(server).stop());
  servers_->kill(server);
  must(servers_->start(server));
  open();
}

}  // namespace

std::unique_ptr<RecordedRun> replica_run(const std::string& scenario, uint64_t seed,
                                         const ReplicaRunOptions& what) {
  return std::make_unique<ReplicaRun>(scenario, seed, what);
}

}  // namespace pmstore::crash
