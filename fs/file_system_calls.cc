// FileSystem: the calls by inode.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "fs/file_system.h"
#include "fs/internal/file_system_state.h"

namespace pmstore::fs {
namespace {

using internal::FilesCall;

// Of a page of a directory.
constexpr uint32_t kListReplyBytes = 64 * 1024;

FilesCall name_call(FilesMethod method, const Caller& caller, Ino parent, std::string_view name,
                    bool changes, uint32_t reply_bytes) {
  FilesCall request(method, changes, reply_bytes);
  request.caller = caller;
  NameRequest asked;
  asked.parent = raw(parent);
  asked.name_bytes = static_cast<uint16_t>(name.size());
  request.put(asked).put_name(name);
  return request;
}

FilesCall rename_call(FilesMethod method, const Caller& caller, Ino from, std::string_view name,
                      Ino to, std::string_view new_name, RenameMode mode) {
  FilesCall request(method, true, 0);
  request.caller = caller;
  request.may_be_repeated_in_doubt = mode != RenameMode::kExchange;
  RenameRequest asked;
  asked.from = raw(from);
  asked.to = raw(to);
  asked.name_bytes = static_cast<uint16_t>(name.size());
  asked.new_name_bytes = static_cast<uint16_t>(new_name.size());
  asked.mode = mode;
  request.put(asked).put_name(name).put_name(new_name);
  return request;
}

FilesCall ino_call(FilesMethod method, Ino ino, bool changes, uint32_t reply_bytes) {
  FilesCall request(method, changes, reply_bytes);
  request.put(InoRequest{raw(ino)});
  return request;
}

// Of a path that a walk can take at once.
size_t names_in(std::string_view path) {
  const auto slashes = static_cast<size_t>(std::count(path.begin(), path.end(), '/'));
  return std::min(slashes + 1, kMaxWalkedNames);
}

FilesCall walk_call(const Caller& caller, Ino start, std::string_view path,
                    std::string_view other) {
  size_t room = walked_bytes(names_in(path));
  if (!other.empty()) room = 2 * walked_bytes(std::max(names_in(path), names_in(other)));
  FilesCall request(FilesMethod::kWalk, false, static_cast<uint32_t>(room));
  request.caller = caller;
  WalkRequest asked;
  asked.start = raw(start);
  asked.path_bytes = static_cast<uint16_t>(path.size());
  asked.other_bytes = static_cast<uint16_t>(other.size());
  request.put(asked).put_name(path).put_name(other);
  return request;
}

// Nothing: it is no walk of `path`, since it has nothing of it or more than that.
std::optional<Namespace::Walked> walk_of(std::string_view path, fabric::MessageReader& reader) {
  auto walked = get_walked(reader);
  if (!walked) return std::nullopt;
  const size_t steps = walked->found.size() + (walked->error ? 1 : 0);
  if (steps > names_in(path) || (steps == 0 && !path.empty())) return std::nullopt;
  return walked;
}

}  // namespace

// ---- names ----

base::Task<PosixResult<Attributes>> FileSystem::lookup(const Caller& caller, Ino parent,
                                                       std::string_view name) {
  if (too_long(name)) co_return PosixError(ENAMETOOLONG);
  co_return co_await state_->ask_attributes(
      name_call(FilesMethod::kLookup, caller, parent, name, false, sizeof(WireAttributes)));
}

base::Task<PosixResult<Namespace::Walked>> FileSystem::walk(const Caller& caller, Ino start,
                                                            std::string_view path) {
  if (path.size() >= kMaxPathBytes) co_return PosixError(ENAMETOOLONG);
  const FilesCall request = walk_call(caller, start, path, {});
  const auto answered = co_await state_->link->call(request);
  if (!answered) co_return PosixError(answered.error());
  fabric::MessageReader reader = answered->reader();
  auto walked = walk_of(path, reader);
  if (!walked || !reader.complete()) co_return state_->link->malformed("a call");
  co_return std::move(*walked);
}

base::Task<PosixResult<std::pair<Namespace::Walked, Namespace::Walked>>> FileSystem::walk_two(
    const Caller& caller, Ino start, std::string_view path, std::string_view other) {
  if (path.size() >= kMaxPathBytes || other.size() >= kMaxPathBytes) {
    co_return PosixError(ENAMETOOLONG);
  }
  if (other.empty()) co_return PosixError(EINVAL);
  const FilesCall request = walk_call(caller, start, path, other);
  const auto answered = co_await state_->link->call(request);
  if (!answered) co_return PosixError(answered.error());
  fabric::MessageReader reader = answered->reader();
  auto first = walk_of(path, reader);
  auto second = walk_of(other, reader);
  if (!first || !second || !reader.complete()) co_return state_->link->malformed("a call");
  co_return std::pair(std::move(*first), std::move(*second));
}

base::Task<PosixResult<Attributes>> FileSystem::make(const Caller& caller, Ino parent,
                                                     std::string_view name, const NewFile& file) {
  if (too_long(name)) co_return PosixError(ENAMETOOLONG);
  if (file.target.size() > kMaxSymlinkBytes) co_return PosixError(ENAMETOOLONG);
  co_return co_await state_->ask_attributes(state_->make_call(caller, parent, name, file, false));
}

base::Task<PosixResult<Attributes>> FileSystem::link(const Caller& caller, Ino ino, Ino parent,
                                                     std::string_view name) {
  if (too_long(name)) co_return PosixError(ENAMETOOLONG);
  FilesCall request(FilesMethod::kLink, true, sizeof(WireAttributes));
  request.caller = caller;
  LinkRequest asked;
  asked.ino = raw(ino);
  asked.parent = raw(parent);
  asked.name_bytes = static_cast<uint16_t>(name.size());
  request.put(asked).put_name(name);
  request.mark = draw_mark();
  co_return co_await state_->ask_attributes(std::move(request));
}

base::Task<PosixStatus> FileSystem::unlink(const Caller& caller, Ino parent,
                                           std::string_view name) {
  if (too_long(name)) co_return PosixError(ENAMETOOLONG);
  bool doubt = false;
  auto done =
      co_await state_->ask(name_call(FilesMethod::kUnlink, caller, parent, name, true, 0), &doubt);
  if (!done && doubt && done.number() == ENOENT) co_return PosixStatus{};
  co_return std::move(done);
}

base::Task<PosixStatus> FileSystem::remove_directory(const Caller& caller, Ino parent,
                                                     std::string_view name) {
  if (too_long(name)) co_return PosixError(ENAMETOOLONG);
  bool doubt = false;
  auto done = co_await state_->ask(
      name_call(FilesMethod::kRemoveDirectory, caller, parent, name, true, 0), &doubt);
  if (!done && doubt && done.number() == ENOENT) co_return PosixStatus{};
  co_return std::move(done);
}

base::Task<PosixStatus> FileSystem::rename(const Caller& caller, Ino from, std::string_view name,
                                           Ino to, std::string_view new_name, RenameMode mode) {
  if (too_long(name) || too_long(new_name)) co_return PosixError(ENAMETOOLONG);
  bool doubt = false;
  auto done = co_await state_->ask(
      rename_call(FilesMethod::kRename, caller, from, name, to, new_name, mode), &doubt);
  if (done || !doubt || done.number() != ENOENT) co_return std::move(done);
  // The first try may have moved it.
  const auto there = co_await lookup(caller, to, new_name);
  if (there) co_return PosixStatus{};
  co_return std::move(done);
}

// ---- the same of whole paths ----

base::Task<PosixResult<Attributes>> FileSystem::State::make_at(std::string_view path,
                                                               const NewFile& file) {
  Call request = make_call(options.caller, kRootIno, path, file, false);
  request.method = FilesMethod::kMakeAt;
  co_return co_await ask_attributes(std::move(request));
}

base::Task<PosixStatus> FileSystem::State::remove_at(std::string_view path) {
  bool doubt = false;
  auto done = co_await ask(
      name_call(FilesMethod::kRemoveAt, options.caller, kRootIno, path, true, 0), &doubt);
  if (!done && doubt && done.number() == ENOENT) co_return work_in_doubt("that nothing is there");
  co_return std::move(done);
}

// The call has not seen the source before. So when the source is not there, the first try may have
// moved it, or there was none.
base::Task<PosixStatus> FileSystem::State::rename_at(std::string_view from, std::string_view to,
                                                     RenameMode mode) {
  bool doubt = false;
  auto done = co_await ask(
      rename_call(FilesMethod::kRenameAt, options.caller, kRootIno, from, kRootIno, to, mode),
      &doubt);
  if (!done && doubt && done.number() == ENOENT) co_return work_in_doubt("that nothing is there");
  co_return std::move(done);
}

base::Task<PosixResult<std::string>> FileSystem::read_link(Ino ino) {
  const FilesCall request = ino_call(FilesMethod::kReadLink, ino, false, kMaxSymlinkBytes);
  const auto answered = co_await state_->link->call(request);
  if (!answered) co_return PosixError(answered.error());
  // The server knows whether that changes its time.
  if (state_->options.atime) state_->io->read_later(ino);
  const auto* text = reinterpret_cast<const char*>(answered->body.data());
  co_return std::string(text, answered->body.size());
}

base::Task<PosixResult<std::vector<Namespace::Listed>>> FileSystem::read_directory(
    const Caller& caller, Ino directory, uint64_t cookie, uint32_t most, bool with_attributes) {
  FilesCall request(FilesMethod::kReadDirectory, false, kListReplyBytes);
  request.caller = caller;
  ReadDirectoryRequest asked;
  asked.directory = raw(directory);
  asked.cookie = cookie;
  asked.most = most;
  asked.with_attributes = with_attributes ? 1 : 0;
  request.put(asked);
  const auto answered = co_await state_->link->call(request);
  if (!answered) co_return PosixError(answered.error());
  fabric::MessageReader reader = answered->reader();
  const auto head = reader.get<ListReply>();
  std::vector<Namespace::Listed> listed;
  for (uint32_t i = 0; i < head.count; ++i) {
    auto each = get_listed(reader);
    if (!each) co_return state_->link->malformed("a list");
    listed.push_back(std::move(*each));
  }
  if (!reader.complete()) co_return state_->link->malformed("a list");
  co_return listed;
}

base::Task<PosixResult<Ino>> FileSystem::parent_of(Ino directory) {
  const FilesCall request = ino_call(FilesMethod::kParentOf, directory, false, sizeof(InoRequest));
  const auto answered = co_await state_->link->call(request);
  if (!answered) co_return PosixError(answered.error());
  fabric::MessageReader reader = answered->reader();
  const auto parent = reader.get<InoRequest>();
  if (!reader.complete()) co_return state_->link->malformed("a call");
  co_return Ino{parent.ino};
}

// ---- inodes ----

base::Task<PosixResult<Attributes>> FileSystem::get_attributes(Ino ino) {
  // Who has written sees the new mtime.
  PosixStatus told = co_await state_->io->flush(ino, true);
  if (!told) co_return PosixError(told.error());
  auto found = co_await state_->ask_attributes(
      ino_call(FilesMethod::kGetAttributes, ino, false, sizeof(WireAttributes)));
  if (found) state_->io->note(*found);
  co_return std::move(found);
}

base::Task<PosixResult<Attributes>> FileSystem::set_attributes(const Caller& caller, Ino ino,
                                                               const AttributeChange& change) {
  // What was written before does not change the times later.
  PosixStatus told = co_await state_->io->flush(ino, true);
  if (!told) co_return PosixError(told.error());
  const bool cuts = (change.set & AttributeChange::kSize) != 0;
  if (cuts) state_->io->forget_map(ino);
  std::optional<internal::OwnChange> own;
  if (cuts) own.emplace(state_->kept, ino);
  FilesCall request(FilesMethod::kSetAttributes, true, sizeof(WireAttributes));
  request.caller = caller;
  SetAttributesRequest asked;
  asked.ino = raw(ino);
  asked.size = change.size;
  asked.atime_ns = change.atime_ns;
  asked.mtime_ns = change.mtime_ns;
  asked.set = change.set;
  asked.uid = change.uid;
  asked.gid = change.gid;
  asked.mode = change.mode;
  request.put(asked);
  auto changed = co_await state_->change(std::move(request), ino);
  if (own) own->ended(changed ? 0 : changed.number());
  if (changed) state_->io->note(*changed);
  co_return std::move(changed);
}

base::Task<PosixStatus> FileSystem::access(const Caller& caller, Ino ino, int mask) {
  FilesCall request(FilesMethod::kAccess, false, 0);
  request.caller = caller;
  request.put(AccessRequest{raw(ino), static_cast<uint32_t>(mask), 0});
  co_return co_await state_->ask(std::move(request));
}

base::Task<PosixResult<FileSystemUsage>> FileSystem::usage() {
  const FilesCall request(FilesMethod::kUsage, false, sizeof(FileSystemUsage));
  const auto answered = co_await state_->link->call(request);
  if (!answered) co_return PosixError(answered.error());
  fabric::MessageReader reader = answered->reader();
  const auto usage = reader.get<FileSystemUsage>();
  if (!reader.complete()) co_return state_->link->malformed("a call");
  co_return usage;
}

// ---- extended attributes ----

base::Task<PosixResult<std::vector<std::byte>>> FileSystem::get_xattr(const Caller& caller, Ino ino,
                                                                      std::string_view name) {
  if (name.size() > kMaxXattrNameBytes) co_return PosixError(ERANGE);
  FilesCall request(FilesMethod::kGetXattr, false, kMaxXattrBytes);
  request.caller = caller;
  XattrRequest asked;
  asked.ino = raw(ino);
  asked.name_bytes = static_cast<uint16_t>(name.size());
  request.put(asked).put_name(name);
  const auto answered = co_await state_->link->call(request);
  if (!answered) co_return PosixError(answered.error());
  co_return std::vector<std::byte>(answered->body.begin(), answered->body.end());
}

base::Task<PosixStatus> FileSystem::set_xattr(const Caller& caller, Ino ino, std::string_view name,
                                              std::span<const std::byte> value, XattrMode mode) {
  if (name.size() > kMaxXattrNameBytes) co_return PosixError(ERANGE);
  if (value.size() > kMaxXattrBytes) co_return PosixError(E2BIG);
  FilesCall request(FilesMethod::kSetXattr, true, 0);
  request.caller = caller;
  XattrRequest asked;
  asked.ino = raw(ino);
  asked.value_bytes = static_cast<uint32_t>(value.size());
  asked.name_bytes = static_cast<uint16_t>(name.size());
  asked.mode = mode;
  request.put(asked).put_name(name);
  request.data = value;
  bool doubt = false;
  auto done = co_await state_->ask(std::move(request), &doubt);
  if (!done && doubt && done.number() == EEXIST) co_return work_in_doubt("the attribute");
  co_return std::move(done);
}

base::Task<PosixStatus> FileSystem::remove_xattr(const Caller& caller, Ino ino,
                                                 std::string_view name) {
  if (name.size() > kMaxXattrNameBytes) co_return PosixError(ERANGE);
  FilesCall request(FilesMethod::kRemoveXattr, true, 0);
  request.caller = caller;
  XattrRequest asked;
  asked.ino = raw(ino);
  asked.name_bytes = static_cast<uint16_t>(name.size());
  request.put(asked).put_name(name);
  bool doubt = false;
  auto done = co_await state_->ask(std::move(request), &doubt);
  if (!done && doubt && done.number() == ENODATA) co_return PosixStatus{};
  co_return std::move(done);
}

base::Task<PosixResult<std::vector<std::string>>> FileSystem::list_xattrs(const Caller& caller,
                                                                          Ino ino) {
  FilesCall request = ino_call(FilesMethod::kListXattrs, ino, false, kMaxXattrBytes);
  request.caller = caller;
  const auto answered = co_await state_->link->call(request);
  if (!answered) co_return PosixError(answered.error());
  std::vector<std::string> names;
  const std::string_view all(reinterpret_cast<const char*>(answered->body.data()),
                             answered->body.size());
  for (size_t at = 0; at < all.size();) {
    const size_t end = all.find('\0', at);
    if (end == std::string_view::npos) co_return state_->link->malformed("a list");
    names.emplace_back(all.substr(at, end - at));
    at = end + 1;
  }
  co_return names;
}

}  // namespace pmstore::fs
