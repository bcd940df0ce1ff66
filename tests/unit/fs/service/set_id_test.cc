// Set-id bits beside clients that write by maps: a write takes those away that were there before
// it, and no others, whenever the server hears of the write.
#include "tests/unit/fs/service/files_world.h"

namespace pmstore::fs {
namespace {

// By how long a client's writes wait to be durable.
class FilesSetId : public testing::TestWithParam<DataSync> {
 protected:
  static constexpr uint64_t kSecond = 1'000'000'000;
  void SetUp() override {
    FileSystemOptions with = world_.options();
    with.sync = GetParam();
    writer_ = world_.connect(with);
    other_ = world_.connect();
    file_ = world_.open(*writer_, "/file");
    world_.write(*file_, 0, kSome);
    world_.write(*file_, kSome.size(), kSome);  // another extent
    world_.write(*file_, 0, "x");               // it has a map from here on
    world_.let_time_pass(2 * kSecond);
  }
  void TearDown() override {
    world_.run(writer_->close());
    world_.run(other_->close());
  }
  static AttributeChange mode_and_size(uint16_t mode, uint64_t size) {
    AttributeChange change;
    change.set = AttributeChange::kMode | AttributeChange::kSize;
    change.mode = mode;
    change.size = size;
    return change;
  }
  // Without a call that could tell the server of it.
  void write_by_map() {
    const uint64_t calls = world_.stat("calls");
    world_.write(*file_, 0, "y");
    EXPECT_EQ(world_.stat("calls"), calls) << "it is not told yet";
  }
  void change(const AttributeChange& change) {
    const auto changed = world_.run(other_->set_attributes({}, file_->ino(), change));
    ASSERT_TRUE(changed) << changed.error().to_string();
    EXPECT_EQ(changed->mode, change.mode);
  }
  // The other client has written nothing itself.
  Attributes stat() { return world_.run(other_->get_attributes(file_->ino())).value(); }

  FilesWorld world_;
  std::unique_ptr<FileSystem> writer_;
  std::unique_ptr<FileSystem> other_;
  std::unique_ptr<File> file_;
};

TEST_P(FilesSetId, OfAChmodStayWhenTheWriteBeforeItIsToldLate) {
  write_by_map();
  const uint64_t before_ns = stat().mtime_ns;
  change({.set = AttributeChange::kMode, .mode = 06777});
  world_.let_time_pass(2 * kSecond);
  EXPECT_GT(stat().mtime_ns, before_ns) << "it was told";
  EXPECT_EQ(stat().mode, 06777);
}

TEST_P(FilesSetId, OfAChmodWithASizeStayToo) {
  write_by_map();
  change(mode_and_size(06755, 2 * kSome.size()));
  world_.let_time_pass(2 * kSecond);
  EXPECT_EQ(stat().mode, 06755);
}

// The writer has a map, and has not heard of the new mode.
TEST_P(FilesSetId, AreGoneWhenAWriteBehindTheChmodReturns) {
  change({.set = AttributeChange::kMode, .mode = 06777});
  world_.write(*file_, 0, "z");
  EXPECT_EQ(stat().mode, 0777);
  EXPECT_EQ(world_.read(*file_, 0, 2), "zL");
}

TEST_P(FilesSetId, WithASizeAreGoneWhenAWriteBehindThemReturns) {
  // What is cut off is no part of the extent that is written to.
  change(mode_and_size(04755, 2 * kSome.size() - 1));
  world_.write(*file_, 0, "z");
  EXPECT_EQ(stat().mode, 0755);
}

TEST_P(FilesSetId, ThatARefusedChmodWantsLeaveMapsAlone) {
  const AttributeChange wanted{.set = AttributeChange::kMode, .mode = 04755};
  const Caller stranger{77, 77, {}};
  EXPECT_EQ(number_of(world_.run(other_->set_attributes(stranger, file_->ino(), wanted))), EPERM);
  write_by_map();
}

INSTANTIATE_TEST_SUITE_P(Sync, FilesSetId, testing::Values(DataSync::kAlways, DataSync::kFsync),
                         [](const auto& sync) {
                           return sync.param == DataSync::kAlways ? "Always" : "Fsync";
                         });

}  // namespace
}  // namespace pmstore::fs
