// File: an open file of a FileSystem.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "fs/internal/file_system_state.h"

namespace pmstore::fs {

namespace {

PosixError too_many_buffers() {
  return {EINVAL, "an access has at most 1,024 buffers: do it in several"};
}

}  // namespace

bool File::State::may_read() const { return (opened.flags & O_ACCMODE) != O_WRONLY; }
bool File::State::may_write() const { return (opened.flags & O_ACCMODE) != O_RDONLY; }

PosixStatus File::State::usable() const {
  if (closed) return PosixError(EBADF, "the file is closed");
  if (system->closed) return PosixError(EIO, "the client was closed; connect another one");
  if (opened.lost) {
    return PosixError(EIO,
                      "the server was started again and does not have the file open any "
                      "more: open it again");
  }
  return {};
}

void File::State::note(const Attributes& heard) {
  if (heard.version >= attributes.version) attributes = heard;
  system->delegated.heard(heard);
}

void File::State::use_cache() {
  if (delegation != nullptr) delegation->use();
}

internal::FileIo::Way File::State::way_of(const WriteOptions& wanted) const {
  const bool is_synchronous = (opened.flags & (O_SYNC | O_DSYNC)) != 0;
  const DataSync sync = is_synchronous ? DataSync::kAlways : system->options.sync;
  return {wanted.sync.value_or(sync), wanted.atomic.value_or(system->options.atomic_writes)};
}

base::Task<PosixStatus> File::State::flush() {
  PosixStatus flushed = co_await system->io->flush(opened.ino);
  if (!flushed) co_return std::move(flushed);
  const uint64_t losses = system->io->losses(opened.ino);
  if (std::exchange(losses_told, losses) == losses) co_return PosixStatus{};
  co_return PosixError(EIO,
                       "a data server was started again before it had made durable what was "
                       "written: it may be lost; write it again");
}

base::Task<void> FileSystem::State::close_later(Ino ino) {
  delegated.closed(ino);
  Call request(FilesMethod::kClose, true, 0);
  request.put(InoRequest{raw(ino)});
  request.gives_up = true;
  // When the server is away, it hears of it with the next session, or forgets this client.
  [[maybe_unused]] const PosixStatus closed_there = co_await ask(std::move(request));
}

File::File(std::unique_ptr<State> state) : state_(std::move(state)) {}

File::~File() {
  if (state_->closed) return;
  if (!state_->system->closed) give_up_flock();
  close_there();
}

// Of this file, in the background: nobody waits for that.
void File::give_up_flock() {
  FileSystem::State& system = *state_->system;
  const Ino ino = state_->opened.ino;
  if (!system.link->locks().holds(OpenOwner{}, ino, LockKind::kFlock, state_->id)) return;
  FileLock lock;
  lock.kind = LockKind::kFlock;
  lock.owner = state_->id;
  system.run(system.unlock_later(ino, lock));
}

Ino File::ino() const { return state_->opened.ino; }
const Attributes& File::attributes() const { return state_->attributes; }
bool File::was_delegated() const { return state_->delegated; }
bool File::keeps_cache() const { return state_->keeps_cache; }

base::Task<PosixResult<uint64_t>> File::pread(std::span<std::byte> into, uint64_t offset) {
  const std::span<std::byte> one[] = {into};
  co_return co_await state_->read(*this, internal::ReadBuffers(one), offset);
}

base::Task<PosixResult<uint64_t>> File::preadv(std::vector<std::span<std::byte>> into,
                                               uint64_t offset) {
  if (into.size() > kMaxBuffers) co_return too_many_buffers();
  co_return co_await state_->read(*this, internal::ReadBuffers(into), offset);
}

base::Task<PosixResult<uint64_t>> File::State::read(File& file, internal::ReadBuffers into,
                                                    uint64_t offset) {
  if (PosixStatus good = usable(); !good) co_return PosixError(good.error());
  if (!may_read()) co_return PosixError(EBADF, "the file is open for writing only");
  use_cache();
  const auto got = co_await system->io->read(attributes, offset, into);
  if (!got) co_return PosixError(got.error());
  // It has grown since the server was asked for its attributes.
  attributes.size = std::max(attributes.size, offset + *got);
  if (attributes.size > kMaxInlineBytes) attributes.is_inline = false;
  if (*got > 0) file.mark_read();
  co_return *got;
}

bool File::mark_read() {
  FileSystem::State& system = *state_->system;
  const bool keeps_time = system.options.atime && (state_->opened.flags & O_NOATIME) == 0;
  if (!keeps_time || state_->closed) return false;
  Attributes& known = state_->attributes;
  if (const Attributes* const heard = system.delegated.find(known.ino)) state_->note(*heard);
  const uint64_t now_ns = state_->server_ns + (system.executor.now_ns() - state_->opened_ns);
  if (!state_->written && !is_atime_due(known, now_ns)) return false;
  state_->written = false;
  known.atime_ns = now_ns;
  system.io->read_later(known.ino);
  return true;
}

base::Task<PosixResult<uint64_t>> File::pwrite(std::span<const std::byte> bytes, uint64_t offset,
                                               WriteOptions options) {
  const std::span<const std::byte> one[] = {bytes};
  const auto written = co_await state_->write(internal::WriteBuffers(one), offset, options);
  if (!written) co_return PosixError(written.error());
  co_return uint64_t{bytes.size()};
}

base::Task<PosixResult<uint64_t>> File::pwritev(std::vector<std::span<const std::byte>> from,
                                                uint64_t offset, WriteOptions options) {
  if (from.size() > kMaxBuffers) co_return too_many_buffers();
  const internal::WriteBuffers all(from);
  const auto written = co_await state_->write(all, offset, options);
  if (!written) co_return PosixError(written.error());
  co_return all.bytes();
}

base::Task<PosixResult<uint64_t>> File::append(std::span<const std::byte> bytes,
                                               WriteOptions options) {
  const std::span<const std::byte> one[] = {bytes};
  co_return co_await state_->write(internal::WriteBuffers(one), std::nullopt, options);
}

// Gives where the bytes begin.
base::Task<PosixResult<uint64_t>> File::State::write(internal::WriteBuffers from,
                                                     std::optional<uint64_t> offset,
                                                     WriteOptions wanted) {
  if (PosixStatus good = usable(); !good) co_return PosixError(good.error());
  if (!may_write()) co_return PosixError(EBADF, "the file is open for reading only");
  if (from.bytes() == 0) co_return offset.value_or(attributes.size);
  if (offset && (*offset > kMaxFileBytes || from.bytes() > kMaxFileBytes - *offset)) {
    co_return PosixError(EFBIG);
  }
  internal::OwnChange change(system->kept, opened.ino);
  const auto done = co_await system->io->write(attributes, offset, from, way_of(wanted));
  change.ended(done ? 0 : done.number());
  if (!done) co_return PosixError(done.error());
  note(done->attributes);
  written = true;
  co_return done->offset;
}

base::Task<PosixStatus> File::fsync() {
  if (PosixStatus good = state_->usable(); !good) co_return PosixError(good.error());
  co_return co_await state_->flush();
}

base::Task<PosixResult<Attributes>> File::truncate(uint64_t size) {
  if (PosixStatus good = state_->usable(); !good) co_return PosixError(good.error());
  if (!state_->may_write()) co_return PosixError(EINVAL, "the file is open for reading only");
  // The right to write was checked when the file was opened.
  internal::FilesCall request(FilesMethod::kSetAttributes, true, sizeof(WireAttributes));
  SetAttributesRequest asked;
  asked.ino = raw(state_->opened.ino);
  asked.size = size;
  asked.set = AttributeChange::kSize;
  request.put(asked);
  state_->system->io->forget_map(state_->opened.ino);
  internal::OwnChange change(state_->system->kept, state_->opened.ino);
  auto changed = co_await state_->system->change(std::move(request), state_->opened.ino);
  change.ended(changed ? 0 : changed.number());
  if (changed) state_->note(*changed);
  co_return std::move(changed);
}

base::Task<PosixResult<Attributes>> File::allocate(AllocateMode mode, uint64_t offset,
                                                   uint64_t bytes) {
  if (PosixStatus good = state_->usable(); !good) co_return PosixError(good.error());
  if (!state_->may_write()) co_return PosixError(EBADF, "the file is open for reading only");
  internal::FilesCall request(FilesMethod::kAllocate, true, sizeof(WireAttributes));
  AllocateRequest asked;
  asked.ino = raw(state_->opened.ino);
  asked.offset = offset;
  asked.bytes = bytes;
  asked.mode = mode;
  request.put(asked);
  state_->system->io->forget_map(state_->opened.ino);
  internal::OwnChange change(state_->system->kept, state_->opened.ino);
  auto changed = co_await state_->system->ask_attributes(std::move(request));
  change.ended(changed ? 0 : changed.number());
  if (changed) state_->note(*changed);
  co_return std::move(changed);
}

base::Task<PosixResult<FileMap>> File::map(uint64_t offset, uint64_t bytes) {
  if (PosixStatus good = state_->usable(); !good) co_return PosixError(good.error());
  auto mapped = co_await state_->system->io->fetch_map(state_->opened.ino, offset, bytes);
  if (!mapped) co_return PosixError(mapped.error());
  state_->note(mapped->attributes);
  co_return std::move(mapped->map);
}

base::Task<PosixStatus> File::close() {
  if (state_->closed) co_return PosixError(EBADF, "the file is closed");
  state_->use_cache();
  // Also of a file that the server has forgotten: who closes it hears what was not made durable.
  PosixStatus flushed = co_await state_->flush();
  if (std::exchange(state_->closed, true)) co_return PosixError(EBADF, "the file is closed");
  const std::shared_ptr<FileSystem::State> system = state_->system;
  if (!system->closed) give_up_flock();
  close_there();
  co_return std::move(flushed);
}

void File::close_there() {
  FileSystem::State& system = *state_->system;
  system.link->remove_open(state_->opened);
  if (!system.closed && !state_->opened.lost) {
    system.run(system.close_later(state_->opened.ino));
  } else {
    system.delegated.closed(state_->opened.ino);
  }
}

}  // namespace pmstore::fs
