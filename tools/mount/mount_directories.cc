// Directories: opendir, readdir, readdirplus, fsyncdir, releasedir.
//
// The kernel's position of an entry is its cookie + 2: 1 is behind ".", 2 behind "..".
#include <algorithm>
#include <vector>

#include "tools/mount/mount.h"

namespace pmstore::tools {
namespace {

using fs::Caller;
using fs::Ino;
using Opened = std::shared_ptr<OpenFile>;

constexpr off_t kBehindSelf = 1;
constexpr off_t kBehindParent = 2;
constexpr uint32_t kEntriesPerMessage = 256;

// An answer that entries are put into while they fit.
class Entries {
 public:
  Entries(fuse_req_t request, size_t room, bool plus)
      : request_(request), bytes_(room), plus_(plus) {}

  bool add(const char* name, const fuse_entry_param& entry, off_t next) {
    char* const to = bytes_.data() + used_;
    const size_t room = bytes_.size() - used_;
    const size_t needs = plus_ ? fuse_add_direntry_plus(request_, to, room, name, &entry, next)
                               : fuse_add_direntry(request_, to, room, name, &entry.attr, next);
    if (needs > room) return false;
    used_ += needs;
    return true;
  }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(bytes_)).first(used_); }

 private:
  fuse_req_t request_;
  std::vector<char> bytes_;
  bool plus_;
  size_t used_ = 0;
};

// Without a node: the kernel learns name and type only.
fuse_entry_param name_only(Ino ino, fs::FileType type) {
  const fs::Attributes attributes{.ino = ino, .type = type};
  fuse_entry_param entry{};
  entry.attr = stat_of(attributes);
  return entry;
}

base::Task<void> open(Mount& mount, Request request, Caller caller, Ino ino, fuse_file_info info) {
  auto opened = co_await mount.files().open_file(caller, ino, info.flags);
  if (!opened) co_return request.error(opened.error());
  info.fh = mount.open_files().add(std::move(*opened));
  request.opened(info);
}

// The entries behind `from`: those at hand, or the next page.
base::Task<fs::PosixResult<std::vector<fs::Namespace::Listed>>> next_page(
    Mount& mount, const Caller& caller, OpenFile& directory, uint64_t from, bool plus) {
  std::vector<fs::Namespace::Listed> page = std::move(directory.page);
  directory.page.clear();
  if (!page.empty() && directory.page_from == from && from != 0) co_return page;
  co_return co_await mount.files().read_directory(caller, directory.file->ino(), from,
                                                  kEntriesPerMessage, plus);
}

base::Task<fs::PosixResult<Ino>> parent_of(Mount& mount, Ino directory) {
  auto parent = co_await mount.files().parent_of(directory);
  if (parent && raw(*parent) == 0) co_return directory;  // the root's
  co_return parent;
}

base::Task<void> list(Mount& mount, Request request, Caller caller, Opened directory, size_t room,
                      off_t from, bool plus) {
  const Ino ino = directory->file->ino();
  Entries entries(request.handle(), room, plus);
  if (from < kBehindSelf) {
    entries.add(".", name_only(ino, fs::FileType::kDirectory), kBehindSelf);
  }
  if (from < kBehindParent) {
    const auto parent = co_await parent_of(mount, ino);
    const Ino shown = parent ? *parent : ino;  // a directory that was removed has none
    entries.add("..", name_only(shown, fs::FileType::kDirectory), kBehindParent);
  }
  const uint64_t cookie = from <= kBehindParent ? 0 : static_cast<uint64_t>(from - kBehindParent);
  auto page = co_await next_page(mount, caller, *directory, cookie, plus);
  if (!page) co_return request.error(page.error());
  auto next = page->begin();
  directory->page_from = cookie;
  for (; next != page->end(); ++next) {
    const fuse_entry_param entry = plus && next->attributes
                                       ? request.entry_of(*next->attributes)
                                       : name_only(next->entry.ino, next->entry.type);
    const off_t position = static_cast<off_t>(next->entry.cookie) + kBehindParent;
    if (!entries.add(next->entry.name.c_str(), entry, position)) break;
    directory->page_from = next->entry.cookie;
  }
  page->erase(page->begin(), next);
  directory->page = std::move(*page);
  directory->file->mark_read();
  request.data(entries.bytes());
}

base::Task<void> release(Request request, Opened directory) {
  (void)co_await directory->file->close();
  request.done();
}

void on_open(fuse_req_t raw, fuse_ino_t ino, fuse_file_info* file) {
  Mount& mount = mount_of(raw);
  mount.start_operation(
      raw, open(mount, Request(raw, mount.options()), caller_of(raw), Ino{ino}, *file));
}

void start_list(fuse_req_t raw, size_t room, off_t from, fuse_file_info* file, bool plus) {
  Mount& mount = mount_of(raw);
  mount.start_operation(raw, list(mount, Request(raw, mount.options()), caller_of(raw),
                                  mount.open_files().find(file->fh), room, from, plus));
}

void on_list(fuse_req_t raw, fuse_ino_t, size_t room, off_t from, fuse_file_info* file) {
  start_list(raw, room, from, file, false);
}

void on_list_plus(fuse_req_t raw, fuse_ino_t, size_t room, off_t from, fuse_file_info* file) {
  start_list(raw, room, from, file, true);
}

// Entries are durable when the call that makes them returns.
void on_sync(fuse_req_t raw, fuse_ino_t, int, fuse_file_info*) { fuse_reply_err(raw, 0); }

void on_release(fuse_req_t raw, fuse_ino_t, fuse_file_info* file) {
  Mount& mount = mount_of(raw);
  mount.start_operation(
      raw, release(Request(raw, mount.options()), mount.open_files().remove(file->fh)));
}

}  // namespace

void add_directory_calls(fuse_lowlevel_ops& calls) {
  calls.opendir = on_open;
  calls.readdir = on_list;
  calls.readdirplus = on_list_plus;
  calls.fsyncdir = on_sync;
  calls.releasedir = on_release;
}

}  // namespace pmstore::tools
