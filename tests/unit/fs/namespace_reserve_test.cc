// Room that is reserved at the end of a file, written without the namespace, and published.
#include <cerrno>
#include <functional>

#include "fs/internal/reservations.h"
#include "tests/unit/fs/namespace_fixture.h"

namespace pmstore::fs {
namespace {

class Reserve : public NamespaceTest {
 protected:
  using Reserved = Namespace::Reserved;
  static constexpr OpenOwner kMe{1}, kOther{2};

  Ino large(std::string_view name, uint64_t bytes = 200'000) {
    const Ino ino = file(name);
    EXPECT_EQ(write(ino, 0, std::string(bytes, 'x')), 0);
    return ino;
  }
  int error_of(Ino ino, uint64_t offset, uint64_t bytes) {
    return number(run(fs().reserve(ino, offset, bytes, kMe)));
  }
  Reserved reserve(Ino ino, uint64_t offset, uint64_t bytes) {
    auto reserved = run(fs().reserve(ino, offset, bytes, kMe));
    EXPECT_TRUE(reserved) << reserved.error().to_string();
    return reserved ? std::move(*reserved) : Reserved{};
  }
  // As a client does it.
  void store(const Reserved& reserved, uint64_t offset, char with, uint64_t bytes) {
    for (const MapExtent& extent : reserved.mapped.map.extents) {
      const uint64_t from = std::max(offset, extent.file_offset);
      const uint64_t to = std::min(offset + bytes, extent.file_offset + extent.place.bytes);
      if (from >= to) continue;
      const AreaRange part{extent.place.server, extent.place.offset + from - extent.file_offset,
                           to - from};
      const auto into = space_.bytes_of(part);
      std::fill(into.begin(), into.end(), static_cast<std::byte>(with));
    }
  }
  int publish(Ino ino, const Reserved& reserved, uint64_t size, OpenOwner owner = kMe) {
    return number(run(fs().publish(ino, reserved.reservation, size, owner)));
  }
};

TEST_F(Reserve, ItsBytesAreTheFilesWhenTheyArePublished) {
  const Ino f = large("f"), empty = file("empty");
  const Reserved room = reserve(f, 200'000, 300'000);
  EXPECT_EQ(stat(f).size, 200'000u);
  store(room, 200'000, 'y', 300'000);
  EXPECT_EQ(read(f), std::string(200'000, 'x'));
  now_ns_ += 1000;
  EXPECT_EQ(publish(f, room, 500'000), 0);
  EXPECT_EQ(stat(f).size, 500'000u);
  EXPECT_EQ(stat(f).mtime_ns, now_ns_);
  EXPECT_EQ(read(f), std::string(200'000, 'x') + std::string(300'000, 'y'));
  EXPECT_EQ(publish(f, room, 500'000), EAGAIN) << "once";
  const Reserved first = reserve(empty, 0, 100'000);
  store(first, 0, 'z', 100'000);
  EXPECT_EQ(publish(empty, first, 100'000), 0);
  EXPECT_FALSE(stat(empty).is_inline);
  EXPECT_EQ(read(empty), std::string(100'000, 'z'));
  EXPECT_TRUE(damage().empty());
  EXPECT_EQ(read(f).size(), 500'000u);
}

TEST_F(Reserve, IsForTheEndOfAFileThatIsNotInline) {
  const Ino f = large("f"), small = file("small");
  EXPECT_EQ(error_of(f, 200'001, 100), EINVAL);
  EXPECT_EQ(error_of(f, 100, 100), EINVAL);
  EXPECT_EQ(error_of(f, 200'000, 0), EINVAL);
  EXPECT_EQ(error_of(f, 100, kMaxFileBytes), EFBIG);
  EXPECT_EQ(write(small, 0, "some"), 0);
  EXPECT_EQ(error_of(small, 4, 100'000), EINVAL);
  EXPECT_EQ(error_of(kRootIno, 0, 100'000), EISDIR);
  const uint64_t used_bytes = space_.used_bytes();
  EXPECT_EQ(error_of(f, 200'000, 100 << 20), EINVAL) << "that is more than a call takes";
  EXPECT_EQ(error_of(f, 200'000, 16 << 20), ENOSPC);
  EXPECT_EQ(space_.used_bytes(), used_bytes);
  const Reserved room = reserve(f, 100'000, 200'000);
  EXPECT_EQ(publish(f, room, 300'001), EAGAIN) << "that is behind the room";
}

TEST_F(Reserve, IsTakenBackByWhatUsesTheRoomOtherwise) {
  const std::function<int(Ino)> others[] = {
      [&](Ino f) { return write(f, std::nullopt, "appended"); },
      [&](Ino f) { return write(f, 400'000, "behind it, so that zeros are between"); },
      [&](Ino f) { return truncate(f, 100); },
      [&](Ino f) { return truncate(f, 600'000); },
      [&](Ino f) { return allocate(f, AllocateMode::kExtend, 0, 600'000); },
      [&](Ino f) { return allocate(f, AllocateMode::kPunchHole, 0, 1 << 20); },
      [&](Ino f) { return allocate(f, AllocateMode::kZeroRange, 0, 600'000); },
      [&](Ino f) { return number(run(fs().write(f, 0, as_bytes("atomic"), true))); },
      [&](Ino f) { return error_of(f, 200'000, 100'000); },
  };
  int which = 0;
  for (const auto& other : others) {
    const Ino f = large("f" + std::to_string(which));
    const Reserved room = reserve(f, 200'000, 300'000);
    store(room, 200'000, 'y', 300'000);
    EXPECT_EQ(other(f), 0) << which;
    const std::string before = read(f);
    EXPECT_EQ(publish(f, room, 500'000), EAGAIN) << which;
    EXPECT_EQ(read(f), before) << which;
    EXPECT_EQ(unlink("f" + std::to_string(which)), 0);
    settle();
    ++which;
  }
  // Of a file that was empty.
  const Ino empty = file("empty");
  const Reserved room = reserve(empty, 0, 100'000);
  EXPECT_EQ(write(empty, 0, "some"), 0);
  EXPECT_EQ(publish(empty, room, 100'000), EAGAIN);
  EXPECT_EQ(read(empty), "some");
}

TEST_F(Reserve, OverwritingLeavesIt) {
  const Ino f = large("f");
  const Reserved room = reserve(f, 200'000, 300'000);
  store(room, 200'000, 'y', 300'000);
  EXPECT_EQ(read(f, 100, 3), "xxx");
  EXPECT_TRUE(run(fs().touch(f, {.written = true})));
  EXPECT_EQ(publish(f, room, 300'000), 0) << "a part of it";
  EXPECT_EQ(stat(f).size, 300'000u);
}

TEST_F(Reserve, IsOfItsOwnerUntilThatIsForgotten) {
  const Ino f = large("f"), of_other = large("g");
  const Reserved room = reserve(f, 200'000, 300'000);
  store(room, 200'000, 'y', 300'000);
  EXPECT_EQ(publish(f, room, 500'000, kOther), EAGAIN);
  run(fs().forget(kOther));
  EXPECT_EQ(publish(f, room, 300'000), 0) << "another owner ends nothing of it";
  const Reserved more = reserve(f, 300'000, 100'000);
  const auto others = run(fs().reserve(of_other, 200'000, 100'000, kOther));
  ASSERT_TRUE(others);
  run(fs().forget(kMe));
  EXPECT_EQ(publish(f, more, 400'000), EAGAIN);
  EXPECT_EQ(stat(f).size, 300'000u);
  EXPECT_EQ(publish(of_other, *others, 300'000, kOther), 0);
}

TEST_F(Reserve, OfAnEarlierStartIsNotTakenForOneOfThis) {
  const Ino f = large("f");
  const Reserved before = reserve(f, 200'000, 300'000);
  store(before, 200'000, 'y', 300'000);
  restart();
  EXPECT_EQ(truncate(f, 0), 0);
  EXPECT_EQ(truncate(f, 200'000), 0);
  const Reserved now = reserve(f, 200'000, 300'000);
  EXPECT_EQ(publish(f, before, 500'000), EAGAIN);
  EXPECT_EQ(read(f), std::string(200'000, '\0'));
  EXPECT_EQ(publish(f, now, 500'000), 0);
}

TEST_F(Reserve, WhatWasNotPublishedIsNeverSeen) {
  const Ino f = large("f");
  store(reserve(f, 200'000, 300'000), 200'000, 'y', 300'000);
  restart();
  EXPECT_EQ(read(f), std::string(200'000, 'x'));
  EXPECT_EQ(truncate(f, 500'000), 0);
  EXPECT_EQ(read(f), std::string(200'000, 'x') + std::string(300'000, '\0'));
}

TEST(Reservations, HaveABound) {
  internal::Reservations all;
  const uint64_t first = all.begin(OpenOwner{1}, Ino{1}, 0, 10);
  for (uint64_t ino = 2; ino <= internal::Reservations::kMost; ++ino)
    all.begin(OpenOwner{1}, Ino{ino}, 0, 10);
  EXPECT_EQ(all.files(), internal::Reservations::kMost);
  const uint64_t second = all.begin(OpenOwner{1}, Ino{1}, 0, 10);
  EXPECT_EQ(all.files(), internal::Reservations::kMost);
  EXPECT_FALSE(all.end(OpenOwner{1}, Ino{1}, first, 5));
  EXPECT_TRUE(all.end(OpenOwner{1}, Ino{1}, second, 5));
  const uint64_t last = all.begin(OpenOwner{1}, Ino{1}, 0, 10);
  all.begin(OpenOwner{1}, Ino{1u << 20}, 0, 10);
  EXPECT_FALSE(all.end(OpenOwner{1}, Ino{1}, last, 5)) << "all were taken back";
}

}  // namespace
}  // namespace pmstore::fs
