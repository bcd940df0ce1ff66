#include "tests/scenario/log/log_scenario.h"

#include <algorithm>

#include "base/random.h"

namespace pmstore::scenario {
namespace {

struct Finished {
  explicit Finished(base::Executor& executor) : changed(executor) {}
  size_t count = 0;
  base::WaitList changed;
};

base::Task<void> counted(base::Task<void> task, Finished& finished) {
  co_await std::move(task);
  ++finished.count;
  finished.changed.notify_all();
}

base::Task<void> wait_for(Finished& finished, size_t all) {
  while (finished.count < all) co_await finished.changed.wait();
}

base::Task<void> sleep(base::Executor& executor, uint64_t ns) { co_await executor.sleep_for(ns); }

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

base::Task<Result<Read>> read_one(log::LogReader& from) {
  PMSTORE_CO_TRY(const log::LogEntry entry, co_await from.next());
  co_return Read{entry.index, std::string(reinterpret_cast<const char*>(entry.payload.data()),
                                          entry.payload.size())};
}

}  // namespace

std::vector<Durability> durabilities_of_this_provider() {
  using persist::Domain;
  using persist::WriteLanding;
  std::vector<Durability> all = {
      {"eadr", Domain::kCpuCache, WriteLanding::kMemory, true},
      {"adr_ddio", Domain::kMemoryController, WriteLanding::kLastLevelCache, false}};
  if (modelled()) {
    all.push_back({"adr_memory", Domain::kMemoryController, WriteLanding::kMemory, true});
  }
  return all;
}

StallWatch::StallWatch(base::Executor& executor)
    : executor_(executor), last_ns_(executor.now_ns()), task_(watch()) {
  task_.start();
}

uint64_t StallWatch::longest_ns() const {
  return std::max(longest_ns_, executor_.now_ns() - last_ns_);
}

base::Task<void> StallWatch::watch() {
  constexpr uint64_t kLookNs = 5'000'000;
  while (true) {
    co_await executor_.sleep_for(kLookNs);
    longest_ns_ = longest_ns();
    last_ns_ = executor_.now_ns();
  }
}

void LogScenario::SetUp() {
  setup_.domain = GetParam().domain;
  setup_.landing = GetParam().landing;
}

void LogScenario::start_server() {
  auto target = Target::start(executor_, "logs", setup_.to_args());
  ASSERT_TRUE(target) << target.error().to_string();
  target_ = std::move(*target);
  client_ = connect();
  ASSERT_NE(client_, nullptr);
}

void LogScenario::restart_server(uint32_t lease_ms) {
  client_.reset();
  ASSERT_TRUE(target_->stop());
  target_.reset();
  setup_.lease_ms = lease_ms;
  start_server();
}

void LogScenario::TearDown() {
  client_.reset();
  if (target_ != nullptr) {
    EXPECT_TRUE(target_->stop()) << "the target did not end in order";
  }
}

log::LogClientOptions LogScenario::client_options() const {
  log::LogClientOptions options;
  options.devices = TestMachine::test_host();
  options.connect_timeout_ns = kPatientTimeoutNs;
  options.call_timeout_ns = kPatientTimeoutNs;
  return options;
}

std::unique_ptr<log::LogClient> LogScenario::connect() {
  auto client = run(log::LogClient::connect(executor_, target_->uri(), client_options()));
  EXPECT_TRUE(client) << client.error().to_string();
  return client ? std::move(*client) : nullptr;
}

void LogScenario::run_together(std::vector<base::Task<void>> tasks) {
  Finished finished(executor_);
  const size_t all = tasks.size();
  for (auto& task : tasks) executor_.spawn(counted(std::move(task), finished));
  run(wait_for(finished, all));
}

void LogScenario::let_time_pass(uint64_t ns) { run(sleep(executor_, ns)); }

log::LogInfo LogScenario::make(std::string_view name, uint64_t bytes, log::FullPolicy policy) {
  log::LogOptions options;
  options.bytes = bytes;
  options.when_full = policy;
  auto made = run(client_->create(name, options));
  EXPECT_TRUE(made) << made.error().to_string();
  return made ? *made : log::LogInfo{};
}

std::unique_ptr<log::LogProducer> LogScenario::produce(log::LogClient& client, uint64_t log,
                                                       log::LogProducerOptions options) {
  auto producer = run(log::LogProducer::open(client, log, options));
  EXPECT_TRUE(producer) << producer.error().to_string();
  return producer ? std::move(*producer) : nullptr;
}

std::unique_ptr<log::LogReader> LogScenario::reader(log::LogClient& client, uint64_t log,
                                                    log::LogReaderOptions options) {
  auto made = run(log::LogReader::open(client, log, options));
  EXPECT_TRUE(made) << made.error().to_string();
  return made ? std::move(*made) : nullptr;
}

Result<log::Appended> LogScenario::append(log::LogProducer& producer, const std::string& payload) {
  return run(producer.append(bytes_of(payload)));
}

Result<log::Appended> LogScenario::append_batch(log::LogProducer& producer,
                                                const std::vector<std::string>& payloads) {
  std::vector<std::span<const std::byte>> spans;
  for (const std::string& payload : payloads) spans.push_back(bytes_of(payload));
  return run(producer.append_batch(spans));
}

Result<log::Appended> LogScenario::share(log::LogClient& client, uint64_t log,
                                         const std::string& payload) {
  return run(client.append(log, bytes_of(payload)));
}

Result<Read> LogScenario::read(log::LogReader& from) { return run(read_one(from)); }

std::vector<Read> LogScenario::read_all(log::LogClient& client, uint64_t log) {
  std::vector<Read> all;
  auto from = reader(client, log);
  if (from == nullptr) return all;
  while (true) {
    auto entry = read(*from);
    if (!entry) {
      EXPECT_TRUE(entry.code() == ErrorCode::kNotFound || entry.code() == ErrorCode::kSealed)
          << entry.error().to_string();
      return all;
    }
    if (!all.empty()) {
      EXPECT_EQ(entry->index, all.back().index + 1);
    }
    all.push_back(std::move(*entry));
  }
}

std::string LogScenario::text(uint64_t index, size_t bytes) {
  std::string made = std::to_string(index) + " ";
  base::Random random(index);
  while (made.size() < bytes) made.push_back(static_cast<char>('a' + random.below(26)));
  made.resize(std::max<size_t>(bytes, 1));
  return made;
}

bool LogScenario::is_text(uint64_t index, std::string_view payload) {
  return payload == text(index, payload.size());
}

}  // namespace pmstore::scenario
