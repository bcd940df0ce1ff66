#include "tests/scenario/ring/ring_scenario.h"

#include <cstring>

#include "tests/scenario/ring/ring_role.h"

namespace pmstore::scenario {
namespace {

using Appended = log::RemoteAppender::Appended;

base::Task<Result<Appended>> append_one(log::RemoteAppender& appender, uint64_t sequence,
                                        std::span<const std::byte> payload) {
  co_return co_await appender.append(sequence, payload);
}

struct Reported {
  explicit Reported(base::Executor& executor) : changed(executor) {}
  size_t count = 0;
  base::WaitList changed;
};

base::Task<void> append_into(log::RemoteAppender& appender, Appending& what, Reported& reported) {
  const auto payload = std::as_bytes(std::span(what.payload));
  Result<Appended> result = co_await appender.append(what.sequence, payload);
  what.result.emplace(std::move(result));
  what.reported = ++reported.count;
  reported.changed.notify_all();
}

base::Task<void> wait_for(Reported& reported, size_t all) {
  while (reported.count < all) co_await reported.changed.wait();
}

base::Task<Result<std::vector<std::byte>>> run_call(fabric::RpcClient& client, uint16_t method,
                                                    std::span<const std::byte> request) {
  Result<fabric::RpcReply> reply = co_await client.call(method, request, 128 * 1024);
  if (!reply) co_return std::move(reply.error());
  co_return std::vector<std::byte>(reply->bytes().begin(), reply->bytes().end());
}

}  // namespace

void RingScenario::SetUp() {
  auto target = Target::start(executor_, "ring");
  ASSERT_TRUE(target) << target.error().to_string();
  target_ = std::move(*target);
  auto device = fabric::open_device(scheme(), executor_, TestMachine::test_host());
  ASSERT_TRUE(device) << device.error().to_string();
  device_ = std::move(*device);
}

void RingScenario::TearDown() {
  device_.reset();
  if (target_ != nullptr) {
    EXPECT_TRUE(target_->stop()) << "the target did not end in order";
  }
}

std::unique_ptr<RingLink> RingScenario::connect(const LinkOptions& options) {
  auto link = std::make_unique<RingLink>();
  const Status made = [&]() -> Status {
    fabric::RpcOptions rpc_options;
    rpc_options.call_timeout_ns = kPatientTimeoutNs;
    PMSTORE_TRY(link->rpc, fabric::RpcClient::create(*device_, rpc_options));
    const RingHello hello{link->rpc->reply_region(), options.owner};
    fabric::ConnectOptions connect_options;
    connect_options.hello = std::as_bytes(std::span<const RingHello, 1>(&hello, 1));
    connect_options.timeout_ns = kPatientTimeoutNs;
    PMSTORE_TRY(link->connection, executor_.run(device_->connect(target_->uri(), connect_options)));
    const auto answer = link->connection->peer_hello();
    if (answer.size() != sizeof link->answer) return make_error(ErrorCode::kProtocol, "no answer");
    std::memcpy(&link->answer, answer.data(), sizeof link->answer);
    PMSTORE_TRY_STATUS(link->rpc->attach(*link->connection, link->answer.requests));
    PMSTORE_TRY(link->writer, persist::RemoteWriter::create(
                                  *device_, *link->connection, link->rpc.get(), link->answer.data,
                                  link->answer.capability, options.writer));
    PMSTORE_TRY(link->appender,
                log::RemoteAppender::create(*device_, *link->writer, link->answer.position,
                                            options.staging_bytes));
    return {};
  }();
  if (made) return link;
  ADD_FAILURE() << made.error().to_string();
  return nullptr;
}

Result<Appended> RingScenario::append(RingLink& link, uint64_t sequence,
                                      const std::string& payload) {
  const auto bytes = std::as_bytes(std::span(payload));
  return executor_.run(append_one(*link.appender, sequence, bytes));
}

void RingScenario::append_all(RingLink& link, std::vector<Appending>& appendings) {
  Reported reported(executor_);
  for (Appending& what : appendings) {
    executor_.spawn(append_into(*link.appender, what, reported));
  }
  executor_.run(wait_for(reported, appendings.size()));
}

Result<Appended> RingScenario::append_all(RingLink& link, const std::vector<std::string>& payloads,
                                          log::RemoteAppender::Entries& entries) {
  std::vector<std::span<const std::byte>> spans;
  for (const std::string& payload : payloads) spans.push_back(std::as_bytes(std::span(payload)));
  entries.payloads = spans;
  return executor_.run(link.appender->append_all(entries));
}

Status RingScenario::truncate(RingLink& link, uint64_t start_lsn) {
  const TruncateRing request{link.appender->position().tail_lsn, start_lsn};
  const auto bytes = std::as_bytes(std::span<const TruncateRing, 1>(&request, 1));
  PMSTORE_TRY([[maybe_unused]] auto reply,
              executor_.run(run_call(*link.rpc, kTruncateRing, bytes)));
  return link.appender->truncated(start_lsn);
}

uint64_t RingScenario::published_tail(RingLink& link) {
  auto reply = executor_.run(run_call(*link.rpc, kReadTail, {}));
  uint64_t tail = 0;
  if (!reply || reply->size() != sizeof tail) {
    ADD_FAILURE() << "no tail";
  } else {
    std::memcpy(&tail, reply->data(), sizeof tail);
  }
  return tail;
}

std::vector<FoundEntry> RingScenario::found(RingLink& link) {
  auto reply = executor_.run(run_call(*link.rpc, kReadRing, {}));
  if (!reply) {
    ADD_FAILURE() << reply.error().to_string();
    return {};
  }
  std::vector<FoundEntry> entries(reply->size() / sizeof(FoundEntry));
  if (!entries.empty()) std::memcpy(entries.data(), reply->data(), reply->size());
  return entries;
}

std::string RingScenario::text(uint64_t sequence, size_t bytes) {
  std::string made(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) made[i] = static_cast<char>('a' + (sequence * 31 + i) % 26);
  return made;
}

}  // namespace pmstore::scenario

int main(int argc, char** argv) {
  using pmstore::scenario::Role;
  pmstore::scenario::register_role("ring", []() -> std::unique_ptr<Role> {
    return std::make_unique<pmstore::scenario::RingRole>();
  });
  return pmstore::scenario::run_scenarios(argc, argv);
}
