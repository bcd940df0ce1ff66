// pmstore fs mkdir | mv | ln | rm
#include <charconv>

#include "tools/cli/bytes_text.h"
#include "tools/cli/fs_session.h"
#include "tools/cli/fs_walk.h"

namespace pmstore::tools {
namespace {

uint16_t mode_of(const std::string& text) {
  if (text.empty()) return masked(0777);
  uint16_t mode = 0;
  std::from_chars(text.data(), text.data() + text.size(), mode, 8);  // checked by the parser
  return mode;
}

// What many of these have done.
struct Changes {
  uint64_t done = 0;
  int end(const FsOptions& options, const char* member, const Failures& failures) const {
    if (options.session.json) print_json({{member, done}, {"failures", failures.count()}});
    return failures.status();
  }
};

base::Task<fs::PosixStatus> make_with_parents(FileSystem& files, const std::string& path,
                                              uint16_t mode, Changes& changes) {
  size_t slash = 0;
  do {
    slash = path.find('/', slash + 1);
    const std::string part = path.substr(0, slash);
    if (part == "/") continue;
    const auto made = co_await files.make_directory(part, mode);
    if (made) {
      ++changes.done;
      continue;
    }
    if (made.error().number != EEXIST) co_return made;
    const auto there = co_await files.stat(part);
    if (!there) co_return PosixError(there.error());
    if (there->type != fs::FileType::kDirectory) co_return PosixError(ENOTDIR);
  } while (slash != std::string::npos);
  co_return fs::PosixStatus{};
}

// Where `from` is to be: in `to` when that is a directory.
base::Task<std::string> target_of(FileSystem& files, const std::string& from,
                                  const std::string& to) {
  const auto there = co_await files.stat(to);
  const bool inside = there && there->type == fs::FileType::kDirectory;
  co_return inside ? joined(to, last_name(from)) : to;
}

// Whether what stands there is a directory, so that several files can be put into it.
base::Task<fs::PosixStatus> has_to_be_directory(FileSystem& files, const std::string& path) {
  const auto there = co_await files.stat(path);
  if (!there) co_return PosixError(there.error());
  if (there->type != fs::FileType::kDirectory) co_return PosixError(ENOTDIR);
  co_return fs::PosixStatus{};
}

// Everything in a directory and the directory: files first, so from the leaves.
base::Task<void> remove_tree(FileSystem& files, WalkedFile root, Changes& changes,
                             Failures& failures) {
  const fs::Caller caller = caller_of_process();
  struct Level {
    WalkedFile directory;
    std::vector<WalkedFile> inside;
  };
  std::vector<Level> levels;
  levels.push_back({std::move(root), {}});
  bool enters = true;
  while (!levels.empty()) {
    if (enters) {
      const WalkedFile& directory = levels.back().directory;
      levels.back().inside = co_await readable_entries(files, caller, directory.attributes.ino,
                                                       directory.path, failures);
      enters = false;
    }
    if (!levels.back().inside.empty()) {
      WalkedFile file = std::move(levels.back().inside.back());
      levels.back().inside.pop_back();
      if (file.attributes.type == fs::FileType::kDirectory) {
        levels.push_back({std::move(file), {}});
        enters = true;
        continue;
      }
      const auto gone = co_await files.unlink(caller, file.parent, file.name);
      if (gone) ++changes.done;
      if (!gone && gone.error().number != ENOENT) failures.add(file.path, gone.error());
      continue;
    }
    const WalkedFile directory = std::move(levels.back().directory);
    levels.pop_back();
    const auto gone = co_await files.remove(directory.path);
    if (gone) ++changes.done;
    // What could not be removed inside was said already.
    if (!gone && (failures.count() == 0 || gone.error().number != ENOTEMPTY)) {
      failures.add(directory.path, gone.error());
    }
  }
}

}  // namespace

base::Task<int> make_directories(FileSystem& files, const FsOptions& options) {
  Failures failures("fs mkdir");
  Changes changes;
  for (const std::string& given : options.paths) {
    const std::string path = absolute(given);
    if (options.parents) {
      const auto made = co_await make_with_parents(files, path, mode_of(options.mode), changes);
      if (!made) failures.add(path, made.error());
      continue;
    }
    const auto made = co_await files.make_directory(path, mode_of(options.mode));
    if (made) ++changes.done;
    if (!made) failures.add(path, made.error());
  }
  co_return changes.end(options, "made", failures);
}

base::Task<int> move_files(FileSystem& files, const FsOptions& options) {
  Failures failures("fs mv");
  Changes changes;
  const std::string to = absolute(options.paths.back());
  const size_t count = options.paths.size() - 1;
  if (count > 1) {
    const auto directory = co_await has_to_be_directory(files, to);
    if (!directory) {
      failures.add(to, directory.error());
      co_return changes.end(options, "moved", failures);
    }
  }
  const fs::RenameMode mode = options.exchange     ? fs::RenameMode::kExchange
                              : options.no_replace ? fs::RenameMode::kNoReplace
                                                   : fs::RenameMode::kReplace;
  for (size_t i = 0; i < count; ++i) {
    const std::string from = absolute(options.paths[i]);
    std::string target = to;
    if (!options.exchange) target = co_await target_of(files, from, to);
    const auto moved = co_await files.rename(from, target, mode);
    if (moved) ++changes.done;
    if (!moved) failures.add(from, "to '" + printable(target) + "': " + posix_text(moved.error()));
  }
  co_return changes.end(options, "moved", failures);
}

base::Task<int> link_files(FileSystem& files, const FsOptions& options) {
  Failures failures("fs ln");
  Changes changes;
  // A symlink's target is any text.
  const std::string existing = options.symbolic ? options.paths[0] : absolute(options.paths[0]);
  const std::string path = co_await target_of(files, existing, absolute(options.paths[1]));
  fs::PosixStatus made;
  if (options.symbolic) {
    made = co_await files.make_symlink(existing, path);
  } else {
    made = co_await files.make_link(existing, path);
  }
  if (made) ++changes.done;
  if (!made) failures.add(path, made.error());
  co_return changes.end(options, "made", failures);
}

base::Task<int> remove_files(FileSystem& files, const FsOptions& options) {
  Failures failures("fs rm");
  Changes changes;
  for (const std::string& given : options.paths) {
    const std::string path = absolute(given);
    const auto there = co_await files.stat(path, false);
    if (!there) {
      if (!options.force || there.error().number != ENOENT) failures.add(path, there.error());
      continue;
    }
    const bool is_directory = there->type == fs::FileType::kDirectory;
    if (path == "/") {
      failures.add(path, "the root cannot be removed; name what is in it");
    } else if (is_directory && !options.recursive) {
      failures.add(path, "it is a directory; give -r to remove it with all that is in it");
    } else if (is_directory) {
      WalkedFile root{path, {}, last_name(path), *there};
      co_await remove_tree(files, std::move(root), changes, failures);
    } else {
      const auto gone = co_await files.remove(path);
      if (gone) ++changes.done;
      if (!gone) failures.add(path, gone.error());
    }
  }
  co_return changes.end(options, "removed", failures);
}

}  // namespace pmstore::tools
