// Two modelled hosts for unit tests: a server with memory of every kind, a client, a connection.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "model/cluster.h"
#include "model/host.h"
#include "tests/unit/fabric/local_pair.h"

namespace pmstore::model {

// Memory on page boundaries, so that a test may name lines of it.
struct AlignedBytes {
  explicit AlignedBytes(size_t size)
      : bytes(static_cast<std::byte*>(std::aligned_alloc(4096, size)), size) {
    std::memset(bytes.data(), 0, size);
  }
  ~AlignedBytes() { std::free(bytes.data()); }
  AlignedBytes(const AlignedBytes&) = delete;
  AlignedBytes& operator=(const AlignedBytes&) = delete;
  std::span<std::byte> bytes;
};

class ModelPair {
 public:
  static constexpr size_t kBytes = 1u << 20;

  explicit ModelPair(const Parameters& parameters = *named_parameters("optane-cx5"),
                     const Topology& topology = {}) {
    auto made = Cluster::create(executor, parameters, topology);
    EXPECT_TRUE(made);
    cluster = std::move(*made);
    server_host().place_nvm(nvm.bytes, 0);
    server = open(server_host());
    client = open(client_host());
    acceptor.receiver = &server_receiver;
    nvm_region = *server->register_memory(nvm.bytes, fabric::kEverything);
    dram_region = *server->register_memory(dram.bytes, fabric::kEverything);
    local_region = *client->register_memory(local.bytes, fabric::Access::kLocal);
    listener = *server->listen(uri, acceptor);
    connection = connect(*client);
    connection->set_receiver(&client_receiver);
  }

  std::unique_ptr<fabric::Device> open(fabric::DeviceOpener& on) {
    return std::move(*fabric::open_device(fabric::Scheme::kLocal, executor, &on));
  }
  std::unique_ptr<fabric::Connection> connect(fabric::Device& device) {
    fabric::ConnectOptions options;
    auto made = executor.run(device.connect(uri, options));
    EXPECT_TRUE(made);
    return made ? std::move(*made) : nullptr;
  }
  Host& server_host() { return cluster->host(0); }
  Host& client_host() { return cluster->host(1); }

  fabric::LocalBuffer at(size_t offset, size_t bytes) {
    return {local.bytes.data() + offset, static_cast<uint32_t>(bytes), local_region.get()};
  }
  fabric::RemoteAddress in_nvm(size_t offset) const { return nvm_region->remote().at(offset); }
  fabric::RemoteAddress in_dram(size_t offset) const { return dram_region->remote().at(offset); }
  void fill(size_t offset, size_t bytes, int value) {
    std::memset(local.bytes.data() + offset, value, bytes);
  }
  int nvm_byte(size_t offset) const { return static_cast<int>(nvm.bytes[offset]); }

  // Posts, waits, and gives the time from before the post until the poster's core knows, in ns.
  uint64_t execute(const fabric::Batch& batch) {
    const uint64_t began_ps = cluster->events().now_ps();
    auto run = [this, &batch]() -> base::Task<bool> {
      co_return static_cast<bool>(co_await connection->execute(batch));
    };
    EXPECT_TRUE(executor.run(run()));
    const Core& core = client_host().core(0);
    return (core.free_ps() - began_ps) / kPsPerNs;
  }
  void pass(uint64_t ns) {
    auto run = [this, ns]() -> base::Task<void> { co_await executor.sleep_for(ns); };
    executor.run(run());
  }

  base::VirtualClock clock;
  base::Executor executor{clock};
  AlignedBytes nvm{kBytes};
  AlignedBytes dram{kBytes};
  AlignedBytes local{kBytes};
  std::unique_ptr<Cluster> cluster;
  std::unique_ptr<fabric::Device> server;
  std::unique_ptr<fabric::Device> client;
  const fabric::Uri uri = fabric::fresh_local_uri();
  fabric::RecordingReceiver server_receiver;
  fabric::RecordingReceiver client_receiver;
  std::unique_ptr<fabric::MemoryRegion> nvm_region, dram_region, local_region;
  fabric::KeepingAcceptor acceptor;
  std::unique_ptr<fabric::Listener> listener;
  std::unique_ptr<fabric::Connection> connection;
};

}  // namespace pmstore::model
