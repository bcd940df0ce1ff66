// What is acknowledged is there after a power cut at any moment: in every domain, whatever else may
// be left.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "tests/crash/crash_image.h"
#include "tests/unit/fs/data/file_data_fixture.h"

namespace pmstore::fs {
namespace {

using crash::CrashImage;
using crash::CrashRecorder;
using crash::CrashSearch;

class FileDataCrash : public FileDataTest, public testing::WithParamInterface<persist::Domain> {
 protected:
  // Small: each image is a copy.
  FileDataCrash() : FileDataTest(GetParam(), kTestAreaBytes) {}
  using Bytes = std::vector<std::byte>;
  // Of an image, at `range` of the area.
  static Bytes bytes_in(CrashImage& image, uint64_t at, size_t bytes) {
    const auto found = image.bytes().subspan(at, bytes);
    return {found.begin(), found.end()};
  }
};

INSTANTIATE_TEST_SUITE_P(Domains, FileDataCrash,
                         testing::Values(persist::Domain::kNone, persist::Domain::kMemoryController,
                                         persist::Domain::kCpuCache),
                         [](const auto& tested) {
                           return std::string(persist::domain_name(tested.param));
                         });

TEST_P(FileDataCrash, WhatTheNamespaceWritesAndZeroesIsDurableOnReturn) {
  const MapExtent extent = allocate(1);
  const uint64_t at = space_->area().offset() + extent.place.offset;
  const AreaRange part{0, extent.place.offset + 77, 1000};
  CrashRecorder recorder(pool_.pool().memory());
  EXPECT_TRUE(run(space_->write(part, some(1000))));
  recorder.mark();
  EXPECT_TRUE(run(space_->zero({0, part.offset + 100, 500})));
  recorder.mark();
  EXPECT_TRUE(run(space_->clean(extent.place)));
  recorder.mark();
  Bytes expected[4] = {Bytes(1000), some(1000), some(1000), Bytes(1000)};
  std::fill_n(expected[2].begin() + 100, 500, std::byte{0});
  CrashSearch search{.images_per_point = 10};
  const auto wrong = search.run(
      recorder.take(), [&](CrashImage& image, size_t marks) -> std::optional<std::string> {
        const Bytes found = bytes_in(image, at + 77, 1000);
        for (size_t i = 0; i < found.size(); ++i) {
          // What is under way may be there, byte by byte.
          const bool next = marks < 3 && found[i] == expected[marks + 1][i];
          if (found[i] != expected[marks][i] && !next) return "byte " + std::to_string(i);
        }
        return std::nullopt;
      });
  EXPECT_EQ(wrong, std::nullopt) << *wrong;
  EXPECT_GT(search.images_seen, 10u);
}

// A client that has confirmed to have no map of the range writes there nevertheless.
TEST_P(FileDataCrash, WhatIsWrittenBehindTheGateIsZeroDurablyWhenItsUnitsAreFree) {
  class OpenGate final : public QuarantineGate {
    base::Task<Status> closed(AreaRange) override { co_return Status{}; }
  };
  OpenGate gate;
  space_->set_gate(gate);
  const MapExtent extent = allocate(1);
  const uint64_t at = space_->area().offset() + extent.place.offset;
  const Bytes late = some(256);
  CrashRecorder recorder(pool_.pool().memory());
  ASSERT_TRUE(run(space_->clean(extent.place)));
  persist::Memory& memory = pool_.pool().memory();
  memory.write(memory.at(at), late.data(), late.size());
  ASSERT_TRUE(memory.drain());
  recorder.mark();
  space_->release(extent.place);
  EXPECT_EQ(space_->free_bytes(), space_->total_bytes());
  recorder.mark();
  CrashSearch search{.images_per_point = 10};
  const auto wrong = search.run(
      recorder.take(), [&](CrashImage& image, size_t marks) -> std::optional<std::string> {
        if (marks < 2) return std::nullopt;
        const Bytes found = bytes_in(image, at, late.size());
        return found == Bytes(late.size()) ? std::nullopt
                                           : std::optional<std::string>("a free unit has bytes");
      });
  EXPECT_EQ(wrong, std::nullopt) << *wrong;
}

TEST_P(FileDataCrash, AWriteByMessageIsDurableWhenItIsAcknowledged) {
  options_.write_strategy = persist::WriteStrategy::kTwoSided;
  const auto data = open();
  const MapExtent extent = allocate(1);
  const uint64_t at = space_->area().offset() + extent.place.offset;
  CrashRecorder recorder(pool_.pool().memory());
  const std::pair<uint64_t, size_t> writes[] = {{0, 256}, {300, 20}, {1000, 700}};
  for (const auto& [offset, bytes] : writes) {
    EXPECT_EQ(write(*data, extent, offset, some(bytes)), DataOutcome::kDone);
    recorder.mark();
  }
  CrashSearch search{.images_per_point = 20};
  const auto wrong = search.run(recorder.take(),
                                [&](CrashImage& image, size_t marks) -> std::optional<std::string> {
                                  for (size_t i = 0; i < marks; ++i) {
                                    const auto& [offset, bytes] = writes[i];
                                    if (bytes_in(image, at + offset, bytes) != some(bytes)) {
                                      return "write " + std::to_string(i) + " is lost";
                                    }
                                  }
                                  return std::nullopt;
                                });
  EXPECT_EQ(wrong, std::nullopt) << *wrong;
}

TEST_P(FileDataCrash, AnAreaOpensAfterACrashInAnOpening) {
  constexpr uint64_t kOpenings = 3;
  const uint64_t first = space_->area().start();
  stop();
  CrashRecorder recorder(pool_.pool().memory());
  for (uint64_t i = 0; i < kOpenings; ++i) {
    EXPECT_TRUE(FileArea::open(pool_.pool()));
    recorder.mark();
  }
  CrashSearch search{.images_per_point = 50};
  const auto wrong = search.run(
      recorder.take(), [&](CrashImage& image, size_t marks) -> std::optional<std::string> {
        auto pool = persist::Pool::in_region(image.bytes(), GetParam(), false);
        if (!pool) return pool.error().to_string();
        const auto area = FileArea::look(**pool);
        if (!area) return area.error().to_string();
        if (area->start() < first + marks) return "a start would be given again";
        return std::nullopt;
      });
  EXPECT_EQ(wrong, std::nullopt) << *wrong;
  start();
}

}  // namespace
}  // namespace pmstore::fs
