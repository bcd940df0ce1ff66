// FileSystem: the calls by path. A path is walked component by component, each by a lookup at the
// server; symlinks are followed here.
#include <fcntl.h>

#include <cerrno>
#include <deque>
#include <string>
#include <utility>

#include "fs/internal/file_system_state.h"

namespace pmstore::fs {
namespace {

constexpr unsigned kMaxSymlinks = 40;

// Where a path leads.
struct Place {
  Ino parent = kRootIno;
  std::string name;                 // in the parent; empty: it is the root, or ends with . or ..
  std::optional<Attributes> found;  // nothing: no such name
  bool must_be_directory = false;   // the path ends with a slash
};

// Puts the components of `path` before the others.
void put_before(std::string_view path, std::deque<std::string>& rest) {
  std::deque<std::string> components;
  while (!path.empty()) {
    const size_t end = path.find('/');
    const std::string_view one = path.substr(0, end);
    if (!one.empty()) components.emplace_back(one);
    path = end == std::string_view::npos ? std::string_view() : path.substr(end + 1);
  }
  rest.insert(rest.begin(), components.begin(), components.end());
}

PosixStatus check_path(std::string_view path) {
  if (path.empty()) return PosixError(ENOENT);
  if (path.size() >= kMaxPathBytes) return PosixError(ENAMETOOLONG);
  if (path.front() != '/') return PosixError(EINVAL, "a path begins with a slash");
  if (path.find('\0') != std::string_view::npos) return PosixError(EINVAL);
  return {};
}

class Walk {
 public:
  Walk(FileSystem& files, const Caller& caller) : files_(files), caller_(caller) {}

  base::Task<PosixResult<Place>> to(std::string_view path, bool follow_last) {
    if (PosixStatus good = check_path(path); !good) co_return PosixError(good.error());
    put_before(path, rest_);
    place_.must_be_directory = path.back() == '/';
    auto root = co_await files_.get_attributes(kRootIno);
    if (!root) co_return PosixError(root.error());
    place_.found = std::move(*root);
    while (!rest_.empty()) {
      const std::string name = std::move(rest_.front());
      rest_.pop_front();
      const bool follow = follow_last || !rest_.empty() || place_.must_be_directory;
      PosixStatus stepped = co_await step(name, follow);
      if (!stepped) co_return PosixError(stepped.error());
    }
    if (place_.must_be_directory && place_.found && place_.found->type != FileType::kDirectory) {
      co_return PosixError(ENOTDIR);
    }
    co_return std::move(place_);
  }

 private:
  base::Task<PosixStatus> step(const std::string& name, bool follow) {
    if (!place_.found) co_return PosixError(ENOENT);
    if (place_.found->type != FileType::kDirectory) co_return PosixError(ENOTDIR);
    const Ino directory = place_.found->ino;
    if (name == "." || name == "..") co_return co_await step_dots(directory, name == "..");
    auto found = co_await files_.lookup(caller_, directory, name);
    if (!found && found.number() != ENOENT) co_return PosixError(found.error());
    place_.parent = directory;
    place_.name = name;
    if (!found) {
      place_.found.reset();
      co_return PosixStatus{};
    }
    if (found->type != FileType::kSymlink || !follow) {
      place_.found = std::move(*found);
      co_return PosixStatus{};
    }
    if (++symlinks_ > kMaxSymlinks) co_return PosixError(ELOOP);
    const auto target = co_await files_.read_link(found->ino);
    if (!target) co_return PosixError(target.error());
    if (target->empty()) co_return PosixError(ENOENT);
    put_before(*target, rest_);
    if (target->back() == '/' && rest_.empty()) place_.must_be_directory = true;
    const bool absolute = target->front() == '/';
    co_return co_await go_to(absolute ? kRootIno : directory);
  }

  base::Task<PosixStatus> step_dots(Ino directory, bool up) {
    Ino to = directory;
    if (up) {
      const auto parent = co_await files_.parent_of(directory);
      if (!parent) co_return PosixError(parent.error());
      to = *parent;
    }
    place_.name.clear();
    co_return co_await go_to(to);
  }

  base::Task<PosixStatus> go_to(Ino directory) {
    auto found = co_await files_.get_attributes(directory);
    if (!found) co_return PosixError(found.error());
    place_.name.clear();
    place_.found = std::move(*found);
    co_return PosixStatus{};
  }

  FileSystem& files_;
  const Caller& caller_;
  std::deque<std::string> rest_;
  unsigned symlinks_ = 0;
  Place place_;
};

}  // namespace

base::Task<PosixResult<Attributes>> FileSystem::stat(std::string_view path, bool follow) {
  Walk walk(*this, state_->options.caller);
  auto place = co_await walk.to(path, follow);
  if (!place) co_return PosixError(place.error());
  if (!place->found) co_return PosixError(ENOENT);
  co_return std::move(*place->found);
}

base::Task<PosixResult<std::unique_ptr<File>>> FileSystem::open(std::string_view path, int flags,
                                                                uint16_t mode) {
  const Caller& caller = state_->options.caller;
  const bool exclusive = (flags & O_CREAT) != 0 && (flags & O_EXCL) != 0;
  const bool follow = !exclusive && (flags & O_NOFOLLOW) == 0;
  Walk walk(*this, caller);
  auto place = co_await walk.to(path, follow);
  if (!place) co_return PosixError(place.error());
  if (place->found) {
    const FileType type = place->found->type;
    if (exclusive) co_return PosixError(EEXIST);
    if (type == FileType::kSymlink) co_return PosixError(ELOOP);
    if ((flags & O_DIRECTORY) != 0 && type != FileType::kDirectory) co_return PosixError(ENOTDIR);
    if ((flags & O_CREAT) != 0 && type == FileType::kDirectory) co_return PosixError(EISDIR);
    co_return co_await open_file(caller, place->found->ino, flags);
  }
  if ((flags & O_CREAT) == 0) co_return PosixError(ENOENT);
  if (place->must_be_directory) co_return PosixError(EISDIR);
  NewFile file;
  file.mode = mode;
  file.exclusive = exclusive;
  co_return co_await create(caller, place->parent, place->name, file, flags);
}

base::Task<PosixStatus> FileSystem::make_directory(std::string_view path, uint16_t mode) {
  const Caller& caller = state_->options.caller;
  Walk walk(*this, caller);
  auto place = co_await walk.to(path, false);
  if (!place) co_return PosixError(place.number() == ENOTDIR ? EEXIST : place.number());
  if (place->found) co_return PosixError(EEXIST);
  NewFile file;
  file.type = FileType::kDirectory;
  file.mode = mode;
  const auto made = co_await make(caller, place->parent, place->name, file);
  if (!made) co_return PosixError(made.error());
  co_return PosixStatus{};
}

base::Task<PosixStatus> FileSystem::remove(std::string_view path) {
  const Caller& caller = state_->options.caller;
  Walk walk(*this, caller);
  auto place = co_await walk.to(path, false);
  if (!place) co_return PosixError(place.error());
  if (!place->found) co_return PosixError(ENOENT);
  if (place->name.empty()) co_return PosixError(EBUSY, "the path has no last name");
  if (place->found->type == FileType::kDirectory) {
    co_return co_await remove_directory(caller, place->parent, place->name);
  }
  co_return co_await unlink(caller, place->parent, place->name);
}

base::Task<PosixStatus> FileSystem::rename(std::string_view from, std::string_view to,
                                           RenameMode mode) {
  const Caller& caller = state_->options.caller;
  Walk first(*this, caller);
  auto source = co_await first.to(from, false);
  if (!source) co_return PosixError(source.error());
  if (!source->found) co_return PosixError(ENOENT);
  Walk second(*this, caller);
  auto target = co_await second.to(to, false);
  if (!target) co_return PosixError(target.error());
  if (source->name.empty() || target->name.empty()) co_return PosixError(EBUSY);
  const bool directory = source->found->type == FileType::kDirectory;
  if (target->must_be_directory && !directory) co_return PosixError(ENOTDIR);
  co_return co_await rename(caller, source->parent, source->name, target->parent, target->name,
                            mode);
}

base::Task<PosixStatus> FileSystem::make_symlink(std::string_view target, std::string_view path) {
  const Caller& caller = state_->options.caller;
  Walk walk(*this, caller);
  auto place = co_await walk.to(path, false);
  if (!place) co_return PosixError(place.error());
  if (place->found) co_return PosixError(EEXIST);
  if (place->must_be_directory) co_return PosixError(ENOENT);
  NewFile file;
  file.type = FileType::kSymlink;
  file.mode = 0777;
  file.target = target;
  const auto made = co_await make(caller, place->parent, place->name, file);
  if (!made) co_return PosixError(made.error());
  co_return PosixStatus{};
}

base::Task<PosixStatus> FileSystem::make_link(std::string_view existing, std::string_view path) {
  const Caller& caller = state_->options.caller;
  Walk first(*this, caller);
  auto source = co_await first.to(existing, false);
  if (!source) co_return PosixError(source.error());
  if (!source->found) co_return PosixError(ENOENT);
  Walk second(*this, caller);
  auto place = co_await second.to(path, false);
  if (!place) co_return PosixError(place.error());
  if (place->found) co_return PosixError(EEXIST);
  if (place->must_be_directory) co_return PosixError(ENOENT);
  const auto linked = co_await link(caller, source->found->ino, place->parent, place->name);
  if (!linked) co_return PosixError(linked.error());
  co_return PosixStatus{};
}

base::Task<PosixResult<std::vector<Namespace::Listed>>> FileSystem::list(std::string_view path,
                                                                         uint64_t cookie) {
  constexpr uint32_t kPage = 1024;
  const Caller& caller = state_->options.caller;
  Walk walk(*this, caller);
  auto place = co_await walk.to(path, true);
  if (!place) co_return PosixError(place.error());
  if (!place->found) co_return PosixError(ENOENT);
  co_return co_await read_directory(caller, place->found->ino, cookie, kPage, true);
}

}  // namespace pmstore::fs
