// Names: lookup, mknod, mkdir, symlink, link, unlink, rmdir, rename, readlink.
#include <linux/fs.h>

#include <string>

#include "tools/mount/mount.h"

namespace pmstore::tools {
namespace {

using fs::Caller;
using fs::Ino;

base::Task<void> look_up(Mount& mount, Request request, Caller caller, Ino parent,
                         std::string name) {
  const auto found = co_await mount.files().lookup(caller, parent, name);
  if (!found) co_return request.error(found.error());
  request.entry(*found);
}

base::Task<void> make(Mount& mount, Request request, Caller caller, Ino parent, std::string name,
                      fs::NewFile file, std::string target) {
  file.target = target;
  const auto made = co_await mount.files().make(caller, parent, name, file);
  if (!made) co_return request.error(made.error());
  request.entry(*made);
}

base::Task<void> link(Mount& mount, Request request, Caller caller, Ino ino, Ino parent,
                      std::string name) {
  const auto linked = co_await mount.files().link(caller, ino, parent, name);
  if (!linked) co_return request.error(linked.error());
  request.entry(*linked);
}

base::Task<void> unlink(Mount& mount, Request request, Caller caller, Ino parent,
                        std::string name) {
  request.status(co_await mount.files().unlink(caller, parent, name));
}

base::Task<void> remove_directory(Mount& mount, Request request, Caller caller, Ino parent,
                                  std::string name) {
  request.status(co_await mount.files().remove_directory(caller, parent, name));
}

base::Task<void> rename(Mount& mount, Request request, Caller caller, Ino from, std::string name,
                        Ino to, std::string new_name, fs::RenameMode mode) {
  request.status(co_await mount.files().rename(caller, from, name, to, new_name, mode));
}

base::Task<void> read_link(Mount& mount, Request request, Ino ino) {
  const auto target = co_await mount.files().read_link(ino);
  if (!target) co_return request.error(target.error());
  request.link_target(*target);
}

void on_look_up(fuse_req_t raw, fuse_ino_t parent, const char* name) {
  Mount& mount = mount_of(raw);
  mount.start_operation(
      raw, look_up(mount, Request(raw, mount.options()), caller_of(raw), Ino{parent}, name));
}

void start_make(fuse_req_t raw, fuse_ino_t parent, const char* name, const fs::NewFile& file,
                const char* target = "") {
  Mount& mount = mount_of(raw);
  mount.start_operation(raw, make(mount, Request(raw, mount.options()), caller_of(raw), Ino{parent},
                                  name, file, target));
}

void on_make_node(fuse_req_t raw, fuse_ino_t parent, const char* name, mode_t mode, dev_t device) {
  fs::NewFile file{.mode = static_cast<uint16_t>(mode & 07777)};
  switch (mode & S_IFMT) {
    case S_IFREG:
    case 0: file.type = fs::FileType::kRegular; break;
    case S_IFIFO: file.type = fs::FileType::kFifo; break;
    case S_IFSOCK: file.type = fs::FileType::kSocket; break;
    case S_IFCHR: file.type = fs::FileType::kCharDevice; break;
    case S_IFBLK: file.type = fs::FileType::kBlockDevice; break;
    default: fuse_reply_err(raw, EINVAL); return;
  }
  file.device = static_cast<uint32_t>(device);
  start_make(raw, parent, name, file);
}

void on_make_directory(fuse_req_t raw, fuse_ino_t parent, const char* name, mode_t mode) {
  start_make(raw, parent, name,
             {.type = fs::FileType::kDirectory, .mode = static_cast<uint16_t>(mode & 07777)});
}

void on_make_symlink(fuse_req_t raw, const char* target, fuse_ino_t parent, const char* name) {
  start_make(raw, parent, name, {.type = fs::FileType::kSymlink, .mode = 0777}, target);
}

void on_link(fuse_req_t raw, fuse_ino_t ino, fuse_ino_t parent, const char* name) {
  Mount& mount = mount_of(raw);
  mount.start_operation(
      raw, link(mount, Request(raw, mount.options()), caller_of(raw), Ino{ino}, Ino{parent}, name));
}

void on_unlink(fuse_req_t raw, fuse_ino_t parent, const char* name) {
  Mount& mount = mount_of(raw);
  mount.start_operation(
      raw, unlink(mount, Request(raw, mount.options()), caller_of(raw), Ino{parent}, name));
}

void on_remove_directory(fuse_req_t raw, fuse_ino_t parent, const char* name) {
  Mount& mount = mount_of(raw);
  mount.start_operation(raw, remove_directory(mount, Request(raw, mount.options()), caller_of(raw),
                                              Ino{parent}, name));
}

void on_rename(fuse_req_t raw, fuse_ino_t from, const char* name, fuse_ino_t to,
               const char* new_name, unsigned flags) {
  fs::RenameMode mode = fs::RenameMode::kReplace;
  if (flags == RENAME_NOREPLACE) {
    mode = fs::RenameMode::kNoReplace;
  } else if (flags == RENAME_EXCHANGE) {
    mode = fs::RenameMode::kExchange;
  } else if (flags != 0) {
    fuse_reply_err(raw, EINVAL);
    return;
  }
  Mount& mount = mount_of(raw);
  mount.start_operation(raw, rename(mount, Request(raw, mount.options()), caller_of(raw), Ino{from},
                                    name, Ino{to}, new_name, mode));
}

void on_read_link(fuse_req_t raw, fuse_ino_t ino) {
  Mount& mount = mount_of(raw);
  mount.start_operation(raw, read_link(mount, Request(raw, mount.options()), Ino{ino}));
}

}  // namespace

void add_name_calls(fuse_lowlevel_ops& calls) {
  calls.lookup = on_look_up;
  calls.mknod = on_make_node;
  calls.mkdir = on_make_directory;
  calls.symlink = on_make_symlink;
  calls.link = on_link;
  calls.unlink = on_unlink;
  calls.rmdir = on_remove_directory;
  calls.rename = on_rename;
  calls.readlink = on_read_link;
}

}  // namespace pmstore::tools
