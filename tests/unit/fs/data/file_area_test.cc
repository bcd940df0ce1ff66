#include "fs/file_area.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/checksum.h"
#include "tests/unit/fs/data/area_pool.h"

namespace pmstore::fs {
namespace {

TEST(FileArea, UnitsAreAlignedInThePoolAndZero) {
  AreaPool pool;
  const auto area = FileArea::open(pool.pool());
  ASSERT_TRUE(area) << area.error().to_string();
  EXPECT_EQ(area->identity(), kTestIdentity);
  EXPECT_GE(area->units(), kTestUnits);
  EXPECT_EQ(area->offset() % kUnitBytes, 0u);
  EXPECT_EQ(area->data().size(), area->units() * kUnitBytes);
  EXPECT_TRUE(std::all_of(area->data().begin(), area->data().end(),
                          [](std::byte each) { return each == std::byte{0}; }));
  EXPECT_TRUE(pool.pool().memory().contains(area->offset(), area->bytes()));
}

TEST(FileArea, EachOpeningIsANewStart) {
  AreaPool pool;
  uint64_t before = 0;
  for (int i = 0; i < 5; ++i) {
    const auto area = FileArea::open(pool.pool());
    ASSERT_TRUE(area) << area.error().to_string();
    EXPECT_GT(area->start(), before);
    before = area->start();
    pool.reopen();
    EXPECT_EQ(FileArea::look(pool.pool())->start(), before) << "looking changes nothing";
  }
}

TEST(FileArea, EitherCopyOfTheHeaderIsEnough) {
  for (size_t copy = 0; copy < 2; ++copy) {
    AreaPool pool;
    const uint64_t start = FileArea::open(pool.pool())->start();
    std::memset(pool.header_copy(copy), 0x5a, sizeof(FileAreaHeader));
    const auto area = FileArea::open(pool.pool());
    ASSERT_TRUE(area) << area.error().to_string();
    EXPECT_GT(area->start(), start) << "both copies have the last start";
  }
}

TEST(FileArea, DamageToBothCopiesIsSaid) {
  AreaPool pool;
  for (size_t copy = 0; copy < 2; ++copy) *pool.header_copy(copy) ^= std::byte{1};
  const auto area = FileArea::open(pool.pool());
  ASSERT_FALSE(area);
  EXPECT_EQ(area.code(), ErrorCode::kBadPool);
  EXPECT_NE(area.error().message.find("damaged"), std::string::npos);
  EXPECT_EQ(FileArea::format(pool.pool()).code(), ErrorCode::kAlreadyExists)
      << "damage is not formatted away";
}

TEST(FileArea, WhatIsNotFormattedIsNoArea) {
  model::PageBytes region(4 << 20);
  auto pool = persist::Pool::in_region(region.bytes(), persist::Domain::kNone, true).value();
  EXPECT_FALSE(FileArea::is_in(*pool));
  EXPECT_EQ(FileArea::open(*pool).code(), ErrorCode::kNotFound);
  EXPECT_EQ(FileArea::format(*pool).code(), ErrorCode::kNotFound);
  EXPECT_NE(FileArea::open(*pool).error().message.find("--file-bytes"), std::string::npos);
  ASSERT_TRUE(pool->allocate_extent(persist::ExtentKind::kFileData, 1 << 20));
  EXPECT_TRUE(FileArea::is_in(*pool));
  EXPECT_EQ(FileArea::open(*pool).code(), ErrorCode::kBadPool);
}

TEST(FileArea, AnotherFormatVersionIsRefused) {
  AreaPool pool;
  for (size_t copy = 0; copy < 2; ++copy) {
    FileAreaHeader header;
    std::memcpy(&header, pool.header_copy(copy), sizeof header);
    header.version = kFileAreaVersion + 1;
    constexpr size_t kCovered = offsetof(FileAreaHeader, version);
    header.crc = base::crc32c(std::as_bytes(std::span(&header, 1)).subspan(kCovered));
    std::memcpy(pool.header_copy(copy), &header, sizeof header);
  }
  EXPECT_EQ(FileArea::open(pool.pool()).code(), ErrorCode::kVersionMismatch);
}

// A header with a right checksum that would lead outside of its extent.
TEST(FileArea, AForgedHeaderIsDamage) {
  const auto forge = [](auto change) {
    AreaPool pool;
    for (size_t copy = 0; copy < 2; ++copy) {
      FileAreaHeader header;
      std::memcpy(&header, pool.header_copy(copy), sizeof header);
      change(header);
      constexpr size_t kCovered = offsetof(FileAreaHeader, version);
      header.crc = base::crc32c(std::as_bytes(std::span(&header, 1)).subspan(kCovered));
      std::memcpy(pool.header_copy(copy), &header, sizeof header);
    }
    return FileArea::open(pool.pool()).code();
  };
  EXPECT_EQ(forge([](FileAreaHeader& h) { h.units += 1; }), ErrorCode::kBadPool);
  EXPECT_EQ(forge([](FileAreaHeader& h) { h.units = 0; }), ErrorCode::kBadPool);
  EXPECT_EQ(forge([](FileAreaHeader& h) { h.units_offset += kUnitBytes; }), ErrorCode::kBadPool);
  EXPECT_EQ(forge([](FileAreaHeader& h) { h.unit_bytes = 4096; }), ErrorCode::kBadPool);
  EXPECT_EQ(forge([](FileAreaHeader& h) { h.area_bytes = 1; }), ErrorCode::kBadPool);
}

TEST(FileArea, AStoreAndItsFilesShareAPool) {
  model::PageBytes region(64 << 20);
  auto pool = persist::Pool::in_region(region.bytes(), persist::Domain::kNone, true).value();
  FormatOptions format;
  format.rings = 2;
  format.file_bytes = 8 << 20;
  const Status made = format_pool(*pool, format);
  ASSERT_TRUE(made) << made.error().to_string();
  const auto area = FileArea::open(*pool);
  ASSERT_TRUE(area) << area.error().to_string();
  EXPECT_GE(area->bytes(), format.file_bytes - 2 * kUnitBytes);
}

TEST(FileArea, TooLittleOrTooMuchRoomIsRefused) {
  model::PageBytes region(64 << 20);
  auto pool = persist::Pool::in_region(region.bytes(), persist::Domain::kNone, true).value();
  FormatOptions format;
  format.file_bytes = FormatOptions::kLeastFileBytes - 1;
  EXPECT_EQ(format_pool(*pool, format).code(), ErrorCode::kInvalidArgument);
  format.file_bytes = 64 << 20;
  const Status full = format_pool(*pool, format);
  EXPECT_EQ(full.code(), ErrorCode::kFull);
  EXPECT_NE(full.error().message.find("file data"), std::string::npos) << full.error().message;
}

}  // namespace
}  // namespace pmstore::fs
