// Everything that is refused, and that refusing changes nothing.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <libpmemobj.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/random.h"
#include "persist/internal/catalog.h"
#include "persist/internal/pmemobj_format.h"
#include "persist/internal/pmemobj_library.h"
#include "persist/padding.h"
#include "persist/pool.h"
#include "persist/pool_layout.h"
#include "tests/unit/persist/scratch.h"

namespace pmstore::persist {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint64_t kBytes = kMinPoolBytes;

class PoolErrors : public testing::Test {
 protected:
  void SetUp() override {
    auto pool = Pool::create(path_, kBytes, {});
    ASSERT_TRUE(pool) << pool.error().to_string();
    ASSERT_TRUE((*pool)->allocate_extent(ExtentKind::kRecords, 1 << 20));
    layout_offset_ =
        (*pool)->memory().offset_of((*pool)->root().data()) - sizeof(PoolHeader) - kPoolTableBytes;
    pool->reset();
    intact_ = read_file(path_);
  }

  // Neither opening nor looking may succeed, print anything, or change the file.
  void expect_refused(ErrorCode code, const std::string& what) {
    SCOPED_TRACE(what);
    const uint64_t before = fingerprint(path_);
    testing::internal::CaptureStderr();
    const auto opened = Pool::open(path_, {});
    const auto viewed = Pool::view(path_);
    const auto inspected = Pool::inspect(path_);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    ASSERT_FALSE(opened);
    ASSERT_FALSE(viewed);
    ASSERT_FALSE(inspected);
    for (const Error& error : {opened.error(), viewed.error(), inspected.error()}) {
      EXPECT_EQ(error.code, code) << error.to_string();
      EXPECT_THAT(error.message, AllOf(HasSubstr(path_), HasSubstr(what), Not(HasSubstr("\n"))));
    }
    EXPECT_EQ(fingerprint(path_), before) << "the refused file was changed";
  }

  void patch(uint64_t offset, const void* bytes, size_t count) {
    patch_file(path_, offset, bytes, count);
  }

  Scratch scratch_;
  std::string path_ = scratch_.path("pool");
  std::vector<char> intact_;
  uint64_t layout_offset_ = 0;
};

TEST_F(PoolErrors, FilesThatAreNotPoolsAreRefused) {
  write_file(path_, {});
  expect_refused(ErrorCode::kBadPool, "not a pool: it is empty");
  write_file(path_, {'h', 'i'});
  expect_refused(ErrorCode::kBadPool, "not a pool");
  write_file(path_, std::vector<char>(kBytes, 0));
  expect_refused(ErrorCode::kBadPool, "not a pool");
  write_file(path_, std::vector<char>(100'000, 'x'));
  expect_refused(ErrorCode::kBadPool, "not a pool");
}

TEST_F(PoolErrors, FoldersPipesAndMissingFilesAreRefused) {
  EXPECT_EQ(Pool::open(scratch_.path("absent"), {}).code(), ErrorCode::kIo);
  EXPECT_EQ(Pool::inspect(scratch_.path("absent")).code(), ErrorCode::kIo);
  EXPECT_EQ(Pool::open(path_ + "/below", {}).code(), ErrorCode::kIo);
  EXPECT_EQ(Pool::open(scratch_.path(""), {}).code(), ErrorCode::kBadPool);
  ASSERT_EQ(mkfifo(scratch_.path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(Pool::open(scratch_.path("pipe"), {}).code(), ErrorCode::kBadPool);
  EXPECT_EQ(Pool::open("/dev/null", {}).code(), ErrorCode::kBadPool);
  EXPECT_EQ(detect_domain(scratch_.path("absent")).code(), ErrorCode::kIo);
  EXPECT_EQ(detect_domain("/dev/null").code(), ErrorCode::kIo);
}

TEST_F(PoolErrors, NoPermissionIsAnErrorOfTheSystem) {
  ASSERT_EQ(chmod(path_.c_str(), 0), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) _exit(2);
    const auto opened = Pool::open(path_, {});
    _exit(!opened && opened.code() == ErrorCode::kIo ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(PoolErrors, PoolsOfOtherProgramsAndVersionsAreToldApart) {
  for (const auto& [layout, code, what] :
       {std::tuple{"other", ErrorCode::kBadPool,
                   "libpmemobj pool of another program (layout \"other\")"},
        std::tuple{"", ErrorCode::kBadPool, "libpmemobj pool of another program"},
        std::tuple{"pmstore.2", ErrorCode::kVersionMismatch,
                   "pool format 2, this program reads 1"}}) {
    unlink(path_.c_str());
    PMEMobjpool* pool = pmemobj_create(path_.c_str(), layout, kBytes, 0600);
    ASSERT_NE(pool, nullptr);
    pmemobj_close(pool);
    expect_refused(code, what);
  }
}

TEST_F(PoolErrors, ACatalogOfAnotherVersionIsRefused) {
  PoolHeader header;
  std::memcpy(&header, intact_.data() + layout_offset_, sizeof header);
  header.format_version = 3;
  header.crc = 0;
  header.crc = base::crc32c(std::as_bytes(std::span(&header, 1)));
  patch(layout_offset_, &header, sizeof header);
  expect_refused(ErrorCode::kVersionMismatch, "pool format 3, this program reads 1");
}

TEST_F(PoolErrors, APoolWhoseCreationWasInterruptedIsRefused) {
  unlink(path_.c_str());
  PMEMobjpool* pool = pmemobj_create(path_.c_str(), kPoolLayoutName, kBytes, 0600);
  ASSERT_NE(pool, nullptr);
  pmemobj_close(pool);
  expect_refused(ErrorCode::kBadPool, "damaged catalog header");
  pool = pmemobj_open(path_.c_str(), kPoolLayoutName);
  ASSERT_NE(pool, nullptr);
  pmemobj_root(pool, kPoolLayoutBytes + 256);
  pmemobj_close(pool);
  expect_refused(ErrorCode::kBadPool, "damaged catalog header");
}

TEST_F(PoolErrors, TruncationIsNoticedAtEverySize) {
  std::vector<uint64_t> sizes = {8, 100, 4095, 4096, 8191, 8192, kBytes / 2, kBytes - 8192};
  Random random(11);
  for (int i = 0; i < 20; ++i) sizes.push_back(8 + random.below(kBytes - 4096 - 8));
  std::sort(sizes.rbegin(), sizes.rend());
  for (uint64_t bytes : sizes) {
    SCOPED_TRACE(bytes);
    ASSERT_EQ(truncate(path_.c_str(), static_cast<off_t>(bytes)), 0);
    expect_refused(ErrorCode::kBadPool, "truncated");
    // A hole where the end was is damage too, wherever libpmemobj or the catalog would miss it;
    // what must never happen is a crash of the program.
  }
}

TEST_F(PoolErrors, EveryFlippedByteOfTheCatalogHeaderIsNoticed) {
  for (uint64_t offset = 0; offset < sizeof(PoolHeader) + sizeof(ExtentEntry); offset += 7) {
    const char flipped = static_cast<char>(intact_[layout_offset_ + offset] ^ 0x41);
    patch(layout_offset_ + offset, &flipped, 1);
    expect_refused(ErrorCode::kBadPool, "damaged");
    patch(layout_offset_ + offset, &intact_[layout_offset_ + offset], 1);
  }
  EXPECT_TRUE(Pool::open(path_, {}));
}

// libpmemobj leaves parts of its header and descriptor unused and unchecked; a flip there may be
// accepted. A flip in what it does use must be refused, and nothing that is refused may be changed.
TEST_F(PoolErrors, FlippedBytesOfTheHeaderAreRefusedUntouchedOrHarmless) {
  Random random(5);
  int refused = 0;
  for (int round = 0; round < 200; ++round) {
    const uint64_t offset = random.below(round % 2 == 0 ? 512 : 8192);
    const char flipped =
        static_cast<char>(intact_[offset] ^ static_cast<char>(1 + random.below(255)));
    patch(offset, &flipped, 1);
    const uint64_t before = fingerprint(path_);
    auto opened = Pool::open(path_, {});
    if (opened) {
      EXPECT_EQ((*opened)->info().extents.size(), 1u) << "offset " << offset;
      opened->reset();
      write_file(path_, intact_);
      continue;
    }
    ++refused;
    EXPECT_TRUE(opened.code() == ErrorCode::kBadPool ||
                opened.code() == ErrorCode::kVersionMismatch)
        << opened.error().to_string();
    EXPECT_EQ(fingerprint(path_), before) << "offset " << offset;
    patch(offset, &intact_[offset], 1);
  }
  EXPECT_GT(refused, 100);
}

TEST_F(PoolErrors, ADamagedHeapIsRefused) {
  const auto facts = internal::check_pmemobj(std::as_bytes(std::span(intact_)), "pool");
  ASSERT_TRUE(facts);
  const uint64_t garbage = 0x123456789abcdef;
  patch(facts->heap_offset + 40, &garbage, sizeof garbage);
  expect_refused(ErrorCode::kBadPool, "damaged header (heap)");
}

TEST_F(PoolErrors, BusyInAnotherProcessAndInThisOne) {
  int to_parent[2], to_child[2];
  ASSERT_EQ(pipe(to_parent), 0);
  ASSERT_EQ(pipe(to_child), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    close(to_child[1]);
    auto pool = Pool::open(path_, {});
    char byte = pool ? 'o' : 'x';
    if (write(to_parent[1], &byte, 1) != 1) _exit(2);
    [[maybe_unused]] auto got = read(to_child[0], &byte, 1);  // until the parent is done
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(to_parent[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'o');
  expect_refused(ErrorCode::kBusy, "in use by another process");
  close(to_child[1]);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  auto mine = Pool::open(path_, {});
  ASSERT_TRUE(mine) << mine.error().to_string();
  EXPECT_EQ(Pool::open(path_, {}).code(), ErrorCode::kBusy);
  EXPECT_EQ(Pool::inspect(path_).code(), ErrorCode::kBusy);
  for (int fd : {to_parent[0], to_parent[1], to_child[0]}) close(fd);
}

TEST_F(PoolErrors, CreatingRefusesWhatIsThereAndWhatIsTooSmall) {
  const uint64_t before = fingerprint(path_);
  for (bool force : {false, true}) {
    const auto again = Pool::create(path_, kBytes, {}, force);
    ASSERT_FALSE(again);
    EXPECT_EQ(again.code(), ErrorCode::kAlreadyExists);
    EXPECT_EQ(fingerprint(path_), before);
  }
  const auto fresh = scratch_.path("fresh");
  EXPECT_EQ(Pool::create(fresh, kMinPoolBytes - 1, {}).code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(access(fresh.c_str(), F_OK), 0) << "nothing may be left behind";
  EXPECT_EQ(Pool::create(scratch_.path("no/such/folder"), kBytes, {}).code(), ErrorCode::kIo);
  const auto huge = Pool::create(fresh, 1ull << 50, {});
  ASSERT_FALSE(huge);
  EXPECT_TRUE(huge.code() == ErrorCode::kFull || huge.code() == ErrorCode::kIo)
      << huge.error().to_string();
  EXPECT_NE(access(fresh.c_str(), F_OK), 0) << "nothing may be left behind";
}

// A file counts no unsafe shutdowns: one that says so was copied from a device, or its device lost
// what was on the way while the pool was open. Only libpmemobj knows.
TEST_F(PoolErrors, APoolThatWasOpenWhenItsDeviceLostDataIsRefusedByLibpmemobj) {
  for (const bool was_open : {true, false}) {
    internal::ShutdownState state{};
    state[0] = std::byte{5};  // unsafe shutdowns
    state[8] = std::byte{7};  // the device
    state[16] = was_open ? std::byte{1} : std::byte{0};
    const uint64_t sum = internal::fletcher64(state, state.size() - 8, state.size());
    std::memcpy(state.data() + state.size() - 8, &sum, sizeof sum);
    patch_file(path_, internal::kShutdownStateOffset, state.data(), state.size());
    const uint64_t before = fingerprint(path_);
    const auto opened = Pool::open(path_, {});
    EXPECT_EQ(opened.has_value(), !was_open);
    if (was_open) {
      EXPECT_EQ(opened.code(), ErrorCode::kBadPool);
      EXPECT_EQ(fingerprint(path_), before);
    }
  }
}

// A crash of an earlier release can leave a part of a log in a lane. libpmemobj applies none of it,
// and leaves it where it is.
TEST_F(PoolErrors, APoolWithATornLogIsOpenedAndTheLogIsGone) {
  constexpr uint64_t kPlaceOfLanes = 4096 + 1024;
  constexpr uint64_t kLaneBytes = 3072;
  constexpr uint64_t kSecondRedoLog = 64 + 192;
  const uint64_t garbage = 0x5eed5eed5eed5eed;
  uint64_t lanes = 0;
  std::memcpy(&lanes, intact_.data() + kPlaceOfLanes, sizeof lanes);
  for (const uint64_t word : {5 * kLaneBytes, 6 * kLaneBytes + kSecondRedoLog}) {
    SCOPED_TRACE(word);
    write_file(path_, intact_);
    patch_file(path_, lanes + word, &garbage, sizeof garbage);
    const auto before = read_file(path_);
    const auto bytes = std::as_bytes(std::span(before));
    EXPECT_FALSE(internal::lanes_are_idle(bytes, internal::check_pmemobj(bytes, path_).value()));
    EXPECT_TRUE(Pool::view(path_));
    const auto opened = Pool::open(path_, {});
    ASSERT_TRUE(opened) << opened.error().to_string();
    EXPECT_EQ((*opened)->info().extents.size(), 1u);
    const auto after = read_file(path_);
    EXPECT_EQ(std::count(after.begin() + static_cast<ptrdiff_t>(lanes + word),
                         after.begin() + static_cast<ptrdiff_t>(lanes + word + 8), '\0'),
              8);
  }
}

TEST_F(PoolErrors, LanesBeyondTheHeadersAreDamage) {
  constexpr size_t kDescriptor = 4096;
  constexpr size_t kDescriptorBytes = 2048;
  auto bytes = intact_;
  const uint64_t count = uint64_t{1} << 40;
  std::memcpy(bytes.data() + kDescriptor + 1024 + 8, &count, sizeof count);
  const auto descriptor = std::as_bytes(std::span(bytes)).subspan(kDescriptor, kDescriptorBytes);
  const uint64_t sum = internal::fletcher64(descriptor, kDescriptorBytes - 8, kDescriptorBytes);
  std::memcpy(bytes.data() + kDescriptor + kDescriptorBytes - 8, &sum, sizeof sum);
  write_file(path_, bytes);
  expect_refused(ErrorCode::kBadPool, "damaged header (lanes)");
}

// A copy is opened under a name that nobody has given it.
TEST_F(PoolErrors, ErrorsNameThePathOfACopyThatHasNoNameYet) {
  write_file(path_, std::vector<char>(kBytes));
  const int fd = open(path_.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  const auto opened =
      internal::recover_pmemobj("/proc/self/fd/" + std::to_string(fd), "/pools/converted", {});
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message,
              AllOf(HasSubstr("/pools/converted: damaged"), Not(HasSubstr("/proc/self"))));
  close(fd);
}

}  // namespace
}  // namespace pmstore::persist
