// Later sections of a file area: made and removed as a whole, also when the power fails; found by
// the next start; damage to one is said.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "base/checksum.h"
#include "tests/crash/crash_image.h"
#include "tests/unit/fs/data/area_pool.h"

namespace pmstore::fs {
namespace {

using crash::CrashImage;
using crash::CrashRecorder;
using crash::CrashSearch;

constexpr uint64_t kSectionBytes = 6 * kUnitBytes;
constexpr uint64_t kSpareBytes = 4 * kSectionBytes;

class AreaSections : public testing::TestWithParam<persist::Domain> {
 protected:
  static bool is_zero(persist::Pool& pool, const AreaSection& section) {
    const std::byte* const units = pool.memory().at(section.place());
    return std::all_of(units, units + section.bytes(),
                       [](std::byte each) { return each == std::byte{0}; });
  }
  AreaPool pool_{GetParam(), kTestAreaBytes, kSpareBytes};
};

INSTANTIATE_TEST_SUITE_P(Domains, AreaSections,
                         testing::Values(persist::Domain::kNone, persist::Domain::kMemoryController,
                                         persist::Domain::kCpuCache),
                         [](const auto& tested) {
                           return std::string(persist::domain_name(tested.param));
                         });

TEST_P(AreaSections, AreThereAtTheNextOpening) {
  FileArea area = FileArea::open(pool_.pool()).value();
  const uint64_t units = area.units();
  const AreaSection first = area.add_section(pool_.pool(), kSectionBytes).value();
  const AreaSection second = area.add_section(pool_.pool(), kSectionBytes).value();
  EXPECT_GT(first.begin(), area.sections().front().end()) << "no run goes over the end";
  EXPECT_GT(second.begin(), first.end());
  EXPECT_EQ(first.place() % kUnitBytes, 0u);
  EXPECT_GE(first.units, kSectionBytes / kUnitBytes - 2);
  pool_.reopen();
  const auto again = FileArea::open(pool_.pool());
  ASSERT_TRUE(again) << again.error().to_string();
  ASSERT_EQ(again->sections().size(), 3u);
  EXPECT_EQ(again->sections()[1].begin(), first.begin());
  EXPECT_EQ(again->sections()[1].place(), first.place());
  EXPECT_EQ(again->sections()[2].begin(), second.begin());
  EXPECT_EQ(again->units(), units + first.units + second.units);
  EXPECT_EQ(again->end(), second.end());
}

TEST_P(AreaSections, ThatAreRemovedLeaveTheirSpaceToOthersAndTheirNumbersToNone) {
  FileArea area = FileArea::open(pool_.pool()).value();
  const uint64_t free = pool_.pool().largest_free_extent();
  const AreaSection first = area.add_section(pool_.pool(), free).value();
  EXPECT_EQ(area.add_section(pool_.pool(), kSectionBytes).code(), ErrorCode::kFull);
  ASSERT_TRUE(area.remove_section(pool_.pool(), first.first_unit));
  EXPECT_EQ(area.sections().size(), 1u);
  const auto records = pool_.pool().allocate_extent(persist::ExtentKind::kRecords, free / 2);
  ASSERT_TRUE(records) << "records get what files had";
  const AreaSection second = area.add_section(pool_.pool(), kSectionBytes).value();
  EXPECT_GT(second.begin(), first.end()) << "a map of before may still name those";
  pool_.reopen();
  EXPECT_EQ(FileArea::open(pool_.pool())->sections().size(), 2u);
}

TEST_P(AreaSections, AppearAndGoAsAWholeWhenThePowerFails) {
  FileArea area = FileArea::open(pool_.pool()).value();
  CrashRecorder recorder(pool_.pool().memory());
  const AreaSection made = area.add_section(pool_.pool(), kSectionBytes).value();
  recorder.mark();
  ASSERT_TRUE(area.remove_section(pool_.pool(), made.first_unit));
  recorder.mark();
  CrashSearch search{.images_per_point = 20};
  const auto wrong = search.run(
      recorder.take(), [&](CrashImage& image, size_t marks) -> std::optional<std::string> {
        auto pool = persist::Pool::in_region(image.bytes(), GetParam(), false);
        if (!pool) return pool.error().to_string();
        const auto found = FileArea::look(**pool);
        if (!found) return found.error().to_string();
        const size_t sections = found->sections().size();
        if (marks == 1 && sections == 1) {
          // It may be going; then its space is free.
          if ((*pool)->largest_free_extent() < kSpareBytes) return "the section has leaked";
          return std::nullopt;
        }
        if (sections != 2 - marks / 2 && sections != 1) return "sections: " + std::to_string(marks);
        if (sections == 2 && !is_zero(**pool, found->sections()[1])) return "units are not zero";
        return std::nullopt;
      });
  EXPECT_EQ(wrong, std::nullopt) << *wrong;
  EXPECT_GT(search.images_seen, 10u);
}

TEST_P(AreaSections, EitherCopyOfAHeaderIsEnoughAndDamageToBothIsSaid) {
  FileArea area = FileArea::open(pool_.pool()).value();
  const AreaSection made = area.add_section(pool_.pool(), kSectionBytes).value();
  std::byte* const header = pool_.pool().memory().at(made.extent.offset);
  header[9] ^= std::byte{1};
  EXPECT_EQ(FileArea::look(pool_.pool())->sections().size(), 2u);
  header[9] ^= std::byte{1};
  header[kFileAreaCopyStride + 9] ^= std::byte{1};
  EXPECT_EQ(FileArea::look(pool_.pool())->sections().size(), 2u);
  header[9] ^= std::byte{1};
  EXPECT_EQ(FileArea::look(pool_.pool()).code(), ErrorCode::kBadPool);
}

// Headers with right checksums that would lead elsewhere.
TEST_P(AreaSections, AForgedHeaderIsDamage) {
  FileArea area = FileArea::open(pool_.pool()).value();
  const AreaSection made = area.add_section(pool_.pool(), kSectionBytes).value();
  const auto forge = [&](auto change) {
    AreaSectionHeader before;
    std::byte* const at = pool_.pool().memory().at(made.extent.offset);
    std::memcpy(&before, at, sizeof before);
    AreaSectionHeader header = before;
    change(header);
    constexpr size_t kCovered = offsetof(AreaSectionHeader, version);
    header.crc = base::crc32c(std::as_bytes(std::span(&header, 1)).subspan(kCovered));
    for (uint64_t copy = 0; copy < 2; ++copy) {
      std::memcpy(at + copy * kFileAreaCopyStride, &header, sizeof header);
    }
    const ErrorCode code = FileArea::look(pool_.pool()).code();
    for (uint64_t copy = 0; copy < 2; ++copy) {
      std::memcpy(at + copy * kFileAreaCopyStride, &before, sizeof before);
    }
    return code;
  };
  using Header = AreaSectionHeader;
  EXPECT_EQ(forge([](Header& h) { h.area += 1; }), ErrorCode::kBadPool);
  EXPECT_EQ(forge([](Header& h) { h.units += 1; }), ErrorCode::kBadPool);
  EXPECT_EQ(forge([](Header& h) { h.units_offset += kUnitBytes; }), ErrorCode::kBadPool);
  EXPECT_EQ(forge([](Header& h) { h.first_unit = 0; }), ErrorCode::kBadPool);
  EXPECT_EQ(forge([](Header& h) { h.first_unit += 1; }), ErrorCode::kBadPool);
  EXPECT_EQ(forge([](Header& h) { h.section_bytes = 1; }), ErrorCode::kBadPool);
  EXPECT_TRUE(FileArea::look(pool_.pool()));
}

// An area that is made in a pool that has none.
TEST(AreaCreation, GivesAWholeAreaOrNoneWhenThePowerFails) {
  model::PageBytes region(1 << 20);
  auto pool = persist::Pool::in_region(region.bytes(), persist::Domain::kNone, true).value();
  CrashRecorder recorder(pool->memory());
  ASSERT_TRUE(FileArea::create(*pool, kSectionBytes, kTestIdentity));
  recorder.mark();
  EXPECT_EQ(FileArea::create(*pool, kSectionBytes).code(), ErrorCode::kAlreadyExists);
  EXPECT_EQ(FileArea::look(*pool)->identity(), kTestIdentity);
  CrashSearch search{.images_per_point = 20};
  const auto wrong = search.run(
      recorder.take(), [&](CrashImage& image, size_t marks) -> std::optional<std::string> {
        auto found = persist::Pool::in_region(image.bytes(), persist::Domain::kNone, false);
        if (!found) return found.error().to_string();
        if (!FileArea::is_in(**found)) {
          return marks == 0 ? std::nullopt : std::optional<std::string>("the area is lost");
        }
        const auto area = FileArea::look(**found);
        if (!area) return area.error().to_string();
        return std::nullopt;
      });
  EXPECT_EQ(wrong, std::nullopt) << *wrong;
}

}  // namespace
}  // namespace pmstore::fs
