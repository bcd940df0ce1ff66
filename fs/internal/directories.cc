#include "fs/internal/directories.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "fs/internal/directories_parts.h"
#include "fs/internal/permissions.h"

namespace pmstore::fs::internal {

void changed(Inode& inode, uint64_t now_ns) {
  inode.attributes.ctime_ns = now_ns;
  ++inode.attributes.version;
}

void entries_changed(Inode& directory, uint64_t now_ns) {
  directory.attributes.mtime_ns = now_ns;
  changed(directory, now_ns);
}

// What make_in() has found or made.
struct Directories::Made {
  Attributes attributes;
  bool is_new = false;
  bool is_made_before = false;  // by an earlier try of the call
};

Task<PosixResult<Inode>> Directories::find_in(NamespaceTransaction& transaction,
                                              const Caller& caller, const Inode& directory,
                                              std::string_view name) const {
  if (!directory.is_directory()) co_return PosixError(ENOTDIR);
  PMSTORE_CO_TRY_STATUS(check_name(name));
  const Ino in = directory.attributes.ino;
  if (directory.attributes.links == 0) co_return PosixError(ENOENT, "the directory was removed");
  PMSTORE_CO_TRY_STATUS(check_access(caller, directory.attributes, X_OK));
  if (name == "." || (name == ".." && in == kRootIno)) co_return directory;
  if (name == "..") {
    PMSTORE_CO_TRY(const Ino parent, co_await transaction.parent(in));
    co_return co_await transaction.inode(parent);
  }
  PMSTORE_CO_TRY(const auto entry, co_await transaction.entry(in, name));
  if (!entry) co_return PosixError(ENOENT);
  co_return co_await transaction.inode(entry->ino);
}

Task<PosixResult<Namespace::Walked>> Directories::walk_in(NamespaceTransaction& transaction,
                                                          const WalkCall& call, size_t most) const {
  Namespace::Walked walked;
  const SearchedDirectories::Moment since = core_.searched.now();
  PMSTORE_CO_TRY(Inode at, co_await transaction.inode(call.start));
  std::string_view rest = call.path;
  while (!rest.empty() && walked.found.size() < most) {
    const size_t end = std::min(rest.find('/'), rest.size());
    const std::string_view name = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    PosixResult<Inode> found = co_await find_in(transaction, call.caller, at, name);
    if (!found && found.number() == ESTALE) co_return std::move(found.error());
    if (!found) {
      walked.error = std::move(found.error());
      break;
    }
    if (found->is_directory()) {
      core_.searched.put(since, at.attributes, name, found->attributes.ino);
    }
    at = std::move(*found);
    walked.found.push_back(at.attributes);
    if (at.attributes.type == FileType::kSymlink) {
      walked.target = std::move(at.tail);
      break;
    }
  }
  co_return std::move(walked);
}

namespace {

// Runs `body`, which goes from `start` through entries to inodes. Not validated: an inode may be of
// a later moment than its entry. When it is gone by then (ESTALE), the entry is looked up again.
template <typename T, typename Body>
Task<PosixResult<T>> look_below(NamespaceCore& core, Ino start, const Body& body) {
  for (unsigned attempt = 0; attempt < 100; ++attempt) {
    PosixResult<T> found = co_await core.look<T>(body);
    if (found || found.number() != ESTALE) co_return std::move(found);
    const PosixResult<Inode> there = co_await core.inode(start);
    if (!there) co_return there.error();
  }
  co_return PosixError(EIO,
                       "a directory entry names an inode that is gone; run `pmstore fs check`");
}

}  // namespace

Task<PosixResult<Attributes>> Directories::lookup(NameCall call) {
  if (PosixStatus name = check_name(call.name); !name) co_return std::move(name.error());
  const auto body = [&](NamespaceTransaction& transaction) -> Task<PosixResult<Inode>> {
    PMSTORE_CO_TRY(const Inode directory, co_await transaction.inode(call.parent));
    co_return co_await find_in(transaction, call.caller, directory, call.name);
  };
  PMSTORE_CO_TRY(Inode found, co_await look_below<Inode>(core_, call.parent, body));
  co_return std::move(found.attributes);
}

Task<PosixResult<Namespace::Walked>> Directories::walk(WalkCall call, size_t most) {
  const auto body = [&](NamespaceTransaction& transaction) {
    return walk_in(transaction, call, most);
  };
  co_return co_await look_below<Namespace::Walked>(core_, call.start, body);
}

Task<PosixResult<Ino>> Directories::parent_of(Ino directory) {
  if (directory == kRootIno) co_return Ino{};
  const auto body = [directory](NamespaceTransaction& transaction) -> Task<PosixResult<Ino>> {
    PMSTORE_CO_TRY(const Inode found, co_await transaction.directory(directory));
    co_return co_await transaction.parent(directory);
  };
  co_return co_await core_.look<Ino>(body);
}

PosixStatus Directories::check_new(const MakeCall& call, const Inode& directory) const {
  PMSTORE_TRY_STATUS(check_access(call.caller, directory.attributes, W_OK | X_OK));
  const FileType type = call.file.type;
  PMSTORE_TRY_STATUS(core_.check_not_full());
  if (core_.options().max_inodes != 0 && core_.inodes >= core_.options().max_inodes) {
    return PosixError(ENOSPC, "the file system has as many inodes as it may have");
  }
  const bool is_device = type == FileType::kCharDevice || type == FileType::kBlockDevice;
  if (is_device && call.caller.uid != 0) return PosixError(EPERM, "only root makes device files");
  if (type == FileType::kDirectory && directory.attributes.links >= kMaxLinks) {
    return PosixError(EMLINK, "the directory has as many subdirectories as it may have");
  }
  return {};
}

Inode Directories::new_inode(const MakeCall& call, const Inode& directory, Ino ino) const {
  const uint64_t now_ns = core_.now_ns();
  Inode inode;
  Attributes& a = inode.attributes;
  a = {.ino = ino,
       .type = call.file.type,
       .mode = static_cast<uint16_t>(call.file.mode & 07777),
       .links = call.file.type == FileType::kDirectory ? 2u : 1u,
       .atime_ns = now_ns,
       .mtime_ns = now_ns,
       .ctime_ns = now_ns,
       .created_ns = now_ns,
       .version = 1};
  const bool is_device = a.type == FileType::kCharDevice || a.type == FileType::kBlockDevice;
  if (is_device) a.device = call.file.device;
  a.is_inline = a.type == FileType::kRegular;
  if (a.type == FileType::kSymlink) {
    a.mode = 0777;
    inode.tail = call.target;
    a.size = call.target.size();
  }
  inherit(call.caller, directory.attributes, a);
  return inode;
}

Task<PosixResult<Directories::Made>> Directories::make_in(NamespaceTransaction& transaction,
                                                          const MakeCall& call, Ino ino) {
  PMSTORE_CO_TRY(Inode directory, co_await transaction.directory(call.parent));
  PMSTORE_CO_TRY_STATUS(check_access(call.caller, directory.attributes, X_OK));
  PMSTORE_CO_TRY(const auto there, co_await transaction.entry(call.parent, call.name));
  if (there) {
    if (call.has_made(*there)) {
      PMSTORE_CO_TRY(const Inode made, co_await transaction.inode(there->ino));
      co_return Made{made.attributes, false, true};
    }
    if (call.file.exclusive) co_return PosixError(EEXIST);
    if (there->type == FileType::kDirectory) co_return PosixError(EISDIR);
    if (there->type != FileType::kRegular) co_return PosixError(EEXIST);
    PMSTORE_CO_TRY(const Inode existing, co_await transaction.inode(there->ino));
    co_return Made{existing.attributes, false};
  }
  PMSTORE_CO_TRY_STATUS(check_new(call, directory));
  const Inode inode = new_inode(call, directory, ino);
  transaction.put(inode);
  transaction.put_entry(call.parent, call.name,
                        {ino, inode.attributes.type, directory.next_number++, call.mark});
  ++directory.attributes.size;
  if (inode.is_directory()) {
    ++directory.attributes.links;
    transaction.put_parent(ino, call.parent);
  }
  entries_changed(directory, inode.attributes.mtime_ns);
  transaction.put(directory);
  co_return Made{inode.attributes, true};
}

Task<PosixResult<Attributes>> Directories::make(MakeCall call) {
  if (PosixStatus name = check_name(call.name); !name) co_return std::move(name.error());
  if (is_dots(call.name)) co_return PosixError(call.file.exclusive ? EEXIST : EISDIR);
  if (call.file.type == FileType::kSymlink) {
    if (call.target.empty()) co_return PosixError(ENOENT, "a symlink has a target");
    if (call.target.size() > kMaxSymlinkBytes) co_return PosixError(ENAMETOOLONG);
    if (call.target.find('\0') != call.target.npos) co_return PosixError(EINVAL);
  }
  PMSTORE_CO_TRY_STATUS(co_await core_.try_reserve());
  // From the beginning on: the session may end while the call waits.
  std::optional<OpenFiles::Opening> opening;
  if (call.open_for) opening.emplace(core_.opens, *call.open_for);
  constexpr unsigned kAttempts = 100;
  bool is_gone = true;
  PosixResult<Attributes> made = PosixError(ESTALE);
  for (unsigned attempt = 0; is_gone && attempt < kAttempts; ++attempt) {
    made = co_await make_once(call, is_gone);
  }
  co_return std::move(made);
}

Task<PosixResult<Attributes>> Directories::make_once(const MakeCall& call, bool& is_gone) {
  is_gone = false;
  InodeLocks::Guard guard = co_await core_.directory_locks.exclusive(call.parent);
  PMSTORE_CO_TRY(const Ino ino, co_await core_.take_ino());
  // Before others can find the file, so that none deletes it as one that nobody has open.
  const bool opens = call.open_for && call.file.type == FileType::kRegular;
  if (opens && !core_.opens.add(ino, *call.open_for)) {
    co_return PosixError(ENFILE, "as many files are open as can be");
  }
  const auto body = [&](NamespaceTransaction& transaction) {
    return make_in(transaction, call, ino);
  };
  PosixResult<Made> made = co_await core_.transact<Made>(body);
  const bool is_new = made && made->is_new;
  if (is_new) ++core_.inodes;
  if (opens && !is_new) core_.opens.remove(ino, *call.open_for);
  if (!made) co_return std::move(made.error());
  if (opens && made->is_made_before) {
    // The file's mode is not checked, as it is not for a new file. The lock of the directory keeps
    // the name.
    const bool has_room = core_.opens.add(made->attributes.ino, *call.open_for);
    if (!has_room) co_return PosixError(ENFILE, "as many files are open as can be");
    co_return std::move(made->attributes);
  }
  if (opens && !is_new) {
    // The file may be locked for long, and its directory is not.
    guard.release();
    PosixResult<Attributes> opened = co_await files_.open(call.caller, made->attributes.ino,
                                                          call.file.open_flags, *call.open_for);
    is_gone = !opened && opened.number() == ESTALE;
    co_return std::move(opened);
  }
  co_return std::move(made->attributes);
}

Task<PosixResult<Attributes>> Directories::link_in(NamespaceTransaction& transaction,
                                                   const NameCall& call, Ino ino) {
  PMSTORE_CO_TRY(Inode directory, co_await transaction.directory(call.parent));
  PMSTORE_CO_TRY_STATUS(check_access(call.caller, directory.attributes, X_OK));
  PMSTORE_CO_TRY(const auto there, co_await transaction.entry(call.parent, call.name));
  if (there && call.has_made(*there) && there->ino == ino) {
    PMSTORE_CO_TRY(Inode linked, co_await transaction.inode(ino));
    co_return std::move(linked.attributes);
  }
  if (there) co_return PosixError(EEXIST);
  PMSTORE_CO_TRY_STATUS(check_access(call.caller, directory.attributes, W_OK));
  PMSTORE_CO_TRY(Inode inode, co_await transaction.inode(ino));
  if (inode.is_directory()) co_return PosixError(EPERM, "a directory has one name");
  if (inode.attributes.links == 0) co_return PosixError(ENOENT, "the file was unlinked");
  if (inode.attributes.links >= kMaxLinks) co_return PosixError(EMLINK);
  PMSTORE_CO_TRY_STATUS(core_.check_not_full());
  const uint64_t now_ns = core_.now_ns();
  ++inode.attributes.links;
  changed(inode, now_ns);
  transaction.put(inode);
  transaction.put_entry(call.parent, call.name,
                        {ino, inode.attributes.type, directory.next_number++, call.mark});
  ++directory.attributes.size;
  entries_changed(directory, now_ns);
  transaction.put(directory);
  co_return std::move(inode.attributes);
}

Task<PosixResult<Attributes>> Directories::link(NameCall call, Ino ino) {
  if (PosixStatus name = check_name(call.name); !name) co_return std::move(name.error());
  if (is_dots(call.name)) co_return PosixError(EEXIST);
  PMSTORE_CO_TRY_STATUS(co_await core_.try_reserve());
  const InodeLocks::Guard guard = co_await core_.directory_locks.exclusive(call.parent);
  const auto body = [&](NamespaceTransaction& transaction) {
    return link_in(transaction, call, ino);
  };
  co_return co_await core_.transact<Attributes>(body);
}

}  // namespace pmstore::fs::internal
