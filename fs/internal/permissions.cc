#include "fs/internal/permissions.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace pmstore::fs::internal {
namespace {

using Change = AttributeChange;

bool owns(const Caller& caller, const Attributes& inode) {
  return caller.uid == 0 || caller.uid == inode.uid;
}

PosixStatus change_mode(const Caller& caller, uint16_t mode, Attributes& inode) {
  if (inode.type == FileType::kSymlink) {
    return PosixError(EOPNOTSUPP, "a symlink has no mode of its own");
  }
  if (!owns(caller, inode)) return PosixError(EPERM, "only its owner changes a mode");
  inode.mode = mode & 07777;
  if (caller.uid != 0 && !is_in_group(caller, inode.gid)) {
    inode.mode &= static_cast<uint16_t>(~kSetGid);
  }
  return {};
}

PosixStatus change_owner(const Caller& caller, const Change& change, Attributes& inode) {
  const bool new_uid = (change.set & Change::kUid) != 0 && change.uid != inode.uid;
  const bool new_gid = (change.set & Change::kGid) != 0 && change.gid != inode.gid;
  if (!owns(caller, inode)) return PosixError(EPERM, "the file belongs to somebody else");
  if (new_uid && caller.uid != 0) return PosixError(EPERM, "only root gives files away");
  if (new_gid && caller.uid != 0 && !is_in_group(caller, change.gid)) {
    return PosixError(EPERM, "the caller is not in that group");
  }
  if ((change.set & Change::kUid) != 0) inode.uid = change.uid;
  if ((change.set & Change::kGid) != 0) inode.gid = change.gid;
  if (inode.type != FileType::kDirectory) drop_set_id(inode);
  return {};
}

PosixStatus change_times(const Caller& caller, const Change& change, uint64_t now_ns,
                         Attributes& inode) {
  const bool explicit_times = (change.set & (Change::kAtime | Change::kMtime)) != 0;
  const uint32_t both_now = Change::kAtimeNow | Change::kMtimeNow;
  if (!owns(caller, inode)) {
    if (explicit_times || (change.set & both_now) != both_now) {
      return PosixError(EPERM, "only its owner sets times of a file");
    }
    if (PosixStatus may_write = check_access(caller, inode, W_OK); !may_write) return may_write;
  }
  if ((change.set & Change::kAtime) != 0) inode.atime_ns = change.atime_ns;
  if ((change.set & Change::kAtimeNow) != 0) inode.atime_ns = now_ns;
  if ((change.set & Change::kMtime) != 0) inode.mtime_ns = change.mtime_ns;
  if ((change.set & Change::kMtimeNow) != 0) inode.mtime_ns = now_ns;
  return {};
}

}  // namespace

bool is_in_group(const Caller& caller, uint32_t gid) {
  return caller.gid == gid ||
         std::find(caller.groups.begin(), caller.groups.end(), gid) != caller.groups.end();
}

PosixStatus check_access(const Caller& caller, const Attributes& attributes, int mask) {
  if (caller.uid == 0) {
    // Root executes what somebody may execute.
    const bool executes = (mask & X_OK) != 0 && attributes.type != FileType::kDirectory;
    if (executes && (attributes.mode & 0111) == 0) return PosixError(EACCES);
    return {};
  }
  int shift = 0;
  if (caller.uid == attributes.uid) {
    shift = 6;
  } else if (is_in_group(caller, attributes.gid)) {
    shift = 3;
  }
  const int granted = attributes.mode >> shift & 7;
  static_assert(R_OK == 4 && W_OK == 2 && X_OK == 1);
  if ((mask & ~granted & 7) != 0) return PosixError(EACCES);
  return {};
}

PosixStatus check_sticky(const Caller& caller, const Attributes& directory,
                         const Attributes& inode) {
  if ((directory.mode & kSticky) == 0 || owns(caller, inode) || owns(caller, directory)) return {};
  return PosixError(EPERM, "the directory is sticky, and the file belongs to somebody else");
}

PosixStatus check_name(std::string_view name) {
  if (name.empty()) return PosixError(ENOENT, "a name is empty");
  if (name.size() > kMaxNameBytes) return PosixError(ENAMETOOLONG);
  if (name.find('/') != name.npos || name.find('\0') != name.npos) {
    return PosixError(EINVAL, "a name has neither a slash nor a zero byte");
  }
  return {};
}

void inherit(const Caller& caller, const Attributes& directory, Attributes& inode) {
  inode.uid = caller.uid;
  inode.gid = caller.gid;
  if ((directory.mode & kSetGid) == 0) return;
  inode.gid = directory.gid;
  if (inode.type == FileType::kDirectory) {
    inode.mode |= kSetGid;
  } else if (caller.uid != 0 && !is_in_group(caller, inode.gid) && (inode.mode & 0010) != 0) {
    inode.mode &= static_cast<uint16_t>(~kSetGid);
  }
}

void drop_set_id(Attributes& inode) {
  inode.mode &= static_cast<uint16_t>(~kSetUid);
  if ((inode.mode & 0010) != 0) inode.mode &= static_cast<uint16_t>(~kSetGid);
}

bool sets_set_id(const AttributeChange& change) {
  return (change.set & AttributeChange::kMode) != 0 && (change.mode & (kSetUid | kSetGid)) != 0;
}

PosixStatus apply_change(const Caller& caller, const Change& change, uint64_t now_ns,
                         Attributes& inode) {
  // chown() before chmod(): together they leave the mode that was asked for.
  if ((change.set & (Change::kUid | Change::kGid)) != 0) {
    if (PosixStatus owner = change_owner(caller, change, inode); !owner) return owner;
  }
  if ((change.set & Change::kMode) != 0) {
    if (PosixStatus mode = change_mode(caller, change.mode, inode); !mode) return mode;
  }
  const uint32_t times = Change::kAtime | Change::kMtime | Change::kAtimeNow | Change::kMtimeNow;
  if ((change.set & times) != 0) {
    if (PosixStatus set = change_times(caller, change, now_ns, inode); !set) return set;
  }
  if (change.set != 0) inode.ctime_ns = now_ns;
  return {};
}

}  // namespace pmstore::fs::internal
