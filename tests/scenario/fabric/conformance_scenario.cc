// Every capability that a provider declares (fabric/capabilities.h) is kept, with many batches
// under way, beside a CPU that works in the same memory, and with a peer that is slow and uneven.
#include <algorithm>
#include <thread>

#include "base/checksum.h"
#include "base/random.h"
#include "tests/scenario/fabric/fabric_scenario.h"
#include "tests/scenario/fabric/slow_peer.h"

namespace pmstore::scenario {
namespace {

using fabric::AtomicScope;
using fabric::Batch;
using fabric::Completion;

// The shared memory of the target.
constexpr uint64_t kArea = 0;
constexpr uint64_t kWord = 3u << 20;
// Values in words that a large WRITE may have half written differ in one byte only.
constexpr uint64_t kMaxValue = 250;

enum class Pace { kUsual, kSlow };

std::vector<Pace> paces() {
  if (SlowPeer::possible()) return {Pace::kUsual, Pace::kSlow};
  return {Pace::kUsual};
}

class Conformance : public FabricScenario, public testing::WithParamInterface<Pace> {
 protected:
  void SetUp() override {
    FabricScenario::SetUp();
    if (HasFatalFailure()) return;
    if (GetParam() == Pace::kSlow) {
      auto slow = SlowPeer::start(*target_, random_.next());
      ASSERT_TRUE(slow) << slow.error().to_string();
      slow_ = std::move(*slow);
      way_ = slow_->way();
    }
    link_ = connect_raw();
    ASSERT_NE(link_, nullptr);
    std::memset(at(0), 0, kLocalBytes);
    Batch clear;
    clear.write(local(0, kLocalBytes), shared().at(0));
    land(clear);
  }
  void TearDown() override {
    completions_.clear();
    link_.reset();
    slow_.reset();
    FabricScenario::TearDown();
  }

  fabric::Connection& connection() { return *link_->connection; }
  const fabric::RemoteRegion& shared() const { return link_->hello.shared; }
  const fabric::Capabilities& declared() { return connection().capabilities(); }

  // Executes WRITEs that are in the target's memory then, as their completions do not say.
  void land(Batch& writes) {
    if (declared().read_after_write) writes.read(local(kLocalBytes - 8, 8), shared().at(kWord));
    ASSERT_TRUE(execute(connection(), writes));
  }
  // Posts, also when it has to wait for room, and does not wait for the completion.
  void post(const Batch& batch, RawLink& link) {
    completions_.push_back(std::make_unique<Completion>());
    Status posted;
    const auto is_posted = [&] {
      posted = link.connection->post(batch, completions_.back().get());
      return posted || posted.code() != ErrorCode::kBackPressure;
    };
    ASSERT_TRUE(run_until(is_posted, kPatientTimeoutNs));
    ASSERT_TRUE(posted) << posted.error().to_string();
  }
  void post(const Batch& batch) { post(batch, *link_); }
  // Adds `add` of one request to the batch under way, which is posted when it is full, or by
  // chance.
  template <typename Add>
  void chain(Add add) {
    add(batch_);
    if (batch_.size() + 2 > Batch::kMaxWorkRequests || random_.below(12) == 0) end_chain();
  }
  void end_chain() {
    if (batch_.empty()) return;
    post(batch_);
    batch_.clear();
    if (random_.below(4) == 0) pass(2'000);
  }
  void pass(uint64_t ns) {
    executor_.run([](base::Executor& executor, uint64_t duration_ns) -> base::Task<void> {
      co_await executor.sleep_for(duration_ns);
    }(executor_, ns));
  }
  // All that was posted is done. First lets it wait a while, so that it backs up.
  void finish() {
    end_chain();
    if (!same_thread() && !modelled()) {
      executor_.run_once();
      std::this_thread::sleep_for(std::chrono::microseconds(random_.below(1'000)));
    }
    const auto all_done = [&] {
      return std::all_of(completions_.begin(), completions_.end(),
                         [](const auto& each) { return each->done(); });
    };
    ASSERT_TRUE(run_until(all_done, kPatientTimeoutNs));
    for (const auto& each : completions_) ASSERT_TRUE(each->ok());
    completions_.clear();
  }

  void start_cpu(CpuWork work, uint64_t area_bytes, uint64_t area = kArea, uint64_t word = kWord) {
    ASSERT_TRUE(call_with(kStartCpu, CpuTask{work, area, area_bytes, word}));
  }
  CpuReport stop_cpu() {
    CpuReport report{};
    const auto answer = call_with(kStopCpu, uint64_t{0});
    EXPECT_TRUE(answer) << answer.error().to_string();
    if (answer) std::memcpy(&report, answer->data(), sizeof report);
    EXPECT_EQ(report.violations, 0u)
        << "the word at " << report.first_offset << " was " << std::hex << report.first_found
        << ", the least is " << report.first_wanted;
    return report;
  }
  void set_words(size_t offset, size_t bytes, uint64_t value) {
    for (size_t i = 0; i < bytes; i += 8) std::memcpy(at(offset + i), &value, 8);
  }

  base::Random random_{20260101};
  std::unique_ptr<SlowPeer> slow_;
  std::unique_ptr<RawLink> link_;
  Batch batch_;
  std::vector<std::unique_ptr<Completion>> completions_;
};

// The CPU writes higher and higher numbers, each from front to back: a READ that begins at the
// front after another one has ended shows nothing that is lower.
TEST_P(Conformance, AReadIsNotOlderThanTheReadBefore) {
  if (!declared().read_after_read) GTEST_SKIP() << "not declared";
  constexpr uint32_t kAreaBytes = 256 << 10;
  constexpr uint32_t kSizes[] = {8, 8, 64, 72, 256, 1024, 4096, 16'384, 100'000, kAreaBytes};
  constexpr size_t kUnused = kLocalBytes - kAreaBytes;
  start_cpu(CpuWork::kRaise, kAreaBytes);
  std::vector<uint64_t> least(kAreaBytes / 8);
  uint64_t first_seen = 0;
  for (int round = 0; round < 6; ++round) {
    struct Read {
      size_t offset;
      uint32_t bytes;
    };
    std::vector<Read> reads;
    // More than sockets take, so that answers wait.
    for (uint64_t i = 30 + random_.below(20); i > 0; --i) {
      chain([&](Batch& batch) { batch.read(local(kUnused, kAreaBytes), shared().at(kArea)); });
    }
    for (size_t offset = 0; offset + kAreaBytes <= kUnused && reads.size() < 300;) {
      const uint32_t bytes = kSizes[random_.below(std::size(kSizes))];
      reads.push_back({offset, bytes});
      chain([&](Batch& batch) { batch.read(local(offset, bytes), shared().at(kArea)); });
      offset += bytes;
    }
    finish();
    if (HasFatalFailure()) return;
    for (size_t i = 0; i < reads.size(); ++i) {
      uint64_t newest = 0;
      for (size_t word = reads[i].bytes / 8; word-- > 0;) {
        const uint64_t value = word_at(reads[i].offset + word * 8);
        ASSERT_GE(value, least[word]) << "round " << round << ", READ " << i << " of "
                                      << reads[i].bytes << " bytes, word " << word;
        newest = std::max(newest, value);
        least[word] = newest;
      }
    }
    if (round == 0) first_seen = least[0];
  }
  stop_cpu();
  EXPECT_GT(least[0], first_seen) << "nothing has changed meanwhile";
}

TEST_P(Conformance, AReadSeesTheWritesBefore) {
  if (!declared().read_after_write) GTEST_SKIP() << "not declared";
  constexpr size_t kBack = kLocalBytes / 2;
  constexpr uint32_t kSizes[] = {8, 64, 72, 512, 520, 4096, 65'536, 150'000};
  for (int round = 0; round < 8; ++round) {
    std::vector<std::pair<size_t, uint32_t>> pairs;
    for (size_t offset = 0; pairs.size() < kMaxValue;) {
      const uint32_t bytes = kSizes[random_.below(std::size(kSizes))];
      if (offset + bytes > kBack) break;
      pairs.emplace_back(offset, bytes);
      set_words(offset, bytes, pairs.size());
      const auto to = shared().at(kArea);
      chain([&](Batch& batch) {
        batch.write(local(offset, bytes), to).read(local(kBack + offset, bytes), to);
      });
      offset += bytes;
    }
    finish();
    if (HasFatalFailure()) return;
    for (size_t i = 0; i < pairs.size(); ++i) {
      const auto [offset, bytes] = pairs[i];
      for (size_t word = 0; word < bytes; word += 8) {
        const uint64_t value = word_at(kBack + offset + word);
        ASSERT_GE(value, i + 1) << "round " << round << ", " << bytes << " bytes, at " << word;
        ASSERT_LE(value, pairs.size());
      }
    }
    std::memset(at(0), 0, kLocalBytes);
    Batch clear;
    clear.write(local(0, 150'000), shared().at(kArea));
    land(clear);
  }
}

// What follows a WRITE of the whole area.
enum class Then { kWrite, kImmediate, kAtomic };

class ConformanceOrder : public Conformance {
 protected:
  // With each round the area and then the word get the next number, and the CPU looks that the area
  // never has less than the word.
  void expect_area_first(Then then) {
    for (const uint32_t bytes : {8u, 64u, 512u, 520u, 4096u, 40'000u, 300'000u}) {
      std::memset(at(0), 0, bytes);
      Batch clear;
      clear.write(local(0, bytes), shared().at(kArea)).write(local(0, 8), shared().at(kWord));
      land(clear);
      start_cpu(CpuWork::kWatchOrder, bytes);
      const uint64_t rounds = std::min<uint64_t>(kMaxValue, (kLocalBytes - 4096) / bytes);
      for (uint64_t value = 1; value <= rounds; ++value) {
        const size_t from = (value - 1) * bytes;
        set_words(from, bytes, value);
        chain([&](Batch& batch) { batch.write(local(from, bytes), shared().at(kArea)); });
        chain([&](Batch& batch) { add(batch, then, local(from, 8), value); });
      }
      finish();
      if (HasFatalFailure()) return;
      run_until([&] { return raw_state(link_->hello.connection_id).immediates == sent_; },
                kPatientTimeoutNs);
      stop_cpu();
      EXPECT_EQ(raw_state(link_->hello.connection_id).immediates, sent_);
    }
  }
  void add(Batch& batch, Then then, fabric::LocalBuffer value_at, uint64_t value) {
    const auto word = shared().at(kWord);
    switch (then) {
      case Then::kWrite: batch.write(value_at, word); return;
      case Then::kImmediate:
        batch.write_immediate(value_at, word, static_cast<uint32_t>(value));
        ++sent_;
        return;
      case Then::kAtomic: batch.fetch_add(local(kLocalBytes - 8, 8), word, 1); return;
    }
  }
  uint64_t sent_ = 0;
};

TEST_P(ConformanceOrder, AWriteLandsAfterTheWriteBefore) {
  if (!declared().write_after_write) GTEST_SKIP() << "not declared";
  expect_area_first(Then::kWrite);
}

TEST_P(ConformanceOrder, AnImmediateArrivesAfterTheWriteBefore) {
  if (!declared().write_after_write) GTEST_SKIP() << "not declared";
  expect_area_first(Then::kImmediate);
}

TEST_P(ConformanceOrder, AnAtomicTakesEffectAfterTheWriteAndTheReadBefore) {
  if (!declared().atomic_after_write) GTEST_SKIP() << "not declared";
  expect_area_first(Then::kAtomic);
  if (HasFatalFailure()) return;
  // And after the READ before.
  constexpr uint32_t kReadBytes = 8192;
  constexpr size_t kOld = kLocalBytes / 2;
  std::memset(at(0), 0, kReadBytes);
  Batch clear;
  clear.write(local(0, kReadBytes), shared().at(kArea));
  land(clear);
  for (size_t i = 0; i < 200; ++i) {
    const size_t into = i * kReadBytes;
    chain([&](Batch& batch) { batch.read(local(into, kReadBytes), shared().at(kArea)); });
    // The last word that is read.
    const auto word = shared().at(kArea + kReadBytes - 8);
    chain([&](Batch& batch) { batch.fetch_add(local(kOld + i * 8, 8), word, 1); });
  }
  finish();
  for (size_t i = 0; i < 200; ++i) {
    ASSERT_EQ(word_at(kOld + i * 8), i);
    ASSERT_LE(word_at((i + 1) * kReadBytes - 8), i) << "it shows an addition behind it";
  }
}

class ConformanceAtomics : public Conformance {
 protected:
  static constexpr uint64_t kEach = 500;
  void SetUp() override {
    Conformance::SetUp();
    if (HasFatalFailure() || IsSkipped()) return;
    other_ = connect_raw();
    ASSERT_NE(other_, nullptr);
  }
  void TearDown() override {
    other_.reset();
    Conformance::TearDown();
  }
  void zero_word() {
    std::memset(at(0), 0, 8);
    Batch zero;
    zero.write(local(0, 8), shared().at(kWord));
    land(zero);
  }
  // Adds 1 by two connections, kEach times each; the word as each of them found it.
  std::vector<uint64_t> add_by_two() {
    for (uint64_t i = 0; i < 2 * kEach; i += 20) {
      for (RawLink* link : {link_.get(), other_.get()}) {
        Batch batch;
        for (uint64_t j = 0; j < 10; ++j) {
          const size_t into = (i + j) * 8 + (link == other_.get() ? 80 : 0);
          batch.fetch_add(local(into, 8), shared().at(kWord), 1);
        }
        post(batch, *link);
      }
    }
    finish();
    std::vector<uint64_t> found;
    for (size_t i = 0; i < 2 * kEach; ++i) found.push_back(word_at(i * 8));
    return found;
  }
  uint64_t read_word() {
    Batch read;
    read.read(local(kLocalBytes - 8, 8), shared().at(kWord));
    EXPECT_TRUE(execute(connection(), read));
    return word_at(kLocalBytes - 8);
  }
  std::unique_ptr<RawLink> other_;
};

TEST_P(ConformanceAtomics, AreAtomicAgainstWhatIsDeclared) {
  if (declared().atomics == AtomicScope::kNone) {
    Batch add;
    add.fetch_add(local(0, 8), shared().at(kWord), 1);
    Batch swap;
    swap.compare_swap(local(0, 8), shared().at(kWord), 0, 1);
    for (const Batch& batch : {add, swap}) {
      const Status posted = connection().post(batch, nullptr);
      ASSERT_FALSE(posted);
      EXPECT_EQ(posted.code(), ErrorCode::kUnsupported);
    }
    EXPECT_EQ(read_word(), 0u);
    return;
  }
  // Those of two connections come one after the other.
  std::vector<uint64_t> found = add_by_two();
  std::sort(found.begin(), found.end());
  for (size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i], i);
  EXPECT_EQ(read_word(), 2 * kEach);
  // Of two that expect the same, one finds it.
  zero_word();
  for (uint64_t turn = 0; turn < 100; ++turn) {
    Batch mine;
    mine.compare_swap(local(0, 8), shared().at(kWord), turn, turn + 1);
    Batch theirs;
    theirs.compare_swap(local(8, 8), shared().at(kWord), turn, turn + 1);
    post(mine);
    post(theirs, *other_);
    finish();
    if (HasFatalFailure()) return;
    ASSERT_EQ(word_at(0) + word_at(8), 2 * turn + 1);
  }
  EXPECT_EQ(read_word(), 100u);
  if (declared().atomics != AtomicScope::kGlobal) return;
  zero_word();
  start_cpu(CpuWork::kAdd, 8);
  found = add_by_two();
  const CpuReport cpu = stop_cpu();
  std::sort(found.begin(), found.end());
  EXPECT_EQ(std::adjacent_find(found.begin(), found.end()), found.end()) << "one was lost";
  EXPECT_EQ(read_word(), 2 * kEach + cpu.turns);
}

class ConformanceWords : public Conformance {};

TEST_P(ConformanceWords, AreReadWhole) {
  constexpr uint32_t kAreaBytes = 8192;
  start_cpu(CpuWork::kRaiseBytes, kAreaBytes);
  for (int round = 0; round < 40; ++round) {
    size_t end = 0;
    for (int i = 0; i < 60; ++i) {
      const auto bytes =
          static_cast<uint32_t>(8 + 8 * random_.below(random_.below(kAreaBytes / 8)));
      const uint64_t from = 8 * random_.below((kAreaBytes - bytes) / 8 + 1);
      chain([&](Batch& batch) { batch.read(local(end, bytes), shared().at(kArea + from)); });
      end += bytes;
    }
    finish();
    if (HasFatalFailure()) return;
    for (size_t offset = 0; offset < end; offset += 8) {
      const uint64_t word = word_at(offset);
      ASSERT_EQ(word, (word & 0xff) * 0x0101010101010101) << std::hex << word;
    }
  }
  stop_cpu();
}

TEST_P(ConformanceWords, AreWrittenWholeByWritesOfALine) {
  start_cpu(CpuWork::kWatchWords, 4096);
  for (int round = 0; round < 20; ++round) {
    for (uint64_t i = 0; i < 200; ++i) {
      std::memset(at(i * 64), static_cast<int>(random_.below(256)), 64);
      const auto bytes = static_cast<uint32_t>(8 + 8 * random_.below(8));
      const uint64_t to = 8 * random_.below(500);
      chain([&](Batch& batch) { batch.write(local(i * 64, bytes), shared().at(kArea + to)); });
    }
    finish();
    if (HasFatalFailure()) return;
  }
  stop_cpu();
}

class ConformanceFence : public Conformance {
 protected:
  // Nobody waits for these.
  void post_and_forget(const Batch& batch) {
    if (!connection().broken()) static_cast<void>(connection().post(batch, nullptr));
  }
  void expect_unchanged(const std::function<uint64_t()>& sum, uint64_t wanted) {
    for (int look = 0; look < 10; ++look) {
      ASSERT_EQ(sum(), wanted) << "something landed behind the fence";
      run_until([] { return false; }, 1'000'000);
    }
  }
};

TEST_P(ConformanceFence, NothingLandsAtTheTargetOnceItsEndIsDestroyed) {
  for (int round = 0; round < 3; ++round) {
    auto link = connect_raw();
    ASSERT_NE(link, nullptr);
    std::swap(link, link_);
    const uint64_t until = 30 + random_.below(100);
    fill_local(0, 1u << 20, random_.next());
    for (uint64_t i = 0; i < until; ++i) {
      const uint32_t bytes = i % 7 == 0 ? 300'000 : 64;
      Batch batch;
      batch.write(local(random_.below(700'000), bytes),
                  shared().at(kArea + 64 * random_.below(1000)));
      if (declared().atomics != AtomicScope::kNone) {
        batch.fetch_add(local(kLocalBytes - 8, 8), shared().at(kWord), 1);
      }
      post_and_forget(batch);
      executor_.run_once();
    }
    const auto fenced = call_with(kDestroyRaw, link_->hello.connection_id);
    ASSERT_TRUE(fenced) << fenced.error().to_string();
    uint64_t at_fence = 0;
    std::memcpy(&at_fence, fenced->data(), sizeof at_fence);
    expect_unchanged([&] { return target_checksum(0, 0, kSharedBytes); }, at_fence);
    std::swap(link, link_);
  }
}

TEST_P(ConformanceFence, NothingLandsHereOnceThisEndIsDestroyed) {
  for (int round = 0; round < 3; ++round) {
    auto link = connect_raw();
    ASSERT_NE(link, nullptr);
    std::swap(link, link_);
    // Answers of ours, and WRITEs of the target's.
    Batch batch;
    for (size_t i = 0; i < 8; ++i) {
      batch.read(local(i * 300'000, 300'000), shared().at(kArea + i));
    }
    ASSERT_TRUE(call_with(kFillShared, FillRequest{0, kSharedBytes, static_cast<uint8_t>(round)}));
    post_and_forget(batch);
    for (int i = 0; i < 6; ++i) {
      const SendRequest send{link_->hello.connection_id, region_->remote(), 400'000, 7,
                             static_cast<uint8_t>(100 + 10 * round + i)};
      ASSERT_TRUE(call_with(kSendToRaw, send));
    }
    const uint64_t turns = random_.below(20);
    for (uint64_t i = 0; i < turns; ++i) executor_.run_once();
    std::swap(link, link_);
    link.reset();
    const auto sum = [&] { return base::checksum64({at(0), kLocalBytes}, 0); };
    expect_unchanged(sum, sum());
  }
}

std::string pace_name(const testing::TestParamInfo<Pace>& info) {
  return info.param == Pace::kUsual ? "Usual" : "Slow";
}
#define PMSTORE_PACES(suite) \
  INSTANTIATE_TEST_SUITE_P(Pace, suite, testing::ValuesIn(paces()), pace_name)
PMSTORE_PACES(Conformance);
PMSTORE_PACES(ConformanceOrder);
PMSTORE_PACES(ConformanceAtomics);
PMSTORE_PACES(ConformanceWords);
PMSTORE_PACES(ConformanceFence);

}  // namespace
}  // namespace pmstore::scenario
