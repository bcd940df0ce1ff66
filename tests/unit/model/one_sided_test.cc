// What becomes of one-sided requests on the modelled machine: order, the three fates of a WRITE,
// limits.
#include <gtest/gtest.h>

#include <array>

#include "fabric/local/fault_injection.h"
#include "tests/unit/model/model_pair.h"

namespace pmstore::model {
namespace {

using fabric::Batch;

// Knows what has happened to the server's persistent memory.
class Watcher final : public NvmObserver {
 public:
  void on_store(const void*, const void*, size_t, bool) override {}
  void on_flush(const void*, size_t) override {}
  void on_drain() override {}
  void on_dma_write(const void*, const void*, size_t, Landing landing) override {
    landings.push_back(landing);
    trace += landing == Landing::kMemory ? 'm' : 'c';
  }
  void on_packet(Packet packet, uint32_t, size_t) override {
    trace += packet == Packet::kArrived        ? 'R'
             : packet == Packet::kAcknowledged ? 'A'
             : packet == Packet::kCompleted    ? 'C'
                                               : 'I';
  }
  std::vector<Landing> landings;
  std::string trace;
};

Parameters with(const char* toml) {
  Parameters parameters = *named_parameters("optane-cx5");
  EXPECT_TRUE(override_parameters_text(parameters, toml, "test"));
  return parameters;
}

TEST(ModelFates, WithDdioAnAcknowledgedWriteIsInTheCache) {
  ModelPair pair;
  Watcher watcher;
  pair.server_host().set_nvm_observer(&watcher);
  pair.fill(0, 64, 7);
  Batch batch;
  batch.write(pair.at(0, 64), pair.in_nvm(0)).read(pair.at(64, 1), pair.in_nvm(63));
  pair.execute(batch);
  EXPECT_EQ(pair.nvm_byte(63), 7);
  EXPECT_EQ(watcher.landings, std::vector<Landing>{Landing::kLastLevelCache});
  EXPECT_EQ(pair.server_host().landing(), persist::WriteLanding::kLastLevelCache);
  EXPECT_EQ(pair.server_host().memory().all_dimms().write_requests, 0u);
}

TEST(ModelFates, WithoutDdioAnAcknowledgedWriteWithItsReadIsDurable) {
  ModelPair pair(*named_parameters("optane-cx5"), {.ddio = false});
  Watcher watcher;
  pair.server_host().set_nvm_observer(&watcher);
  pair.fill(0, 64, 7);
  Batch batch;
  batch.write(pair.at(0, 64), pair.in_nvm(0)).read(pair.at(64, 1), pair.in_nvm(63));
  pair.execute(batch);
  EXPECT_EQ(pair.nvm_byte(63), 7);
  EXPECT_EQ(watcher.landings, std::vector<Landing>{Landing::kMemory});
  EXPECT_EQ(pair.server_host().landing(), persist::WriteLanding::kMemory);
  EXPECT_EQ(pair.server_host().memory().all_dimms().write_requests, 1u);
}

TEST(ModelFates, AnAcknowledgedWriteMayStillBeInTheRnic) {
  ModelPair pair(with("[rnic]\nhold_ns = 20000\n"), {.ddio = false});
  Watcher watcher;
  pair.server_host().set_nvm_observer(&watcher);
  pair.fill(0, 64, 7);
  Batch batch;
  batch.write(pair.at(0, 64), pair.in_nvm(0));
  pair.execute(batch);
  EXPECT_EQ(pair.nvm_byte(0), 0) << "completed, and not in memory";
  EXPECT_EQ(watcher.trace, "RAC");
  pair.pass(10'000);
  EXPECT_EQ(pair.nvm_byte(0), 0);
  pair.pass(20'000);
  EXPECT_EQ(pair.nvm_byte(0), 7);
  EXPECT_EQ(watcher.trace, "RACm");
}

TEST(ModelFates, ALaterReadPushesTheWriteOutOfTheRnic) {
  ModelPair pair(with("[rnic]\nhold_ns = 1e9\n"), {.ddio = false});
  pair.fill(0, 64, 7);
  Batch batch;
  batch.write(pair.at(0, 64), pair.in_nvm(0)).read(pair.at(64, 64), pair.in_nvm(0));
  pair.execute(batch);
  EXPECT_EQ(pair.nvm_byte(0), 7);
  EXPECT_EQ(static_cast<int>(pair.local.bytes[127]), 7) << "the READ saw it";
}

TEST(ModelFates, WhatWasAcknowledgedOutlivesTheConnection) {
  for (const bool client_ends : {true, false}) {
    ModelPair pair(with("[rnic]\nhold_ns = 1e9\n"), {.ddio = false});
    pair.fill(0, 64, 7);
    Batch batch;
    batch.write(pair.at(0, 64), pair.in_nvm(0));
    pair.execute(batch);
    EXPECT_EQ(pair.nvm_byte(0), 0);
    if (client_ends) {
      pair.connection.reset();
    } else {
      pair.acceptor.connections.clear();
    }
    EXPECT_EQ(pair.nvm_byte(0), 7);
  }
}

// What has reached a peer that is gone has ended there; it is owed its completion all the same.
TEST(ModelFates, EveryPostEndsWhenThePeerGoesWhateverIsPostedMeanwhile) {
  ModelPair pair;
  Batch batch;
  batch.write(pair.at(0, 64), pair.in_nvm(0)).read(pair.at(64, 8), pair.in_nvm(0));
  std::array<fabric::Completion, 64> completions;
  pair.execute(batch);  // connected for certain
  size_t posted = 0;
  const auto post = [&] {
    if (!pair.connection->post(batch, &completions[posted])) return false;
    ++posted;
    pair.pass(50);
    return true;
  };
  while (posted < 16) post();
  pair.acceptor.connections.clear();
  while (posted < completions.size() && post()) {
  }
  EXPECT_GT(posted, 16u) << "the news took its time";
  EXPECT_LT(posted, completions.size());
  pair.pass(1'000'000);
  for (size_t i = 0; i < posted; ++i) {
    EXPECT_TRUE(completions[i].done()) << i << " of " << posted;
  }
}

TEST(ModelOrder, EachReadOfAQueuePairSeesTheWritesBeforeItAndNoneBehindIt) {
  ModelPair pair;
  for (int i = 0; i < 15; ++i) pair.fill(static_cast<size_t>(i) * 256, 256, i + 1);
  Batch batch;
  for (size_t i = 0; i < 15; ++i) {
    batch.write(pair.at(i * 256, 256), pair.in_nvm(0));
    batch.read(pair.at(65536 + i * 256, 256), pair.in_nvm(0));
  }
  pair.execute(batch);
  for (size_t i = 0; i < 15; ++i) {
    EXPECT_GE(static_cast<int>(pair.local.bytes[65536 + i * 256 + 255]), static_cast<int>(i + 1));
  }
  EXPECT_EQ(pair.nvm_byte(255), 15);
}

TEST(ModelOrder, AtomicsOnOneWordExcludeEachOther) {
  ModelPair pair;
  std::vector<std::unique_ptr<fabric::Connection>> connections;
  for (int i = 0; i < 8; ++i) connections.push_back(pair.connect(*pair.client));
  auto add = [&](fabric::Connection& connection, size_t at) -> base::Task<void> {
    for (int i = 0; i < 50; ++i) {
      Batch batch;
      batch.fetch_add(pair.at(at * 8, 8), pair.in_dram(0), 1);
      const Status done = co_await connection.execute(batch);
      EXPECT_TRUE(done);
    }
  };
  for (size_t i = 0; i < 8; ++i) pair.executor.spawn(add(*connections[i], i));
  const uint64_t began_ns = pair.executor.now_ns();
  while (pair.executor.spawned() > 0) pair.pass(1000);
  uint64_t value = 0;
  std::memcpy(&value, pair.dram.bytes.data(), sizeof(value));
  EXPECT_EQ(value, 400u);
  // Each needs the word for a PCIe round trip: one after the other.
  EXPECT_GT(pair.executor.now_ns() - began_ns, 400 * 500u);
}

TEST(ModelLimits, AtMostSixteenReadsOfAQueuePairAreUnderWay) {
  const auto time_of = [](const char* toml) {
    ModelPair pair(with(toml));
    Batch batch;
    for (size_t i = 0; i < 32; ++i) batch.read(pair.at(i * 8, 8), pair.in_dram(i * 8));
    pair.execute(batch);
    return pair.execute(batch);
  };
  EXPECT_GT(time_of("[rnic]\nreads_per_qp = 16\n"), time_of("[rnic]\nreads_per_qp = 32\n") + 500);
  EXPECT_GT(time_of("[rnic]\nreads_per_qp = 1\n"), 32 * 1000u);
}

TEST(ModelLimits, AFullSendQueueIsBackPressureAndDrains) {
  ModelPair pair(with("[rnic]\nsend_queue_wqes = 64\n"));
  Batch batch;
  for (size_t i = 0; i < 32; ++i) batch.write(pair.at(i * 8, 8), pair.in_dram(i * 8));
  EXPECT_TRUE(pair.connection->post(batch, nullptr));
  EXPECT_TRUE(pair.connection->post(batch, nullptr));
  const Status third = pair.connection->post(batch, nullptr);
  ASSERT_FALSE(third);
  EXPECT_EQ(third.code(), ErrorCode::kBackPressure);
  pair.pass(20'000);
  EXPECT_TRUE(pair.connection->post(batch, nullptr));
  pair.pass(20'000);
}

TEST(ModelLimits, AFullReceiveBufferStopsTheWire) {
  // One slow DIMM: partial lines leave more slowly than the wire brings them.
  ModelPair pair(
      with("[rnic]\nrx_buffer_bytes = 4096\n[dimm]\nper_socket = 1\nmedia_write_ns = 5000\n"),
      {.ddio = false});
  for (int round = 0; round < 20; ++round) {
    Batch batch;
    for (size_t i = 0; i < 32; ++i) {
      batch.write(pair.at(0, 16),
                  pair.in_nvm((i * 37 + static_cast<size_t>(round) * 991) % 4000 * 256));
    }
    EXPECT_TRUE(pair.connection->post(batch, nullptr));
  }
  pair.pass(10'000'000);
  const RnicCounters counters = pair.server_host().rnic_counters();
  EXPECT_EQ(counters.requests, 640u);
  EXPECT_EQ(counters.memory_writes, 640u);
  EXPECT_GT(counters.full_buffer, 0u);
}

TEST(ModelLimits, WhatAGoneConnectionLeavesInTheReceiveBufferMakesRoomForOthers) {
  for (uint64_t ns = 1'000; ns < 40'000; ns += 1'000) {
    ModelPair pair;
    auto other = pair.connect(*pair.client);
    for (int i = 0; i < 6; ++i) {
      Batch large;
      large.write(pair.at(0, 100'000), pair.in_dram(0));
      ASSERT_TRUE(pair.connection->post(large, nullptr));
    }
    pair.pass(ns);
    pair.acceptor.connections.erase(pair.acceptor.connections.begin());
    std::swap(pair.connection, other);
    Batch small;
    small.write(pair.at(0, 8), pair.in_dram(0));
    pair.execute(small);
    ASSERT_FALSE(pair.connection->broken()) << "destroyed after " << ns << " ns";
  }
}

TEST(ModelCounters, OneDoorbellForAChainAndItsDescriptorsFetchedOnce) {
  ModelPair pair;
  const RnicCounters before = pair.client_host().rnic_counters();
  Batch lone;
  lone.write(pair.at(0, 16), pair.in_nvm(0));
  pair.execute(lone);
  const RnicCounters one = pair.client_host().rnic_counters();
  EXPECT_EQ(one.doorbells - before.doorbells, 1u);
  EXPECT_EQ(one.wqe_fetches - before.wqe_fetches, 0u);
  EXPECT_EQ(one.payload_reads - before.payload_reads, 0u);
  EXPECT_EQ(one.completions - before.completions, 1u);
  Batch chain;
  chain.write(pair.at(0, 1024), pair.in_nvm(0)).read(pair.at(2048, 8), pair.in_nvm(0));
  pair.execute(chain);
  const RnicCounters two = pair.client_host().rnic_counters();
  EXPECT_EQ(two.doorbells - one.doorbells, 1u);
  EXPECT_EQ(two.wqe_fetches - one.wqe_fetches, 1u);
  EXPECT_EQ(two.payload_reads - one.payload_reads, 1u);
  EXPECT_EQ(two.completions - one.completions, 1u);
  EXPECT_GT(two.pcie_transactions(), one.pcie_transactions());
}

TEST(ModelCounters, ASmallCacheMissesAndCostsTime) {
  const auto run = [](const char* toml, uint64_t& misses) {
    ModelPair pair(with(toml));
    Batch batch;
    batch.read(pair.at(0, 8), pair.in_dram(0));
    pair.execute(batch);
    const uint64_t before = pair.server_host().rnic_counters().cache_misses();
    const uint64_t time_ns = pair.execute(batch);
    misses = pair.server_host().rnic_counters().cache_misses() - before;
    return time_ns;
  };
  uint64_t hits = 1, misses = 0;
  const uint64_t fast_ns = run("", hits);
  const uint64_t slow_ns = run("[rnic]\ncache_bytes = 0\n", misses);
  EXPECT_EQ(hits, 0u);
  EXPECT_EQ(misses, 3u);  // queue pair, region, page
  EXPECT_GT(slow_ns, fast_ns + 1000);
}

TEST(ModelTopology, ImpossibleOnesAreRefusedInOneLine) {
  base::VirtualClock clock;
  base::Executor executor(clock);
  const auto refusal = [&](const Topology& topology) {
    const auto made = Cluster::create(executor, *named_parameters("optane-cx5"), topology);
    return made ? std::string("accepted") : made.error().message;
  };
  EXPECT_NE(refusal({.hosts = 0}).find("from 1 to 1024 hosts"), std::string::npos);
  EXPECT_NE(refusal({.sockets = 9}).find("sockets"), std::string::npos);
  EXPECT_NE(refusal({.sockets = 2, .rnics = 3}).find("each of its 2 sockets"), std::string::npos);
}

// A refusal is not an answer, however soon one would have been there: neither that of the request
// itself nor those of what was posted behind it.
TEST(ModelBreaks, WhatEndsItsConnectionIsNotAnswered) {
  for (const bool loops_back : {false, true}) {
    for (const fabric::Fault how : {fabric::Fault::kBreakBefore, fabric::Fault::kBreakAfter}) {
      ModelPair pair(*named_parameters("optane-cx5"), {.ddio = false});
      Watcher watcher;
      pair.server_host().set_nvm_observer(&watcher);
      auto own_region = *pair.server->register_memory(pair.local.bytes, fabric::kEverything);
      std::unique_ptr<fabric::Connection> loopback;
      if (loops_back) loopback = *pair.executor.run(pair.server->loopback());
      fabric::Connection& connection = loops_back ? *loopback : *pair.connection;
      fabric::MemoryRegion* const local = loops_back ? own_region.get() : pair.local_region.get();
      const auto at = [&](size_t offset) {
        return fabric::LocalBuffer{pair.local.bytes.data() + offset, 8, local};
      };
      std::array<fabric::Completion, 3> done;
      fabric::FailNthRequest fault(2, fabric::FaultSide::kConnector, {how});
      const fabric::ScopedFaultInjector injected(fault);
      for (size_t i = 0; i < done.size(); ++i) {
        Batch batch;
        batch.compare_swap(at(8 * i), pair.in_nvm(64 * i), 0, 7);
        ASSERT_TRUE(connection.post(batch, &done[i]));
        if (i == 0) pair.pass(10'000);
      }
      pair.pass(100'000);
      EXPECT_TRUE(done[0].ok());
      EXPECT_TRUE(done[1].done() && !done[1].ok());
      EXPECT_TRUE(done[2].done() && !done[2].ok());
      EXPECT_EQ(pair.nvm_byte(64), how == fabric::Fault::kBreakAfter ? 7 : 0);
      EXPECT_EQ(pair.nvm_byte(128), 0);
      EXPECT_EQ(watcher.landings.size(), how == fabric::Fault::kBreakAfter ? 2u : 1u)
          << "what has not happened is not told";
    }
  }
}

// Small requests behind large ones pass through what they share sooner; not before them.
TEST(ModelOrder, NothingOvertakesWhatWasPostedBeforeIt) {
  constexpr size_t kLast = ModelPair::kBytes / 2;
  for (const size_t bytes : {1024u, 4096u, 16384u, 65536u}) {
    ModelPair pair;
    std::vector<std::unique_ptr<fabric::Completion>> done;
    for (size_t round = 1; round <= 4; ++round) {
      pair.fill(0, bytes, 7);
      // Outstanding, one after the other: the READs must see the WRITE posted just before.
      Batch write;
      write.write(pair.at(0, bytes), pair.in_nvm(bytes * (round - 1)));
      Batch read;
      read.read(pair.at(kLast + round, 1), pair.in_nvm(bytes * round - 1));
      for (const Batch* batch : {&write, &read}) {
        done.push_back(std::make_unique<fabric::Completion>());
        ASSERT_TRUE(pair.connection->post(*batch, done.back().get()));
      }
    }
    for (int steps = 0; steps < 1000 && !done.back()->done(); ++steps) {
      pair.pass(100);
      for (size_t i = 1; i < done.size(); ++i) EXPECT_LE(done[i]->done(), done[i - 1]->done());
    }
    ASSERT_TRUE(done.back()->ok());
    for (size_t round = 1; round <= 4; ++round) {
      EXPECT_EQ(static_cast<int>(pair.local.bytes[kLast + round]), 7) << bytes << " B, " << round;
    }
  }
}

}  // namespace
}  // namespace pmstore::model
