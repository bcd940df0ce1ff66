// What RemoteAppender::append_all() promises, on every provider.
#include <array>

#include "tests/scenario/ring/ring_scenario.h"

namespace pmstore::scenario {
namespace {

using Entries = log::RemoteAppender::Entries;
using persist::WriteStrategy;

class AppendAll : public RingScenario {
 protected:
  static std::vector<std::string> texts(size_t count, uint64_t seed, size_t most = 900) {
    std::vector<std::string> all;
    for (size_t i = 0; i < count; ++i) all.push_back(text(seed + i, (seed + i) * 61 % most));
    return all;
  }
  // What a walk must find of `payloads`.
  void expect_found(RingLink& link, const std::vector<std::string>& payloads, uint64_t first) {
    const auto all = found(link);
    ASSERT_EQ(all.size(), payloads.size());
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i].sequence, first + i);
      EXPECT_EQ(all[i].checksum, payload_checksum(std::as_bytes(std::span(payloads[i])))) << i;
    }
  }
  // Until nothing of 4000 bytes fits any more.
  void fill(RingLink& link) {
    uint64_t sequence = 0;
    do {
      ++sequence;
    } while (append(link, sequence, text(sequence, 4000)));
  }
  uint64_t next_sequence_ = 1;
};

// Carries one number to the tail word.
class Rider final : public persist::WriteRider {
 public:
  Rider(fabric::Device& device, const fabric::RemoteRegion& to) : to_(to) {
    auto region = device.register_memory(std::as_writable_bytes(std::span(&value, 1)),
                                         fabric::Access::kLocal);
    EXPECT_TRUE(region);
    if (region) region_ = std::move(*region);
  }
  std::optional<Ride> board() override {
    return Ride{{reinterpret_cast<std::byte*>(&value), sizeof value, region_.get()}, to_.at(0)};
  }
  void departed() override { ++departures; }
  uint64_t value = 0;
  int departures = 0;

 private:
  fabric::RemoteRegion to_;
  std::unique_ptr<fabric::MemoryRegion> region_;
};

TEST_F(AppendAll, ManyEntriesAreOneWriteOneDoorbellOneRoundTrip) {
  auto link = connect();
  ASSERT_TRUE(link);
  const auto payloads = texts(40, 1);
  Entries entries;
  entries.next_sequence = &next_sequence_;
  const fabric::Counters before = link->connection->counters();
  const auto last = append_all(*link, payloads, entries);
  ASSERT_TRUE(last) << last.error().to_string();
  const fabric::Counters cost = link->connection->counters() - before;
  EXPECT_EQ(cost.doorbells, 1u);
  EXPECT_EQ(cost.round_trips, 1u);
  if (one_sided(*link)) {
    EXPECT_EQ(cost.work_requests, 2u) << "WRITE and READ";
    EXPECT_EQ(cost.completions, 1u);
    EXPECT_EQ(cost.server_messages, 0u);
    EXPECT_EQ(cost.bytes_written, last->next_lsn) << "with the gaps between them";
  }
  EXPECT_TRUE(entries.placed);
  EXPECT_EQ(entries.first_lsn, 0u);
  EXPECT_EQ(entries.last_sequence, 40u);
  EXPECT_EQ(next_sequence_, 41u);
  expect_found(*link, payloads, 1);
  EXPECT_EQ(found(*link).back().lsn, last->lsn);
}

TEST_F(AppendAll, AcrossTheEndOfTheAreaItIsTwoWrites) {
  auto link = connect();
  ASSERT_TRUE(link);
  uint64_t sequence = 0;
  const uint64_t area = kScenarioRingBytes - log::kRingHeaderBytes;
  while (link->appender->position().tail_lsn < area - 2000) {
    ++sequence;
    ASSERT_TRUE(append(*link, sequence, text(sequence, 900)));
  }
  ASSERT_TRUE(truncate(*link, link->appender->position().tail_lsn));
  next_sequence_ = 100;
  const std::vector<std::string> payloads = {text(1, 700), text(2, 20), text(3, 3000), text(4, 30)};
  Entries entries;
  entries.next_sequence = &next_sequence_;
  const fabric::Counters before = link->connection->counters();
  const auto last = append_all(*link, payloads, entries);
  ASSERT_TRUE(last) << last.error().to_string();
  const fabric::Counters cost = link->connection->counters() - before;
  EXPECT_GT(last->lsn, area);
  EXPECT_EQ(cost.doorbells, 1u);
  if (one_sided(*link)) {
    EXPECT_EQ(cost.work_requests, 3u) << "two WRITEs and a READ";
  }
  expect_found(*link, payloads, 100);
}

TEST_F(AppendAll, PiecesBecomeOneEntryBehindThePrefix) {
  auto link = connect();
  ASSERT_TRUE(link);
  const std::string prefix = "8 bytes!";
  Entries entries;
  entries.prefix = std::as_bytes(std::span(prefix));
  entries.gather = true;
  entries.next_sequence = &next_sequence_;
  const auto gathered = append_all(*link, {"one ", "", text(2, 500), " three"}, entries);
  ASSERT_TRUE(gathered) << gathered.error().to_string();
  entries.gather = false;
  ASSERT_TRUE(append_all(*link, {"a", "b"}, entries));
  expect_found(*link, {prefix + "one " + text(2, 500) + " three", prefix + "a", prefix + "b"}, 1);
}

TEST_F(AppendAll, RiderLandsWithTheEntries) {
  for (const WriteStrategy strategy : {WriteStrategy::kAuto, WriteStrategy::kTwoSided}) {
    LinkOptions options;
    options.owner = 10 + static_cast<uint64_t>(strategy);
    options.writer.strategy = strategy;
    auto link = connect(options);
    ASSERT_TRUE(link);
    Rider rider(*device_, link->answer.tail);
    link->writer->set_rider(rider);
    rider.value = 4711 + static_cast<uint64_t>(strategy);
    Entries entries;
    entries.next_sequence = &next_sequence_;
    const fabric::Counters before = link->connection->counters();
    ASSERT_TRUE(append_all(*link, {"entry"}, entries));
    const fabric::Counters cost = link->connection->counters() - before;
    const bool rides = link->writer->strategy() != WriteStrategy::kTwoSided;
    EXPECT_EQ(cost.doorbells, rides ? 1u : 2u);
    EXPECT_EQ(cost.round_trips, 1u);
    EXPECT_EQ(cost.completions, rides ? 1u : 0u);
    EXPECT_EQ(cost.server_messages, rides ? 0u : 1u);
    EXPECT_EQ(rider.departures, 1);
    EXPECT_EQ(published_tail(*link), rider.value);
    link.reset();
  }
}

TEST_F(AppendAll, AllOrNothingFits) {
  auto link = connect();
  ASSERT_TRUE(link);
  Entries entries;
  entries.next_sequence = &next_sequence_;
  const auto large = append_all(*link, std::vector<std::string>(8, text(1, 8000)), entries);
  EXPECT_EQ(large.code(), ErrorCode::kTooLarge) << "all together are more than the ring";
  EXPECT_EQ(append_all(*link, {"small", text(1, 40'000)}, entries).code(), ErrorCode::kTooLarge);
  ASSERT_TRUE(append_all(*link, std::vector<std::string>(5, text(1, 8000)), entries));
  const auto full = append_all(*link, std::vector<std::string>(3, text(2, 8000)), entries);
  EXPECT_EQ(full.code(), ErrorCode::kBackPressure);
  EXPECT_EQ(next_sequence_, 6u) << "what was not written has no number";
  EXPECT_EQ(found(*link).size(), 5u);
  ASSERT_TRUE(append_all(*link, std::vector<std::string>(2, text(2, 8000)), entries));
  EXPECT_EQ(found(*link).size(), 7u);
}

TEST_F(AppendAll, MoreThanTheStagingMemoryIsTooLarge) {
  LinkOptions options;
  options.staging_bytes = log::RemoteAppender::kMinStagingBytes;
  auto link = connect(options);
  ASSERT_TRUE(link);
  Entries entries;
  entries.next_sequence = &next_sequence_;
  const auto large = append_all(*link, std::vector<std::string>(3, text(1, 1400)), entries);
  EXPECT_EQ(large.code(), ErrorCode::kTooLarge);
  EXPECT_FALSE(entries.placed);
  ASSERT_TRUE(append_all(*link, std::vector<std::string>(2, text(1, 1400)), entries));
}

// Truncates the ring at the server when it is asked, after a while.
class Truncating final : public log::RemoteAppender::RoomMaker {
 public:
  explicit Truncating(base::Executor& executor) : executor_(executor) {}
  base::Task<Result<uint64_t>> make_room(uint64_t tail_lsn, uint64_t bytes) override {
    ++asked;
    asked_bytes = bytes;
    co_await executor_.sleep_for(2'000'000);
    if (refuse) co_return make_error(ErrorCode::kFenced, "no");
    start = tail_lsn - keep;
    co_return start;
  }
  bool refuse = false;
  uint64_t keep = 0;
  uint64_t start = 0;
  uint64_t asked_bytes = 0;
  int asked = 0;

 private:
  base::Executor& executor_;
};

struct Results {
  explicit Results(base::Executor& executor) : changed(executor) {}
  std::vector<Result<log::RemoteAppender::Appended>> all;
  base::WaitList changed;
};

base::Task<void> append_in_order(log::RemoteAppender& appender, Entries& entries,
                                 Results& results) {
  results.all.push_back(co_await appender.append_all(entries));
  results.changed.notify_all();
}
base::Task<void> wait_until(Results& results, size_t count) {
  while (results.all.size() < count) co_await results.changed.wait();
}

TEST_F(AppendAll, WhileRoomIsMadeLaterAppendsWait) {
  auto link = connect();
  ASSERT_TRUE(link);
  fill(*link);
  Truncating room(executor_);
  std::vector<std::string> payloads = {text(1, 4000), "small enough to fit in the rest"};
  std::array<std::span<const std::byte>, 2> spans;
  std::array<Entries, 2> entries;
  next_sequence_ = 1000;
  Results results(executor_);
  for (size_t i = 0; i < 2; ++i) {
    spans[i] = std::as_bytes(std::span(payloads[i]));
    entries[i].payloads = std::span(spans).subspan(i, 1);
    entries[i].next_sequence = &next_sequence_;
    entries[i].room = &room;
    executor_.spawn(append_in_order(*link->appender, entries[i], results));
  }
  executor_.run(wait_until(results, 2));
  ASSERT_TRUE(results.all[0] && results.all[1]);
  EXPECT_EQ(room.asked, 1);
  EXPECT_GE(room.asked_bytes, 4096u);
  EXPECT_EQ(entries[0].last_sequence, 1000u);
  EXPECT_EQ(entries[1].last_sequence, 1001u);
  EXPECT_LT(results.all[0]->lsn, results.all[1]->lsn);
}

TEST_F(AppendAll, RoomThatIsNotEnoughOrRefusedIsAnErrorWithoutHarm) {
  auto link = connect();
  ASSERT_TRUE(link);
  fill(*link);
  Truncating room(executor_);
  Entries entries;
  entries.next_sequence = &next_sequence_;
  entries.room = &room;
  room.refuse = true;
  EXPECT_EQ(append_all(*link, {text(1, 4000)}, entries).code(), ErrorCode::kFenced);
  room.refuse = false;
  room.keep = link->appender->position().tail_lsn - link->appender->position().start_lsn;
  EXPECT_EQ(append_all(*link, {text(1, 4000)}, entries).code(), ErrorCode::kBackPressure);
  room.keep = 0;
  EXPECT_TRUE(append_all(*link, {text(1, 4000)}, entries));
  EXPECT_EQ(next_sequence_, 2u);
}

TEST_F(AppendAll, ManyLapsOfBatchesOfAllSizesComeBack) {
  auto link = connect();
  ASSERT_TRUE(link);
  Random random(11);
  std::vector<std::string> all;
  Entries entries;
  entries.next_sequence = &next_sequence_;
  while (link->appender->position().tail_lsn < 4 * kScenarioRingBytes) {
    std::vector<std::string> payloads;
    const size_t count = 1 + random.below(30);
    for (size_t i = 0; i < count; ++i) {
      const size_t most = random.below(4) == 0 ? 2000 : 150;
      payloads.push_back(text(next_sequence_ + i, random.below(most)));
    }
    auto last = append_all(*link, payloads, entries);
    if (!last) {
      ASSERT_EQ(last.code(), ErrorCode::kBackPressure) << last.error().to_string();
      expect_found(*link, all, next_sequence_ - all.size());
      ASSERT_TRUE(truncate(*link, link->appender->position().tail_lsn));
      all.clear();
      last = append_all(*link, payloads, entries);
      ASSERT_TRUE(last) << last.error().to_string();
    }
    all.insert(all.end(), payloads.begin(), payloads.end());
  }
  expect_found(*link, all, next_sequence_ - all.size());
}

}  // namespace
}  // namespace pmstore::scenario
