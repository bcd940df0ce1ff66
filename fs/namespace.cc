#include "fs/namespace.h"

#include <algorithm>
#include <string>
#include <utility>

#include "fs/internal/namespace_state.h"
#include "fs/internal/permissions.h"
#include "fs/internal/space_claims.h"

namespace pmstore::fs {

using internal::MakeCall;
using internal::NameCall;
using internal::RenameCall;

uint64_t Namespace::identity() const { return state_->core.identity; }

bool Namespace::knows_space() const { return !state_->core.space_is_unknown; }

Task<PosixResult<Attributes>> Namespace::lookup(const Caller& caller, Ino parent,
                                                std::string_view name) {
  return state_->directories.lookup({caller, parent, std::string(name)});
}

Task<PosixResult<Namespace::Walked>> Namespace::walk(const Caller& caller, Ino start,
                                                     std::string_view path, size_t most) {
  return state_->directories.walk({caller, start, std::string(path)},
                                  std::min(most, kMaxWalkedNames));
}

std::optional<Ino> Namespace::known_directory(const Caller& caller, Ino start,
                                              std::string_view path) const {
  return state_->directories.known_directory(caller, start, path);
}

Task<PosixResult<Attributes>> Namespace::get_attributes(Ino ino) {
  PMSTORE_CO_TRY(internal::Inode inode, co_await state_->core.inode(ino));
  co_return std::move(inode.attributes);
}

Task<PosixResult<Attributes>> Namespace::set_attributes(const Caller& caller, Ino ino,
                                                        const AttributeChange& change) {
  if ((change.set & AttributeChange::kSize) != 0) {
    return state_->own(state_->files.change_size(caller, ino, change));
  }
  const auto work = [](State& state, Caller by, Ino of,
                       AttributeChange what) -> Task<PosixResult<Attributes>> {
    PMSTORE_CO_TRY([[maybe_unused]] const internal::SharedGuard guard,
                   co_await state.files.may_set_id(by, of, what));
    const auto body =
        [&](internal::NamespaceTransaction& transaction) -> Task<PosixResult<Attributes>> {
      PMSTORE_CO_TRY(internal::Inode inode, co_await transaction.inode(of));
      if (what.set == 0) co_return std::move(inode.attributes);
      PMSTORE_CO_TRY_STATUS(
          internal::apply_change(by, what, state.core.now_ns(), inode.attributes));
      ++inode.attributes.version;
      transaction.put(inode);
      co_return std::move(inode.attributes);
    };
    co_return co_await state.core.transact<Attributes>(body);
  };
  return state_->own(work(*state_, caller, ino, change));
}

Task<PosixStatus> Namespace::access(const Caller& caller, Ino ino, int mask) {
  PMSTORE_CO_TRY(const internal::Inode inode, co_await state_->core.inode(ino));
  co_return internal::check_access(caller, inode.attributes, mask);
}

Task<PosixResult<Attributes>> Namespace::make(const Caller& caller, Ino parent,
                                              std::string_view name, const NewFile& file,
                                              std::optional<OpenOwner> open_for) {
  MakeCall call{{caller, parent, std::string(name), file.mark, file.repeated},
                file,
                std::string(file.target),
                open_for};
  call.file.target = {};
  return state_->own(state_->directories.make(std::move(call)));
}

Task<PosixResult<Attributes>> Namespace::link(const Caller& caller, Ino ino, Ino parent,
                                              std::string_view name, uint32_t mark, bool repeated) {
  NameCall call{caller, parent, std::string(name), mark, repeated};
  return state_->own(state_->directories.link(std::move(call), ino));
}

Task<PosixStatus> Namespace::unlink(const Caller& caller, Ino parent, std::string_view name) {
  NameCall call{caller, parent, std::string(name)};
  return state_->own(state_->directories.unlink(std::move(call)));
}

Task<PosixStatus> Namespace::remove_directory(const Caller& caller, Ino parent,
                                              std::string_view name) {
  NameCall call{caller, parent, std::string(name)};
  return state_->own(state_->directories.remove_directory(std::move(call)));
}

Task<PosixStatus> Namespace::rename(const Caller& caller, Ino from, std::string_view name, Ino to,
                                    std::string_view new_name, RenameMode mode) {
  RenameCall call{caller, from, std::string(name), to, std::string(new_name), mode};
  return state_->own(state_->directories.rename(std::move(call)));
}

Task<PosixResult<std::string>> Namespace::read_link(Ino ino) {
  PMSTORE_CO_TRY(internal::Inode inode, co_await state_->core.inode(ino));
  if (inode.attributes.type != FileType::kSymlink) co_return PosixError(EINVAL);
  co_return std::move(inode.tail);
}

Task<PosixResult<std::vector<Namespace::Listed>>> Namespace::read_directory(
    const Caller& caller, Ino directory, uint64_t cookie, uint32_t most, bool with_attributes) {
  return state_->directories.list(caller, directory, cookie, most, with_attributes);
}

Task<PosixResult<Ino>> Namespace::parent_of(Ino directory) {
  return state_->directories.parent_of(directory);
}

Task<PosixResult<Attributes>> Namespace::open_file(const Caller& caller, Ino ino, int flags,
                                                   OpenOwner owner) {
  return state_->own(state_->files.open(caller, ino, flags, owner));
}

Task<PosixStatus> Namespace::close_file(Ino ino, OpenOwner owner) {
  return state_->own(state_->files.close(ino, owner));
}

Task<void> Namespace::forget(OpenOwner owner) {
  const auto work = [](State& state, OpenOwner who) -> Task<bool> {
    co_await state.files.forget(who);
    co_return true;
  };
  co_await state_->own(work(*state_, owner));
}

Task<PosixResult<Namespace::Mapped>> Namespace::map(Ino ino, uint64_t offset, uint64_t bytes,
                                                    bool allocate) {
  return state_->files.map(ino, offset, bytes, allocate);
}

Task<PosixResult<Namespace::Reserved>> Namespace::reserve(Ino ino, uint64_t offset, uint64_t bytes,
                                                          OpenOwner owner) {
  return state_->own(state_->files.reserve(ino, offset, bytes, owner));
}

Task<PosixResult<Attributes>> Namespace::publish(Ino ino, uint64_t reservation, uint64_t size,
                                                 OpenOwner owner) {
  return state_->own(state_->files.publish_reserved(ino, reservation, size, owner));
}

Task<PosixResult<std::vector<std::byte>>> Namespace::read(Ino ino, uint64_t offset,
                                                          uint64_t bytes) {
  return state_->files.read(ino, offset, bytes);
}

Task<PosixResult<Namespace::Written>> Namespace::write(Ino ino, std::optional<uint64_t> offset,
                                                       std::span<const std::byte> bytes,
                                                       bool atomic) {
  return state_->files.write(ino, offset, bytes, atomic);
}

Task<PosixResult<Attributes>> Namespace::allocate(Ino ino, AllocateMode mode, uint64_t offset,
                                                  uint64_t bytes) {
  return state_->own(state_->files.allocate(ino, mode, offset, bytes));
}

Task<PosixStatus> Namespace::touch(Ino ino, Touch touch) {
  return state_->own(state_->files.touch(ino, touch));
}

uint64_t Namespace::now_ns() const { return state_->core.now_ns(); }

Task<PosixResult<std::vector<std::byte>>> Namespace::get_xattr(const Caller& caller, Ino ino,
                                                               std::string_view name) {
  return state_->xattrs.get(caller, ino, std::string(name));
}

Task<PosixStatus> Namespace::set_xattr(const Caller& caller, Ino ino, std::string_view name,
                                       std::span<const std::byte> value, XattrMode mode) {
  std::string copy(reinterpret_cast<const char*>(value.data()), value.size());
  return state_->own(state_->xattrs.set(caller, ino, std::string(name), std::move(copy), mode));
}

Task<PosixStatus> Namespace::remove_xattr(const Caller& caller, Ino ino, std::string_view name) {
  return state_->own(state_->xattrs.remove(caller, ino, std::string(name)));
}

Task<PosixResult<std::vector<std::string>>> Namespace::list_xattrs(const Caller& caller, Ino ino) {
  return state_->xattrs.list(caller, ino);
}

Task<PosixResult<FileSystemUsage>> Namespace::usage() {
  internal::NamespaceCore& core = state_->core;
  // What file data may still take from the pool is there for files.
  const uint64_t growable = core.space().growable_bytes();
  co_return FileSystemUsage{.data_bytes = core.space().total_bytes() + growable,
                            .free_bytes = core.space().free_bytes() + growable,
                            .quarantined_bytes = core.quarantined_bytes,
                            .inodes = core.inodes,
                            .max_inodes = core.options().max_inodes,
                            .growable_bytes = growable};
}

Task<PosixResult<uint64_t>> Namespace::move_off(uint16_t server) {
  return state_->own(state_->mover.move_all(server));
}

Task<Status> Namespace::quarantine_free_of(uint16_t server) {
  return state_->own([](internal::NamespaceCore& core, uint16_t which) -> Task<Status> {
    internal::SpaceClaims claims(core);
    const Status done = co_await claims.quarantine_server(which);
    core.queue.ask_for_scan();
    co_return done;
  }(state_->core, server));
}

}  // namespace pmstore::fs
