// A client and a FakeServer on one executor in virtual time.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pmstore/client.h"
#include "tests/unit/pmstore/fake_server.h"

namespace pmstore::testing {

class FakeServerFixture : public ::testing::Test {
 protected:
  static constexpr TableId kTable{3};

  Result<std::unique_ptr<Client>> try_connect() {
    return executor_.run(Client::connect(executor_, server_->uri(), options_));
  }
  void connect() {
    auto connected = try_connect();
    ASSERT_TRUE(connected) << connected.error().to_string();
    client_ = std::move(*connected);
    if (opens_table_) open_table();
  }
  // For Client::kTableSeenNs a key that is not there is not asked about.
  void open_table() {
    const auto open = [](const FakeServer::Request&, fabric::RpcCall call) {
      const OpenTableReply reply{raw(kTable), 0};
      call.reply(std::as_bytes(std::span(&reply, 1)));
    };
    const auto answer = std::exchange(server_->answer, open);
    ASSERT_TRUE(run(client_->open_table("t")));
    server_->answer = answer;
    server_->requests.pop_back();
  }
  template <typename T>
  T run(Task<T> task) {
    return executor_.run(std::move(task));
  }
  void let_time_pass(uint64_t ns) {
    run([](Executor& executor, uint64_t for_ns) -> Task<void> {
      co_await executor.sleep_for(for_ns);
    }(executor_, ns));
  }
  Status put(std::string_view key, std::string_view value) {
    return run(client_->put(kTable, key, value));
  }
  Result<std::string> get(std::string_view key) { return run(client_->get(kTable, key)); }
  // What one action cost.
  template <typename Action>
  fabric::Counters cost(Action&& action) {
    const fabric::Counters before = client_->counters();
    action();
    return client_->counters() - before;
  }
  // The answer of a server to a get.
  static std::vector<std::byte> get_reply(const GetReply& head, std::string_view value) {
    std::vector<std::byte> room(sizeof(head) + value.size());
    MessageWriter writer(room);
    writer.put(head);
    writer.put_bytes(value);
    return room;
  }

  base::VirtualClock clock_;
  Executor executor_{clock_};
  std::unique_ptr<FakeServer> server_ = std::make_unique<FakeServer>(executor_);
  ClientOptions options_;
  std::unique_ptr<Client> client_;
  bool opens_table_ = true;  // false: connect() sends nothing behind the handshake
};

// A kCommit request as the server sees it.
struct DecodedCommit {
  CommitRequest counts;
  std::vector<ReadCheck> reads;
  std::vector<AbsenceCheck> absences;
  struct Write {
    WriteOp op;
    std::string key;
    std::string value;
  };
  std::vector<Write> writes;
  bool complete = false;

  explicit DecodedCommit(std::span<const std::byte> body) {
    MessageReader reader(body);
    counts = reader.get<CommitRequest>();
    for (uint32_t i = 0; i < counts.reads; ++i) reads.push_back(reader.get<ReadCheck>());
    for (uint32_t i = 0; i < counts.absences; ++i) absences.push_back(reader.get<AbsenceCheck>());
    for (uint32_t i = 0; i < counts.writes; ++i) {
      Write write;
      write.op = reader.get<WriteOp>();
      write.key = reader.get_bytes(write.op.key_bytes);
      write.value = reader.get_bytes(write.op.value_bytes);
      reader.get_bytes((8 - (write.key.size() + write.value.size()) % 8) % 8);
      writes.push_back(std::move(write));
    }
    complete = reader.complete();
  }
};

}  // namespace pmstore::testing
