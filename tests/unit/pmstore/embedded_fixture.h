// A client with a pool of its own in virtual time.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/clock.h"
#include "pmstore/client.h"
#include "pmstore/server.h"
#include "tests/unit/persist/scratch.h"

namespace pmstore::testing {

class EmbeddedFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto fill = [](persist::Pool& pool) {
      return format_store(pool, {.rings = 4, .log_bytes = 0, .shard_log_bytes = 4 << 20});
    };
    ASSERT_TRUE(persist::Pool::create(path_, 64 << 20, {}, false, fill));
    options_.assume_domain = persist::Domain::kCpuCache;
    connect();
  }
  void TearDown() override {
    if (client_ != nullptr) run(client_->close());
  }

  template <typename T>
  T run(Task<T> task) {
    return executor_.run(std::move(task));
  }
  void connect() {
    auto connected = run(Client::connect(executor_, {fabric::Scheme::kLocal, path_, 0}, options_));
    ASSERT_TRUE(connected) << connected.error().to_string();
    client_ = std::move(*connected);
    table_ = *run(client_->open_table("t", true));
  }
  nlohmann::json stat() { return nlohmann::json::parse(client_->local_server()->stat_json()); }

  const persist::Scratch scratch_;
  const std::string path_ = scratch_.path("pool");
  base::VirtualClock clock_;
  Executor executor_{clock_};
  ClientOptions options_;
  std::unique_ptr<Client> client_;
  TableId table_{};
};

}  // namespace pmstore::testing
