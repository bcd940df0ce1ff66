#include "tests/crash/log_server_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "fabric/local/fault_injection.h"
#include "fabric/rpc_layout.h"
#include "log/log_client.h"
#include "log/log_host.h"
#include "log/log_reader.h"
#include "model/page_bytes.h"
#include "tests/crash/crash_machine.h"
#include "tests/crash/log_content.h"

namespace pmstore::crash {
namespace {

using base::Task;
using log::Appended;
using log::AppendReply;
using log::Content;
using log::LogContent;
using log::TestEntry;

class LogServerRun final : public RecordedRun {
 public:
  LogServerRun(const std::string& scenario, uint64_t seed, const LogServer& what);
  Result<std::unique_ptr<Restarted>> restart(std::span<std::byte> memory) const override {
    return RestartedLogs::open(memory, what_.domain);
  }
  uint64_t samples() const override { return 32; }
  uint64_t most_exhaustive() const override { return 256; }
  uint64_t death_every() const override { return 16; }

 private:
  static constexpr uint32_t kClients = 2;
  // Of one client; several entries are a batch.
  struct Append {
    uint32_t client = 0;
    std::string log;
    std::vector<size_t> sizes;
    uint64_t after_ns = 0;  // begins so much later
    std::vector<std::string> texts = {};
    std::optional<Result<Appended>> over = std::nullopt;
  };
  using Appends = std::vector<Append>;

  void live();
  void script();
  void all_moments();

  // ---- what happens ----

  void create(const std::string& name);
  void trim(uint32_t client, const std::string& name, size_t kept);
  // At the same time, all acknowledged on return.
  void append(Appends appends);
  // All to one log. The client vanishes before or behind its `request`-th work request from here.
  // False: it had not that many.
  bool vanish_amid(Appends appends, uint64_t request, fabric::Fault fault);
  // All to one log. The server's process dies at a moment, counted from 0, and another one starts.
  void die_amid(Appends appends, uint64_t moment);
  // Both clients read what there must be.
  void read_all();

  // ---- the pieces of them ----

  base::Executor& executor() { return machine_ ? machine_->executor() : *executor_; }
  model::CrashRecorder& recorder() { return machine_ ? machine_->recorder() : *recorder_; }
  void pass(uint64_t ns);
  void start();
  void connect(uint32_t client);
  Task<void> run(Append& append);
  void begin(Appends& appends);
  void wait_for(const Appends& appends);
  // What the server has said and what is in its logs, `found`, agree. From here on that is right,
  // and what was right at each answer is known as well.
  void settle(const Appends& appends, Content found);
  void check_entries(const Appends& appends, const std::string& name,
                     const LogContent& found) const;
  const std::string& log_of(const AppendReply& answer, const Appends& appends) const;
  void hear(std::span<const std::byte> message);
  void allow_one(const Content& content);
  void allow_prefixes(const Content& whole, const std::map<std::string, uint64_t>& acknowledged);
  Content found() const;
  size_t bytes(size_t of_seed_0) const { return of_seed_0 - shift_; }
  template <typename T>
  T must(Result<T> result) {
    PMSTORE_CHECK(result.has_value(), result ? "" : result.error().message.c_str());
    return std::move(*result);
  }

  // Hears what the server posts where no machine is modelled, and lets requests fail.
  class Ear;

  LogServer what_;
  Random random_;
  size_t shift_ = 0;  // of sizes and moments
  model::PageBytes region_{log::kPoolBytes};
  std::unique_ptr<persist::Pool> pool_;
  base::VirtualClock clock_;
  std::optional<base::Executor> executor_;  // or:
  std::optional<CrashMachine> machine_;
  std::optional<model::CrashRecorder> recorder_;
  std::unique_ptr<log::LogHost> host_;
  std::array<std::unique_ptr<log::LogClient>, kClients> clients_;
  Content now_{true, {}};
  uint64_t texts_ = 0;
  bool appending_ = false;
  std::optional<fabric::FailNthRequest> failing_;
  std::vector<AppendReply> answers_;  // since begin(), each with a mark
  uint64_t calls_ = 0;                // that were answered
  uint64_t groups_ = 0;               // drains for them, of servers before
};

class LogServerRun::Ear final : public fabric::FaultInjector {
 public:
  explicit Ear(LogServerRun& run) : run_(run) {}
  fabric::FaultDecision on_request(const fabric::FaultPoint& point) override {
    const bool message = !point.connector && point.request.op == fabric::OpCode::kWriteImmediate;
    if (message && !run_.machine_) run_.hear({point.request.local, point.request.bytes});
    return run_.failing_ ? run_.failing_->on_request(point) : fabric::FaultDecision{};
  }

 private:
  LogServerRun& run_;
};

// The area is made before anything is recorded: that is the run of a log area (log_run.h).
LogServerRun::LogServerRun(const std::string& scenario, uint64_t seed, const LogServer& what)
    : RecordedRun(scenario, seed), what_(what), random_(seed) {
  if (seed != 0) shift_ = random_.below(8);
  pool_ = must(persist::Pool::in_region(region_.bytes(), what.domain, true));
  PMSTORE_CHECK(log::LogStore::format(*pool_, log::kAreaBytes, 77).has_value(), "it has room");
  static constexpr double kHoldNs[] = {4000, 0, 700};
  if (what.modelled) {
    machine_.emplace(CrashMachine::Options{
        .hold_ns = kHoldNs[seed % 3], .slow_memory = seed % 2 == 0, .seed = seed + 1});
    machine_->record(pool_->memory());
    recorder().tell_posts([this](std::span<const std::byte> message) { hear(message); });
  } else {
    executor_.emplace(clock_, base::ExecutorOptions{.seed = seed + 1});
    recorder_.emplace(pool_->memory());
  }
  Ear ear(*this);
  {
    const fabric::ScopedFaultInjector hears(ear);
    live();
  }
  trace_ = machine_ ? machine_->take() : recorder_->take();
  clients_ = {};
  host_.reset();
  recorder_.reset();
  pool_.reset();
  executor_.reset();
  machine_.reset();
}

void LogServerRun::live() {
  allow_one(now_);
  start();
  script();
  read_all();
  groups_ += host_->service().counters().group_commits;
  PMSTORE_CHECK(machine_ || groups_ < calls_, "some appends have shared a drain");
}

void LogServerRun::pass(uint64_t ns) {
  executor().run([](base::Executor& executor, uint64_t for_ns) -> Task<void> {
    co_await executor.sleep_for(for_ns);
  }(executor(), ns));
}

// ---- the oracle ----

void LogServerRun::allow_one(const Content& content) {
  describe(content.digest(), content.text());
  allow({content.digest()});
}

// In each log the entries up to the acknowledged one, and any number behind it.
void LogServerRun::allow_prefixes(const Content& whole,
                                  const std::map<std::string, uint64_t>& acknowledged) {
  std::vector<Content> contents = {whole};
  for (const auto& [name, log] : whole.logs) {
    const auto at = acknowledged.find(name);
    uint64_t least = now_.logs.at(name).next_index;
    if (at != acknowledged.end()) least = std::max(least, at->second + 1);
    const size_t before = contents.size();
    for (uint64_t next = least; next < log.next_index; ++next) {
      for (size_t i = 0; i < before; ++i) {
        Content& content = contents.emplace_back(contents[i]);
        LogContent& part = content.logs.at(name);
        part.entries.resize(part.entries.size() - (part.next_index - next));
        part.next_index = next;
      }
    }
  }
  std::vector<uint64_t> digests;
  for (const Content& content : contents) {
    digests.push_back(content.digest());
    describe(digests.back(), content.text());
  }
  allow(std::move(digests));
}

// Every answer to an append gets a mark: the power may be cut right behind it.
void LogServerRun::hear(std::span<const std::byte> message) {
  fabric::RpcReplyHeader header;
  AppendReply answer;
  if (!appending_ || message.size() != sizeof header + sizeof answer) return;
  std::memcpy(&header, message.data(), sizeof header);
  std::memcpy(&answer, message.data() + sizeof header, sizeof answer);
  PMSTORE_CHECK(header.magic == fabric::kRpcReplyMagic && header.status == 0,
                "no other message has this size");
  recorder().mark();
  answers_.push_back(answer);
  ++calls_;
}

const std::string& LogServerRun::log_of(const AppendReply& answer, const Appends& appends) const {
  const std::string* log = nullptr;
  for (const Append& append : appends) {
    const bool known = append.over && append.over->has_value();
    if (known &&
        ((**append.over).index != answer.last.index || (**append.over).lsn != answer.last.lsn)) {
      continue;
    }
    PMSTORE_CHECK(log == nullptr || *log == append.log, "the script's answers tell the logs apart");
    log = &append.log;
  }
  PMSTORE_CHECK(log != nullptr, "each answer is to an append");
  return *log;
}

void LogServerRun::check_entries(const Appends& appends, const std::string& name,
                                 const LogContent& found) const {
  const LogContent& before = now_.logs.at(name);
  PMSTORE_CHECK(found.entries.size() >= before.entries.size() &&
                    std::equal(before.entries.begin(), before.entries.end(), found.entries.begin()),
                "what was there is still there");
  PMSTORE_CHECK(
      found.next_index - before.next_index == found.entries.size() - before.entries.size(),
      "indexes have no gaps");
  std::map<std::string, uint64_t> places;  // by text
  for (size_t i = before.entries.size(); i < found.entries.size(); ++i) {
    const TestEntry& entry = found.entries[i];
    PMSTORE_CHECK(entry.index == before.next_index + (i - before.entries.size()), "in their order");
    PMSTORE_CHECK(places.emplace(entry.payload, entry.index).second, "no entry is there twice");
  }
  for (const Append& append : appends) {
    if (append.log != name) continue;
    uint64_t there = 0;
    for (const std::string& text : append.texts) {
      const auto place = places.find(text);
      if (place == places.end()) break;
      PMSTORE_CHECK(there == 0 || place->second == places.at(append.texts[there - 1]) + 1,
                    "a batch is together");
      ++there;
    }
    if (!append.over->has_value()) continue;
    PMSTORE_CHECK(
        there == append.texts.size() && places.at(append.texts.back()) == (**append.over).index,
        "what was acknowledged is there, where it was said to be");
  }
}

void LogServerRun::settle(const Appends& appends, Content found) {
  appending_ = false;
  for (const auto& [name, log] : found.logs) check_entries(appends, name, log);
  std::map<std::string, uint64_t> acknowledged;
  allow_prefixes(found, acknowledged);
  for (const AppendReply& answer : answers_) {
    uint64_t& index = acknowledged[log_of(answer, appends)];
    index = std::max(index, answer.last.index);
    allow_prefixes(found, acknowledged);
  }
  answers_.clear();
  now_ = std::move(found);
  recorder().mark();
  allow_one(now_);
}

Content LogServerRun::found() const {
  auto content = log::content_of(host_->store());
  PMSTORE_CHECK(content.has_value(), content ? "" : content.error().message.c_str());
  return std::move(*content);
}

// ---- servers and clients that come and go ----

void LogServerRun::start() {
  log::LogHostOptions options;
  if (machine_) {
    options.host.device_landing = machine_->server().landing();
    options.host.devices = &machine_->server();
  }
  host_ = must(log::LogHost::start(executor(), *pool_, options));
  must(executor().run(host_->listen({fabric::Scheme::kLocal, "crash-logs", 0})));
  for (uint32_t i = 0; i < kClients; ++i) connect(i);
}

void LogServerRun::connect(uint32_t client) {
  log::LogClientOptions options;
  options.secret = ClientSecret::of_number(1 + client);
  if (machine_) options.devices = &machine_->client(client);
  const fabric::Uri uri{fabric::Scheme::kLocal, "crash-logs", 0};
  clients_[client] = must(executor().run(log::LogClient::connect(executor(), uri, options)));
}

void LogServerRun::create(const std::string& name) {
  recorder().mark();
  const uint64_t identity = log::identity_behind(now_.logs.size());
  const auto made = must(executor().run(
      clients_[0]->create(name, {log::kScriptLogBytes, log::FullPolicy::kBackPressure, identity})));
  Content after = now_;
  after.logs[name] = {made.id, false, 1, {}, identity};
  describe(after.digest(), after.text());
  allow({now_.digest(), after.digest()});
  now_ = std::move(after);
  recorder().mark();
  allow_one(now_);
}

void LogServerRun::trim(uint32_t client, const std::string& name, size_t kept) {
  recorder().mark();
  Content after = now_;
  LogContent& log = after.logs.at(name);
  kept = std::min(kept, log.entries.size());
  log.trim(kept);
  must(executor().run(clients_[client]->trim_below_index(log.id, log.next_index - kept)));
  describe(after.digest(), after.text());
  allow({now_.digest(), after.digest()});
  now_ = std::move(after);
  recorder().mark();
  allow_one(now_);
}

// ---- appends ----

Task<void> LogServerRun::run(Append& append) {
  if (append.after_ns > 0) co_await executor().sleep_for(append.after_ns);
  std::vector<std::span<const std::byte>> payloads;
  for (const std::string& text : append.texts) payloads.push_back(std::as_bytes(std::span(text)));
  const uint64_t id = now_.logs.at(append.log).id;
  log::LogClient& client = *clients_[append.client];
  if (payloads.size() == 1) {
    append.over = co_await client.append(id, payloads[0]);
  } else {
    append.over = co_await client.append_batch(id, payloads);
  }
}

void LogServerRun::begin(Appends& appends) {
  recorder().mark();
  appending_ = true;
  for (Append& append : appends) {
    for (const size_t bytes : append.sizes) {
      std::string text = fmt::format("{}.", ++texts_);
      text.resize(std::max(bytes, text.size()), append.log[0]);
      append.texts.push_back(std::move(text));
    }
    executor().spawn(run(append));
  }
}

void LogServerRun::wait_for(const Appends& appends) {
  executor().run([](base::Executor& executor, const Appends& all) -> Task<void> {
    for (const Append& append : all) {
      uint64_t pause_ns = 500;
      for (; !append.over; pause_ns *= 2) co_await executor.sleep_for(pause_ns);
    }
  }(executor(), appends));
}

void LogServerRun::append(Appends appends) {
  begin(appends);
  wait_for(appends);
  for (const Append& append : appends) {
    PMSTORE_CHECK(append.over->has_value(),
                  append.over->has_value() ? "" : append.over->error().message.c_str());
  }
  settle(appends, found());
}

bool LogServerRun::vanish_amid(Appends appends, uint64_t request, fabric::Fault fault) {
  constexpr uint64_t kBehindNs = 60'000;
  const uint32_t client = appends.front().client;
  failing_.emplace(request, fabric::FaultSide::kConnector, fabric::FaultDecision{fault, 0});
  begin(appends);
  wait_for(appends);
  pass(kBehindNs);
  const bool fired = failing_->fired();
  failing_.reset();
  for (const Append& append : appends) {
    PMSTORE_CHECK(append.over->has_value() || append.over->code() == ErrorCode::kCommitUnknown ||
                      append.over->code() == ErrorCode::kDisconnected,
                  append.over->has_value() ? "" : append.over->error().message.c_str());
  }
  settle(appends, found());
  clients_[client].reset();
  connect(client);
  return fired;
}

void LogServerRun::die_amid(Appends appends, uint64_t moment) {
  begin(appends);
  if (machine_) pass(moment * 400);
  for (; !machine_ && moment > 0; --moment) executor().run_once();
  groups_ += host_->service().counters().group_commits;
  host_.reset();
  recorder().process_dies();
  wait_for(appends);
  clients_ = {};
  start();
  settle(appends, found());
}

void LogServerRun::read_all() {
  const auto read = [](log::LogClient& client, uint64_t id) -> Task<std::vector<TestEntry>> {
    std::vector<TestEntry> entries;
    auto reader = co_await log::LogReader::open(client, id, {});
    PMSTORE_CHECK(reader.has_value(), "the log is there");
    for (;;) {
      const auto entry = co_await (*reader)->next();
      if (!entry) {
        PMSTORE_CHECK(entry.code() == ErrorCode::kNotFound, entry.error().message.c_str());
        co_return entries;
      }
      const auto* text = reinterpret_cast<const char*>(entry->payload.data());
      entries.push_back({entry->index, std::string(text, entry->payload.size())});
    }
  };
  for (const auto& [name, log] : now_.logs) {
    for (auto& client : clients_) {
      must(executor().run(client->open(name)));
      PMSTORE_CHECK(executor().run(read(*client, log.id)) == log.entries, "as it was acknowledged");
    }
  }
}

// ---- the run ----

void LogServerRun::script() {
  create("a");
  append({{0, "a", {bytes(10)}}, {1, "a", {bytes(300)}}});
  create("b");
  append({{1, "b", {bytes(900), bytes(20)}}});
  // Several of each client, to two logs: groups of one drain.
  append({{0, "a", {bytes(20)}},
          {0, "a", {bytes(2000)}},
          {0, "b", {bytes(60)}},
          {1, "a", {bytes(30), bytes(90)}},
          {1, "b", {bytes(70)}, 200 + shift_ * 50}});
  for (int lap = 0; lap < 3; ++lap) {  // around the ring, and over its end
    append({{0, "a", {bytes(4000)}}, {1, "a", {bytes(3000), bytes(40)}}, {0, "a", {bytes(64)}}});
    trim(lap % 2, "a", 2);
    read_all();
  }
  all_moments();
  trim(1, "b", 1);
  append({{0, "b", {bytes(30)}}, {1, "a", {bytes(700)}}, {1, "a", {bytes(15)}}});
}

void LogServerRun::all_moments() {
  for (const auto fault : {fabric::Fault::kBreakBefore, fabric::Fault::kBreakAfter}) {
    for (uint64_t request = 1;; ++request) {
      const Appends appends = {{0, "b", {bytes(50)}}, {0, "b", {bytes(40), bytes(130)}}};
      if (!vanish_amid(appends, request, fault)) break;
    }
  }
  trim(0, "b", 1);
  for (uint64_t moment = 0; moment < 15; ++moment) {
    die_amid({{0, "a", {bytes(50)}}, {1, "a", {bytes(200), bytes(20)}}, {1, "a", {bytes(60)}}},
             moment);
    trim(0, "a", 3);
  }
}

}  // namespace

std::unique_ptr<RecordedRun> log_server_run(const std::string& scenario, uint64_t seed,
                                            const LogServer& what) {
  return std::make_unique<LogServerRun>(scenario, seed, what);
}

}  // namespace pmstore::crash
