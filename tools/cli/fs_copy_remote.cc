// The side of a copy that is a pmstore file system.
#include <fcntl.h>

#include "tools/cli/fs_copy.h"
#include "tools/cli/fs_walk.h"

namespace pmstore::tools {
namespace {

FileFacts facts_of(const fs::Attributes& is, uint64_t file_system) {
  return {.type = is.type,
          .mode = is.mode,
          .uid = is.uid,
          .gid = is.gid,
          .size = is.size,
          .atime_ns = is.atime_ns,
          .mtime_ns = is.mtime_ns,
          .device = file_system,
          .inode = raw(is.ino)};
}

class RemoteFile final : public CopyFile {
 public:
  explicit RemoteFile(std::unique_ptr<fs::File> file) : file_(std::move(file)) {}
  base::Task<fs::PosixResult<uint64_t>> read(std::span<std::byte> into, uint64_t offset) override {
    return file_->pread(into, offset);
  }
  base::Task<fs::PosixStatus> write(std::span<const std::byte> from, uint64_t offset) override {
    auto written = co_await file_->pwrite(from, offset);
    if (!written) co_return std::move(written.error());
    co_return fs::PosixStatus{};
  }
  base::Task<fs::PosixStatus> close() override { return file_->close(); }

 private:
  std::unique_ptr<fs::File> file_;
};

class RemoteSide final : public CopySide {
 public:
  explicit RemoteSide(FileSystem& files) : files_(files), caller_(caller_of_process()) {}

  base::Task<fs::PosixResult<FileFacts>> facts(const std::string& path, bool follow) override {
    auto found = co_await files_.stat(path, follow);
    if (!found) co_return std::move(found.error());
    co_return facts_of(*found, files_.identity());
  }
  base::Task<fs::PosixResult<std::vector<std::string>>> names(const std::string& path) override {
    auto directory = co_await files_.stat(path);
    if (!directory) co_return std::move(directory.error());
    auto entries = co_await entries_of(files_, caller_, directory->ino, path);
    if (!entries) co_return std::move(entries.error());
    std::vector<std::string> names;
    for (WalkedFile& entry : entries->files) names.push_back(std::move(entry.name));
    // Whose facts are asked for next: the copy reports it.
    for (auto& entry : entries->unreadable) names.push_back(std::move(entry.name));
    co_return names;
  }
  base::Task<fs::PosixResult<std::string>> read_link(const std::string& path) override {
    auto found = co_await files_.stat(path, false);
    if (!found) co_return std::move(found.error());
    co_return co_await files_.read_link(found->ino);
  }
  base::Task<fs::PosixResult<std::unique_ptr<CopyFile>>> open(const std::string& path) override {
    auto file = co_await files_.open(path, O_RDONLY);
    if (!file) co_return std::move(file.error());
    co_return std::make_unique<RemoteFile>(std::move(*file));
  }
  base::Task<fs::PosixResult<std::unique_ptr<CopyFile>>> create(const std::string& path,
                                                                uint16_t mode,
                                                                uint64_t size) override {
    auto file = co_await files_.open(path, O_WRONLY | O_CREAT | O_TRUNC, masked(mode));
    if (!file) co_return std::move(file.error());
    // With its room it can be written in any order, without the server's help. What one message
    // carries needs no room before.
    if (size > fs::kMaxMessageData) {
      auto room = co_await (*file)->allocate(fs::AllocateMode::kExtend, 0, size);
      if (!room) {
        (void)co_await (*file)->close();
        (void)co_await files_.remove(path);
        co_return std::move(room.error());
      }
    }
    co_return std::make_unique<RemoteFile>(std::move(*file));
  }
  base::Task<fs::PosixStatus> make_directory(const std::string& path, uint16_t mode) override {
    return files_.make_directory(path, masked(mode));
  }
  base::Task<fs::PosixStatus> make_symlink(const std::string& target,
                                           const std::string& path) override {
    return files_.make_symlink(target, path);
  }
  base::Task<fs::PosixStatus> remove(const std::string& path) override {
    return files_.remove(path);
  }
  base::Task<fs::PosixStatus> set_facts(const std::string& path, const FileFacts& facts) override {
    using Change = fs::AttributeChange;
    auto found = co_await files_.stat(path, false);
    if (!found) co_return std::move(found.error());
    // The owner first: a change of it clears set-id bits. Only root gives files away.
    if (caller_.uid == 0 && (found->uid != facts.uid || found->gid != facts.gid)) {
      Change owner{.set = Change::kUid | Change::kGid};
      owner.uid = facts.uid;
      owner.gid = facts.gid;
      auto changed = co_await files_.set_attributes(caller_, found->ino, owner);
      if (!changed) co_return std::move(changed.error());
    }
    Change change{.set = Change::kAtime | Change::kMtime};
    if (found->type != fs::FileType::kSymlink) change.set |= Change::kMode;
    change.mode = facts.mode;
    change.atime_ns = facts.atime_ns;
    change.mtime_ns = facts.mtime_ns;
    auto changed = co_await files_.set_attributes(caller_, found->ino, change);
    if (!changed) co_return std::move(changed.error());
    co_return fs::PosixStatus{};
  }

 private:
  FileSystem& files_;
  const fs::Caller caller_;
};

}  // namespace

std::unique_ptr<CopySide> remote_side(FileSystem& files) {
  return std::make_unique<RemoteSide>(files);
}

}  // namespace pmstore::tools
