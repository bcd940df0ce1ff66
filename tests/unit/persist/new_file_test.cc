// Files that nobody sees before they are complete, on file systems that can make them without a
// name and on those that cannot.
#include "persist/internal/new_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "tests/unit/persist/scratch.h"

// The C library's calls as a file system gives them that cannot do something; 0: as they are.
namespace {
int g_linkat_fails = 0;
int g_renameat2_fails = 0;
int g_fsync_of_file_fails = 0;
int g_fsync_of_folder_fails = 0;

int result_of(long result, int error) {
  if (error == 0) return static_cast<int>(result);
  errno = error;
  return -1;
}
}  // namespace

extern "C" {
int linkat(int from_folder, const char* from, int folder, const char* to, int flags) noexcept {
  const int error = g_linkat_fails;
  return result_of(error != 0 ? -1 : syscall(SYS_linkat, from_folder, from, folder, to, flags),
                   error);
}

int renameat2(int from_folder, const char* from, int folder, const char* to,
              unsigned flags) noexcept {
  const int error = g_renameat2_fails;
  return result_of(error != 0 ? -1 : syscall(SYS_renameat2, from_folder, from, folder, to, flags),
                   error);
}

int fsync(int fd) {
  struct stat status {};
  const bool folder = fstat(fd, &status) == 0 && S_ISDIR(status.st_mode);
  const int error = folder ? g_fsync_of_folder_fails : g_fsync_of_file_fails;
  return result_of(error != 0 ? -1 : syscall(SYS_fsync, fd), error);
}
}

namespace pmstore::persist::internal {
namespace {

class NewFiles : public testing::TestWithParam<NewFile::Kind> {
 protected:
  ~NewFiles() override {
    g_linkat_fails = g_renameat2_fails = g_fsync_of_file_fails = g_fsync_of_folder_fails = 0;
  }
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

TEST_P(NewFiles, LeaveNothingWhenTheyCannotBeMadeDurable) {
  for (int* const fails : {&g_fsync_of_file_fails, &g_fsync_of_folder_fails}) {
    *fails = EIO;
    {
      auto file = NewFile::make(path_, GetParam());
      ASSERT_TRUE(file);
      const Status done = file->publish();
      EXPECT_EQ(done.code(), ErrorCode::kIo);
      EXPECT_NE(done.error().to_string().find("durable"), std::string::npos);
      EXPECT_FALSE(std::filesystem::exists(path_));
    }
    EXPECT_EQ(files(), 0u);
    *fails = 0;
  }
}

TEST_P(NewFiles, AppearWhereFilesHaveOneNameOnly) {
  if (GetParam() == NewFile::Kind::kUnnamed) return;  // without a name there is none to change
  for (const int error : {EPERM, EOPNOTSUPP}) {
    g_linkat_fails = error;
    {
      auto file = NewFile::make(path_, GetParam());
      ASSERT_TRUE(file);
      ASSERT_EQ(write(file->descriptor(), "content", 7), 7);
      const Status done = file->publish();
      ASSERT_TRUE(done) << done.error().to_string();
    }
    EXPECT_EQ(read_file(path_).size(), 7u);
    EXPECT_EQ(files(), 1u);
    std::filesystem::remove(path_);
  }
}

TEST_P(NewFiles, ReplaceNothingWhereFilesHaveOneNameOnly) {
  g_linkat_fails = EPERM;
  {
    auto file = NewFile::make(path_, GetParam());
    ASSERT_TRUE(file);
    write_file(path_, {'x'});
    EXPECT_FALSE(file->publish());
  }
  EXPECT_EQ(read_file(path_), std::vector<char>{'x'});
  EXPECT_EQ(files(), 1u);
}

TEST_P(NewFiles, LeaveNothingWhereTheyCanNeitherBeLinkedNorRenamed) {
  g_linkat_fails = EPERM;
  g_renameat2_fails = EINVAL;
  {
    auto file = NewFile::make(path_, GetParam());
    ASSERT_TRUE(file);
    EXPECT_EQ(file->publish().code(), ErrorCode::kIo);
  }
  EXPECT_EQ(files(), 0u);
}

}  // namespace
}  // namespace pmstore::persist::internal
