#include "tests/scenario/store/store_scenario.h"

namespace pmstore::scenario {

std::vector<Locks> cpu_locks() {
  return {{"cpu", LockDiscipline::kCpu, persist::Domain::kCpuCache}};
}

std::vector<Locks> locks_of_this_provider() {
  using persist::Domain;
  std::vector<Locks> all = cpu_locks();
  const bool ordered_atomics =
      scheme() == fabric::Scheme::kLocal || scheme() == fabric::Scheme::kVerbs;
  if (ordered_atomics) {
    all.push_back({"rnic", LockDiscipline::kRnic, Domain::kCpuCache});
    all.push_back({"rnic_two_sided", LockDiscipline::kRnic, Domain::kMemoryController});
  }
  return all;
}

namespace {
uint64_t default_call_timeout_ns() { return ClientOptions{}.call_timeout_ns; }
}  // namespace

void StoreScenario::SetUp() {
  setup_.discipline = GetParam().discipline;
  setup_.domain = GetParam().domain;
  start_server();
  client_ = connect();
  ASSERT_NE(client_, nullptr);
  table_ = table(*client_);
}

void StoreScenario::TearDown() {
  if (client_ != nullptr) run(client_->close());
  client_.reset();
  if (target_ != nullptr) {
    EXPECT_TRUE(target_->stop()) << "the server did not end in order";
  }
}

void StoreScenario::start_server() {
  auto target = Target::start(executor_, "store", setup_.to_args());
  ASSERT_TRUE(target) << target.error().to_string();
  target_ = std::move(*target);
}

std::unique_ptr<Client> StoreScenario::connect(ClientOptions options) {
  options.connect_timeout_ns = kPatientTimeoutNs;
  // On a busy host, both ends may stand still for seconds.
  if (options.call_timeout_ns == default_call_timeout_ns()) {
    options.call_timeout_ns = kPatientTimeoutNs;
  }
  options.devices = TestMachine::test_host();
  // Both paths under both disciplines; what takes effect late is one-sided.
  if (same_thread() && !virtual_time()) options.misses = MissPath::kRpc;
  auto connected = run(Client::connect(executor_, target_->uri(), options));
  if (connected) return std::move(*connected);
  ADD_FAILURE() << connected.error().to_string();
  return nullptr;
}

namespace {

Task<void> count_down(Task<void> task, size_t& left) {
  co_await std::move(task);
  --left;
}

Task<void> wait_for_none(Executor& executor, const size_t& left) {
  while (left > 0) co_await executor.sleep_for(1000);
}

}  // namespace

void StoreScenario::run_together(std::vector<Task<void>> tasks) {
  size_t left = tasks.size();
  for (Task<void>& task : tasks) executor_.spawn(count_down(std::move(task), left));
  run(wait_for_none(executor_, left));
}

void StoreScenario::run_until_killed(std::vector<Task<void>> tasks, const uint64_t& count,
                                     uint64_t moment, bool* dead) {
  size_t left = tasks.size();
  for (Task<void>& task : tasks) executor_.spawn(count_down(std::move(task), left));
  const auto wait_for_the_moment = [&]() -> Task<void> {
    while (count < moment && left > 0) co_await executor_.sleep_for(1000);
  };
  run(wait_for_the_moment());
  if (dead != nullptr) *dead = true;
  target_->kill();
  run(wait_for_none(executor_, left));
}

}  // namespace pmstore::scenario
