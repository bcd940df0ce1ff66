// FileSystem: the calls by path. The server walks a path as far as it has no symlink; those are
// followed here.
#include <fcntl.h>

#include <cerrno>
#include <deque>
#include <string>
#include <utility>

#include "fs/internal/file_system_state.h"
#include "fs/internal/permissions.h"

namespace pmstore::fs {
namespace {

using internal::is_dots;

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
    if (PosixStatus good = begin(path, follow_last); !good) co_return PosixError(good.error());
    co_return co_await finish();
  }

  // The same in parts: next_names() may be walked, and be given to take().
  PosixStatus begin(std::string_view path, bool follow_last) {
    if (PosixStatus good = check_path(path); !good) return good;
    put_before(path, rest_);
    place_.must_be_directory = path.back() == '/';
    follow_last_ = follow_last;
    return {};
  }
  base::Task<PosixResult<Place>> finish() {
    while (!rest_.empty()) {
      const std::string path = next_names();
      auto walked = co_await files_.walk(caller_, at_, path);
      if (!walked) co_return PosixError(walked.error());
      PosixStatus taken = take(std::move(*walked));
      if (!taken) co_return PosixError(taken.error());
    }
    if (!is_missing_ && !place_.found) {  // no name is left: it is the root
      auto root = co_await files_.get_attributes(kRootIno);
      if (!root) co_return PosixError(root.error());
      place_.found = std::move(*root);
    }
    if (place_.must_be_directory && place_.found && place_.found->type != FileType::kDirectory) {
      co_return PosixError(ENOTDIR);
    }
    co_return std::move(place_);
  }

  PosixStatus take(Namespace::Walked walked) {
    for (Attributes& each : walked.found) pass(std::move(each));
    if (walked.error) {
      const bool last = rest_.size() == 1 && !is_dots(rest_.front());
      if (walked.error->number != ENOENT || !last) return std::move(*walked.error);
      place_.parent = at_;
      place_.name = std::move(rest_.front());
      place_.found.reset();
      is_missing_ = true;
      rest_.clear();
      return {};
    }
    if (place_.found->type != FileType::kSymlink) return {};
    const bool follow = follow_last_ || !rest_.empty() || place_.must_be_directory;
    return follow ? follow_symlink(walked.target) : PosixStatus{};
  }

  // From the front, what a message has room for.
  std::string next_names() const {
    std::string path;
    size_t names = 0;
    for (const std::string& name : rest_) {
      const bool fits = names < kMaxWalkedNames && path.size() + 1 + name.size() < kMaxPathBytes;
      if (names > 0 && !fits) break;
      if (names++ > 0) path += '/';
      path += name;
    }
    return path;
  }

 private:
  void pass(Attributes attributes) {
    place_.parent = at_;
    place_.name = is_dots(rest_.front()) ? std::string() : std::move(rest_.front());
    rest_.pop_front();
    at_ = attributes.ino;
    place_.found = std::move(attributes);
  }

  // The one that was passed last.
  PosixStatus follow_symlink(const std::string& target) {
    if (++symlinks_ > kMaxSymlinks) return PosixError(ELOOP);
    if (target.empty()) return PosixError(ENOENT);
    if (target.back() == '/' && rest_.empty()) place_.must_be_directory = true;
    put_before(target, rest_);
    at_ = target.front() == '/' ? kRootIno : place_.parent;
    place_.name.clear();
    place_.found.reset();
    return {};
  }

  FileSystem& files_;
  const Caller& caller_;
  std::deque<std::string> rest_;  // names that are still to be walked
  Ino at_ = kRootIno;             // from here
  bool follow_last_ = false;
  bool is_missing_ = false;  // the last name is not there
  unsigned symlinks_ = 0;
  Place place_;
};

// The path from the root as the server takes it, where its last name is one of a directory. Of what
// else there is the client walks the path.
std::optional<std::string> plain_path(std::string_view path) {
  if (!check_path(path) || path.back() == '/') return std::nullopt;
  std::deque<std::string> names;
  put_before(path, names);
  if (names.empty() || names.size() > kMaxWalkedNames || is_dots(names.back())) return std::nullopt;
  std::string plain;
  for (const std::string& name : names) {
    if (!plain.empty()) plain += '/';
    plain += name;
  }
  return plain;
}

struct Places {
  Place existing;
  Place other;
};

// ENOENT: the first path leads to nothing.
base::Task<PosixResult<Places>> walk_both(FileSystem& files, const Caller& caller,
                                          std::string_view existing, std::string_view other) {
  Walk first(files, caller);
  Walk second(files, caller);
  PosixStatus begun = first.begin(existing, false);
  if (begun) begun = second.begin(other, false);
  if (!begun) co_return PosixError(begun.error());
  const std::string names = first.next_names();
  const std::string other_names = second.next_names();
  PosixStatus second_taken;
  if (!names.empty() && !other_names.empty()) {
    auto walked = co_await files.walk_two(caller, kRootIno, names, other_names);
    if (!walked) co_return PosixError(walked.error());
    PosixStatus first_taken = first.take(std::move(walked->first));
    if (!first_taken) co_return PosixError(first_taken.error());
    second_taken = second.take(std::move(walked->second));
  }
  auto source = co_await first.finish();
  if (!source) co_return PosixError(source.error());
  if (!source->found) co_return PosixError(ENOENT);
  if (!second_taken) co_return PosixError(second_taken.error());
  auto target = co_await second.finish();
  if (!target) co_return PosixError(target.error());
  co_return Places{std::move(*source), std::move(*target)};
}

}  // namespace

base::Task<PosixResult<Attributes>> FileSystem::stat(std::string_view path, bool follow) {
  Walk walk(*this, state_->options.caller);
  auto place = co_await walk.to(path, follow);
  if (!place) co_return PosixError(place.error());
  if (!place->found) co_return PosixError(ENOENT);
  const Ino ino = place->found->ino;
  if (state_->io->is_untold(ino)) co_return co_await get_attributes(ino);
  co_return std::move(*place->found);
}

base::Task<PosixResult<std::unique_ptr<File>>> FileSystem::open(std::string_view path, int flags,
                                                                uint16_t mode) {
  const Caller& caller = state_->options.caller;
  const bool exclusive = (flags & O_CREAT) != 0 && (flags & O_EXCL) != 0;
  NewFile file;
  file.mode = mode;
  file.exclusive = exclusive;
  const auto plain = (flags & O_CREAT) != 0 ? plain_path(path) : std::nullopt;
  if (plain && (flags & O_DIRECTORY) == 0) {
    auto made =
        co_await state_->create(FilesMethod::kMakeAt, caller, kRootIno, *plain, file, flags);
    const int why = made ? 0 : made.number();
    // What is there, and is no regular file, may be a symlink that is to be followed.
    const bool is_other = !exclusive && (why == EEXIST || why == EISDIR);
    if (why != kWalkFirst && !is_other) co_return std::move(made);
  }
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
  co_return co_await create(caller, place->parent, place->name, file, flags);
}

base::Task<PosixStatus> FileSystem::make_directory(std::string_view path, uint16_t mode) {
  const Caller& caller = state_->options.caller;
  Walk walk(*this, caller);
  // With a slash at its end it is the same name.
  const size_t end = path.find_last_not_of('/');
  if (end != std::string_view::npos) path = path.substr(0, end + 1);
  NewFile file;
  file.type = FileType::kDirectory;
  file.mode = mode;
  if (const auto plain = plain_path(path)) {
    const auto made = co_await state_->make_at(*plain, file);
    if (made) co_return PosixStatus{};
    if (made.number() != kWalkFirst) co_return PosixError(made.error());
  }
  auto place = co_await walk.to(path, false);
  if (!place) co_return PosixError(place.error());
  if (place->found) co_return PosixError(EEXIST);
  const auto made = co_await make(caller, place->parent, place->name, file);
  if (!made) co_return PosixError(made.error());
  co_return PosixStatus{};
}

base::Task<PosixStatus> FileSystem::remove(std::string_view path) {
  const Caller& caller = state_->options.caller;
  if (const auto plain = plain_path(path)) {
    PosixStatus removed = co_await state_->remove_at(*plain);
    if (removed || removed.number() != kWalkFirst) co_return std::move(removed);
  }
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
  const auto plain_from = plain_path(from);
  const auto plain_to = plain_path(to);
  if (plain_from && plain_to) {
    PosixStatus renamed = co_await state_->rename_at(*plain_from, *plain_to, mode);
    if (renamed || renamed.number() != kWalkFirst) co_return std::move(renamed);
  }
  const auto places = co_await walk_both(*this, caller, from, to);
  if (!places) co_return PosixError(places.error());
  const Place& source = places->existing;
  const Place& target = places->other;
  if (source.name.empty() || target.name.empty()) co_return PosixError(EBUSY);
  const bool directory = source.found->type == FileType::kDirectory;
  if (target.must_be_directory && !directory) co_return PosixError(ENOTDIR);
  co_return co_await rename(caller, source.parent, source.name, target.parent, target.name, mode);
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
  const auto places = co_await walk_both(*this, caller, existing, path);
  if (!places) co_return PosixError(places.error());
  const Place& place = places->other;
  if (place.found) co_return PosixError(EEXIST);
  if (place.must_be_directory) co_return PosixError(ENOENT);
  const Ino ino = places->existing.found->ino;
  const auto linked = co_await link(caller, ino, place.parent, place.name);
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
