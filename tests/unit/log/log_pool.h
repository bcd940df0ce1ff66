// A pool in memory with a log area, and what its logs hold, for tests of LogStore. Nothing is free
// beside the area, unless a test asks for it.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "log/log_layout.h"
#include "log/log_store.h"
#include "model/page_bytes.h"
#include "tests/unit/log/log_entries.h"

namespace pmstore::log {

inline constexpr uint64_t kTestArea = 256 * 1024;
inline constexpr uint64_t kTestLog = 16 * 1024;
inline constexpr uint64_t kIdentityOfNew = 78;  // of an area that a first log makes

// As read_entries(); fails the test where a reader would be stuck.
inline std::vector<TestEntry> entries_of(const LogStore& store, std::string_view name) {
  auto found = read_entries(store, name);
  if (!found) ADD_FAILURE() << found.error().to_string();
  return found ? std::move(*found) : std::vector<TestEntry>{};
}

inline std::string text_of(uint64_t number, size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>('a' + (number + i) % 26);
  return text;
}

class LogPool {
 public:
  explicit LogPool(uint64_t area_bytes = kTestArea,
                   persist::Domain domain = persist::Domain::kMemoryController,
                   const persist::PaddingRules& padding = {}, uint64_t identity = 77,
                   uint64_t free_bytes = 0)
      : region_(persist::round_up(area_bytes + free_bytes + 128 * 1024, 4096)), domain_(domain) {
    pool_ = persist::Pool::in_region(region_.bytes(), domain_, true, 256, nullptr, padding).value();
    if (area_bytes > 0) {
      EXPECT_TRUE(LogStore::format(*pool_, area_bytes, identity));
    }
    const uint64_t others = pool_->largest_free_extent() - free_bytes;
    EXPECT_TRUE(pool_->allocate_extent(persist::ExtentKind::kRecords, others));
    reopen();
  }
  void reopen() {
    store_.reset();
    pool_ = persist::Pool::in_region(region_.bytes(), domain_, false).value();
    auto opened = LogStore::open(*pool_, kIdentityOfNew);
    ASSERT_TRUE(opened) << opened.error().to_string();
    store_ = std::move(*opened);
  }
  LogStore& store() { return *store_; }
  persist::Pool& pool() { return *pool_; }
  void close_store() { store_.reset(); }
  std::span<std::byte> bytes() { return region_.bytes(); }

  uint64_t make(std::string_view name, FullPolicy policy = FullPolicy::kBackPressure,
                uint64_t bytes = kTestLog) {
    LogOptions options;
    options.bytes = bytes;
    options.when_full = policy;
    auto made = store_->create(name, options);
    EXPECT_TRUE(made) << made.error().to_string();
    return made ? made->id : 0;
  }
  Result<LogStore::Range> append(uint64_t id, const std::vector<std::string>& payloads,
                                 bool commit = true) {
    std::vector<std::span<const std::byte>> spans;
    for (const std::string& each : payloads) spans.push_back(std::as_bytes(std::span(each)));
    auto range = store_->append(id, spans);
    if (commit) {
      EXPECT_TRUE(store_->commit_appends());
    }
    return range;
  }
  // In the log area's memory.
  std::byte* data_of(uint64_t id, uint64_t lsn) { return data_of_store(*store_, id, lsn); }
  static std::byte* data_of_store(const LogStore& store, uint64_t id, uint64_t lsn) {
    return data_in_store(store, id, lsn);
  }
  LogWords& words_of(uint64_t id) {
    const auto where = store_->where(id).value();
    return reinterpret_cast<LogWords*>(store_->words().data())[where.word];
  }

 private:
  model::PageBytes region_;
  persist::Domain domain_;
  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<LogStore> store_;
};

}  // namespace pmstore::log
