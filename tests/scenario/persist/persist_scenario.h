// The fixture of the persist scenarios: a connection to a PersistRole whose pool is in the domain
// that the test is run for, and a copy of what the granted extent must hold.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "base/random.h"
#include "fabric/device.h"
#include "fabric/rpc.h"
#include "persist/remote_writer.h"
#include "tests/scenario/harness.h"
#include "tests/scenario/persist/persist_role.h"

namespace pmstore::scenario {

using persist::Domain;
using persist::RemotePiece;
using persist::RemoteWriter;
using persist::RemoteWriterOptions;
using persist::WriteStrategy;

// "none", "adr" and "eadr" on a file; only "detected" on a device.
std::vector<std::string> domains_under_test();

class PersistScenario : public testing::TestWithParam<std::string> {
 public:
  static void TearDownTestSuite();

 protected:
  static constexpr size_t kLocalBytes = kGrantedBytes;

  // One target serves the tests of one domain, one after the other: starting one on a device in a
  // guest takes seconds.
  struct Side {
    TestClock clock;
    base::Executor executor{clock};
    TestMachine machine{executor};
    std::string domain;
    std::unique_ptr<Target> target;
  };
  static Side& side_for(const std::string& domain);

  PersistScenario();
  void SetUp() override;
  void TearDown() override;
  void start_target();
  // Connects the client, with RPC rings of this many bytes.
  void connect(uint32_t ring_bytes);
  void disconnect();

  Result<std::unique_ptr<RemoteWriter>> make_writer(const RemoteWriterOptions& options);
  // One that must be there.
  std::unique_ptr<RemoteWriter> writer(const RemoteWriterOptions& options);
  // What the server's capability and this fabric allow: every strategy that negotiation must
  // accept.
  bool one_sided_allowed() const;
  std::vector<WriteStrategy> allowed() const;

  // Fills [offset, offset+bytes) of this side's memory with something new, notes in expected_ that
  // it is written at `at`, and gives the piece.
  RemotePiece piece(size_t offset, uint32_t bytes, uint64_t at);
  Status write(RemoteWriter& writer, std::span<const RemotePiece> pieces);
  // Waits, no longer than so, until none of those who count themselves is running.
  bool all_end(const int& running, uint64_t most_ns);
  // Everything in the granted extent is what was written.
  void expect_content();
  persist::MemoryStats server_stats();
  Result<std::vector<std::byte>> call(uint16_t method, std::span<const std::byte> request,
                                      uint32_t reply_capacity = 256);

  static inline std::unique_ptr<Side> side_of_this_domain_;
  Side& side_;
  base::Executor& executor_;
  base::Random random_{20};
  std::unique_ptr<fabric::Device> device_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(kLocalBytes);
  std::vector<std::byte> expected_ = std::vector<std::byte>(kGrantedBytes);
  std::unique_ptr<fabric::MemoryRegion> region_;
  std::unique_ptr<fabric::RpcClient> rpc_;
  std::unique_ptr<fabric::Connection> connection_;
  PersistAnswer answer_{};
};

}  // namespace pmstore::scenario
