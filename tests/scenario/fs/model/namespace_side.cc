#include "tests/scenario/fs/model/namespace_side.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>

#include "base/check.h"
#include "pmstore/server.h"
#include "tests/scenario/fs/model/operation_arguments.h"

namespace pmstore::fs::model {
namespace {

std::string text(const Attributes& a) { return attributes_text(a, true); }

Outcome outcome_of(const PosixResult<Attributes>& result) {
  return result ? Outcome{0, text(*result)} : Outcome{result.number(), {}};
}

std::span<const std::byte> bytes_of(const std::string& data) {
  return std::as_bytes(std::span(data.data(), data.size()));
}

}  // namespace

NamespaceSide::NamespaceSide(std::string path) : path_(std::move(path)), space_(64 << 20) {
  const auto fill = [](persist::Pool& pool) {
    return format_store(pool, {.rings = 0, .log_bytes = 0, .shard_log_bytes = 1 << 20});
  };
  std::filesystem::remove(path_);
  PMSTORE_CHECK(persist::Pool::create(path_, 16 << 20, {}, false, fill), "a scratch pool is made");
  start();
  const AttributeChange all{.set = AttributeChange::kMode, .mode = 0777};
  PMSTORE_CHECK(run(namespace_->set_attributes({}, kRootIno, all)), "the root is everybody's");
}

void NamespaceSide::start() {
  ClientOptions options;
  options.assume_domain = persist::Domain::kCpuCache;
  auto client = run(Client::connect(executor_, {fabric::Scheme::kLocal, path_, 0}, options));
  PMSTORE_CHECK(client, "a pool opens");
  client_ = std::move(*client);
  NamespaceOptions how;
  how.now_ns = [this] { return now_; };
  how.identity = 1;
  how.reclaim_ns = 1'000'000'000;
  auto opened = run(Namespace::open(*client_, space_, how));
  if (!opened) fmt::print(stderr, "{}\n", opened.error().to_string());
  PMSTORE_CHECK(opened, "a file system opens behind a crash");
  namespace_ = std::move(*opened);
}

void NamespaceSide::stop() {
  namespace_.reset();
  client_.reset();
  space_.restart();
}

void NamespaceSide::restart(bool programs_died) {
  stop();
  start();
  if (programs_died) slots_ = {};
  for (unsigned slot = 0; slot < kSlots; ++slot) {
    if (!slots_[slot].is_open) continue;
    const auto again = run(namespace_->open_file({}, slots_[slot].ino, O_RDONLY, owner_of(slot)));
    PMSTORE_CHECK(again, "what was open can be opened again");
  }
  run([](Executor& executor) -> Task<void> {
    co_await executor.sleep_for(2'000'000'000);
  }(executor_));
}

std::optional<Outcome> NamespaceSide::apply(const Operation& operation, uint64_t now) {
  now_ = now;
  std::optional<Outcome> outcome;
  const auto keep = [](Task<Outcome> task, std::optional<Outcome>& result) -> Task<void> {
    result = co_await std::move(task);
  };
  Task<void> running = keep(execute(operation), outcome);
  running.start();
  for (uint32_t turn = 1; !running.done(); ++turn) {
    if (turn == operation.interrupt) return std::nullopt;
    if (!executor_.run_once()) {
      // Virtual time passes only in run().
      run([](Executor& executor) -> Task<void> { co_await executor.sleep_for(1000); }(executor_));
    }
  }
  return outcome;
}

Task<NamespaceSide::Found> NamespaceSide::find(const Caller& caller,
                                               const std::vector<uint8_t>& path) {
  Found found{0, kRootIno, kNames[path.back()]};
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    const auto next = co_await namespace_->lookup(caller, found.directory, kNames[path[i]]);
    if (!next) {
      found.error = next.number();
      co_return found;
    }
    found.directory = next->ino;
  }
  co_return found;
}

Task<PosixResult<Ino>> NamespaceSide::find_there(const Caller& caller,
                                                 const std::vector<uint8_t>& path) {
  const Found found = co_await find(caller, path);
  if (found.error != 0) co_return PosixError(found.error);
  const auto there = co_await namespace_->lookup(caller, found.directory, found.name);
  if (!there) co_return there.error();
  co_return there->ino;
}

Task<void> NamespaceSide::close(unsigned slot) {
  if (slots_[slot].is_open) {
    const Ino ino = slots_[slot].ino;
    slots_[slot] = {};
    const auto closed = co_await namespace_->close_file(ino, owner_of(slot));
    PMSTORE_CHECK(closed, "what is open can be closed");
  }
}

Task<Outcome> NamespaceSide::create(const Operation& operation) {
  co_await close(operation.slot);
  const Caller caller = caller_of(operation);
  const Found found = co_await find(caller, operation.path);
  if (found.error != 0) co_return Outcome{found.error, {}};
  NewFile file;
  file.mode = operation.bits;
  file.exclusive = operation.flag;
  file.open_flags = open_flags(operation);
  const std::optional<OpenOwner> owner = owner_of(operation.slot);
  const auto made = co_await namespace_->make(caller, found.directory, found.name, file, owner);
  if (made) {
    const unsigned access = operation.mode % 3;
    slots_[operation.slot] = {made->ino, true, true, access != 1, access != 0};
  }
  co_return outcome_of(made);
}

Task<Outcome> NamespaceSide::open(const Operation& operation) {
  co_await close(operation.slot);
  const Caller caller = caller_of(operation);
  const auto ino = co_await find_there(caller, operation.path);
  if (!ino) co_return Outcome{ino.number(), {}};
  const int flags = open_flags(operation);
  const auto opened = co_await namespace_->open_file(caller, *ino, flags, owner_of(operation.slot));
  if (opened) {
    const unsigned access = operation.mode % 3;
    const bool is_file = opened->type == FileType::kRegular;
    slots_[operation.slot] = {*ino, true, is_file, access != 1, access != 0};
  }
  co_return outcome_of(opened);
}

Task<Outcome> NamespaceSide::execute_name(const Operation& operation) {
  const Caller caller = caller_of(operation);
  const Found found = co_await find(caller, operation.path);
  if (found.error != 0) co_return Outcome{found.error, {}};
  if (operation.kind == Kind::kUnlink) {
    co_return outcome_of(co_await namespace_->unlink(caller, found.directory, found.name));
  }
  if (operation.kind == Kind::kRemoveDirectory) {
    co_return outcome_of(
        co_await namespace_->remove_directory(caller, found.directory, found.name));
  }
  NewFile file;
  file.type = FileType::kDirectory;
  file.mode = operation.bits;
  const std::string target = symlink_target(operation);
  if (operation.kind == Kind::kMakeSymlink) {
    file.type = FileType::kSymlink;
    file.target = target;
  }
  co_return outcome_of(co_await namespace_->make(caller, found.directory, found.name, file));
}

Task<Outcome> NamespaceSide::execute_two_names(const Operation& operation) {
  const Caller caller = caller_of(operation);
  if (operation.kind == Kind::kLink) {
    const auto ino = co_await find_there(caller, operation.path);
    if (!ino) co_return Outcome{ino.number(), {}};
    const Found to = co_await find(caller, operation.to);
    if (to.error != 0) co_return Outcome{to.error, {}};
    co_return outcome_of(co_await namespace_->link(caller, *ino, to.directory, to.name));
  }
  const Found from = co_await find(caller, operation.path);
  if (from.error != 0) co_return Outcome{from.error, {}};
  const Found to = co_await find(caller, operation.to);
  if (to.error != 0) co_return Outcome{to.error, {}};
  co_return outcome_of(co_await namespace_->rename(caller, from.directory, from.name, to.directory,
                                                   to.name, rename_mode(operation)));
}

Task<Outcome> NamespaceSide::execute_data(const Operation& operation) {
  const Open& slot = slots_[operation.slot];
  const Ino ino = slot.ino;
  if (operation.kind == Kind::kRead) {
    if (!slot.is_file || !slot.reads) co_return Outcome{EBADF, {}};
    const auto data = co_await namespace_->read(ino, operation.offset, operation.bytes);
    co_return data ? Outcome{0, text_of(*data)} : Outcome{data.number(), {}};
  }
  if (!slot.is_file || !slot.writes) co_return Outcome{EBADF, {}};
  if (operation.kind == Kind::kTruncate) {
    AttributeChange change;
    change.set = AttributeChange::kSize;
    change.size = operation.offset;
    const Caller root;
    co_return outcome_of(co_await namespace_->set_attributes(root, ino, change));
  }
  if (operation.kind == Kind::kAllocate) {
    const auto mode = static_cast<AllocateMode>(operation.mode % 4);
    co_return outcome_of(
        co_await namespace_->allocate(ino, mode, operation.offset, operation.bytes));
  }
  const std::string data = data_of(operation);
  std::optional<uint64_t> offset;
  if (operation.kind == Kind::kWrite) offset = operation.offset;
  const auto written = co_await namespace_->write(ino, offset, bytes_of(data));
  if (!written) co_return Outcome{written.number(), {}};
  co_return Outcome{0, fmt::format("at {}: {}", written->offset, text(written->attributes))};
}

Task<Outcome> NamespaceSide::execute_inode(const Operation& operation) {
  const Caller caller = caller_of(operation);
  const auto found = co_await find_there(caller, operation.path);
  if (!found) co_return Outcome{found.number(), {}};
  const Ino ino = *found;
  const std::string xattr = xattr_name(operation);
  switch (operation.kind) {
    case Kind::kStat: co_return outcome_of(co_await namespace_->get_attributes(ino));
    case Kind::kReadLink: {
      const auto target = co_await namespace_->read_link(ino);
      co_return target ? Outcome{0, *target} : Outcome{target.number(), {}};
    }
    case Kind::kGetXattr: {
      const auto value = co_await namespace_->get_xattr(caller, ino, xattr);
      co_return value ? Outcome{0, text_of(*value)} : Outcome{value.number(), {}};
    }
    case Kind::kSetXattr: {
      const std::string value = xattr_value(operation);
      const auto mode = static_cast<XattrMode>(operation.mode % 3);
      co_return outcome_of(
          co_await namespace_->set_xattr(caller, ino, xattr, bytes_of(value), mode));
    }
    case Kind::kRemoveXattr:
      co_return outcome_of(co_await namespace_->remove_xattr(caller, ino, xattr));
    default: break;
  }
  const AttributeChange change = attribute_change(operation);
  co_return outcome_of(co_await namespace_->set_attributes(caller, ino, change));
}

Task<Outcome> NamespaceSide::list_whole(const Caller& caller, Ino directory) {
  Outcome outcome;
  uint64_t cookie = 0;
  while (true) {
    const auto page = co_await namespace_->read_directory(caller, directory, cookie, 3, true);
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

Task<Outcome> NamespaceSide::execute_list(const Operation& operation) {
  const Caller caller = caller_of(operation);
  Listing& listing = listings_[operation.slot];
  const bool whole = operation.kind == Kind::kList;
  Ino directory = whole ? Ino{} : listing.directory;
  if (raw(directory) == 0) {
    const auto found = co_await find_there(caller, operation.path);
    if (!found) co_return Outcome{found.number(), {}};
    directory = *found;
    if (!whole) listing = {directory, 0};
  }
  if (whole) co_return co_await list_whole(caller, directory);
  const auto attributes = co_await namespace_->get_attributes(directory);
  if (attributes ? attributes->links == 0 : attributes.number() == ESTALE) {
    listing = {};
    co_return Outcome{};
  }
  const auto page = co_await namespace_->read_directory(caller, directory, listing.cookie,
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

Task<Outcome> NamespaceSide::execute(const Operation& operation) {
  switch (operation.kind) {
    case Kind::kMakeFile: return create(operation);
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
    case Kind::kForget: return execute_slot(operation);
    case Kind::kSync:
    case Kind::kMove: return execute_nothing(operation);
    default: return execute_inode(operation);
  }
}

// What a namespace has no part in: all that it has done is durable, and it has no data servers.
Task<Outcome> NamespaceSide::execute_nothing(const Operation& operation) {
  const bool is_bad = operation.kind == Kind::kSync && !slots_[operation.slot].is_file;
  co_return Outcome{is_bad ? EBADF : 0, {}};
}

Task<Outcome> NamespaceSide::execute_slot(const Operation& operation) {
  if (operation.kind == Kind::kClose) {
    co_await close(operation.slot);
    co_return Outcome{};
  }
  for (unsigned slot = operation.slot % 2; slot < kSlots; slot += 2) slots_[slot] = {};
  co_await namespace_->forget(owner_of(operation.slot));
  co_return Outcome{};
}

Task<std::string> NamespaceSide::dump_data(Attributes attributes) {
  std::string data;
  while (data.size() < attributes.size) {
    const auto some = co_await namespace_->read(attributes.ino, data.size(), kMaxMessageData);
    if (!some || some->empty()) co_return std::string("  data that cannot be read\n");
    data += text_of(*some);
  }
  co_return fmt::format("  data {}\n", std::hash<std::string>()(data));
}

Task<std::string> NamespaceSide::dump_inode(Attributes attributes, std::string path) {
  std::string all = fmt::format("{} {}\n", path, text(attributes));
  const Caller root;
  auto names = co_await namespace_->list_xattrs(root, attributes.ino);
  if (!names) co_return all + "  attributes that cannot be read\n";
  std::sort(names->begin(), names->end());
  for (const std::string& name : *names) {
    const auto value = co_await namespace_->get_xattr(root, attributes.ino, name);
    const std::string bytes = value ? text_of(*value) : std::string("?");
    all += fmt::format("  {} {}\n", name, std::hash<std::string>()(bytes));
  }
  if (attributes.type == FileType::kRegular) all += co_await dump_data(attributes);
  if (attributes.type == FileType::kSymlink) {
    const auto target = co_await namespace_->read_link(attributes.ino);
    all += fmt::format("  data {}\n", std::hash<std::string>()(target ? *target : "?"));
  }
  co_return all;
}

Task<std::string> NamespaceSide::dump_directory(Ino directory, std::string path) {
  const auto attributes = co_await namespace_->get_attributes(directory);
  if (!attributes) co_return path + " cannot be read\n";
  std::string all = co_await dump_inode(*attributes, path);
  uint64_t cookie = 0;
  while (true) {
    const Caller root;
    const auto page = co_await namespace_->read_directory(root, directory, cookie, 100, true);
    if (!page) co_return all + path + " cannot be listed\n";
    if (page->empty()) co_return all;
    for (const auto& listed : *page) {
      const std::string name = path + "/" + listed.entry.name;
      if (listed.entry.type == FileType::kDirectory) {
        all += co_await dump_directory(listed.entry.ino, name);
      } else {
        all += co_await dump_inode(*listed.attributes, name);
      }
    }
    cookie = page->back().entry.cookie;
  }
}

std::string NamespaceSide::dump() {
  std::string all = run(dump_directory(kRootIno, ""));
  for (unsigned i = 0; i < kSlots; ++i) {
    if (!slots_[i].is_file) continue;
    const auto attributes = run(namespace_->get_attributes(slots_[i].ino));
    all += attributes
               ? fmt::format("slot {} {}\n{}", i, text(*attributes), run(dump_data(*attributes)))
               : fmt::format("slot {} cannot be read\n", i);
  }
  return all;
}

std::string NamespaceSide::check() {
  for (int i = 0; i < 3000; ++i) {
    if (!executor_.run_once() && i > 100) break;
  }
  std::string wrong;
  const auto found = run(check_namespace(*client_, space_.sections(), false));
  if (!found) return found.error().to_string();
  for (const std::string& line : found->damage) wrong += line + "\n";
  if (!space_.free_is_zero()) wrong += "a free unit is not zero\n";
  const auto usage = run(namespace_->usage());
  if (usage->inodes != found->inodes) {
    wrong += fmt::format("{} inodes are counted, but there are {}\n", usage->inodes, found->inodes);
  }
  return wrong;
}

}  // namespace pmstore::fs::model
