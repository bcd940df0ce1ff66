// Copying between two sides, each of which is the local file system or a pmstore one: trees,
// several files at a time, large files in several parts at a time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fs/file_system.h"
#include "tools/cli/console.h"
#include "tools/cli/fs_session.h"

namespace pmstore::tools {

// What a copy can keep of a file.
struct FileFacts {
  fs::FileType type{};
  uint16_t mode = 0;
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint64_t size = 0;
  uint64_t atime_ns = 0;
  uint64_t mtime_ns = 0;
  uint64_t device = 0;  // of the file system that it lies in
  uint64_t inode = 0;
};

// A file that is read or written. Several parts at a time.
class CopyFile {
 public:
  virtual ~CopyFile() = default;
  // Short only at the end.
  virtual base::Task<fs::PosixResult<uint64_t>> read(std::span<std::byte> into,
                                                     uint64_t offset) = 0;
  virtual base::Task<fs::PosixStatus> write(std::span<const std::byte> from, uint64_t offset) = 0;
  virtual base::Task<fs::PosixStatus> close() = 0;
};

// One side; all paths are whole.
class CopySide {
 public:
  virtual ~CopySide() = default;
  virtual base::Task<fs::PosixResult<FileFacts>> facts(const std::string& path, bool follow) = 0;
  virtual base::Task<fs::PosixResult<std::vector<std::string>>> names(const std::string& path) = 0;
  virtual base::Task<fs::PosixResult<std::string>> read_link(const std::string& path) = 0;
  virtual base::Task<fs::PosixResult<std::unique_ptr<CopyFile>>> open(const std::string& path) = 0;
  // New or emptied, with room for `size` bytes, which it then has.
  virtual base::Task<fs::PosixResult<std::unique_ptr<CopyFile>>> create(const std::string& path,
                                                                        uint16_t mode,
                                                                        uint64_t size) = 0;
  virtual base::Task<fs::PosixStatus> make_directory(const std::string& path, uint16_t mode) = 0;
  virtual base::Task<fs::PosixStatus> make_symlink(const std::string& target,
                                                   const std::string& path) = 0;
  virtual base::Task<fs::PosixStatus> remove(const std::string& path) = 0;
  // Mode, owner and times of what is there, not of what a symlink points to.
  virtual base::Task<fs::PosixStatus> set_facts(const std::string& path,
                                                const FileFacts& facts) = 0;
};

std::unique_ptr<CopySide> local_side();                    // fs_copy_local.cc
std::unique_ptr<CopySide> remote_side(FileSystem& files);  // fs_copy_remote.cc

struct CopyOptions {
  bool recursive = false;
  bool preserve = false;
};

// Copies what it is told to, and counts.
class Copier {
 public:
  struct Counts {
    uint64_t files = 0;
    uint64_t directories = 0;
    uint64_t symlinks = 0;
    uint64_t bytes = 0;
  };

  Copier(base::Executor& executor, CopySide& from, CopySide& to, CopyOptions options,
         Failures& failures);
  ~Copier();
  // Of one file or tree, to that path. Failures are counted, and the rest is copied.
  base::Task<void> copy(std::string from, std::string to);
  const Counts& counts() const { return counts_; }

 private:
  class Progress;
  struct Job {
    std::string from;
    std::string to;
    FileFacts facts;
  };

  base::Task<void> copy_tree(Job root);
  // False: what is in the directory cannot be copied.
  base::Task<bool> enter_directory(const Job& job);
  base::Task<void> copy_link(const Job& job);
  base::Task<void> copy_file(Job job);
  base::Task<fs::PosixStatus> copy_data(const Job& job);
  base::Task<fs::PosixStatus> copy_parts(CopyFile& from, CopyFile& to, uint64_t size);
  base::Task<void> copy_some_parts(CopyFile& from, CopyFile& to, uint64_t size, uint64_t& next,
                                   fs::PosixStatus& status);
  base::Task<void> keep_facts(const Job& job);
  // Starts `task` as soon as fewer than kFilesAtATime run.
  base::Task<void> start(base::Task<void> task);
  base::Task<void> run_counted(base::Task<void> task);
  base::Task<void> wait_for_all();

  static constexpr size_t kFilesAtATime = 8;
  static constexpr size_t kPartsAtATime = 4;
  static constexpr size_t kPartBytes = 1u << 20;

  base::Executor& executor_;
  CopySide& from_;
  CopySide& to_;
  const CopyOptions options_;
  Failures& failures_;
  Counts counts_;
  size_t running_ = 0;
  base::WaitList finished_;
  std::unique_ptr<Progress> progress_;
};

}  // namespace pmstore::tools
