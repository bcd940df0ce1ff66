// The fixture of the log scenarios: a target with one ring, and links that own it one after the
// other.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "fabric/device.h"
#include "fabric/rpc.h"
#include "log/remote_appender.h"
#include "persist/remote_writer.h"
#include "tests/scenario/harness.h"
#include "tests/scenario/ring/ring_protocol.h"

namespace pmstore::scenario {

// A granted ring. Destroyed from the last member to the first.
struct RingLink {
  std::unique_ptr<fabric::RpcClient> rpc;
  std::unique_ptr<fabric::Connection> connection;
  RingAnswer answer;
  std::unique_ptr<persist::RemoteWriter> writer;
  std::unique_ptr<log::RemoteAppender> appender;
};

struct LinkOptions {
  uint64_t owner = 1;
  persist::RemoteWriterOptions writer;
  uint32_t staging_bytes = 256 * 1024;
};

// One call of append() and what came of it.
struct Appending {
  uint64_t sequence;
  std::string payload;
  std::optional<Result<log::RemoteAppender::Appended>> result;
  size_t reported = 0;  // its place among the results, from 1
};

class RingScenario : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // A failed test when it cannot be had.
  std::unique_ptr<RingLink> connect(const LinkOptions& options = {});
  // Does the fabric order what one-sided durability needs?
  static bool one_sided(const RingLink& link) {
    return link.connection->capabilities().read_after_write;
  }

  Result<log::RemoteAppender::Appended> append(RingLink& link, uint64_t sequence,
                                               const std::string& payload);
  // Starts all of them at once, in this order, and waits for all.
  void append_all(RingLink& link, std::vector<Appending>& appendings);
  // `entries` with these payloads.
  Result<log::RemoteAppender::Appended> append_all(RingLink& link,
                                                   const std::vector<std::string>& payloads,
                                                   log::RemoteAppender::Entries& entries);
  Status truncate(RingLink& link, uint64_t start_lsn);
  uint64_t published_tail(RingLink& link);
  // What a walk at the server finds.
  std::vector<FoundEntry> found(RingLink& link);

  static std::string text(uint64_t sequence, size_t bytes);
  static FoundEntry expected(const log::RemoteAppender::Appended& appended, uint64_t sequence,
                             const std::string& payload) {
    return {appended.lsn, sequence, payload_checksum(std::as_bytes(std::span(payload)))};
  }

  TestClock clock_;
  base::Executor executor_{clock_};
  TestMachine machine_{executor_};
  std::unique_ptr<Target> target_;
  std::unique_ptr<fabric::Device> device_;
};

}  // namespace pmstore::scenario
