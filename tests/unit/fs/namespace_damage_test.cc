// A namespace whose records are damaged: what they concern is EIO, all else is served, and no unit
// that a record may name is given to another file.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "fs/internal/space_claims.h"
#include "fs/internal/table_records.h"
#include "fs/layout/fs_layout.h"
#include "tests/unit/fs/namespace_fixture.h"

namespace pmstore::fs {
namespace {

class Damage : public NamespaceTest {
 protected:
  void SetUp() override {
    options_.on_damage = [this](const std::string& line) { lines_.push_back(line); };
    NamespaceTest::SetUp();
  }
  TableId table(std::string_view name) { return *run(client_->open_table(name)); }
  void put_map(Ino ino, uint64_t offset, std::string_view value) {
    ASSERT_TRUE(run(client_->put(table(".fs.maps"), internal::map_key(ino, offset), value)));
  }
  void put_freed(uint64_t id, std::string_view value) {
    ASSERT_TRUE(run(client_->put(table(".fs.freed"), internal::freed_key(id), value)));
  }
  AreaRange place_of(Ino ino) { return run(fs().map(ino, 0, 1, false))->map.extents[0].place; }
  void expect_no_data(Ino ino, std::string_view name) {
    EXPECT_EQ(number(run(fs().read(ino, 0, 1))), EIO);
    EXPECT_EQ(number(run(fs().map(ino, 0, 1, false))), EIO);
    EXPECT_EQ(number(run(fs().open_file({}, ino, O_RDONLY, OpenOwner{1}))), EIO);
    EXPECT_EQ(write(ino, 0, "y"), EIO);
    EXPECT_EQ(truncate(ino, 0), EIO);
    EXPECT_EQ(unlink(name), EIO);
    EXPECT_EQ(number(run(fs().get_attributes(ino))), 0) << "its attributes are whole";
  }
  bool said(std::string_view what) const {
    return std::any_of(lines_.begin(), lines_.end(),
                       [what](const std::string& line) { return line.find(what) != line.npos; });
  }
  // With the file system closed meanwhile.
  NamespaceFindings repair() {
    stop();
    open_store();
    const auto found = run(check_namespace(*client_, space_.sections(), true));
    EXPECT_TRUE(found) << found.error().to_string();
    EXPECT_EQ(run(check_namespace(*client_, space_.sections(), false))->found, 0u);
    client_.reset();
    lines_.clear();
    start();
    settle();
    EXPECT_TRUE(lines_.empty()) << ::testing::PrintToString(lines_);
    return *found;
  }
  static bool names(const std::vector<std::string>& lines, std::string_view what) {
    return std::any_of(lines.begin(), lines.end(),
                       [what](const std::string& line) { return line.find(what) != line.npos; });
  }

  static constexpr size_t kBytes = 100'000;  // two units
  std::vector<std::string> lines_;
};

TEST_F(Damage, AMapRecordThatDoesNotDecodeConcernsItsFileOnly) {
  const Ino f = file("f"), g = file("g");
  EXPECT_EQ(write(f, 0, std::string(kBytes, 'x')), 0);
  EXPECT_EQ(write(g, 0, std::string(kBytes, 'y')), 0);
  put_map(f, 0, "short");
  restart();
  ASSERT_EQ(lines_.size(), 1u) << ::testing::PrintToString(lines_);
  EXPECT_TRUE(said("inode " + std::to_string(raw(f))));
  EXPECT_EQ(read(g), std::string(kBytes, 'y'));
  EXPECT_EQ(write(g, 0, "z"), 0);
  expect_no_data(f, "f");
  const Ino small = file("small");
  EXPECT_EQ(write(small, 0, "inline"), 0);
  EXPECT_EQ(read(small), "inline");
}

TEST_F(Damage, NoSpaceIsGivenOutWhileARecordMayNameAnyUnit) {
  const Ino f = file("f");
  EXPECT_EQ(write(f, 0, std::string(kBytes, 'x')), 0);
  put_map(f, 0, "short");
  restart();
  const Ino g = file("g");
  const std::string large(kBytes, 'y');
  const auto refused = run(fs().write(g, 0, as_bytes(large)));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.number(), EIO);
  EXPECT_NE(refused.error().message.find("fs check --repair"), std::string::npos);
  const NamespaceFindings repaired = repair();
  EXPECT_TRUE(names(repaired.repaired, "inode " + std::to_string(raw(f))));
  EXPECT_TRUE(names(repaired.repaired, "lost that extent"));
  EXPECT_EQ(read(f), std::string(kBytes, '\0'));
  EXPECT_EQ(write(g, 0, large), 0);
  EXPECT_EQ(read(g), large);
  EXPECT_EQ(unlink("f"), 0);
  settle();
  EXPECT_TRUE(space_.free_is_zero());
  EXPECT_EQ(space_.used_bytes(), 2 * kUnitBytes);
}

TEST_F(Damage, UnitsOfTwoFilesAreFreedByNeither) {
  const Ino f = file("f"), g = file("g"), h = file("h");
  EXPECT_EQ(write(f, 0, std::string(kBytes, 'x')), 0);
  EXPECT_EQ(write(g, 0, std::string(kBytes, 'y')), 0);
  // No record names its own units any more: they are free, so they are zero.
  std::ranges::fill(space_.bytes_of(place_of(g)), std::byte{0});
  put_map(g, 0, internal::encode(place_of(f)));
  restart();
  EXPECT_EQ(lines_.size(), 1u) << ::testing::PrintToString(lines_);
  expect_no_data(f, "f");
  expect_no_data(g, "g");
  const AreaRange place =
      internal::decode_place(*run(client_->get(table(".fs.maps"), internal::map_key(f, 0))))
          .value();
  EXPECT_EQ(write(h, 0, std::string(kBytes, 'z')), 0);
  EXPECT_NE(place_of(h).offset, place.offset);
  settle();
  EXPECT_EQ(space_.bytes_of(place)[0], std::byte{'x'});
}

TEST_F(Damage, ARangeThatLeavesItsAreaConcernsItsFileOnly) {
  const Ino f = file("f"), g = file("g");
  EXPECT_EQ(write(f, 0, std::string(kBytes, 'x')), 0);
  EXPECT_EQ(write(g, 0, std::string(kBytes, 'y')), 0);
  const uint64_t last = space_.total_bytes() - kUnitBytes;
  put_map(f, 0, internal::encode(AreaRange{0, last, 2 * kUnitBytes}));
  restart();
  EXPECT_EQ(lines_.size(), 1u) << ::testing::PrintToString(lines_);
  expect_no_data(f, "f");
  EXPECT_EQ(read(g), std::string(kBytes, 'y'));
  EXPECT_FALSE(space_.claim({0, last, kUnitBytes})) << "the part inside is kept out of use";
  EXPECT_TRUE(names(repair().repaired, "lost that extent"));
  EXPECT_EQ(read(f), std::string(kBytes, '\0'));
  EXPECT_EQ(space_.used_bytes(), 2 * kUnitBytes);
  EXPECT_TRUE(space_.free_is_zero());
}

TEST_F(Damage, AQuarantinedRangeWithUnitsOfAFileIsNotCleaned) {
  const Ino f = file("f");
  EXPECT_EQ(write(f, 0, std::string(kBytes, 'x')), 0);
  AreaRange wide = place_of(f);
  wide.bytes += 2 * kUnitBytes;
  put_freed(4, internal::encode(wide));
  restart();
  settle();
  EXPECT_EQ(lines_.size(), 1u) << ::testing::PrintToString(lines_);
  EXPECT_EQ(read(f), std::string(kBytes, 'x'));
  EXPECT_EQ(space_.used_bytes(), 4 * kUnitBytes) << "its other units are kept out of use";
}

TEST_F(Damage, AQuarantinedRangeThatDoesNotDecodeIsRemovedByTheRepair) {
  put_freed(4, "short");
  restart();
  EXPECT_TRUE(said("quarantine"));
  const Ino f = file("f");
  EXPECT_EQ(write(f, 0, std::string(kBytes, 'x')), EIO);
  EXPECT_TRUE(names(repair().repaired, "quarantine"));
  EXPECT_EQ(write(f, 0, std::string(kBytes, 'x')), 0);
}

// Such a key sorts behind all others: the number of the next range is not its.
TEST_F(Damage, OneWrongKeyOfTheQuarantineIsDroppedAndAllElseIsRepaired) {
  const Ino f = file("f");
  EXPECT_EQ(write(f, 0, std::string(kBytes, 'x')), 0);
  const std::string keys[] = {std::string(8, '\xff'), std::string(9, '\xff')};
  const AreaRange place{0, 8 << 20, kUnitBytes};
  for (const std::string& key : keys) {
    ASSERT_TRUE(run(client_->put(table(".fs.freed"), key, internal::encode(place))));
  }
  std::ranges::fill(space_.bytes_of(place), std::byte{'o'});
  put_map(f, 0, "short");
  const NamespaceFindings repaired = repair();
  EXPECT_TRUE(names(repaired.repaired, "ffffffffffffffffff: "));
  EXPECT_TRUE(names(repaired.repaired, "inode " + std::to_string(raw(f))));
  for (const std::string& key : keys) {
    EXPECT_EQ(run(client_->get(table(".fs.freed"), key)).code(), ErrorCode::kNotFound);
  }
  EXPECT_EQ(space_.used_bytes(), 0u);
  EXPECT_TRUE(space_.free_is_zero()) << "what it named was cleaned before it was free";
}

TEST_F(Damage, AFileLosesItsExtentAtAServerThatWasNeverListed) {
  const Ino f = file("f"), g = file("g");
  EXPECT_EQ(write(f, 0, std::string(kBytes, 'x')), 0);
  EXPECT_EQ(write(g, 0, std::string(kBytes, 'y')), 0);
  put_map(f, 0, internal::encode(AreaRange{7, 0, 2 * kUnitBytes}));
  put_freed(9, internal::encode(AreaRange{7, 0, kUnitBytes}));
  const NamespaceFindings repaired = repair();
  EXPECT_TRUE(
      names(repaired.repaired, "at data server 7, which was never in the list: the file lost"));
  EXPECT_TRUE(names(repaired.repaired, "freed range 9 is at data server 7"));
  EXPECT_EQ(read(f), std::string(kBytes, '\0'));
  EXPECT_EQ(read(g), std::string(kBytes, 'y'));
  EXPECT_EQ(write(f, 0, "new"), 0);
  EXPECT_EQ(unlink("f"), 0);
  settle();
  EXPECT_EQ(space_.used_bytes(), 2 * kUnitBytes);
}

// As a repair leaves a pool that takes an area for one section: the quarantine names what is no
// unit.
TEST_F(Damage, WhatLiesBetweenTwoSectionsIsNoUnitAndARepairLeavesNoRecordOfIt) {
  const uint64_t quarter = space_.total_bytes() / 4;
  const std::vector<AreaRange> sections = {{0, 0, quarter}, {0, 2 * quarter, quarter}};
  const Ino f = file("f"), g = file("g");
  EXPECT_EQ(write(f, 0, std::string(kBytes, 'x')), 0);
  EXPECT_EQ(write(g, 0, std::string(kBytes, 'y')), 0);
  put_map(g, 0, internal::encode(AreaRange{0, quarter + kUnitBytes, 2 * kUnitBytes}));
  put_freed(4, internal::encode(AreaRange{0, quarter, quarter}));
  put_freed(5, internal::encode(AreaRange{0, quarter - kUnitBytes, 2 * kUnitBytes}));
  put_freed(6, internal::encode(AreaRange{0, 2 * quarter - kUnitBytes, 2 * kUnitBytes}));
  stop();
  open_store();
  const auto found = run(check_namespace(*client_, sections, false));
  ASSERT_TRUE(found) << found.error().to_string();
  EXPECT_EQ(found->found, 4u) << ::testing::PrintToString(found->damage);
  const auto repaired = run(check_namespace(*client_, sections, true));
  ASSERT_TRUE(repaired) << repaired.error().to_string();
  EXPECT_EQ(repaired->found, 0u) << ::testing::PrintToString(repaired->damage);
  uint64_t quarantined = 0;
  const auto see = [&](const RecordRef& record) {
    const AreaRange range = internal::decode_place(record.value).value();
    const auto has = [&range](const AreaRange& section) {
      return range.offset >= section.offset &&
             range.offset + range.bytes <= section.offset + section.bytes;
    };
    EXPECT_TRUE(std::ranges::any_of(sections, has)) << range.offset << ", " << range.bytes;
    quarantined += range.bytes;
  };
  ASSERT_TRUE(run(internal::see_records(*client_, table(".fs.freed"), see)));
  EXPECT_EQ(quarantined, 2 * quarter - 2 * kUnitBytes) << "all units but those of f, once";
}

// The second record of the last file has the same line as its first one, so it is of a later round.
TEST_F(Damage, MoreRepairsThanLinesGoOnUntilNothingIsLeft) {
  const size_t files = NamespaceFindings::kMaxLines + 1;
  for (size_t i = 0; i < files; ++i) {
    const Ino f = file("f" + std::to_string(i));
    internal::Inode inode =
        *internal::decode_inode(f, *run(client_->get(table(".fs.inodes"), internal::ino_key(f))));
    inode.attributes.size = kUnitBytes;
    inode.attributes.data_bytes = kUnitBytes;
    inode.attributes.is_inline = false;
    inode.tail.clear();
    ASSERT_TRUE(run(client_->put(table(".fs.inodes"), internal::ino_key(f), encode(inode))));
    put_map(f, 0, "short");
    if (i + 1 == files) put_map(f, kUnitBytes, "short");
  }
  const NamespaceFindings repaired = repair();
  EXPECT_EQ(repaired.found, 0u) << ::testing::PrintToString(repaired.damage);
  EXPECT_EQ(repaired.repaired.size(), NamespaceFindings::kMaxLines);
  EXPECT_EQ(repaired.repairs, 2 * files + 1);
}

// As the start of the store leaves it: a record with a wrong checksum is not there any more.
TEST_F(Damage, WhatRecordsThatWereGivenUpHaveNamedIsZeroBeforeItIsGivenOut) {
  const Ino f = file("f"), g = file("g");
  EXPECT_EQ(write(f, 0, std::string(kBytes, 'x')), 0);
  const AreaRange place = place_of(f);
  ASSERT_TRUE(run(client_->erase(table(".fs.maps"), internal::map_key(f, 0))));
  options_.records_given_up = 1;
  restart();
  EXPECT_TRUE(said("1 records of the pool were given up"));
  EXPECT_EQ(space_.used_bytes(), space_.total_bytes()) << "all is in quarantine";
  EXPECT_EQ(write(g, 20, std::string(kBytes, 'y')), 0) << "it waits for room";
  EXPECT_EQ(read(g, 0, 21), std::string(20, '\0') + "y");
  settle();
  EXPECT_EQ(space_.bytes_of(place)[place_of(g) == place ? 0 : 20], std::byte{0});
  EXPECT_TRUE(space_.free_is_zero());
  EXPECT_EQ(space_.used_bytes(), 2 * kUnitBytes);
}

TEST_F(Damage, FreeSpaceIsZeroedOnceForTheSameRecordsThatWereGivenUp) {
  options_.records_given_up = 1;
  restart();
  settle();
  const uint64_t cleans = space_.cleans();
  EXPECT_GT(cleans, 0u);
  lines_.clear();
  restart();
  settle();
  EXPECT_EQ(space_.cleans(), cleans);
  EXPECT_TRUE(lines_.empty()) << ::testing::PrintToString(lines_);
  options_.records_given_up = 2;
  restart();
  settle();
  EXPECT_GT(space_.cleans(), cleans);
}

TEST_F(Damage, SpaceThatWasNotNotedInTimeIsZeroedByTheNextStart) {
  const TableId super_table = table(".fs.super");
  internal::SuperRecord super =
      *internal::decode_super(*run(client_->get(super_table, internal::kSuperKey)));
  EXPECT_EQ(super.given_up, 0u);
  super.given_up = internal::kSpaceIsUnclean;
  ASSERT_TRUE(run(client_->put(super_table, internal::kSuperKey, internal::encode(super))));
  std::ranges::fill(space_.bytes_of({0, 8 << 20, kUnitBytes}), std::byte{'o'});
  restart();
  EXPECT_TRUE(said("a data server with old data was being added"));
  settle();
  EXPECT_TRUE(space_.free_is_zero());
  EXPECT_EQ(space_.used_bytes(), 0u);
  lines_.clear();
  restart();
  EXPECT_TRUE(lines_.empty()) << ::testing::PrintToString(lines_);
}

TEST_F(Damage, QuarantineOfAServersSpaceGoesOnWithoutItsCaller) {
  std::ranges::fill(space_.bytes_of({0, 8 << 20, kUnitBytes}), std::byte{'o'});
  {
    auto noting = fs().quarantine_free_of(0);
    noting.start();
    EXPECT_EQ(space_.used_bytes(), space_.total_bytes()) << "nothing of it is given out any more";
  }
  const Ino f = file("f");
  EXPECT_EQ(write(f, 0, std::string(kBytes, 'x')), 0) << "it waits for room";
  settle();
  EXPECT_TRUE(space_.free_is_zero());
  EXPECT_EQ(space_.used_bytes(), 2 * kUnitBytes);
}

class DamageBeforeTheFirstStart : public Damage {
 protected:
  void SetUp() override {
    options_.records_given_up = 1;
    std::ranges::fill(space_.bytes_of({0, 8 << 20, kUnitBytes}), std::byte{'o'});
    Damage::SetUp();
  }
};

TEST_F(DamageBeforeTheFirstStart, ANewFileSystemHasOldSpaceZeroed) {
  settle();
  EXPECT_GT(space_.cleans(), 0u);
  EXPECT_TRUE(space_.free_is_zero());
  EXPECT_EQ(space_.used_bytes(), 0u);
}

TEST_F(Damage, ACrashBetweenLeavesTheRestToTheNextStart) {
  const Ino f = file("f");
  EXPECT_EQ(write(f, 0, std::string(kBytes, 'x')), 0);
  ASSERT_TRUE(run(client_->erase(table(".fs.maps"), internal::map_key(f, 0))));
  options_.records_given_up = 1;
  space_.failing_cleans = 1000;
  restart();
  stop();
  space_.failing_cleans = 0;
  lines_.clear();
  start();
  EXPECT_TRUE(lines_.empty()) << "quarantine has it: " << ::testing::PrintToString(lines_);
  settle();
  EXPECT_TRUE(space_.free_is_zero());
  EXPECT_EQ(space_.used_bytes(), 0u);
}

TEST_F(Damage, OfManyWrongRecordsTheFirstAreNamedAndAllAreCounted) {
  for (unsigned i = 0; i < internal::SpaceClaims::kMostLines + 4; ++i) {
    const Ino f = file("f" + std::to_string(i));
    put_map(f, 0, "short");
  }
  restart();
  ASSERT_EQ(lines_.size(), internal::SpaceClaims::kMostLines + 1);
  EXPECT_EQ(lines_.back().substr(0, 3), "20 ");
}

TEST_F(Damage, ADirectoryWithADamagedInodeIsListed) {
  file("a");
  const Ino bad = file("bad");
  file("z");
  ASSERT_TRUE(run(client_->put(table(".fs.inodes"), internal::ino_key(bad), "short")));
  const auto listed = run(fs().read_directory({}, kRootIno, 0, 100, true));
  ASSERT_TRUE(listed) << listed.error().to_string();
  ASSERT_EQ(listed->size(), 3u);
  EXPECT_TRUE((*listed)[0].attributes);
  EXPECT_EQ((*listed)[1].entry.name, "bad");
  EXPECT_FALSE((*listed)[1].attributes);
  EXPECT_TRUE((*listed)[2].attributes);
  EXPECT_EQ(number(run(fs().get_attributes(bad))), EIO);
}

// The medium changes a byte while the store is open.
TEST_F(Damage, TheCheckGoesOnBehindARecordWithAWrongChecksum) {
  const Ino f = file("f");
  const std::string value = "a value that is nowhere else";
  ASSERT_TRUE(run(fs().set_xattr({}, f, "user.a", as_bytes(value), XattrMode::kSet)));
  ASSERT_TRUE(run(fs().set_xattr({}, f, "user.b", as_bytes("1"), XattrMode::kSet)));
  std::ifstream pool(path_, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(pool), {}};
  const size_t at = bytes.rfind(value);
  ASSERT_NE(at, bytes.npos);
  const int fd = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  for (size_t copy = bytes.find(value); copy != bytes.npos; copy = bytes.find(value, copy + 1)) {
    ASSERT_EQ(pwrite(fd, "A", 1, static_cast<off_t>(copy)), 1);
  }
  ::close(fd);
  const auto found = run(check_namespace(*client_, space_.sections(), false));
  ASSERT_TRUE(found) << found.error().to_string();
  EXPECT_TRUE(names(found->damage, "1 records, of table .fs.xattrs"))
      << ::testing::PrintToString(found->damage);
  EXPECT_TRUE(names(found->damage, "counts 14 bytes of attribute names, but has 7"))
      << ::testing::PrintToString(found->damage);
}

}  // namespace
}  // namespace pmstore::fs
