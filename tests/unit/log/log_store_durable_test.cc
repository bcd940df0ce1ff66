// LogStore: a lone entry that is appended and made durable at once.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <string>
#include <string_view>
#include <vector>

#include "log/log_store.h"
#include "tests/unit/log/log_pool.h"

namespace pmstore::log {
namespace {

// At once where nothing is in the way; where something is, append() is left to say what.
TEST(LogStore, OneEntryIsAppendedDurablyOrNotAtAll) {
  LogPool pool;
  const auto at_once = [&](uint64_t id, std::string_view text) {
    return pool.store().append_durable(id, std::as_bytes(std::span(text)));
  };
  const uint64_t id = pool.make("a"), other = pool.make("b");
  const auto first = at_once(id, "one");
  ASSERT_TRUE(first);
  EXPECT_EQ(first->index, 1u);
  EXPECT_EQ(first->next_lsn, 64u);
  EXPECT_EQ(pool.words_of(id).tail_lsn, 64u);
  // Others wait for the commit: it is theirs to publish.
  ASSERT_TRUE(pool.append(other, {"waits"}, false));
  EXPECT_FALSE(at_once(id, "behind it"));
  EXPECT_EQ(pool.words_of(other).tail_lsn, 0u);
  ASSERT_TRUE(pool.store().commit_appends());
  EXPECT_FALSE(at_once(id, ""));
  EXPECT_FALSE(at_once(id, std::string(kTestLog / 2, 'x')));  // never fits
  ASSERT_TRUE(at_once(id, std::string(kTestLog / 3, 'x')));
  ASSERT_TRUE(at_once(id, std::string(kTestLog / 3, 'y')));
  EXPECT_FALSE(at_once(id, std::string(kTestLog / 3, 'z')));  // not before it is trimmed
  EXPECT_EQ(pool.store().info(id)->next_index, 4u);
  EXPECT_FALSE(at_once(99, "no such log"));
  ASSERT_TRUE(at_once(other, "two"));
  ASSERT_TRUE(pool.store().acquire(other, 1));
  EXPECT_FALSE(at_once(other, "of somebody else"));
  ASSERT_TRUE(pool.store().release(other));
  ASSERT_TRUE(at_once(other, "three"));
  ASSERT_TRUE(pool.store().seal(other));
  EXPECT_FALSE(at_once(other, "sealed"));
  const std::vector<TestEntry> kept{{1, "waits"}, {2, "two"}, {3, "three"}};
  EXPECT_EQ(entries_of(pool.store(), "b"), kept);
  // The log of the call before is gone, and its place is another's.
  ASSERT_TRUE(pool.store().erase(other));
  EXPECT_FALSE(at_once(other, "erased"));
  const uint64_t next = pool.make("c");
  EXPECT_FALSE(at_once(other, "erased"));
  ASSERT_TRUE(at_once(next, "new"));
  EXPECT_EQ(entries_of(pool.store(), "c"), (std::vector<TestEntry>{{1, "new"}}));
  // Of a log to which nothing came since, the first append begins an incarnation.
  pool.reopen();
  pool.reopen();
  EXPECT_FALSE(at_once(next, "too soon"));
  ASSERT_TRUE(pool.append(next, {"second"}));
  ASSERT_TRUE(at_once(next, "third"));
  EXPECT_EQ(entries_of(pool.store(), "c"),
            (std::vector<TestEntry>{{1, "new"}, {2, "second"}, {3, "third"}}));
}

// A file whose pages cannot be written: nothing that waits for it is acknowledged, nor anything
// after it, by whichever way it comes.
TEST(LogStore, NothingIsAcknowledgedOnceAPageIsLost) {
  for (const bool others_wait : {false, true}) {
    for (const bool by_commit : {false, true}) {
      model::PageBytes region(kTestArea + 256 * 1024);
      auto pool = persist::Pool::in_region(region.bytes(), persist::Domain::kNone, true).value();
      ASSERT_TRUE(LogStore::format(*pool, kTestArea, 77));
      auto store = LogStore::open(*pool).value();
      LogOptions options;
      options.bytes = kTestLog;
      const uint64_t id = store->create("a", options)->id, other = store->create("b", options)->id;
      const std::string text = "text";
      const auto payload = std::as_bytes(std::span(text));
      const std::span<const std::byte> one[] = {payload};
      ASSERT_TRUE(store->append_durable(id, payload));
      const auto tail = [&](uint64_t log) { return store->info(log)->tail_lsn; };
      const uint64_t tail_of_id = tail(id);
      if (others_wait) {
        ASSERT_TRUE(store->append(other, one));
      }
      // msync of a hole in the address space is ENOMEM.
      std::byte* const lost = region.bytes().data() + region.bytes().size() - 4096;
      pool->memory().flush(lost, 1);
      ASSERT_EQ(munmap(lost, 4096), 0);
      if (by_commit) {
        const auto committed = store->commit_appends();
        EXPECT_EQ(committed.has_value(), !others_wait);  // nothing to do else
        EXPECT_TRUE(committed || committed.code() == ErrorCode::kIo);
      }
      for (int i = 0; i < 2; ++i) {
        EXPECT_FALSE(store->append_durable(id, payload));
        auto appended = store->append(id, one);
        EXPECT_EQ(appended.has_value(), others_wait && !by_commit && i == 0);  // not yet tried
        const auto committed =
            appended ? store->commit_appends() : Result<persist::Persisted>(appended.error());
        EXPECT_EQ(committed.code(), ErrorCode::kIo);
      }
      EXPECT_EQ(tail(id), tail_of_id);
      EXPECT_EQ(tail(other), 0u);
      EXPECT_FALSE(store->close());
      ASSERT_NE(
          mmap(lost, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
          MAP_FAILED);
    }
  }
}

}  // namespace
}  // namespace pmstore::log
