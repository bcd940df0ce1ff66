#include "tests/scenario/fabric/fabric_scenario.h"

#include "base/random.h"
#include "tests/scenario/fabric/target_role.h"

namespace pmstore::scenario {

using fabric::Connection;

namespace {

base::Task<Status> run_batch(Connection& connection, const fabric::Batch& batch) {
  co_return co_await connection.execute(batch);
}

base::Task<Result<std::vector<std::byte>>> run_call(fabric::RpcClient& client, uint16_t method,
                                                    std::span<const std::byte> request,
                                                    uint32_t reply_capacity) {
  Result<fabric::RpcReply> reply = co_await client.call(method, request, reply_capacity);
  if (!reply) co_return std::move(reply.error());
  co_return std::vector<std::byte>(reply->bytes().begin(), reply->bytes().end());
}

template <typename T>
T value_of(const Result<std::vector<std::byte>>& reply) {
  T value{};
  if (!reply) {
    ADD_FAILURE() << reply.error().to_string();
  } else if (reply->size() != sizeof(T)) {
    ADD_FAILURE() << "a reply of " << reply->size() << " bytes";
  } else {
    std::memcpy(&value, reply->data(), sizeof(T));
  }
  return value;
}

}  // namespace

void FabricScenario::SetUp() {
  auto target = Target::start(executor_, "fabric_target");
  ASSERT_TRUE(target) << target.error().to_string();
  target_ = std::move(*target);
  auto device = fabric::open_device(scheme(), executor_, TestMachine::test_host());
  ASSERT_TRUE(device) << device.error().to_string();
  device_ = std::move(*device);
  auto region =
      device_->register_memory(memory_, fabric::Access::kRemoteRead | fabric::Access::kRemoteWrite |
                                            fabric::Access::kRemoteAtomic);
  ASSERT_TRUE(region) << region.error().to_string();
  region_ = std::move(*region);
  control_ = connect_rpc();
  ASSERT_NE(control_, nullptr);
}

void FabricScenario::TearDown() {
  control_.reset();
  region_.reset();
  device_.reset();
  if (target_ != nullptr) {
    EXPECT_TRUE(target_->stop()) << "the target did not end in order";
  }
}

bool FabricScenario::run_until(const std::function<bool()>& condition, uint64_t timeout_ns) {
  const uint64_t deadline = clock_.now_ns() + timeout_ns;
  auto turn = [](base::Executor& executor) -> base::Task<void> {
    co_await executor.sleep_for(20'000);
  };
  while (!condition()) {
    if (clock_.now_ns() >= deadline) return false;
    executor_.run(turn(executor_));
  }
  return true;
}

Result<std::unique_ptr<Connection>> FabricScenario::connect(ConnectionKind kind,
                                                            const fabric::RemoteRegion& replies) {
  ClientHello hello;
  hello.kind = kind;
  hello.replies = replies;
  fabric::ConnectOptions options;
  options.hello = bytes_of(hello);
  options.timeout_ns = kPatientTimeoutNs;
  options.operation_timeout_ns = operation_timeout_ns_;
  const bool direct = kind != ConnectionKind::kRaw || !way_;
  return executor_.run(device_->connect(direct ? target_->uri() : *way_, options));
}

std::unique_ptr<RawLink> FabricScenario::connect_raw() {
  auto connection = connect(ConnectionKind::kRaw, {});
  if (!connection) {
    ADD_FAILURE() << connection.error().to_string();
    return nullptr;
  }
  auto link = std::make_unique<RawLink>();
  link->connection = std::move(*connection);
  link->connection->set_receiver(link.get());
  if (link->connection->peer_hello().size() != sizeof(TargetHello)) {
    ADD_FAILURE() << "the target's hello has " << link->connection->peer_hello().size() << " bytes";
    return nullptr;
  }
  std::memcpy(&link->hello, link->connection->peer_hello().data(), sizeof(TargetHello));
  return link;
}

std::unique_ptr<RpcLink> FabricScenario::connect_rpc(const fabric::RpcOptions& options) {
  auto client = fabric::RpcClient::create(*device_, options);
  if (!client) {
    ADD_FAILURE() << client.error().to_string();
    return nullptr;
  }
  auto connection = connect(ConnectionKind::kControl, (*client)->reply_region());
  if (!connection) {
    ADD_FAILURE() << connection.error().to_string();
    return nullptr;
  }
  auto link = std::make_unique<RpcLink>();
  link->rpc = std::move(*client);
  link->connection = std::move(*connection);
  std::memcpy(&link->hello, link->connection->peer_hello().data(), sizeof(TargetHello));
  if (Status attached = link->rpc->attach(*link->connection, link->hello.requests); !attached) {
    ADD_FAILURE() << attached.error().to_string();
    return nullptr;
  }
  return link;
}

Status FabricScenario::execute(Connection& connection, const fabric::Batch& batch) {
  return executor_.run(run_batch(connection, batch));
}

Result<std::vector<std::byte>> FabricScenario::call(RpcLink& link, uint16_t method,
                                                    std::span<const std::byte> request,
                                                    uint32_t reply_capacity) {
  return executor_.run(run_call(*link.rpc, method, request, reply_capacity));
}

RawState FabricScenario::raw_state(uint64_t id) {
  return value_of<RawState>(call_with(kRawState, id));
}

void FabricScenario::let_land(fabric::Connection& connection, const fabric::RemoteRegion& target) {
  if (!connection.capabilities().read_after_write) return;
  fabric::Batch behind;
  behind.read(local(kLocalBytes - 8, 8), target.at(0));
  EXPECT_TRUE(execute(connection, behind));
}

uint64_t FabricScenario::target_checksum(uint32_t region, uint64_t offset, uint64_t bytes) {
  const ChecksumRequest what{region, offset, bytes};
  return value_of<uint64_t>(call_with(kChecksum, what));
}

LiveReply FabricScenario::live() { return value_of<LiveReply>(call(*control_, kLive, {})); }

void FabricScenario::expect_unharmed() {
  const uint64_t word = 0x600d600d600d600d;
  auto echoed = call_with(kEcho, word);
  EXPECT_EQ(value_of<uint64_t>(echoed), word);
}

void FabricScenario::fill_local(size_t offset, size_t bytes, uint64_t seed) {
  for (size_t i = 0; i < bytes; ++i) {
    memory_[offset + i] = static_cast<std::byte>(base::mix64(seed * 0x100000001 + i) & 0xff);
  }
}

}  // namespace pmstore::scenario

int main(int argc, char** argv) {
  using pmstore::scenario::Role;
  pmstore::scenario::register_role("fabric_target", []() -> std::unique_ptr<Role> {
    return std::make_unique<pmstore::scenario::TargetRole>();
  });
  return pmstore::scenario::run_scenarios(argc, argv);
}
