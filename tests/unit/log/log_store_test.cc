// LogStore: directory, appends, room. Producers are in log_store_producer_test.cc, damage in
// log_damage_test.cc.
#include "log/log_store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/checksum.h"
#include "log/log_layout.h"
#include "tests/unit/log/log_pool.h"
#include "tests/unit/persist/scratch.h"

namespace pmstore::log {
namespace {

TEST(LogName, PrintableWithoutSpace) {
  EXPECT_TRUE(check_log_name("orders/eu-1"));
  EXPECT_TRUE(check_log_name(std::string(kMaxLogNameBytes, 'x')));
  for (const std::string& bad :
       {std::string(), std::string("a b"), std::string("a\n"), std::string("\xc3\xa9"),
        std::string("\x7f"), std::string(kMaxLogNameBytes + 1, 'x')}) {
    EXPECT_EQ(check_log_name(bad).code(), ErrorCode::kInvalidArgument) << bad;
  }
}

TEST(LogPolicy, NamesAndBack) {
  EXPECT_EQ(*parse_full_policy("trim-oldest"), FullPolicy::kTrimOldest);
  EXPECT_EQ(*parse_full_policy("back-pressure"), FullPolicy::kBackPressure);
  EXPECT_EQ(parse_full_policy("drop").code(), ErrorCode::kInvalidArgument);
}

TEST(LogStore, WhatWasAppendedIsThereAfterReopening) {
  LogPool pool;
  const uint64_t a = pool.make("a");
  const uint64_t b = pool.make("b");
  ASSERT_TRUE(pool.append(a, {"one"}));
  ASSERT_TRUE(pool.append(b, {"uno", text_of(1, 300)}));
  ASSERT_TRUE(pool.append(a, {text_of(2, 1000), "three"}));
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(entries_of(pool.store(), "a"),
              (std::vector<TestEntry>{{1, "one"}, {2, text_of(2, 1000)}, {3, "three"}}));
    EXPECT_EQ(entries_of(pool.store(), "b"),
              (std::vector<TestEntry>{{1, "uno"}, {2, text_of(1, 300)}}));
    EXPECT_EQ(pool.store().find("a")->next_index, 4u);
    EXPECT_TRUE(pool.store().find("a")->damaged.empty());
    pool.reopen();
  }
  ASSERT_TRUE(pool.append(a, {"four"}));
  EXPECT_EQ(entries_of(pool.store(), "a").back(), (TestEntry{4, "four"}));
}

constexpr persist::PaddingRules kUnpadded{
    .xp_line = false, .one_sided_line = false, .two_sided_line = false};

TEST(LogStore, EntriesFollowThePoolsRulesAlsoAfterReopening) {
  LogPool pool(kTestArea, persist::Domain::kMemoryController, kUnpadded);
  const uint64_t log = pool.make("a");
  std::vector<TestEntry> expected;
  for (uint64_t number = 1; number <= 200; ++number) {
    const std::string text = text_of(number, 1 + number % 290);
    const auto appended = pool.append(log, {text});
    ASSERT_TRUE(appended) << appended.error().to_string();
    // Header and index, payload; nothing but what 8-byte LSNs need.
    EXPECT_EQ(appended->last.next_lsn - appended->last.lsn,
              persist::round_up(sizeof(EntryHeader) + sizeof(LogEntryPrefix) + text.size(), 8));
    expected.push_back({number, text});
    if (number % 20 != 0) continue;
    pool.reopen();
    EXPECT_EQ(entries_of(pool.store(), "a"), expected);
    EXPECT_TRUE(pool.store().trim(log, appended->last.lsn));
    expected.erase(expected.begin(), expected.end() - 1);
  }
}

TEST(LogStore, AProducerIsToldThePoolsRulesButThatOfAReplicatedLogAll) {
  const auto told = [](LogPool& pool, std::string_view name) {
    const auto info = pool.store().find(name).value();
    return pool.store().acquire(info.id, info.membership).value().padding;
  };
  LogPool padded;
  padded.make("a");
  EXPECT_EQ(told(padded, "a"), persist::PaddingRules{});
  LogPool pool(kTestArea, persist::Domain::kMemoryController, kUnpadded);
  pool.make("a");
  EXPECT_EQ(told(pool, "a"), kUnpadded);
  // Every replica of a log has an entry at the same LSN, whatever the rules of its pool.
  const std::vector<std::string> replicas = {"tcp://a:1", "tcp://b:2"};
  ASSERT_TRUE(pool.store().create("r", {kTestLog, FullPolicy::kBackPressure}, {replicas, 0}));
  EXPECT_EQ(told(pool, "r"), persist::PaddingRules{});
}

TEST(LogStore, EpochGrowsWithEachOpening) {
  LogPool pool;
  const uint64_t first = pool.store().epoch();
  const uint64_t identity = pool.store().area_identity();
  pool.reopen();
  EXPECT_GT(pool.store().epoch(), first);
  EXPECT_EQ(pool.store().area_identity(), identity);
}

TEST(LogStore, TailIsPublishedOnlyByTheCommit) {
  LogPool pool;
  const uint64_t id = pool.make("a");
  ASSERT_TRUE(pool.append(id, {"one"}, false));
  EXPECT_EQ(pool.words_of(id).tail_lsn, 0u);
  EXPECT_EQ(pool.store().info(id)->tail_lsn, 0u);
  EXPECT_EQ(pool.store().info(id)->next_index, 1u);
  const auto drains = pool.pool().memory().stats().drains;
  ASSERT_TRUE(pool.append(id, {"two"}, false));
  ASSERT_TRUE(pool.append(pool.make("b"), {"x"}, false));
  const auto after_create = pool.pool().memory().stats().drains;
  ASSERT_TRUE(pool.store().commit_appends());
  EXPECT_EQ(pool.pool().memory().stats().drains, after_create + 1);
  EXPECT_GT(after_create, drains);
  EXPECT_EQ(pool.words_of(id).tail_lsn, 128u);
  ASSERT_TRUE(pool.store().commit_appends());
  EXPECT_EQ(pool.pool().memory().stats().drains, after_create + 1);
}

TEST(LogStore, EntryCarriesWhatWasDurableBefore) {
  LogPool pool;
  const uint64_t id = pool.make("a");
  ASSERT_TRUE(pool.append(id, {"one"}));
  const auto range = pool.append(id, {"two", "three"});
  ASSERT_TRUE(range);
  LogEntryPrefix prefix;
  std::memcpy(&prefix, pool.data_of(id, range->last.lsn) + sizeof(EntryHeader), sizeof prefix);
  EXPECT_EQ(prefix.durable_lsn, range->first.lsn);
}

TEST(LogStore, NamesAreUniqueAndIdsAreNeverReused) {
  LogPool pool;
  const uint64_t first = pool.make("a");
  EXPECT_EQ(pool.store().create("a", {kTestLog, FullPolicy::kBackPressure}).code(),
            ErrorCode::kAlreadyExists);
  EXPECT_EQ(pool.store().create("a b", {kTestLog, FullPolicy::kBackPressure}).code(),
            ErrorCode::kInvalidArgument);
  ASSERT_TRUE(pool.store().erase(first));
  EXPECT_EQ(pool.store().find("a").code(), ErrorCode::kNotFound);
  pool.reopen();
  EXPECT_EQ(pool.store().find("a").code(), ErrorCode::kNotFound);
  const uint64_t second = pool.make("a");
  EXPECT_GT(second, first);
  EXPECT_EQ(pool.store().info(first).code(), ErrorCode::kNotFound);
  EXPECT_TRUE(entries_of(pool.store(), "a").empty());
}

TEST(LogStore, WordIsNobodysBeforeTheRegionIsAnothers) {
  LogPool pool;
  const uint64_t id = pool.make("a");
  LogWords& words = pool.words_of(id);
  EXPECT_EQ(words.id, id);
  ASSERT_TRUE(pool.store().erase(id));
  EXPECT_EQ(words.id, 0u);
}

TEST(LogStore, RoomOfDeletedLogsIsGivenAgain) {
  LogPool pool;
  std::vector<uint64_t> ids;
  LogOptions options;
  options.bytes = 40 * 1024;
  for (;;) {
    auto made = pool.store().create("log" + std::to_string(ids.size()), options);
    if (!made) {
      EXPECT_EQ(made.code(), ErrorCode::kFull);
      EXPECT_NE(made.error().message.find("the largest that fits has"), std::string::npos);
      break;
    }
    ids.push_back(made->id);
  }
  ASSERT_EQ(ids.size(), 5u);
  ASSERT_TRUE(pool.append(ids[1], {"keep"}));
  ASSERT_TRUE(pool.store().erase(ids[2]));
  ASSERT_TRUE(pool.store().erase(ids[3]));
  options.bytes = 80 * 1024;
  ASSERT_TRUE(pool.store().create("large", options));
  pool.reopen();
  EXPECT_EQ(entries_of(pool.store(), "log1"), (std::vector<TestEntry>{{1, "keep"}}));
  EXPECT_EQ(pool.store().list().size(), 4u);
}

TEST(LogStore, PlacesAreBounded) {
  LogPool pool(512 * 1024);
  for (int i = 0; i < 8; ++i) pool.make("log" + std::to_string(i));
  const auto more = pool.store().create("more", {kTestLog, FullPolicy::kBackPressure});
  ASSERT_FALSE(more);
  EXPECT_EQ(more.code(), ErrorCode::kFull);
}

TEST(LogStore, ReplicasAreKept) {
  LogPool pool;
  const std::vector<std::string> replicas = {"tcp://a:1", "tcp://b:2"};
  ASSERT_TRUE(pool.store().create("r", {kTestLog, FullPolicy::kTrimOldest}, {replicas, 1}));
  pool.reopen();
  const auto info = pool.store().find("r");
  ASSERT_TRUE(info);
  EXPECT_EQ(info->replicas, replicas);
  EXPECT_EQ(info->when_full, FullPolicy::kTrimOldest);
  EXPECT_EQ(info->bytes, kTestLog);
  EXPECT_EQ(pool.store().create("s", {kTestLog, FullPolicy::kBackPressure}, {replicas, 2}).code(),
            ErrorCode::kInvalidArgument);
}

TEST(LogStore, SealedTakesNothingMoreAndStaysAsItIs) {
  LogPool pool;
  const uint64_t id = pool.make("a");
  ASSERT_TRUE(pool.append(id, {"one"}, false));
  ASSERT_TRUE(pool.store().seal(id));
  ASSERT_TRUE(pool.store().seal(id));
  EXPECT_EQ(pool.words_of(id).sealed, 1u);
  EXPECT_EQ(pool.append(id, {"two"}).code(), ErrorCode::kSealed);
  EXPECT_EQ(pool.store().acquire(id, 1).code(), ErrorCode::kSealed);
  pool.reopen();
  EXPECT_TRUE(pool.store().info(id)->sealed);
  EXPECT_EQ(pool.words_of(id).sealed, 1u);
  EXPECT_EQ(pool.append(id, {"two"}).code(), ErrorCode::kSealed);
  EXPECT_EQ(entries_of(pool.store(), "a"), (std::vector<TestEntry>{{1, "one"}}));
  ASSERT_TRUE(pool.store().trim(id, pool.store().info(id)->tail_lsn));
  pool.reopen();
  EXPECT_TRUE(entries_of(pool.store(), "a").empty());
  EXPECT_TRUE(pool.store().info(id)->damaged.empty());
}

TEST(LogStore, TrimGoesToEntriesOnly) {
  LogPool pool;
  const uint64_t id = pool.make("a");
  std::vector<uint64_t> lsns;
  for (uint64_t i = 1; i <= 20; ++i) {
    lsns.push_back(pool.append(id, {text_of(i, 10 + 37 * i)})->first.lsn);
  }
  EXPECT_EQ(pool.store().trim(id, lsns[3] + 8).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(pool.store().trim(id, 1u << 30).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(*pool.store().trim(id, lsns[3]), lsns[3]);
  EXPECT_EQ(*pool.store().trim(id, lsns[1]), lsns[3]);
  EXPECT_EQ(pool.words_of(id).start_lsn, lsns[3]);
  EXPECT_EQ(entries_of(pool.store(), "a").front().index, 4u);
  EXPECT_EQ(*pool.store().trim_below_index(id, 11), lsns[10]);
  pool.reopen();
  EXPECT_EQ(entries_of(pool.store(), "a").front().index, 11u);
  EXPECT_EQ(pool.store().trim_below_index(id, 22).code(), ErrorCode::kInvalidArgument);
  ASSERT_TRUE(pool.store().trim_below_index(id, 21));
  pool.reopen();
  EXPECT_EQ(pool.store().info(id)->next_index, 21u);
  EXPECT_TRUE(entries_of(pool.store(), "a").empty());
}

TEST(LogStore, UnpublishedEntriesCannotBeTrimmed) {
  LogPool pool;
  const uint64_t id = pool.make("a");
  ASSERT_TRUE(pool.append(id, {"one"}));
  const auto range = pool.append(id, {"two", "three"}, false);
  EXPECT_EQ(pool.store().trim(id, range->last.lsn).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(pool.store().trim_below_index(id, 3).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(*pool.store().trim_below_index(id, 2), range->first.lsn);
}

TEST(LogStore, FullLogPushesBack) {
  LogPool pool;
  const uint64_t id = pool.make("a");
  const std::string payload = text_of(1, 900);
  int appended = 0;
  Result<LogStore::Range> last = pool.append(id, {payload});
  for (; last; last = pool.append(id, {payload})) ++appended;
  EXPECT_EQ(last.code(), ErrorCode::kBackPressure);
  EXPECT_EQ(appended, 16);
  ASSERT_TRUE(pool.store().trim_below_index(id, 3));
  EXPECT_TRUE(pool.append(id, {payload}));
  EXPECT_EQ(entries_of(pool.store(), "a").size(), 15u);
}

TEST(LogStore, FullLogDropsTheOldest) {
  LogPool pool;
  const uint64_t id = pool.make("a", FullPolicy::kTrimOldest);
  for (uint64_t i = 1; i <= 200; ++i) {
    ASSERT_TRUE(pool.append(id, {text_of(i, 1 + i * 37 % 5000)})) << i;
    const auto entries = entries_of(pool.store(), "a");
    ASSERT_FALSE(entries.empty());
    for (size_t j = 0; j < entries.size(); ++j) {
      ASSERT_EQ(entries[j].index, i + 1 - entries.size() + j);
      ASSERT_EQ(entries[j].payload, text_of(entries[j].index, 1 + entries[j].index * 37 % 5000));
    }
    if (i % 50 == 0) pool.reopen();
  }
}

TEST(LogStore, OneTurnMayFillALogThatDropsTheOldest) {
  LogPool pool;
  const uint64_t id = pool.make("a", FullPolicy::kTrimOldest);
  for (uint64_t i = 1; i <= 100; ++i) ASSERT_TRUE(pool.append(id, {text_of(i, 700)}, false)) << i;
  ASSERT_TRUE(pool.store().commit_appends());
  EXPECT_EQ(entries_of(pool.store(), "a").back(), (TestEntry{100, text_of(100, 700)}));
}

TEST(LogStore, BatchIsAppendedWholeOrNotAtAll) {
  LogPool pool;
  const uint64_t id = pool.make("a");
  EXPECT_EQ(pool.append(id, std::vector<std::string>(20, text_of(1, 900))).code(),
            ErrorCode::kTooLarge);
  EXPECT_EQ(pool.append(id, {"x", ""}).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(pool.append(id, {}).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(pool.append(id, {text_of(1, 8000)}).code(), ErrorCode::kTooLarge);
  EXPECT_EQ(pool.append(id, std::vector<std::string>(kMaxBatchEntries + 1, "x")).code(),
            ErrorCode::kInvalidArgument);
  ASSERT_TRUE(pool.append(id, std::vector<std::string>(10, text_of(1, 900))));
  EXPECT_EQ(pool.append(id, std::vector<std::string>(10, text_of(1, 900))).code(),
            ErrorCode::kBackPressure);
  EXPECT_EQ(entries_of(pool.store(), "a").size(), 10u);
  const uint64_t other = pool.make("b", FullPolicy::kTrimOldest);
  ASSERT_TRUE(pool.append(other, std::vector<std::string>(10, text_of(1, 900))));
  ASSERT_TRUE(pool.append(other, std::vector<std::string>(16, text_of(2, 900))));
  EXPECT_EQ(entries_of(pool.store(), "b").back().index, 26u);
}

TEST(LogStore, LargestEntryFits) {
  LogPool pool(4u << 20);
  const uint64_t id = pool.make("a", FullPolicy::kTrimOldest, 3u << 20);
  for (uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(pool.append(id, {text_of(i, kMaxEntryBytes)}));
  EXPECT_EQ(pool.append(id, {text_of(0, kMaxEntryBytes + 1)}).code(), ErrorCode::kTooLarge);
  pool.reopen();
  EXPECT_EQ(entries_of(pool.store(), "a").back().payload, text_of(4, kMaxEntryBytes));
}

std::string hex_of(LogPool& pool, size_t offset) {
  std::string text;
  for (size_t i = 0; i < 16; ++i) {
    text += fmt::format("{:02x}", static_cast<unsigned>(pool.store().area()[offset + i]));
    if (i % 4 == 3 && i < 15) text += ' ';
  }
  return text;
}

// docs/log-service.md shows these bytes.
TEST(LogStore, ExampleOfTheDocumentIsRight) {
  LogPool pool;
  const LogOptions options{kTestLog, FullPolicy::kBackPressure, 99};
  const uint64_t id = pool.store().create("orders", options)->id;
  ASSERT_TRUE(pool.append(id, {"hello"}));
  ASSERT_TRUE(pool.append(id, {"world", std::string(300, 'x')}));
  const auto hex = [&](size_t offset) { return hex_of(pool, offset); };
  EXPECT_EQ(hex(0), "504c4741 06badc2a 02000000 08000000");
  EXPECT_EQ(hex(16), "04000000 00000000 4d000000 00000000");
  EXPECT_EQ(hex(32), "00400000 00000000 00000400 00000000");
  EXPECT_EQ(hex(256), "504c4741 7788ac9a 02000000 08000000");
  EXPECT_EQ(hex(4096), "504c4753 7eafcb3b 02000000 00000000");
  EXPECT_EQ(hex(4112), "01000000 00000000 00400000 00000000");
  EXPECT_EQ(hex(4128), "00410000 00000000 00000000 00000000");
  EXPECT_EQ(hex(4144), "01000000 00000000 01010006 00000000");
  EXPECT_EQ(hex(4160), "6f726465 72730000 00000000 00000000");
  EXPECT_EQ(hex(4720), "00000000 00000000 63000000 00000000");
  EXPECT_EQ(hex(4864), "504c4753 a80f5686 01000000 00000000");
  EXPECT_EQ(hex(16384), "50524e47 7fd4c95b 01000000 01000000");
  EXPECT_EQ(hex(16400), "02000000 00000000 00000000 00000000");
  EXPECT_EQ(hex(16640), "f79734ad 454e0013 00000000 00000000");
  EXPECT_EQ(hex(16656), "0d000000 01000000 01000000 00000000");
  EXPECT_EQ(hex(16672), "00000000 00000000 68656c6c 6f000000");
  EXPECT_EQ(hex(16704), "21705e11 454e0013 40000000 00000000");
  EXPECT_EQ(hex(16736), "40000000 00000000 776f726c 64000000");
  EXPECT_EQ(hex(16768), "90651f70 50410000 80000000 00000000");
  EXPECT_EQ(hex(16896), "151a35e7 454e00ac 00010000 00000000");
  EXPECT_EQ(hex(16928), "40000000 00000000 78787878 78787878");
  EXPECT_EQ(pool.words_of(id).tail_lsn, 768u);
}

// ---- versions ----

// Both copies.
void set_version(LogPool& pool, uint32_t version) {
  for (const uint64_t at : {uint64_t{0}, kLogAreaCopyStride}) {
    LogAreaHeader header;
    std::byte* const copy = pool.store().area().data() + at;
    std::memcpy(&header, copy, sizeof header);
    header.version = version;
    header.crc = base::crc32c(std::as_bytes(std::span(&header, 1)).subspan(8));
    std::memcpy(copy, &header, sizeof header);
  }
}

// A slot without an identity is, byte for byte, what version 1 has written.
TEST(LogStore, PoolOfVersionOneIsOpenedAndItsLogsHaveNoIdentity) {
  LogPool pool;
  const uint64_t id = pool.make("orders");
  ASSERT_TRUE(pool.append(id, {"hello"}));
  EXPECT_EQ(hex_of(pool, 4096), "504c4753 45f256ac 02000000 00000000");
  EXPECT_EQ(hex_of(pool, 4864), "504c4753 fb823508 01000000 00000000");
  set_version(pool, 1);
  for (int i = 0; i < 2; ++i) {
    pool.reopen();
    EXPECT_EQ(pool.store().find("orders")->identity, 0u);
    EXPECT_TRUE(pool.store().find("orders")->damaged.empty());
    EXPECT_EQ(entries_of(pool.store(), "orders"), (std::vector<TestEntry>{{1, "hello"}}));
  }
  LogAreaHeader header;
  for (const uint64_t at : {uint64_t{0}, kLogAreaCopyStride}) {
    std::memcpy(&header, pool.store().area().data() + at, sizeof header);
    EXPECT_EQ(header.version, 2u) << "earlier programs say so, and take no slot for damaged";
  }
  const LogOptions options{kTestLog, FullPolicy::kBackPressure, 5};
  ASSERT_TRUE(pool.store().create("new", options));
  ASSERT_TRUE(pool.store().seal(id));
  pool.reopen();
  EXPECT_EQ(pool.store().find("orders")->identity, 0u);
  EXPECT_EQ(pool.store().find("new")->identity, 5u);
}

TEST(LogStore, PoolOfALaterVersionIsRefused) {
  LogPool pool;
  set_version(pool, 4);
  pool.close_store();
  const auto opened = LogStore::open(pool.pool());
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.code(), ErrorCode::kVersionMismatch);
  EXPECT_NE(opened.error().message.find("version 4, this program reads 1 to 3"), std::string::npos);
}

// Its checksum covers it, and what lies where it would be of a log that has none.
TEST(LogStore, DamagedIdentityIsNotBelieved) {
  for (const uint64_t identity : {0, 5}) {
    LogPool pool;
    const LogOptions options{kTestLog, FullPolicy::kBackPressure, identity};
    ASSERT_TRUE(pool.store().create("orders", options));
    const size_t at = kLogSlotsOffset + offsetof(LogSlot, identity);
    pool.store().area()[at] ^= std::byte{12};
    pool.reopen();
    EXPECT_EQ(pool.store().find("orders")->identity, identity) << "the other copy's";
    for (const uint64_t copy : {0, 1}) {
      pool.store().area()[at + copy * kLogSlotBytes] ^= std::byte{12};
    }
    pool.reopen();
    EXPECT_EQ(pool.store().find("orders").code(), ErrorCode::kNotFound);
    EXPECT_EQ(pool.store().damaged_places(), 1u);
  }
}

// ---- pools ----

TEST(LogStore, PoolWithoutLogAreaSaysSo) {
  model::PageBytes region(1u << 20);
  auto pool =
      persist::Pool::in_region(region.bytes(), persist::Domain::kMemoryController, true).value();
  EXPECT_FALSE(LogStore::is_in(*pool));
  const auto opened = LogStore::open(*pool);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.code(), ErrorCode::kNotFound);
  EXPECT_EQ(LogStore::format(*pool, 16 * 1024).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(LogStore::format(*pool, 16u << 20).code(), ErrorCode::kFull);
  ASSERT_TRUE(LogStore::format(*pool, 64 * 1024));
  EXPECT_TRUE(LogStore::is_in(*pool));
  EXPECT_TRUE(LogStore::open(*pool));
}

// Pages of the memory that the process or the page cache has.
size_t resident_pages(std::span<const std::byte> memory) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(memory.data()) & ~(page - 1);
  const uintptr_t end = reinterpret_cast<uintptr_t>(memory.data()) + memory.size();
  std::vector<unsigned char> there((end - first + page - 1) / page);
  EXPECT_EQ(mincore(reinterpret_cast<void*>(first), end - first, there.data()), 0);
  return static_cast<size_t>(std::count_if(there.begin(), there.end(),
                                           [](unsigned char each) { return (each & 1) != 0; }));
}

// A directory of 2,048 places has 3 MiB, most of them holes of the file.
TEST(LogStoreInAFile, PlacesThatWereNeverUsedTakeNoMemory) {
  const persist::Scratch scratch;
  persist::PoolOpenOptions sparse;
  sparse.sparse = true;
  const std::string path = scratch.path("pool");
  const auto fill = [](persist::Pool& pool) { return LogStore::format(pool, 256 << 20, 7); };
  {
    const auto made = persist::Pool::create(path, 300 << 20, sparse, false, fill);
    ASSERT_TRUE(made) << made.error().to_string();
  }
  for (int start = 0; start < 3; ++start) {
    auto pool = persist::Pool::open(path, {});
    ASSERT_TRUE(pool) << pool.error().to_string();
    const auto opened = LogStore::open(**pool);
    ASSERT_TRUE(opened) << opened.error().to_string();
    LogStore& store = **opened;
    const auto directory = store.area().subspan(kLogSlotsOffset, 2048 * 2 * kLogSlotBytes);
    EXPECT_LT(resident_pages(directory), 64u) << start;
    EXPECT_EQ(store.list().size(), static_cast<size_t>(start));
    LogOptions options;
    options.bytes = kTestLog;
    ASSERT_TRUE(store.create("log" + std::to_string(start), options)) << start;
    EXPECT_TRUE(store.find("log0"));
    ASSERT_TRUE(store.close());
  }
}

}  // namespace
}  // namespace pmstore::log
