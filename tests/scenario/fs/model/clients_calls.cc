// ClientsSide: each operation as calls of a FileSystem.
#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>

#include "base/check.h"
#include "tests/scenario/fs/model/clients_side.h"
#include "tests/scenario/fs/model/operation_arguments.h"

namespace pmstore::fs::model {
namespace {

Outcome seen(const PosixResult<Attributes>& result) {
  if (!result) return {result.number(), {}};
  return {0, attributes_text(*result, false)};
}

}  // namespace

base::Task<ClientsSide::Found> ClientsSide::find(const Operation& operation,
                                                 const std::vector<uint8_t>& path) {
  Found found{0, kRootIno, kNames[path.back()]};
  const Caller caller = caller_of(operation);
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    const auto next =
        co_await client_of(operation).lookup(caller, found.directory, kNames[path[i]]);
    if (!next) {
      found.error = next.number();
      co_return found;
    }
    found.directory = next->ino;
  }
  co_return found;
}

base::Task<PosixResult<Ino>> ClientsSide::find_there(const Operation& operation,
                                                     const std::vector<uint8_t>& path) {
  const Found found = co_await find(operation, path);
  if (found.error != 0) co_return PosixError(found.error);
  const auto there =
      co_await client_of(operation).lookup(caller_of(operation), found.directory, found.name);
  if (!there) co_return there.error();
  co_return there->ino;
}

int ClientsSide::durable_error(unsigned slot, const PosixStatus& result) {
  if (result) return 0;
  const bool may_be_lost = setting_.fsync && slots_[slot].told < restarts_;
  slots_[slot].told = restarts_;
  return may_be_lost && result.number() == EIO ? 0 : result.number();
}

base::Task<int> ClientsSide::close(unsigned slot) {
  if (slots_[slot].file == nullptr) co_return 0;
  const auto closed = co_await slots_[slot].file->close();
  const int error = durable_error(slot, closed);
  slots_[slot] = {};
  co_return error;
}

base::Task<Outcome> ClientsSide::open(const Operation& operation) {
  const int error = co_await close(operation.slot);
  if (error != 0) co_return Outcome{error, {}};
  FileSystem& client = client_of(operation);
  const Caller caller = caller_of(operation);
  const int flags = open_flags(operation);
  PosixResult<std::unique_ptr<File>> opened = PosixError(EIO);
  if (operation.kind == Kind::kMakeFile) {
    const Found found = co_await find(operation, operation.path);
    if (found.error != 0) co_return Outcome{found.error, {}};
    NewFile file;
    file.mode = operation.bits;
    file.exclusive = operation.flag;
    file.open_flags = flags;
    opened = co_await client.create(caller, found.directory, found.name, file, flags);
  } else {
    const auto ino = co_await find_there(operation, operation.path);
    if (!ino) co_return Outcome{ino.number(), {}};
    opened = co_await client.open_file(caller, *ino, flags);
  }
  if (!opened) co_return Outcome{opened.number(), {}};
  const Attributes attributes = (*opened)->attributes();
  if (!(*opened)->keeps_cache()) cache_of(operation.slot).drop(attributes.ino);
  const unsigned access = operation.mode % 3;
  slots_[operation.slot] = {std::move(*opened), attributes.type == FileType::kRegular, access != 1,
                            access != 0, 0};
  co_return Outcome{0, attributes_text(attributes, false)};
}

base::Task<Outcome> ClientsSide::execute_name(const Operation& operation) {
  FileSystem& client = client_of(operation);
  const Caller caller = caller_of(operation);
  const Found found = co_await find(operation, operation.path);
  if (found.error != 0) co_return Outcome{found.error, {}};
  if (operation.kind == Kind::kUnlink) {
    co_return outcome_of(co_await client.unlink(caller, found.directory, found.name));
  }
  if (operation.kind == Kind::kRemoveDirectory) {
    co_return outcome_of(co_await client.remove_directory(caller, found.directory, found.name));
  }
  NewFile file;
  file.type = FileType::kDirectory;
  file.mode = operation.bits;
  const std::string target = symlink_target(operation);
  if (operation.kind == Kind::kMakeSymlink) {
    file.type = FileType::kSymlink;
    file.target = target;
  }
  co_return seen(co_await client.make(caller, found.directory, found.name, file));
}

base::Task<Outcome> ClientsSide::execute_two_names(const Operation& operation) {
  FileSystem& client = client_of(operation);
  const Caller caller = caller_of(operation);
  if (operation.kind == Kind::kLink) {
    const auto ino = co_await find_there(operation, operation.path);
    if (!ino) co_return Outcome{ino.number(), {}};
    const Found to = co_await find(operation, operation.to);
    if (to.error != 0) co_return Outcome{to.error, {}};
    co_return seen(co_await client.link(caller, *ino, to.directory, to.name));
  }
  const Found from = co_await find(operation, operation.path);
  if (from.error != 0) co_return Outcome{from.error, {}};
  const Found to = co_await find(operation, operation.to);
  if (to.error != 0) co_return Outcome{to.error, {}};
  co_return outcome_of(co_await client.rename(caller, from.directory, from.name, to.directory,
                                              to.name, rename_mode(operation)));
}

// From the cache while the file is delegated, as a mount does it. The second program does not ask
// whether it still is, as a kernel does not: all depends on what its cache is told to forget.
base::Task<Outcome> ClientsSide::read(const Operation& operation) {
  FileSystem& client = client_of(operation);
  WholeFiles& cache = cache_of(operation.slot);
  File& file = *slots_[operation.slot].file;
  const Ino ino = file.ino();
  if (client.delegated(ino) != nullptr && cache.find(ino) == nullptr) {
    std::string whole(client.delegated(ino)->size, '?');
    const auto got = co_await file.pread(std::as_writable_bytes(std::span(whole)), 0);
    if (!got) co_return Outcome{got.number(), {}};
    whole.resize(*got);
    if (client.delegated(ino) != nullptr) cache.keep(ino, std::move(whole));
  }
  const Attributes* const known = client.delegated(ino);
  const std::string* const kept = cache.find(ino);
  if (kept != nullptr && (known != nullptr || operation.slot % kClients == 1)) {
    if (known != nullptr && known->size != kept->size()) {
      co_return Outcome{0, "the cached data has another size"};
    }
    if (operation.offset >= kept->size()) co_return Outcome{};
    co_return Outcome{0, kept->substr(operation.offset, operation.bytes)};
  }
  std::string data(operation.bytes, '?');
  const auto got = co_await file.pread(std::as_writable_bytes(std::span(data)), operation.offset);
  if (!got) co_return Outcome{got.number(), {}};
  data.resize(*got);
  co_return Outcome{0, std::move(data)};
}

base::Task<Outcome> ClientsSide::execute_data(const Operation& operation) {
  const Open& slot = slots_[operation.slot];
  if (operation.kind == Kind::kRead) {
    if (!slot.is_file || !slot.reads) co_return Outcome{EBADF, {}};
    co_return co_await read(operation);
  }
  if (!slot.is_file || !slot.writes) co_return Outcome{EBADF, {}};
  File& file = *slot.file;
  cache_of(operation.slot).drop(file.ino());
  if (operation.kind == Kind::kTruncate) co_return seen(co_await file.truncate(operation.offset));
  if (operation.kind == Kind::kAllocate) {
    const auto mode = static_cast<AllocateMode>(operation.mode % 4);
    co_return seen(co_await file.allocate(mode, operation.offset, operation.bytes));
  }
  writing_ = data_of(operation);
  const auto bytes = std::as_bytes(std::span(writing_));
  PosixResult<uint64_t> written = PosixError(EIO);
  if (operation.kind == Kind::kWrite) {
    written = co_await file.pwrite(bytes, operation.offset);
  } else {
    written = co_await file.append(bytes);
  }
  if (!written) co_return Outcome{written.number(), {}};
  const bool is_append = operation.kind != Kind::kWrite;  // which gives a position
  if (!is_append && *written != bytes.size())
    co_return Outcome{0, fmt::format("{} bytes", *written)};
  co_return Outcome{};
}

base::Task<Outcome> ClientsSide::execute_inode(const Operation& operation) {
  FileSystem& client = client_of(operation);
  const Caller caller = caller_of(operation);
  const auto found = co_await find_there(operation, operation.path);
  if (!found) co_return Outcome{found.number(), {}};
  const Ino ino = *found;
  const std::string xattr = xattr_name(operation);
  switch (operation.kind) {
    case Kind::kStat: co_return seen(co_await client.get_attributes(ino));
    case Kind::kReadLink: {
      const auto target = co_await client.read_link(ino);
      co_return target ? Outcome{0, *target} : Outcome{target.number(), {}};
    }
    case Kind::kGetXattr: {
      const auto value = co_await client.get_xattr(caller, ino, xattr);
      co_return value ? Outcome{0, text_of(*value)} : Outcome{value.number(), {}};
    }
    case Kind::kSetXattr: {
      const std::string value = xattr_value(operation);
      const auto mode = static_cast<XattrMode>(operation.mode % 3);
      co_return outcome_of(
          co_await client.set_xattr(caller, ino, xattr, std::as_bytes(std::span(value)), mode));
    }
    case Kind::kRemoveXattr: co_return outcome_of(co_await client.remove_xattr(caller, ino, xattr));
    default: break;
  }
  const AttributeChange change = attribute_change(operation);
  co_return seen(co_await client.set_attributes(caller, ino, change));
}

base::Task<Outcome> ClientsSide::list_whole(const Operation& operation, Ino directory) {
  Outcome outcome;
  uint64_t cookie = 0;
  const Caller caller = caller_of(operation);
  while (true) {
    const auto page =
        co_await client_of(operation).read_directory(caller, directory, cookie, 3, true);
    if (!page) co_return Outcome{page.number(), {}};
    if (page->empty()) co_return outcome;
    for (const auto& listed : *page) {
      PMSTORE_CHECK(listed.attributes && listed.attributes->ino == listed.entry.ino &&
                        listed.attributes->type == listed.entry.type,
                    "a listing has attributes");
      outcome.text += listed_text(listed.entry);
    }
    cookie = page->back().entry.cookie;
  }
}

base::Task<Outcome> ClientsSide::execute_list(const Operation& operation) {
  FileSystem& client = client_of(operation);
  Listing& listing = listings_[operation.slot];
  const bool whole = operation.kind == Kind::kList;
  Ino directory = whole ? Ino{} : listing.directory;
  if (raw(directory) == 0) {
    const auto found = co_await find_there(operation, operation.path);
    if (!found) co_return Outcome{found.number(), {}};
    directory = *found;
    if (!whole) listing = {directory, 0};
  }
  if (whole) co_return co_await list_whole(operation, directory);
  const auto attributes = co_await client.get_attributes(directory);
  if (attributes ? attributes->links == 0 : attributes.number() == ESTALE) {
    listing = {};
    co_return Outcome{};
  }
  const auto page = co_await client.read_directory(caller_of(operation), directory, listing.cookie,
                                                   1 + operation.mode, false);
  if (!page || page->empty()) {
    listing = {};
    co_return Outcome{page ? 0 : page.number(), {}};
  }
  listing.cookie = page->back().entry.cookie;
  Outcome outcome;
  for (const auto& listed : *page) outcome.text += listed_text(listed.entry);
  co_return outcome;
}

base::Task<Outcome> ClientsSide::execute_slot(const Operation& operation) {
  const unsigned slot = operation.slot;
  if (operation.kind == Kind::kClose) {
    const int error = co_await close(slot);
    co_return Outcome{error, {}};
  }
  if (!slots_[slot].is_file) co_return Outcome{EBADF, {}};
  const auto synced = co_await slots_[slot].file->fsync();
  co_return Outcome{durable_error(slot, synced), {}};
}

base::Task<Outcome> ClientsSide::execute(const Operation& operation) {
  switch (operation.kind) {
    case Kind::kMakeFile:
    case Kind::kOpen: return open(operation);
    case Kind::kMakeDirectory:
    case Kind::kMakeSymlink:
    case Kind::kUnlink:
    case Kind::kRemoveDirectory: return execute_name(operation);
    case Kind::kLink:
    case Kind::kRename: return execute_two_names(operation);
    case Kind::kWrite:
    case Kind::kAppend:
    case Kind::kRead:
    case Kind::kTruncate:
    case Kind::kAllocate: return execute_data(operation);
    case Kind::kList:
    case Kind::kListNext: return execute_list(operation);
    case Kind::kClose:
    case Kind::kSync: return execute_slot(operation);
    default: return execute_inode(operation);
  }
}

}  // namespace pmstore::fs::model
