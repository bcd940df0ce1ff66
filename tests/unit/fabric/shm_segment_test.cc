// What a listener takes for a segment, and what it refuses.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "fabric/shm/internal/segment.h"

namespace pmstore::fabric::shm {
namespace {

base::FileDescriptor memory(size_t bytes, int seals) {
  base::FileDescriptor made(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(made.get(), static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(fcntl(made.get(), F_ADD_SEALS, seals), 0);
  return made;
}

base::FileDescriptor bell(int flags = EFD_NONBLOCK) {
  return base::FileDescriptor(eventfd(0, EFD_CLOEXEC | flags));
}

constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

void expect_refused(base::FileDescriptor memory_fd, base::FileDescriptor first,
                    base::FileDescriptor second, const char* why) {
  Segment::Descriptors all{std::move(memory_fd), std::move(first), std::move(second)};
  const Result<Segment> adopted = Segment::adopt(std::move(all));
  ASSERT_FALSE(adopted) << why;
  EXPECT_EQ(adopted.code(), ErrorCode::kProtocol) << why;
}

TEST(Segment, BothEndsSeeTheSameRings) {
  Result<Segment> dialed = Segment::create();
  ASSERT_TRUE(dialed) << dialed.error().to_string();
  Segment::Descriptors copies;
  for (size_t i = 0; i < copies.size(); ++i) {
    copies[i] = base::FileDescriptor(dup(dialed->descriptors()[i]));
  }
  Result<Segment> adopted = Segment::adopt(std::move(copies));
  ASSERT_TRUE(adopted) << adopted.error().to_string();
  RingWriter there = dialed->writer();
  RingReader here = adopted->reader();
  there.append("to the listener", 15);
  there.publish();
  ASSERT_TRUE(here.look());
  ASSERT_EQ(here.available(), 15u);
  EXPECT_EQ(std::memcmp(here.front(), "to the listener", 15), 0);
  RingWriter back = adopted->writer();
  RingReader answer = dialed->reader();
  back.append("and back", 8);
  back.publish();
  ASSERT_TRUE(answer.look());
  EXPECT_EQ(answer.available(), 8u);

  uint64_t rings = 0;
  EXPECT_EQ(read(adopted->own_bell(), &rings, sizeof rings), -1);
  dialed->ring_peer();
  EXPECT_EQ(read(adopted->own_bell(), &rings, sizeof rings), 8);
  adopted->ring_peer();
  EXPECT_EQ(read(dialed->own_bell(), &rings, sizeof rings), 8);
}

TEST(Segment, ItsMemoryKeepsItsSize) {
  Result<Segment> made = Segment::create();
  ASSERT_TRUE(made);
  EXPECT_EQ(ftruncate(made->descriptors()[0], 4096), -1);
  EXPECT_EQ(errno, EPERM);
  EXPECT_TRUE(made->holds_memory());
  made->close_memory();
  EXPECT_FALSE(made->holds_memory());
  EXPECT_EQ(made->writer().append("still there", 11), 11u);
}

TEST(Segment, MemoryThatCouldFaultIsRefused) {
  expect_refused(memory(kSegmentBytes, 0), bell(), bell(), "it can be cut short");
  expect_refused(memory(kSegmentBytes, F_SEAL_SHRINK | F_SEAL_GROW), bell(), bell(),
                 "it can be given other seals, as one against writing");
  expect_refused(memory(kSegmentBytes - 4096, kAllSeals), bell(), bell(), "it is too small");
  expect_refused(memory(kSegmentBytes + 4096, kAllSeals), bell(), bell(), "it is too large");
  expect_refused(base::FileDescriptor(open("/dev/zero", O_RDWR | O_CLOEXEC)), bell(), bell(),
                 "it is a device");
  expect_refused(base::FileDescriptor(open("/", O_RDONLY | O_CLOEXEC)), bell(), bell(),
                 "it is a directory");
  expect_refused(base::FileDescriptor(), bell(), bell(), "it is nothing");
}

TEST(Segment, ABellThatCouldBlockIsRefused) {
  expect_refused(memory(kSegmentBytes, kAllSeals), bell(0), bell(), "it blocks");
  expect_refused(memory(kSegmentBytes, kAllSeals), bell(), bell(0), "it blocks");
  base::FileDescriptor no_eventfd = memory(4096, 0);
  ASSERT_EQ(fcntl(no_eventfd.get(), F_SETFL, O_NONBLOCK), 0);
  expect_refused(memory(kSegmentBytes, kAllSeals), bell(), std::move(no_eventfd), "it is memory");
}

TEST(Segment, GoodOnesOfAnotherMakerAreTaken) {
  Segment::Descriptors all{memory(kSegmentBytes, kAllSeals), bell(), bell()};
  EXPECT_TRUE(Segment::adopt(std::move(all))) << "or the tests above say nothing";
}

}  // namespace
}  // namespace pmstore::fabric::shm
