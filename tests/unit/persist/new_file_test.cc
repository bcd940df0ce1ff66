// Files that nobody sees before they are complete, on file systems that can make them without a
// name and on those that cannot.
#include "persist/internal/new_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/unit/persist/scratch.h"

namespace pmstore::persist::internal {
namespace {

class NewFiles : public testing::TestWithParam<NewFile::Kind> {
 protected:
  size_t files() const {
    size_t count = 0;
    for ([[maybe_unused]] const auto& file :
         std::filesystem::directory_iterator(scratch_.path("."))) {
      ++count;
    }
    return count;
  }
  Scratch scratch_;
  std::string path_ = scratch_.path("wanted");
};
INSTANTIATE_TEST_SUITE_P(Kinds, NewFiles,
                         testing::Values(NewFile::Kind::kUnnamed, NewFile::Kind::kNamed));

TEST_P(NewFiles, AppearWhenTheyArePublished) {
  {
    auto file = NewFile::make(path_, GetParam());
    ASSERT_TRUE(file) << file.error().to_string();
    ASSERT_EQ(write(file->descriptor(), "content", 7), 7);
    EXPECT_EQ(read_file(file->name()).size(), 7u);
    EXPECT_FALSE(std::filesystem::exists(path_));
    ASSERT_TRUE(file->publish());
    EXPECT_EQ(files(), 1u);
  }
  EXPECT_EQ(read_file(path_).size(), 7u);
}

TEST_P(NewFiles, LeaveNothingWhenTheyAreNot) {
  ASSERT_TRUE(NewFile::make(path_, GetParam()));
  EXPECT_EQ(files(), 0u);
}

TEST_P(NewFiles, ReplaceNothing) {
  auto file = NewFile::make(path_, GetParam());
  ASSERT_TRUE(file);
  write_file(path_, {'x'});
  EXPECT_EQ(NewFile::make(path_, GetParam()).code(), ErrorCode::kAlreadyExists);
  EXPECT_EQ(file->publish().code(), ErrorCode::kAlreadyExists);
  EXPECT_EQ(read_file(path_), std::vector<char>{'x'});
  std::filesystem::remove(path_);
  std::filesystem::create_symlink("nowhere", path_);
  EXPECT_EQ(NewFile::make(path_, GetParam()).code(), ErrorCode::kAlreadyExists);
}

}  // namespace
}  // namespace pmstore::persist::internal
