#include "tests/scenario/persist/persist_scenario.h"

#include <cstdlib>
#include <cstring>

#include "base/checksum.h"

namespace pmstore::scenario {
namespace {

Task<Status> run_write(RemoteWriter& writer, std::span<const RemotePiece> pieces) {
  Result<persist::Persisted> durable = co_await writer.write(pieces);
  if (!durable) co_return std::move(durable.error());
  co_return Status{};
}

Task<void> wait_for_end(base::Executor& executor, const int& running, uint64_t most_ns) {
  const uint64_t deadline = executor.now_ns() + most_ns;
  while (running > 0 && executor.now_ns() < deadline) co_await executor.sleep_for(10'000);
}

Task<Result<std::vector<std::byte>>> run_call(fabric::RpcClient& client, uint16_t method,
                                              std::span<const std::byte> request,
                                              uint32_t reply_capacity) {
  Result<fabric::RpcReply> reply = co_await client.call(method, request, reply_capacity);
  if (!reply) co_return std::move(reply.error());
  co_return std::vector<std::byte>(reply->bytes().begin(), reply->bytes().end());
}

}  // namespace

std::vector<std::string> domains_under_test() {
  if (std::getenv("PMSTORE_DAX") != nullptr) return {kDetected};
  return {"none", "adr", "eadr"};
}

PersistScenario::Side& PersistScenario::side_for(const std::string& domain) {
  if (side_of_this_domain_ == nullptr || side_of_this_domain_->domain != domain) {
    TearDownTestSuite();
    side_of_this_domain_ = std::make_unique<Side>();
    side_of_this_domain_->domain = domain;
  }
  return *side_of_this_domain_;
}

void PersistScenario::TearDownTestSuite() {
  if (side_of_this_domain_ == nullptr) return;
  if (side_of_this_domain_->target != nullptr) {
    EXPECT_TRUE(side_of_this_domain_->target->stop()) << "the target did not end in order";
  }
  side_of_this_domain_.reset();
}

PersistScenario::PersistScenario() : side_(side_for(GetParam())), executor_(side_.executor) {}

void PersistScenario::start_target() {
  auto target = Target::start(executor_, "persist_target", {GetParam()});
  ASSERT_TRUE(target) << target.error().to_string();
  side_.target = std::move(*target);
}

void PersistScenario::SetUp() {
  if (side_.target == nullptr) {
    ASSERT_NO_FATAL_FAILURE(start_target());
  }
  auto device = fabric::open_device(scheme(), executor_, TestMachine::test_host());
  ASSERT_TRUE(device) << device.error().to_string();
  device_ = std::move(*device);
  auto region = device_->register_memory(memory_, fabric::Access::kLocal);
  ASSERT_TRUE(region) << region.error().to_string();
  region_ = std::move(*region);
  ASSERT_NO_FATAL_FAILURE(connect(4u << 20));
  const auto cleared = call(kClear, {});
  ASSERT_TRUE(cleared) << cleared.error().to_string();
}

void PersistScenario::TearDown() {
  disconnect();
  region_.reset();
  device_.reset();
}

void PersistScenario::connect(uint32_t ring_bytes) {
  fabric::RpcOptions rpc_options;
  rpc_options.request_ring_bytes = ring_bytes;
  rpc_options.call_timeout_ns = short_timeout_ns();
  auto rpc = fabric::RpcClient::create(*device_, rpc_options);
  ASSERT_TRUE(rpc) << rpc.error().to_string();
  rpc_ = std::move(*rpc);
  const PersistHello hello{rpc_->reply_region()};
  fabric::ConnectOptions options;
  options.hello = std::as_bytes(std::span<const PersistHello, 1>(&hello, 1));
  options.timeout_ns = kPatientTimeoutNs;
  options.operation_timeout_ns = short_timeout_ns();
  auto connection = executor_.run(device_->connect(side_.target->uri(), options));
  ASSERT_TRUE(connection) << connection.error().to_string();
  connection_ = std::move(*connection);
  ASSERT_EQ(connection_->peer_hello().size(), sizeof answer_);
  std::memcpy(&answer_, connection_->peer_hello().data(), sizeof answer_);
  const Status attached = rpc_->attach(*connection_, answer_.requests);
  ASSERT_TRUE(attached) << attached.error().to_string();
}

void PersistScenario::disconnect() {
  rpc_.reset();
  connection_.reset();
}

Result<std::unique_ptr<RemoteWriter>> PersistScenario::make_writer(
    const RemoteWriterOptions& options) {
  const persist::PersistCapability server{answer_.domain, answer_.landing,
                                          answer_.native_flush != 0};
  return RemoteWriter::create(*device_, *connection_, rpc_.get(), answer_.granted, server, options);
}

std::unique_ptr<RemoteWriter> PersistScenario::writer(const RemoteWriterOptions& options) {
  auto made = make_writer(options);
  EXPECT_TRUE(made) << made.error().to_string();
  return made ? std::move(*made) : nullptr;
}

bool PersistScenario::one_sided_allowed() const {
  return answer_.domain == Domain::kCpuCache && connection_->capabilities().read_after_write;
}

std::vector<WriteStrategy> PersistScenario::allowed() const {
  if (!one_sided_allowed()) return {WriteStrategy::kTwoSided};
  return {WriteStrategy::kNaive, WriteStrategy::kOutstanding, WriteStrategy::kDoorbell,
          WriteStrategy::kTwoSided};
}

RemotePiece PersistScenario::piece(size_t offset, uint32_t bytes, uint64_t at) {
  for (size_t i = 0; i < bytes; ++i) memory_[offset + i] = std::byte(random_.next());
  std::memcpy(expected_.data() + at, memory_.data() + offset, bytes);
  return {{memory_.data() + offset, bytes, region_.get()}, at};
}

Status PersistScenario::write(RemoteWriter& writer, std::span<const RemotePiece> pieces) {
  return executor_.run(run_write(writer, pieces));
}

bool PersistScenario::all_end(const int& running, uint64_t most_ns) {
  executor_.run(wait_for_end(executor_, running, most_ns));
  return running == 0;
}

Result<std::vector<std::byte>> PersistScenario::call(uint16_t method,
                                                     std::span<const std::byte> request,
                                                     uint32_t reply_capacity) {
  return executor_.run(run_call(*rpc_, method, request, reply_capacity));
}

void PersistScenario::expect_content() {
  const ContentRange range{0, kGrantedBytes};
  auto reply = call(kContentSum, std::as_bytes(std::span<const ContentRange, 1>(&range, 1)));
  ASSERT_TRUE(reply) << reply.error().to_string();
  uint64_t sum = 0;
  ASSERT_EQ(reply->size(), sizeof sum);
  std::memcpy(&sum, reply->data(), sizeof sum);
  EXPECT_EQ(sum, base::checksum64(expected_, 0)) << "the target holds something else";
}

persist::MemoryStats PersistScenario::server_stats() {
  persist::MemoryStats stats{};
  auto reply = call(kPersistStats, {});
  EXPECT_TRUE(reply) << reply.error().to_string();
  if (reply && reply->size() == sizeof stats) std::memcpy(&stats, reply->data(), sizeof stats);
  return stats;
}

INSTANTIATE_TEST_SUITE_P(Domain, PersistScenario, testing::ValuesIn(domains_under_test()),
                         [](const auto& each) { return each.param; });

}  // namespace pmstore::scenario

int main(int argc, char** argv) {
  using pmstore::scenario::Role;
  pmstore::scenario::register_role("persist_target", []() -> std::unique_ptr<Role> {
    return std::make_unique<pmstore::scenario::PersistRole>();
  });
  return pmstore::scenario::run_scenarios(argc, argv);
}
