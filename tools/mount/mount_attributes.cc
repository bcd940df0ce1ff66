// Attributes: getattr, setattr, access, statfs, extended attributes.
#include <sys/xattr.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "tools/cli/file_time.h"
#include "tools/mount/mount.h"

namespace pmstore::tools {
namespace {

using fs::AttributeChange;
using fs::Caller;
using fs::Ino;

// For so long the kernel reads its pages of a delegated file without a question. It rounds up to
// its ticks, of at most 10 ms, and counts one more; a recall ends it at once, as does each look-up
// of the file's name, and each write.
constexpr double kReadsSeconds = 0.001;
constexpr uint64_t kMostReadsNs = 25'000'000;

// The kernel asks with an open file before it reads through its pages, and uses what it has when
// the answer is there.
base::Task<void> get_attributes(Mount& mount, Request request, Ino ino,
                                std::shared_ptr<OpenFile> reads) {
  const bool reads_pages = reads != nullptr && reads->cached;
  if (reads_pages) {
    // Before Linux 6.6 the kernel keeps pages that are written without them.
    if (mount.open_files().was_written_beside(ino)) co_await mount.invalidate(ino);
    // From the kernel's pages, perhaps. A new time of access is told, and known, before the kernel
    // may believe the others.
    const bool changes_time = reads->file->mark_read();
    const fs::Attributes* const known = mount.files().delegated(ino);
    if (known != nullptr && !changes_time) {
      const bool stays = mount.files().delegated(ino, kMostReadsNs) != nullptr;
      co_return request.attributes_for(*known, stays ? kReadsSeconds : 0);
    }
  }
  const auto found = co_await mount.files().get_attributes(ino);
  if (!found) co_return request.error(found.error());
  if (reads_pages && mount.files().delegated(ino, kMostReadsNs) != nullptr) {
    co_return request.attributes_for(*found, kReadsSeconds);
  }
  if (reads_pages) co_await mount.invalidate(ino);
  request.attributes(*found);
}

AttributeChange change_of(const struct stat& to, int set) {
  constexpr std::pair<int, uint32_t> kBits[] = {
      {FUSE_SET_ATTR_MODE, AttributeChange::kMode},
      {FUSE_SET_ATTR_UID, AttributeChange::kUid},
      {FUSE_SET_ATTR_GID, AttributeChange::kGid},
      {FUSE_SET_ATTR_SIZE, AttributeChange::kSize},
      {FUSE_SET_ATTR_ATIME, AttributeChange::kAtime},
      {FUSE_SET_ATTR_MTIME, AttributeChange::kMtime},
      {FUSE_SET_ATTR_ATIME_NOW, AttributeChange::kAtimeNow},
      {FUSE_SET_ATTR_MTIME_NOW, AttributeChange::kMtimeNow},
  };
  AttributeChange change;
  for (const auto& [given, bit] : kBits) {
    if ((set & given) != 0) change.set |= bit;
  }
  // The kernel gives "now" as a bit beside the time.
  if ((change.set & AttributeChange::kAtimeNow) != 0)
    change.set &= ~uint32_t{AttributeChange::kAtime};
  if ((change.set & AttributeChange::kMtimeNow) != 0)
    change.set &= ~uint32_t{AttributeChange::kMtime};
  change.mode = static_cast<uint16_t>(to.st_mode & 07777);
  change.uid = to.st_uid;
  change.gid = to.st_gid;
  change.size = static_cast<uint64_t>(to.st_size);
  change.atime_ns = kept_time_ns(to.st_atim);
  change.mtime_ns = kept_time_ns(to.st_mtim);
  return change;
}

// ftruncate() was permitted when the file was opened; everything else is permitted now.
base::Task<void> set_attributes(Mount& mount, Request request, Caller caller, Ino ino,
                                AttributeChange change, std::shared_ptr<OpenFile> opened) {
  if (opened && (change.set & AttributeChange::kSize) != 0) {
    const auto cut = co_await opened->file->truncate(change.size);
    if (!cut) co_return request.error(cut.error());
    const auto dropped = co_await drop_set_ids(mount, caller.uid, *cut);
    if (!dropped) co_return request.error(dropped.error());
    change.set &= ~uint32_t{AttributeChange::kSize};
    if (change.set == 0) co_return request.attributes(*cut);
  }
  const auto changed = co_await mount.files().set_attributes(caller, ino, change);
  if (!changed) co_return request.error(changed.error());
  request.attributes(*changed);
}

base::Task<void> access(Mount& mount, Request request, Caller caller, Ino ino, int mask) {
  request.status(co_await mount.files().access(caller, ino, mask));
}

base::Task<void> get_usage(Mount& mount, Request request) {
  const auto found = co_await mount.files().usage();
  if (!found) co_return request.error(found.error());
  struct statvfs usage {};
  usage.f_bsize = fs::kUnitBytes;
  usage.f_frsize = fs::kUnitBytes;
  usage.f_blocks = found->data_bytes / fs::kUnitBytes;
  usage.f_bfree = found->free_bytes / fs::kUnitBytes;
  usage.f_bavail = usage.f_bfree;
  // Without a bound of its own, as many as there is room for: the pool decides.
  const uint64_t most = found->max_inodes == 0 ? UINT32_MAX : found->max_inodes;
  usage.f_files = most;
  usage.f_ffree = most - std::min(most, found->inodes);
  usage.f_favail = usage.f_ffree;
  usage.f_namemax = fs::kMaxNameBytes;
  request.usage(usage);
}

// Of these names nothing is ever kept. The kernel asks for security.capability before each write:
// that costs no message to the server.
int refuses(std::string_view name) {
  return name.starts_with("security.") || name.starts_with("system.") ? EOPNOTSUPP : 0;
}

base::Task<void> get_xattr(Mount& mount, Request request, Caller caller, Ino ino, std::string name,
                           size_t room) {
  const auto value = co_await mount.files().get_xattr(caller, ino, name);
  if (!value) co_return request.error(value.error());
  request.xattr(*value, room);
}

base::Task<void> set_xattr(Mount& mount, Request request, Caller caller, Ino ino, std::string name,
                           std::vector<std::byte> value, fs::XattrMode mode) {
  request.status(co_await mount.files().set_xattr(caller, ino, name, value, mode));
}

base::Task<void> remove_xattr(Mount& mount, Request request, Caller caller, Ino ino,
                              std::string name) {
  request.status(co_await mount.files().remove_xattr(caller, ino, name));
}

base::Task<void> list_xattrs(Mount& mount, Request request, Caller caller, Ino ino, size_t room) {
  const auto names = co_await mount.files().list_xattrs(caller, ino);
  if (!names) co_return request.error(names.error());
  std::string list;
  for (const std::string& name : *names) list.append(name).push_back('\0');
  request.xattr(std::as_bytes(std::span(list)), room);
}

void on_get_attributes(fuse_req_t raw, fuse_ino_t ino, fuse_file_info* file) {
  Mount& mount = mount_of(raw);
  mount.start_operation(
      raw, get_attributes(mount, Request(raw, mount.options()), Ino{ino},
                          file != nullptr ? mount.open_files().find(file->fh) : nullptr));
}

void on_set_attributes(fuse_req_t raw, fuse_ino_t ino, struct stat* to, int set,
                       fuse_file_info* file) {
  Mount& mount = mount_of(raw);
  mount.start_operation(
      raw, set_attributes(mount, Request(raw, mount.options()), caller_of(raw), Ino{ino},
                          change_of(*to, set),
                          file != nullptr ? mount.open_files().find(file->fh) : nullptr));
}

void on_access(fuse_req_t raw, fuse_ino_t ino, int mask) {
  Mount& mount = mount_of(raw);
  mount.start_operation(
      raw, access(mount, Request(raw, mount.options()), caller_of(raw), Ino{ino}, mask));
}

void on_get_usage(fuse_req_t raw, fuse_ino_t) {
  Mount& mount = mount_of(raw);
  mount.start_operation(raw, get_usage(mount, Request(raw, mount.options())));
}

void on_get_xattr(fuse_req_t raw, fuse_ino_t ino, const char* name, size_t room) {
  Mount& mount = mount_of(raw);
  if (const std::string_view kept = name; kept == "security.capability") {
    fuse_reply_err(raw, ENODATA);
  } else if (const int why = refuses(kept)) {
    fuse_reply_err(raw, why);
  } else {
    mount.start_operation(
        raw, get_xattr(mount, Request(raw, mount.options()), caller_of(raw), Ino{ino}, name, room));
  }
}

void on_set_xattr(fuse_req_t raw, fuse_ino_t ino, const char* name, const char* value, size_t bytes,
                  int flags) {
  fs::XattrMode mode = fs::XattrMode::kSet;
  if (flags == XATTR_CREATE) mode = fs::XattrMode::kCreate;
  if (flags == XATTR_REPLACE) mode = fs::XattrMode::kReplace;
  if (const int why = refuses(name)) {
    fuse_reply_err(raw, why);
    return;
  }
  const auto* const data = reinterpret_cast<const std::byte*>(value);
  Mount& mount = mount_of(raw);
  mount.start_operation(raw, set_xattr(mount, Request(raw, mount.options()), caller_of(raw),
                                       Ino{ino}, name, std::vector(data, data + bytes), mode));
}

void on_remove_xattr(fuse_req_t raw, fuse_ino_t ino, const char* name) {
  if (const int why = refuses(name)) {
    fuse_reply_err(raw, why);
    return;
  }
  Mount& mount = mount_of(raw);
  mount.start_operation(
      raw, remove_xattr(mount, Request(raw, mount.options()), caller_of(raw), Ino{ino}, name));
}

void on_list_xattrs(fuse_req_t raw, fuse_ino_t ino, size_t room) {
  Mount& mount = mount_of(raw);
  mount.start_operation(
      raw, list_xattrs(mount, Request(raw, mount.options()), caller_of(raw), Ino{ino}, room));
}

}  // namespace

base::Task<fs::PosixStatus> drop_set_ids(Mount& mount, uint32_t user, const fs::Attributes& file) {
  constexpr uint16_t kSetUser = 04000;
  constexpr uint16_t kSetGroup = 02000;
  constexpr uint16_t kGroupExecutes = 010;
  AttributeChange change{.set = AttributeChange::kMode};
  change.mode = static_cast<uint16_t>(file.mode & ~kSetUser);
  if ((file.mode & kGroupExecutes) != 0) {
    change.mode = static_cast<uint16_t>(change.mode & ~kSetGroup);
  }
  if (user == 0 || change.mode == file.mode) co_return fs::PosixStatus{};
  const Caller root;
  auto changed = co_await mount.files().set_attributes(root, file.ino, change);
  if (!changed) co_return std::move(changed.error());
  co_return fs::PosixStatus{};
}

void add_attribute_calls(fuse_lowlevel_ops& calls) {
  calls.getattr = on_get_attributes;
  calls.setattr = on_set_attributes;
  calls.access = on_access;
  calls.statfs = on_get_usage;
  calls.getxattr = on_get_xattr;
  calls.setxattr = on_set_xattr;
  calls.removexattr = on_remove_xattr;
  calls.listxattr = on_list_xattrs;
}

}  // namespace pmstore::tools
