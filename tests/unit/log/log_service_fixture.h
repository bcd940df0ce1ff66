// The log service over the in-process fabric, in virtual time, and connections that speak to it
// with raw messages.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/clock.h"
#include "fabric/message.h"
#include "log/log_host.h"
#include "log/log_service.h"
#include "service/link.h"
#include "tests/unit/log/log_pool.h"

namespace pmstore::log {
using base::Task;

template <typename T>
std::vector<std::byte> as_bytes(const T& value) {
  std::vector<std::byte> bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

// One connection to the service, as a client makes it.
struct Client {
  std::unique_ptr<service::Link> link;
  fabric::Connection* connection = nullptr;  // of the link
  fabric::RpcClient* rpc = nullptr;
  LogSessionAnswer session{};
  LogProducerAnswer producer{};
};

class LogServiceTest : public testing::Test {
 protected:
  static constexpr uint64_t kLeaseMs = 100;

  explicit LogServiceTest(persist::Domain domain = persist::Domain::kMemoryController,
                          uint64_t area_bytes = kTestArea, uint64_t free_bytes = 0)
      : pool_(area_bytes, domain, {}, 77, free_bytes) {
    options_.host.lease_ms = kLeaseMs;
    options_.max_sessions = 4;
  }
  void SetUp() override {
    pool_.close_store();
    start();
    device_ = std::move(*fabric::open_device(fabric::Scheme::kLocal, executor_));
  }
  void start() {
    auto started = LogHost::start(executor_, pool_.pool(), options_);
    ASSERT_TRUE(started) << started.error().to_string();
    host_ = std::move(*started);
    uri_ = executor_.run(host_->listen({fabric::Scheme::kLocal, "log-service", 0})).value();
  }
  template <typename T>
  T run(Task<T> task) {
    return executor_.run(std::move(task));
  }
  void let_time_pass(uint64_t ms) {
    run([](base::Executor& executor, uint64_t ns) -> Task<void> {
      co_await executor.sleep_for(ns);
    }(executor_, ms * 1'000'000));
  }

  template <typename Answer>
  Result<std::unique_ptr<Client>> connect(uint64_t client, service::ServiceId service,
                                          const std::vector<std::byte>& body,
                                          Answer Client::*answer) {
    service::LinkOptions options;
    options.service = service;
    options.secret = ClientSecret::of_number(client);
    options.rpc = {1 << 20, 1 << 20, 64};
    PMSTORE_TRY(auto link, run(service::Link::open(*device_, uri_, options, body)));
    auto made = std::make_unique<Client>();
    made->connection = &link->connection();
    made->rpc = &link->rpc();
    EXPECT_GE(link->body().size(), sizeof(Answer));
    std::memcpy(&((*made).*answer), link->body().data(), sizeof(Answer));
    made->link = std::move(link);
    return made;
  }
  Result<std::unique_ptr<Client>> try_session(uint64_t client, const std::vector<std::byte>& body) {
    return connect(client, service::ServiceId::kLog, body, &Client::session);
  }
  // Each as a LogClient of its own.
  Result<std::unique_ptr<Client>> try_session(uint64_t client) {
    return try_session(client, as_bytes(SessionHello{++instances_}));
  }
  std::unique_ptr<Client> session(uint64_t client = 1) {
    auto made = try_session(client);
    EXPECT_TRUE(made) << made.error().to_string();
    return made ? std::move(*made) : nullptr;
  }
  Result<std::unique_ptr<Client>> producer(uint64_t client, const ProducerHello& hello) {
    return connect(client, service::ServiceId::kProducer, as_bytes(hello), &Client::producer);
  }
  Result<std::unique_ptr<Client>> producer(uint64_t client, uint64_t log,
                                           Takeover takeover = Takeover::kIfFree) {
    return producer(client, ProducerHello{log, 1, takeover, {}});
  }

  Result<std::vector<std::byte>> call(Client& client, uint16_t method,
                                      const std::vector<std::byte>& request,
                                      uint32_t room = 64 << 10) {
    return run(call_task(client, method, with_prefix(client, request), room));
  }
  Result<std::vector<std::byte>> call(Client& client, LogMethod method,
                                      const std::vector<std::byte>& request,
                                      uint32_t room = 64 << 10) {
    return call(client, static_cast<uint16_t>(method), request, room);
  }
  static std::vector<std::byte> with_prefix(const Client& client,
                                            const std::vector<std::byte>& body) {
    std::vector<std::byte> request = as_bytes(client.link->prefix());
    request.insert(request.end(), body.begin(), body.end());
    return request;
  }
  // As it is.
  Result<std::vector<std::byte>> call_raw(Client& client, uint16_t method,
                                          const std::vector<std::byte>& request) {
    return run(call_task(client, method, request, 64 << 10));
  }
  static Task<Result<std::vector<std::byte>>> call_task(Client& client, uint16_t method,
                                                        std::vector<std::byte> request,
                                                        uint32_t room) {
    PMSTORE_CO_TRY(auto reply, co_await client.rpc->call(method, request, room));
    co_return std::vector<std::byte>(reply.bytes().begin(), reply.bytes().end());
  }
  static std::vector<std::byte> create_request(std::string_view name,
                                               FullPolicy policy = FullPolicy::kBackPressure) {
    std::vector<std::byte> bytes(sizeof(CreateRequest) + name.size());
    fabric::MessageWriter writer(bytes);
    writer.put(CreateRequest{kTestLog, policy, static_cast<uint8_t>(name.size()), 0, 0, {}});
    writer.put_bytes(name);
    return bytes;
  }
  uint64_t create(Client& client, std::string_view name,
                  FullPolicy policy = FullPolicy::kBackPressure) {
    auto reply = call(client, LogMethod::kCreate, create_request(name, policy));
    EXPECT_TRUE(reply) << reply.error().to_string();
    LogReply made{};
    if (reply && reply->size() == sizeof made) std::memcpy(&made, reply->data(), sizeof made);
    return made.id;
  }
  static std::vector<std::byte> append_request(uint64_t log,
                                               const std::vector<std::string>& payloads) {
    std::vector<std::byte> bytes(64 << 10);
    fabric::MessageWriter writer(bytes);
    static uint64_t number = 0;
    writer.put(AppendRequest{log, ++number, static_cast<uint32_t>(payloads.size()), 0});
    for (const std::string& each : payloads) {
      writer.put(AppendItem{static_cast<uint32_t>(each.size())});
    }
    for (const std::string& each : payloads) writer.put_bytes(each);
    bytes.resize(writer.bytes());
    return bytes;
  }
  Result<AppendReply> append(Client& client, uint64_t log,
                             const std::vector<std::string>& payloads) {
    PMSTORE_TRY(const auto bytes, call(client, LogMethod::kAppend, append_request(log, payloads)));
    AppendReply reply{};
    EXPECT_EQ(bytes.size(), sizeof reply);
    std::memcpy(&reply, bytes.data(), std::min(bytes.size(), sizeof reply));
    return reply;
  }
  LogReply open(Client& client, std::string_view name) {
    const auto request = std::as_bytes(std::span(name));
    auto bytes = call(client, LogMethod::kOpen, {request.begin(), request.end()});
    EXPECT_TRUE(bytes) << bytes.error().to_string();
    LogReply reply{};
    if (bytes && bytes->size() >= sizeof reply) std::memcpy(&reply, bytes->data(), sizeof reply);
    return reply;
  }
  bool broken(Client& client) {
    let_time_pass(1);
    return client.connection->broken();
  }
  LogServiceCounters counters() { return host_->service().counters(); }

  uint64_t instances_ = 0;
  LogPool pool_;
  LogHostOptions options_;
  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  std::unique_ptr<LogHost> host_;
  fabric::Uri uri_;
  std::unique_ptr<fabric::Device> device_;
};

}  // namespace pmstore::log
