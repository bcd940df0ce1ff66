// The order of the steps of a call: what is durable before what, who is told before whom, and what
// is left when a step fails.
#include <fcntl.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <set>

#include "fs/layout/fs_layout.h"
#include "tests/unit/fs/namespace_fixture.h"

namespace pmstore::fs {
namespace {

using Step = MemorySpace::Step;

// What a power cut at some moment leaves of the store.
struct Image {
  explicit Image(const std::string& path) {
    base::VirtualClock clock;
    Executor executor(clock);
    ClientOptions options;
    options.assume_domain = persist::Domain::kCpuCache;
    auto opened =
        executor.run(Client::connect(executor, {fabric::Scheme::kLocal, path, 0}, options));
    EXPECT_TRUE(opened) << opened.error().to_string();
    if (!opened) return;
    for (const char* name : {".fs.maps", ".fs.freed", ".fs.orphans"}) {
      const TableId table = *executor.run((*opened)->open_table(name));
      records[name] = executor.run((*opened)->table_usage(table))->records;
    }
    const TableId table = *executor.run((*opened)->open_table(".fs.inodes"));
    Transaction transaction = (*opened)->begin();
    TransactionScan scan = transaction.scan(table, {});
    for (auto page = executor.run(scan.next()); page && !page->empty();
         page = executor.run(scan.next())) {
      for (const RecordRef record : *page) {
        const Ino ino = *internal::ino_of_key(record.key);
        inodes[ino] = internal::decode_inode(ino, record.value)->attributes;
      }
    }
  }

  std::map<std::string, uint64_t> records;
  std::map<Ino, Attributes> inodes;
};

class Steps : public NamespaceTest {
 protected:
  // From here on the store is copied before the first step of this kind.
  void copy_at(Step step) {
    std::filesystem::remove(copy_);
    space_.on_step = [this, step](Step taken, const AreaRange&) {
      if (taken == step && !std::filesystem::exists(copy_)) {
        std::filesystem::copy_file(path_, copy_);
      }
    };
  }
  // Restarts the namespace: a process has one of two copies of a pool open.
  Image image() {
    space_.on_step = {};
    EXPECT_TRUE(std::filesystem::exists(copy_)) << "the step was taken";
    stop();
    Image found(copy_);
    start();
    return found;
  }
  FileMap map_of(Ino ino) {
    auto mapped = run(fs().map(ino, 0, kMaxFileBytes, false));
    EXPECT_TRUE(mapped);
    return mapped ? mapped->map : FileMap{};
  }
  Ino large(std::string_view name, uint64_t bytes = 200'000) {
    const Ino ino = file(name);
    EXPECT_EQ(write(ino, 0, std::string(bytes, 'x')), 0);
    return ino;
  }
  uint64_t quarantined() { return run(fs().usage())->quarantined_bytes; }

  const std::string copy_ = scratch_.path("copy");
};

// ---- data and sizes ----

TEST_F(Steps, UnitsAreMappedBeforeTheyAreWrittenAndTheSizeComesLast) {
  const Ino f = large("f", 1000);
  copy_at(Step::kWrite);
  EXPECT_EQ(write(f, std::nullopt, std::string(100'000, 'y')), 0);
  Image before = image();
  EXPECT_EQ(before.inodes.at(f).size, 1000u);
  EXPECT_TRUE(before.inodes.at(f).is_inline) << "its data is still there";
  EXPECT_EQ(before.inodes.at(f).data_bytes, 2 * kUnitBytes);
  copy_at(Step::kWrite);
  EXPECT_EQ(write(f, 110'000, "z"), 0);
  EXPECT_EQ(image().inodes.at(f).size, 101'000u);
}

TEST_F(Steps, GapsAreZeroBeforeTheSizeCoversThem) {
  const Ino f = large("f", 100'000);
  EXPECT_EQ(truncate(f, 70'000), 0);
  const auto grows = [&](const auto& grow) {
    copy_at(Step::kZero);
    space_.failing_zeros = 1;
    EXPECT_EQ(grow(), EIO);
    EXPECT_EQ(image().inodes.at(f).size, 70'000u);
    EXPECT_EQ(stat(f).size, 70'000u);
  };
  grows([&] { return truncate(f, 80'000); });
  grows([&] { return write(f, 75'000, "y"); });
  grows([&] { return allocate(f, AllocateMode::kExtend, 0, 80'000); });
  grows([&] { return allocate(f, AllocateMode::kZeroRange, 69'000, 80'000); });
}

TEST_F(Steps, APunchWhoseEdgesCannotBeZeroedFreesNothing) {
  const Ino f = large("f");
  space_.failing_zeros = 1;
  const uint64_t room = stat(f).data_bytes;
  EXPECT_EQ(allocate(f, AllocateMode::kPunchHole, 1000, 150'000), EIO);
  EXPECT_EQ(stat(f).data_bytes, room);
}

// ---- quarantine ----

TEST_F(Steps, AFreedRangeIsRecordedInTheTransactionThatFreesIt) {
  const Ino f = large("f");
  copy_at(Step::kRetire);
  EXPECT_EQ(truncate(f, 0), 0);
  Image between = image();
  EXPECT_EQ(between.inodes.at(f).size, 0u);
  EXPECT_EQ(between.inodes.at(f).data_bytes, 0u);
  EXPECT_EQ(between.records.at(".fs.maps"), 0u);
  EXPECT_EQ(between.records.at(".fs.freed"), 1u);
}

TEST_F(Steps, ARangeIsFreeBehindItsRecord) {
  const Ino f = large("f");
  copy_at(Step::kRelease);
  EXPECT_EQ(truncate(f, 0), 0);
  settle();
  EXPECT_EQ(image().records.at(".fs.freed"), 0u);
  const Ino g = large("g");
  copy_at(Step::kRelease);
  EXPECT_EQ(unlink("g"), 0);
  settle();
  Image released = image();
  EXPECT_EQ(released.records.at(".fs.maps"), 0u);
  EXPECT_TRUE(released.inodes.contains(g)) << "its inode goes last";
  EXPECT_EQ(released.inodes.at(g).data_bytes, 0u);
}

TEST_F(Steps, ARangeIsZeroedBeforeItsRecordGoes) {
  const Ino f = large("f");
  copy_at(Step::kClean);
  EXPECT_EQ(truncate(f, 0), 0);
  settle();
  EXPECT_EQ(image().records.at(".fs.freed"), 1u);
  large("g");
  copy_at(Step::kClean);
  EXPECT_EQ(unlink("g"), 0);
  settle();
  Image cleaned = image();
  EXPECT_EQ(cleaned.records.at(".fs.maps"), 1u);
  EXPECT_EQ(cleaned.records.at(".fs.orphans"), 1u);
  EXPECT_TRUE(space_.free_is_zero());
}

// ---- words and news ----

TEST_F(Steps, ATruncationReturnsWhenItsWordsHaveChanged) {
  const Ino f = large("f");
  const FileMap before = map_of(f);
  space_.words_ns = 1'000'000'000;
  bool is_truncated = false;
  bool is_mapped = false;
  const auto shrink = [&]() -> Task<void> {
    const AttributeChange smaller{.set = AttributeChange::kSize, .size = 10};
    const Caller caller;
    EXPECT_TRUE(co_await fs().set_attributes(caller, f, smaller));
    is_truncated = true;
  };
  const auto map = [&]() -> Task<void> {
    EXPECT_TRUE(co_await fs().map(f, 0, kMaxFileBytes, false));
    is_mapped = true;
  };
  executor_.spawn(shrink());
  sleep(100'000'000);
  executor_.spawn(map());
  sleep(100'000'000);
  EXPECT_FALSE(is_truncated);
  EXPECT_FALSE(is_mapped) << "a map with an old word would be noticed, but not a new word of it";
  sleep(2'000'000'000);
  EXPECT_TRUE(is_truncated && is_mapped);
  for (const MapExtent& extent : before.extents) {
    EXPECT_NE(space_.generation(extent.place), extent.generation);
  }
}

TEST_F(Steps, MapsFromBesideATruncationAreStaleOrRight) {
  for (unsigned calls = 0; calls < 16; ++calls) {
    const Ino f = large("f" + std::to_string(calls));
    shift(calls);
    std::optional<FileMap> found;
    bool is_truncated = false;
    const auto map = [&]() -> Task<void> {
      auto mapped = co_await fs().map(f, 0, kMaxFileBytes, false);
      EXPECT_TRUE(mapped);
      if (mapped) found = std::move(mapped->map);
    };
    const auto shrink = [&]() -> Task<void> {
      const AttributeChange smaller{.set = AttributeChange::kSize, .size = 10};
      const Caller caller;
      EXPECT_TRUE(co_await fs().set_attributes(caller, f, smaller));
      is_truncated = true;
    };
    executor_.spawn(map());
    executor_.spawn(shrink());
    space_.failing_cleans = 1000;
    while (!found || !is_truncated) sleep(1000);
    const FileMap now = map_of(f);
    for (const MapExtent& extent : found->extents) {
      const bool is_there = extent == now.extents.front();
      EXPECT_TRUE(is_there || space_.generation(extent.place) != extent.generation) << calls;
    }
    space_.failing_cleans = 0;
  }
}

TEST_F(Steps, WordsOfAnUnlinkedFileChangeBeforeItsUnitsAreCleaned) {
  const Ino f = large("f");
  const MapExtent extent = map_of(f).extents.front();
  bool is_cleaned = false;
  space_.on_step = [&](Step step, const AreaRange& range) {
    if (step != Step::kClean) return;
    is_cleaned = true;
    EXPECT_NE(space_.generation(range), extent.generation);
  };
  EXPECT_EQ(unlink("f"), 0);
  settle();
  EXPECT_TRUE(is_cleaned);
}

TEST_F(Steps, EverybodyIsToldBeforeARangeIsRetired) {
  const Ino f = large("f"), g = large("g"), small = file("small");
  size_t retired = 0;
  Ino changes = f;
  space_.on_step = [&](Step step, const AreaRange&) {
    if (step != Step::kRetire) return;
    ++retired;
    EXPECT_EQ(std::count(map_changes_.begin(), map_changes_.end(), changes), 1);
  };
  EXPECT_EQ(truncate(f, 0), 0);
  EXPECT_EQ(retired, 1u);
  settle();
  changes = g;
  EXPECT_EQ(unlink("g"), 0);
  settle();
  EXPECT_EQ(retired, 2u);
  EXPECT_EQ(unlink("small"), 0);
  EXPECT_EQ(map_changes_.back(), small) << "a cache may have its attributes";
}

TEST_F(Steps, AScanDoesNotTakeWhatATruncationStillTellsOf) {
  large("f");
  options_.reclaim_ns = 1'000'000'000;
  restart();
  space_.words_ns = 2'000'000'000;
  bool is_truncated = false;
  const auto shrink = [&]() -> Task<void> {
    const AttributeChange smaller{.set = AttributeChange::kSize, .size = 0};
    const Caller caller;
    const Ino f = (co_await fs().lookup(caller, kRootIno, "f"))->ino;
    EXPECT_TRUE(co_await fs().set_attributes(caller, f, smaller));
    is_truncated = true;
  };
  executor_.spawn(shrink());
  sleep(100'000'000);
  space_.words_ns = 0;   // of those that come later
  sleep(1'400'000'000);  // the grace period has ended, and the tables are looked through
  EXPECT_FALSE(is_truncated);
  EXPECT_EQ(space_.cleans(), 0u);
  sleep(10'000'000'000);
  EXPECT_TRUE(is_truncated);
  EXPECT_EQ(space_.used_bytes(), 0u);
  EXPECT_EQ(quarantined(), 0u);
}

// Were the server to end between both, a client could write to what is not the file's any more.
TEST_F(Steps, WordsChangeBeforeTheTransactionThatFrees) {
  const Ino f = large("f");
  const Attributes before = stat(f);
  copy_at(Step::kWords);
  EXPECT_EQ(truncate(f, 0), 0);
  Image between = image();
  EXPECT_EQ(between.inodes.at(f).size, before.size);
  EXPECT_EQ(between.inodes.at(f).data_bytes, before.data_bytes);
  EXPECT_EQ(between.records.at(".fs.freed"), 0u);
}

// Also of one that has more than fit into a transaction. A client that writes behind the chmod does
// so by a call then, which takes the bits away.
TEST_F(Steps, AChmodThatSetsSetIdBitsEndsTheMapsOfAllExtentsBefore) {
  constexpr uint64_t kExtents = 130;
  const Ino f = file("f");
  for (uint64_t i = kExtents; i > 0; --i) {
    ASSERT_EQ(write(f, (i - 1) * kUnitBytes, "x"), 0);
  }
  ASSERT_EQ(map_of(f).extents.size(), kExtents);
  std::set<uint64_t> ended;
  space_.on_step = [&](Step step, const AreaRange& range) {
    if (step == Step::kWords) ended.insert(range.offset);
  };
  const auto chmod = [&](uint16_t mode) {
    const AttributeChange change{.set = AttributeChange::kMode, .mode = mode};
    ASSERT_TRUE(run(fs().set_attributes({}, f, change)));
  };
  chmod(01777);
  EXPECT_EQ(ended.size(), 0u) << "no bit of it is one of set-id";
  chmod(02755);
  EXPECT_EQ(ended.size(), kExtents);
  ended.clear();
  chmod(04755);
  EXPECT_EQ(ended.size(), kExtents);
  // A write that comes between the words and the new mode finds no map to write by.
  copy_at(Step::kWords);
  chmod(06711);
  EXPECT_EQ(image().inodes.at(f).mode, 04755);
}

// What a client writes to the old place from then on is not acknowledged, and not copied either.
TEST_F(Steps, WordsChangeBeforeAnExtentIsCopiedToAnotherPlace) {
  stop();
  MemorySpace two(8 << 20, 2);
  open_store();
  namespace_ = std::move(*run(Namespace::open(*client_, two, options_)));
  const Ino f = large("f");
  const FileMap before = map_of(f);
  const uint16_t server = before.extents.front().place.server;
  two.drain(server);
  size_t copied = 0;
  two.on_step = [&](Step step, const AreaRange& range) {
    if (step != Step::kWrite || copied++ > 0) return;
    EXPECT_NE(range.server, server);
    const MapExtent& first = before.extents.front();
    EXPECT_NE(two.generation(first.place), first.generation);
  };
  EXPECT_TRUE(run(fs().move_off(server)));
  EXPECT_GT(copied, 0u);
  two.on_step = {};
  EXPECT_EQ(read(f), std::string(200'000, 'x'));
  namespace_.reset();
  client_.reset();
}

TEST_F(Steps, WhileADataServerIsAwayNothingIsTruncated) {
  const Ino f = large("f");
  const Attributes before = stat(f);
  space_.failing_words = 1'000'000;
  EXPECT_EQ(truncate(f, 10), EIO);
  EXPECT_EQ(allocate(f, AllocateMode::kPunchHole, 0, kUnitBytes), EIO);
  EXPECT_EQ(stat(f).size, before.size);
  EXPECT_EQ(stat(f).data_bytes, before.data_bytes);
  EXPECT_EQ(quarantined(), 0u);
  EXPECT_TRUE(map_changes_.empty());
  space_.failing_words = 0;
  EXPECT_EQ(truncate(f, 10), 0);
  EXPECT_EQ(read(f), std::string(10, 'x'));
  settle();
  EXPECT_EQ(quarantined(), 0u);
  EXPECT_EQ(space_.used_bytes(), kUnitBytes);
}

// ---- crashes ----

TEST_F(Steps, ATruncationThatIsCutShortIsFinishedAtTheNextStart) {
  const Ino f = file("f"), other = file("other");
  for (uint64_t i = 0; i < 100; ++i) {
    ASSERT_EQ(write(f, 2 * i * kUnitBytes, "x"), 0);
    ASSERT_EQ(write(other, 2 * i * kUnitBytes, "y"), 0);
  }
  copy_at(Step::kRetire);
  EXPECT_EQ(truncate(f, 1), 0);
  EXPECT_EQ(image().records.at(".fs.orphans"), 1u);
  namespace_.reset();
  client_.reset();
  std::filesystem::rename(copy_, path_);
  space_.restart();
  start();
  settle();
  EXPECT_EQ(stat(f).size, 1u);
  EXPECT_EQ(stat(f).data_bytes, kUnitBytes);
  const TableId orphans = *run(client_->open_table(".fs.orphans"));
  EXPECT_EQ(run(client_->table_usage(orphans))->records, 0u);
  EXPECT_EQ(unlink("other"), 0);
  settle();
  EXPECT_EQ(space_.used_bytes(), kUnitBytes);
  EXPECT_TRUE(damage().empty()) << ::testing::PrintToString(damage());
}

TEST_F(Steps, NumbersAreNeverUsedAgain) {
  const Ino f = file("f");
  EXPECT_EQ(unlink("f"), 0);
  restart();
  const Ino g = file("g");
  EXPECT_GT(raw(g), raw(f));
  const uint64_t cookie =
      run(fs().read_directory(root(), kRootIno, 0, 10, false))->back().entry.cookie;
  EXPECT_EQ(unlink("g"), 0);
  restart();
  file("h");
  EXPECT_GT(run(fs().read_directory(root(), kRootIno, 0, 10, false))->back().entry.cookie, cookie);
}

}  // namespace
}  // namespace pmstore::fs
