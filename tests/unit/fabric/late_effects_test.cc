// Late effects of the local provider: what may happen happens for some seed, what must not for
// none.
#include "fabric/local/late_effects.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "fabric/local/local_device.h"
#include "tests/unit/fabric/local_pair.h"

namespace pmstore::fabric {
namespace {

constexpr uint64_t kSeeds = 200;
constexpr size_t kBytes = 64 << 10;

// A client whose effects are late, as `seed` says, and a server; on one executor, in virtual time.
struct LatePair {
  explicit LatePair(uint64_t seed) : client(*open_local_device(executor, {seed})) {
    acceptor.receiver = &at_server;
    listener = *server->listen(uri, acceptor);
    connection = *executor.run(client->connect(uri, {}));
    connection->set_receiver(&at_client);
  }
  Connection& server_end() { return *acceptor.connections.front(); }
  void turns(int count) {
    for (int i = 0; i < count; ++i) executor.run_once();
  }
  void let_time_pass(uint64_t duration_ns) {
    executor.run([](base::Executor& on, uint64_t ns) -> base::Task<void> {
      co_await on.sleep_for(ns);
    }(executor, duration_ns));
  }
  Status execute(const Batch& batch) {
    return executor.run([](Connection& on, const Batch& what) -> base::Task<Status> {
      co_return co_await on.execute(what);
    }(*connection, batch));
  }

  base::VirtualClock clock;
  base::Executor executor{clock};
  std::unique_ptr<Device> server = *open_local_device(executor);
  std::unique_ptr<Device> client;
  const Uri uri = fresh_local_uri();
  RecordingReceiver at_server, at_client;
  Memory remote{*server, kBytes, kEverything};
  Memory local{*client, kBytes, kEverything};
  KeepingAcceptor acceptor;
  std::unique_ptr<Listener> listener;
  std::unique_ptr<Connection> connection;
};

TEST(LateEffects, AWriteMayLandAfterItsCompletionButNotAfterAReadBehindIt) {
  uint64_t late = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    LatePair pair(seed);
    pair.local.set_word(0, 7);
    Batch write;
    write.write(pair.local.at(0, 8), pair.remote.remote(0));
    ASSERT_TRUE(pair.execute(write));
    if (pair.remote.word(0) != 7) ++late;
    Batch read;
    read.read(pair.local.at(64, 8), pair.remote.remote(4096));
    ASSERT_TRUE(pair.execute(read));
    ASSERT_EQ(pair.remote.word(0), 7u) << "seed " << seed;
  }
  EXPECT_GT(late, kSeeds / 10);
  EXPECT_LT(late, kSeeds);
}

TEST(LateEffects, NothingHappensInsidePost) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    LatePair pair(seed);
    pair.local.set_word(0, 7);
    Batch batch;
    batch.write(pair.local.at(0, 8), pair.remote.remote(0));
    Completion completion;
    ASSERT_TRUE(pair.connection->post(batch, &completion));
    EXPECT_FALSE(completion.done());
    EXPECT_EQ(pair.remote.word(0), 0u);
    while (!completion.done()) pair.let_time_pass(100);
  }
}

// A READ of four lines beside a CPU that changes all of them in one turn.
TEST(LateEffects, WhatIsOnItsWayIsNotKnown) {
  LatePair pair(1);
  EXPECT_EQ(pair.server_end().arrivals(), Arrivals::kUnknown) << "some of its lines may be there";
  EXPECT_EQ(pair.connection->arrivals(), Arrivals::kUnknown) << "an answer's bytes may be read yet";
}

TEST(LateEffects, AReadIsTornBetweenLinesInAnyOrderAndNeverInsideOne) {
  std::set<std::vector<uint64_t>> seen;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    LatePair pair(seed);
    Batch read;
    const size_t from = (64 - reinterpret_cast<uintptr_t>(pair.remote.bytes.data()) % 64) % 64;
    read.read(pair.local.at(0, 256), pair.remote.remote(from));
    Completion completion;
    ASSERT_TRUE(pair.connection->post(read, &completion));
    for (uint64_t value = 1; !completion.done(); ++value) {
      for (size_t at = 0; at < 256; at += 8) pair.remote.set_word(from + at, value % 2);
      pair.let_time_pass(50);
    }
    std::vector<uint64_t> lines;
    for (size_t line = 0; line < 256; line += 64) {
      lines.push_back(pair.local.word(line));
      for (size_t at = 8; at < 64; at += 8) {
        ASSERT_EQ(pair.local.word(line + at), lines.back()) << "seed " << seed;
      }
    }
    seen.insert(lines);
  }
  EXPECT_GE(seen.size(), 12u) << "of 16 ways to tear it";
}

TEST(LateEffects, WritesReadsAndAtomicsKeepTheDeclaredOrder) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    LatePair pair(seed);
    pair.local.set_word(0, 1);
    pair.local.set_word(8, 2);
    Batch batch;
    batch.write(pair.local.at(0, 8), pair.remote.remote(0))
        .compare_swap(pair.local.at(64, 8), pair.remote.remote(0), 1, 5)
        .read(pair.local.at(72, 8), pair.remote.remote(0))
        .fetch_add(pair.local.at(80, 8), pair.remote.remote(0), 1);
    ASSERT_TRUE(pair.execute(batch));
    EXPECT_EQ(pair.local.word(64), 1u);
    EXPECT_EQ(pair.local.word(72), 5u);
    EXPECT_EQ(pair.local.word(80), 5u);
    EXPECT_EQ(pair.remote.word(0), 6u);
  }
}

TEST(LateEffects, AWriteBehindAReadMayOvertakeIt) {
  uint64_t overtaken = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    LatePair pair(seed);
    pair.local.set_word(0, 1);
    Batch batch;
    batch.read(pair.local.at(64, 8), pair.remote.remote(0))
        .write(pair.local.at(0, 8), pair.remote.remote(0));
    ASSERT_TRUE(pair.execute(batch));
    overtaken += pair.local.word(64);
  }
  EXPECT_GT(overtaken, 0u);
  EXPECT_LT(overtaken, kSeeds);
}

// Of 32 WRITEs, each to its own line, with one completion in the middle.
std::vector<uint64_t> post_writes(LatePair& pair, Completion& completion) {
  std::vector<uint64_t> values;
  for (uint64_t i = 0; i < 32; ++i) {
    pair.local.set_word(i * 64, i + 1);
    Batch batch;
    batch.write(pair.local.at(i * 64, 8), pair.remote.remote(i * 64));
    EXPECT_TRUE(pair.connection->post(batch, i == 15 ? &completion : nullptr));
    values.push_back(i + 1);
  }
  return values;
}

size_t landed(const LatePair& pair) {
  size_t count = 0;
  while (count < 32 && pair.remote.word(count * 64) == count + 1) ++count;
  for (size_t i = count; i < 32; ++i) EXPECT_EQ(pair.remote.word(i * 64), 0u) << "out of order";
  return count;
}

TEST(LateEffects, NothingLandsOnceTheTargetsEndIsDestroyed) {
  std::set<size_t> counts;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    LatePair pair(seed);
    Completion completion;
    post_writes(pair, completion);
    pair.turns(static_cast<int>(seed % 40));
    const bool acknowledged = completion.done() && completion.ok();
    pair.acceptor.connections.clear();
    const size_t at_fence = landed(pair);
    EXPECT_GE(at_fence, acknowledged ? 16u : 0u) << "seed " << seed;
    pair.let_time_pass(10'000'000);
    ASSERT_EQ(landed(pair), at_fence) << "seed " << seed;
    EXPECT_TRUE(completion.done());
    EXPECT_EQ(pair.at_client.disconnects.size(), 1u);
    counts.insert(at_fence);
  }
  EXPECT_GT(counts.size(), 10u);
}

TEST(LateEffects, WhatADestroyedPosterHasSentLandsUntilTheTargetsEndGoes) {
  uint64_t afterwards = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    LatePair pair(seed);
    Completion completion;
    post_writes(pair, completion);
    pair.turns(static_cast<int>(seed % 40));
    const bool acknowledged = completion.done();
    pair.connection.reset();
    std::fill(pair.local.bytes.begin(), pair.local.bytes.end(), std::byte{0xee});
    const size_t at_destruction = landed(pair);
    pair.let_time_pass(10'000);
    const size_t later = landed(pair);
    afterwards += later - at_destruction;
    pair.acceptor.connections.clear();
    const size_t at_fence = landed(pair);
    EXPECT_GE(at_fence, acknowledged ? 16u : 0u) << "seed " << seed;
    pair.let_time_pass(10'000'000);
    ASSERT_EQ(landed(pair), at_fence) << "seed " << seed;
  }
  EXPECT_GT(afterwards, 0u);
}

TEST(LateEffects, NothingLandsInARegionThatWasWithdrawn) {
  uint64_t refused = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    LatePair pair(seed);
    Completion completion;
    post_writes(pair, completion);
    pair.turns(static_cast<int>(seed % 40));
    const bool acknowledged = completion.done();
    pair.remote.region.reset();
    const size_t withdrawn = landed(pair);
    EXPECT_GE(withdrawn, acknowledged ? 16u : 0u) << "seed " << seed;
    pair.let_time_pass(10'000'000);
    ASSERT_EQ(landed(pair), withdrawn) << "seed " << seed;
    if (withdrawn == 32) continue;
    ASSERT_TRUE(pair.connection->broken());
    EXPECT_EQ(pair.connection->why_broken().code, ErrorCode::kAccess);
    ++refused;
  }
  EXPECT_GT(refused, 0u);
}

// The order in which things happen at two connections.
std::vector<uint64_t> history(uint64_t seed) {
  LatePair pair(seed);
  auto other = *pair.executor.run(pair.client->connect(pair.uri, {}));
  std::vector<uint64_t> states;
  Batch one, two;
  pair.local.set_word(0, 1);
  for (size_t i = 0; i < 8; ++i) {
    one.write(pair.local.at(0, 8), pair.remote.remote(i * 64));
    two.write(pair.local.at(0, 8), pair.remote.remote(4096 + i * 64));
  }
  EXPECT_TRUE(pair.connection->post(one, nullptr) && other->post(two, nullptr));
  for (int i = 0; i <= 500; ++i) {
    uint64_t state = 0;
    for (size_t line = 0; line < 8; ++line) {
      state += pair.remote.word(line * 64) + 16 * pair.remote.word(4096 + line * 64);
    }
    if (states.empty() || states.back() != state) states.push_back(state);
    pair.let_time_pass(i < 499 ? 50 : 100'000'000);
  }
  return states;
}

TEST(LateEffects, TheSameSeedIsTheSameRunAndConnectionsInterleave) {
  std::set<std::vector<uint64_t>> different;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const auto states = history(seed);
    EXPECT_EQ(states, history(seed)) << "seed " << seed;
    EXPECT_EQ(states.back(), 8u + 16 * 8) << "everything lands";
    different.insert(states);
  }
  EXPECT_GT(different.size(), 20u);
}

// Two threads: the fence holds, and the thread sanitizer has something to look at.
TEST(LateEffects, TheFenceHoldsBetweenThreads) {
  const Uri uri = fresh_local_uri();
  for (uint64_t seed = 0; seed < 40; ++seed) {
    base::RealClock clock;
    base::Executor executor(clock);
    auto server = *open_local_device(executor);
    Memory remote(*server, 4096, kEverything);
    KeepingAcceptor acceptor;
    auto listener = *server->listen(uri, acceptor);
    const RemoteRegion target = remote.region->remote();
    std::atomic<uint64_t> acknowledged{0};
    std::thread client([&] {
      base::RealClock own_clock;
      base::Executor own(own_clock);
      auto device = *open_local_device(own, {seed});
      Memory local(*device, 4096, kEverything);
      auto connection = *own.run(device->connect(uri, {}));
      own.run([](Connection& on, Memory& from, RemoteRegion to,
                 std::atomic<uint64_t>& count) -> base::Task<void> {
        for (uint64_t value = 1;; ++value) {
          from.set_word(0, value);
          Batch batch;
          batch.write(from.at(0, 8), to.at(0)).read(from.at(64, 8), to.at(0));
          if (!co_await on.execute(batch)) co_return;
          count.store(value);
        }
      }(*connection, local, target, acknowledged));
    });
    while (acknowledged.load() < 20) executor.run_once();
    acceptor.connections.clear();
    const uint64_t at_fence = remote.word(0);
    client.join();
    EXPECT_EQ(remote.word(0), at_fence);
    EXPECT_GE(at_fence, acknowledged.load());
  }
}

}  // namespace
}  // namespace pmstore::fabric
