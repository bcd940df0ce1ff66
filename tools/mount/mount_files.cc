// Files: create, open, read, write, fsync, release, fallocate, lseek.
#include <fcntl.h>
#include <linux/falloc.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/check.h"
#include "tools/mount/mount.h"

namespace pmstore::tools {
namespace {

using fs::Caller;
using fs::Ino;
using Opened = std::shared_ptr<OpenFile>;

// What the kernel opens a program with to run it: needs the right to execute, not to read.
constexpr int kOpenToExecute = 0x20;
// Of a write: more than that is not worth the memory of a whole question.
constexpr size_t kMostCopiedBytes = 64 * 1024;

// Gives the kernel a number for `file`.
void enter(Mount& mount, std::unique_ptr<fs::File> file, fuse_file_info& info) {
  // Who may write has no pages: a shared map of them would outlive the delegation, and what is
  // stored there later would undo, in whole pages, what others have written meanwhile.
  // With `atomic` no descriptor has them, but with `single` (Mount::describe_opened()): the kernel
  // fills pages in parts, between which the file may become shared and change.
  const bool cached =
      file->was_delegated() && (info.flags & O_ACCMODE) == O_RDONLY && !mount.options().atomic;
  const bool keeps = cached && file->keeps_cache();
  info.fh = mount.open_files().add(std::move(file), cached);
  mount.describe_opened(info, cached, keeps);
}

base::Task<void> create(Mount& mount, Request request, Caller caller, Ino parent, std::string name,
                        uint16_t mode, fuse_file_info info) {
  const fs::NewFile file{.mode = mode, .exclusive = (info.flags & O_EXCL) != 0};
  auto made = co_await mount.files().create(caller, parent, name, file, info.flags);
  if (!made) co_return request.error(made.error());
  const fs::Attributes attributes = (*made)->attributes();
  enter(mount, std::move(*made), info);
  request.created(attributes, info);
}

base::Task<void> open(Mount& mount, Request request, Caller caller, Ino ino, fuse_file_info info) {
  if ((info.flags & kOpenToExecute) != 0) {
    const auto may = co_await mount.files().access(caller, ino, X_OK);
    if (!may) co_return request.error(may.error());
    caller = Caller{};
    info.flags &= ~kOpenToExecute;
  }
  auto opened = co_await mount.files().open_file(caller, ino, info.flags);
  if (!opened) co_return request.error(opened.error());
  if ((info.flags & O_TRUNC) != 0) {
    const auto dropped = co_await drop_set_ids(mount, caller.uid, (*opened)->attributes());
    if (!dropped) co_return request.error(dropped.error());
  }
  enter(mount, std::move(*opened), info);
  request.opened(info);
}

base::Task<void> read(Request request, Opened opened, uint64_t offset, DataBuffers::Buffer buffer,
                      size_t bytes) {
  const auto into = buffer.bytes().first(bytes);
  const auto got = co_await opened->file->pread(into, offset);
  if (got) {
    request.data(into.first(*got));
  } else {
    request.error(got.error());
  }
  buffer.release();
}

struct Writing {
  uint64_t offset = 0;
  bool appends = false;
  fs::WriteOptions options;
  uint32_t user = 0;
  std::span<const std::byte> from;  // in the buffer
};

base::Task<void> write(Mount& mount, Request request, Opened opened, Writing writing,
                       DataBuffers::Buffer buffer) {
  const auto from = writing.from;
  fs::PosixResult<uint64_t> done = uint64_t{0};
  auto dropped = co_await drop_set_ids(mount, writing.user, opened->file->attributes());
  if (!dropped) {
    request.error(dropped.error());
    buffer.release();
    co_return;
  }
  if (writing.appends) {
    done = co_await opened->file->append(from, writing.options);
  } else {
    done = co_await opened->file->pwrite(from, writing.offset, writing.options);
  }
  if (!opened->cached) mount.open_files().note_written_beside(opened->file->ino());
  if (done) {
    // append() gives the position, pwrite() the number of bytes; both write all.
    request.written(from.size());
  } else {
    request.error(done.error());
  }
  buffer.release();
}

base::Task<void> fsync(Request request, Opened opened) {
  request.status(co_await opened->file->fsync());
}

// The kernel has forgotten the file already: it gets its answer only because it wants one.
base::Task<void> release(Request request, Opened opened) {
  (void)co_await opened->file->close();
  request.done();
}

base::Task<void> allocate(Mount& mount, Request request, Caller caller, Opened opened,
                          fs::AllocateMode mode, uint64_t offset, uint64_t bytes) {
  const auto dropped = co_await drop_set_ids(mount, caller.uid, opened->file->attributes());
  if (!dropped) co_return request.error(dropped.error());
  const auto done = co_await opened->file->allocate(mode, offset, bytes);
  request.error(done ? 0 : done.error().number);
}

// Where data begins (or a hole) at or behind `offset`. Past the last extent there is a hole, also
// where the file ends.
base::Task<fs::PosixResult<uint64_t>> seek(fs::File& file, uint64_t offset, bool data,
                                           uint64_t size) {
  constexpr uint64_t kStep = uint64_t{1} << 34;  // a file's map is fetched in parts
  uint64_t at = offset;
  while (at < size) {
    const uint64_t end = std::min(size, at + std::min(kStep, size - at));
    auto map = co_await file.map(at, end - at);
    if (!map) co_return std::move(map.error());
    for (const fs::MapExtent& extent : map->extents) {
      if (extent.file_offset + extent.place.bytes <= at) continue;
      const bool begins_here = extent.file_offset <= at;
      if (data) co_return begins_here ? at : std::min(extent.file_offset, size);
      if (!begins_here) co_return at;
      at = extent.file_offset + extent.place.bytes;
    }
    if (!data && at < end) co_return at;
    at = std::max(at, end);
  }
  if (data) co_return fs::PosixError(ENXIO);
  co_return size;
}

base::Task<void> look_for(Mount& mount, Request request, Opened opened, uint64_t offset,
                          bool data) {
  const auto attributes = co_await mount.files().get_attributes(opened->file->ino());
  if (!attributes) co_return request.error(attributes.error());
  if (offset >= attributes->size) co_return request.error(ENXIO);
  if (attributes->is_inline) {
    co_return request.position(static_cast<off_t>(data ? offset : attributes->size));
  }
  const auto found = co_await seek(*opened->file, offset, data, attributes->size);
  if (!found) co_return request.error(found.error());
  request.position(static_cast<off_t>(*found));
}

void on_create(fuse_req_t raw, fuse_ino_t parent, const char* name, mode_t mode,
               fuse_file_info* file) {
  Mount& mount = mount_of(raw);
  mount.start_operation(raw, create(mount, Request(raw, mount.options()), caller_of(raw),
                                    Ino{parent}, name, static_cast<uint16_t>(mode & 07777), *file));
}

void on_open(fuse_req_t raw, fuse_ino_t ino, fuse_file_info* file) {
  Mount& mount = mount_of(raw);
  mount.start_operation(
      raw, open(mount, Request(raw, mount.options()), caller_of(raw), Ino{ino}, *file));
}

void on_read(fuse_req_t raw, fuse_ino_t, size_t bytes, off_t offset, fuse_file_info* file) {
  Mount& mount = mount_of(raw);
  mount.start_operation(raw,
                        read(Request(raw, mount.options()), mount.open_files().find(file->fh),
                             static_cast<uint64_t>(offset), mount.buffers().lend(bytes), bytes));
}

void on_write(fuse_req_t raw, fuse_ino_t, const char* data, size_t bytes, off_t offset,
              fuse_file_info* file) {
  Mount& mount = mount_of(raw);
  // Large data stays where it arrived.
  const bool is_large = bytes > kMostCopiedBytes;
  DataBuffers::Buffer buffer = is_large ? mount.take_message() : mount.buffers().lend(bytes);
  if (!is_large) std::memcpy(buffer.bytes().data(), data, bytes);
  const auto* const arrived = reinterpret_cast<const std::byte*>(data);
  PMSTORE_CHECK(!is_large || (arrived >= buffer.bytes().data() &&
                              arrived + bytes <= buffer.bytes().data() + buffer.bytes().size()),
                "what stays where it arrived is in the question's memory");
  // A descriptor may have got O_DSYNC after it was opened.
  fs::WriteOptions options;
  if ((file->flags & (O_SYNC | O_DSYNC)) != 0) options.sync = fs::DataSync::kAlways;
  // The kernel's offset of an append is where the file ended when this mount heard of it last.
  // What it writes from its pages is at the right place already.
  const Writing writing{.offset = static_cast<uint64_t>(offset),
                        .appends = (file->flags & O_APPEND) != 0 && file->writepage == 0,
                        .options = options,
                        .user = file->writepage != 0 ? 0 : fuse_req_ctx(raw)->uid,
                        .from = {is_large ? arrived : buffer.bytes().data(), bytes}};
  mount.start_operation(raw, write(mount, Request(raw, mount.options()),
                                   mount.open_files().find(file->fh), writing, std::move(buffer)));
}

void on_fsync(fuse_req_t raw, fuse_ino_t, int, fuse_file_info* file) {
  Mount& mount = mount_of(raw);
  mount.start_operation(raw,
                        fsync(Request(raw, mount.options()), mount.open_files().find(file->fh)));
}

void on_release(fuse_req_t raw, fuse_ino_t, fuse_file_info* file) {
  Mount& mount = mount_of(raw);
  mount.start_operation(
      raw, release(Request(raw, mount.options()), mount.open_files().remove(file->fh)));
}

void on_allocate(fuse_req_t raw, fuse_ino_t, int mode, off_t offset, off_t bytes,
                 fuse_file_info* file) {
  fs::AllocateMode as{};
  switch (mode) {
    case 0: as = fs::AllocateMode::kExtend; break;
    case FALLOC_FL_KEEP_SIZE: as = fs::AllocateMode::kKeepSize; break;
    case FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE: as = fs::AllocateMode::kPunchHole; break;
    case FALLOC_FL_ZERO_RANGE: as = fs::AllocateMode::kZeroRange; break;
    default: fuse_reply_err(raw, EOPNOTSUPP); return;
  }
  Mount& mount = mount_of(raw);
  mount.start_operation(raw, allocate(mount, Request(raw, mount.options()), caller_of(raw),
                                      mount.open_files().find(file->fh), as,
                                      static_cast<uint64_t>(offset), static_cast<uint64_t>(bytes)));
}

void on_look_for(fuse_req_t raw, fuse_ino_t, off_t offset, int whence, fuse_file_info* file) {
  if (whence != SEEK_DATA && whence != SEEK_HOLE) {
    fuse_reply_err(raw, EINVAL);
    return;
  }
  Mount& mount = mount_of(raw);
  mount.start_operation(
      raw, look_for(mount, Request(raw, mount.options()), mount.open_files().find(file->fh),
                    static_cast<uint64_t>(offset), whence == SEEK_DATA));
}

}  // namespace

void add_file_calls(fuse_lowlevel_ops& calls) {
  calls.create = on_create;
  calls.open = on_open;
  calls.read = on_read;
  calls.write = on_write;
  calls.fsync = on_fsync;
  calls.release = on_release;
  calls.fallocate = on_allocate;
  calls.lseek = on_look_for;
}

}  // namespace pmstore::tools
