// FilesCalls: all calls but those that open and close files (files_calls_open.cc).
#include "fs/internal/files_calls.h"

#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace pmstore::fs::internal {
namespace {

PosixStatus put_attributes(const PosixResult<Attributes>& found, fabric::MessageWriter& reply) {
  if (!found) return PosixError(found.error());
  reply.put(to_wire(*found));
  return {};
}

std::string name_in(fabric::MessageReader& reader, size_t bytes) {
  return std::string(reader.get_bytes(bytes));
}

// A request that is an inode number and nothing more.
bool get_ino(std::span<const std::byte> body, Ino& ino) {
  fabric::MessageReader reader(body);
  ino = Ino{reader.get<InoRequest>().ino};
  return reader.complete();
}

}  // namespace

base::Task<PosixStatus> FilesCalls::execute(const FilesRequest& request, Writer& reply) {
  PMSTORE_CHECK(
      request.forgotten != nullptr && request.ended != nullptr && request.calls != nullptr,
      "a request has an owner that can be forgotten, and a session");
  switch (request.method) {
    case FilesMethod::kLookup: co_return co_await lookup(request, reply);
    case FilesMethod::kWalk: co_return co_await walk(request, reply);
    case FilesMethod::kGetAttributes: co_return co_await attributes(request, reply);
    case FilesMethod::kSetAttributes: co_return co_await set_attributes(request, reply);
    case FilesMethod::kAccess: co_return co_await access(request);
    case FilesMethod::kMake:
    case FilesMethod::kMakeAt: co_return co_await make(request, reply);
    case FilesMethod::kLink: co_return co_await link(request, reply);
    case FilesMethod::kUnlink:
    case FilesMethod::kRemoveDirectory: co_return co_await remove(request);
    case FilesMethod::kRename: co_return co_await rename(request);
    case FilesMethod::kRemoveAt: co_return co_await remove_at(request);
    case FilesMethod::kRenameAt: co_return co_await rename_at(request);
    case FilesMethod::kReadLink: co_return co_await read_link(request, reply);
    case FilesMethod::kReadDirectory: co_return co_await read_directory(request, reply);
    case FilesMethod::kParentOf: co_return co_await parent_of(request, reply);
    case FilesMethod::kOpen: co_return co_await open(request, reply);
    case FilesMethod::kReclaim: co_return co_await reclaim(request, reply);
    case FilesMethod::kClose: co_return co_await close(request);
    case FilesMethod::kMap: co_return co_await map(request, reply);
    case FilesMethod::kReserve: co_return co_await reserve(request, reply);
    case FilesMethod::kPublish: co_return co_await publish(request, reply);
    case FilesMethod::kRead: co_return co_await read(request, reply);
    case FilesMethod::kWrite: co_return co_await write(request, reply);
    case FilesMethod::kAllocate: co_return co_await allocate(request, reply);
    case FilesMethod::kTouch: co_return co_await touch(request);
    case FilesMethod::kGetXattr: co_return co_await get_xattr(request, reply);
    case FilesMethod::kSetXattr: co_return co_await set_xattr(request);
    case FilesMethod::kRemoveXattr: co_return co_await remove_xattr(request);
    case FilesMethod::kListXattrs: co_return co_await list_xattrs(request, reply);
    case FilesMethod::kLock: co_return lock(request, reply);
    case FilesMethod::kAwaitLock: co_return co_await await_lock(request, reply);
    case FilesMethod::kFindLock: co_return find_lock(request, reply);
    case FilesMethod::kUsage: co_return co_await usage(request, reply);
    case FilesMethod::kDataServers: co_return data_servers(request, reply);
    case FilesMethod::kAddDataServer: co_return co_await add_data_server(request, reply);
    case FilesMethod::kDrainDataServer: co_return co_await drain_data_server(request);
    case FilesMethod::kAwaitOpen: co_return co_await await_open(request, reply);
    case FilesMethod::kNews:
    case FilesMethod::kConfirm:
    case FilesMethod::kAwaitNews: break;
  }
  co_return malformed();
}

// ---- names ----

base::Task<PosixStatus> FilesCalls::lookup(const FilesRequest& request, Writer& reply) {
  Reader reader(request.body);
  const auto asked = reader.get<NameRequest>();
  const std::string name = name_in(reader, asked.name_bytes);
  if (!reader.complete()) co_return malformed();
  const auto found = co_await names_.lookup(request.caller, Ino{asked.parent}, name);
  co_return put_attributes(found, reply);
}

base::Task<PosixStatus> FilesCalls::walk(const FilesRequest& request, Writer& reply) {
  Reader reader(request.body);
  const auto asked = reader.get<WalkRequest>();
  const std::string path = name_in(reader, asked.path_bytes);
  const std::string other = name_in(reader, asked.other_bytes);
  const size_t room = other.empty() ? request.room : request.room / 2;
  if (!reader.complete() || room < walked_bytes(1)) co_return malformed();
  // As many as fit.
  const size_t most = (room - walked_bytes(0)) / sizeof(WireAttributes);
  const auto walked = co_await names_.walk(request.caller, Ino{asked.start}, path, most);
  if (!walked) co_return PosixError(walked.error());
  put_walked(*walked, reply);
  if (other.empty()) co_return PosixStatus{};
  const auto second = co_await names_.walk(request.caller, Ino{asked.start}, other, most);
  if (!second) co_return PosixError(second.error());
  put_walked(*second, reply);
  co_return PosixStatus{};
}

base::Task<PosixStatus> FilesCalls::link(const FilesRequest& request, Writer& reply) {
  Reader reader(request.body);
  const auto asked = reader.get<LinkRequest>();
  const std::string name = name_in(reader, asked.name_bytes);
  if (!reader.complete()) co_return malformed();
  const auto linked = co_await names_.link(request.caller, Ino{asked.ino}, Ino{asked.parent}, name,
                                           request.mark, request.repeated);
  co_return put_attributes(linked, reply);
}

base::Task<PosixStatus> FilesCalls::remove(const FilesRequest& request) {
  Reader reader(request.body);
  const auto asked = reader.get<NameRequest>();
  const std::string name = name_in(reader, asked.name_bytes);
  if (!reader.complete()) co_return malformed();
  const Ino parent{asked.parent};
  if (request.method == FilesMethod::kUnlink) {
    co_return co_await names_.unlink(request.caller, parent, name);
  }
  co_return co_await names_.remove_directory(request.caller, parent, name);
}

base::Task<PosixStatus> FilesCalls::rename(const FilesRequest& request) {
  Reader reader(request.body);
  const auto asked = reader.get<RenameRequest>();
  const std::string name = name_in(reader, asked.name_bytes);
  const std::string new_name = name_in(reader, asked.new_name_bytes);
  if (!reader.complete() || asked.mode > RenameMode::kExchange) co_return malformed();
  co_return co_await names_.rename(request.caller, Ino{asked.from}, name, Ino{asked.to}, new_name,
                                   asked.mode);
}

base::Task<PosixStatus> FilesCalls::read_link(const FilesRequest& request, Writer& reply) {
  Ino ino{};
  if (!get_ino(request.body, ino)) co_return malformed();
  const auto target = co_await names_.read_link(ino);
  if (!target) co_return PosixError(target.error());
  reply.put_bytes(*target);
  co_return PosixStatus{};
}

base::Task<PosixStatus> FilesCalls::read_directory(const FilesRequest& request, Writer& reply) {
  Reader reader(request.body);
  const auto asked = reader.get<ReadDirectoryRequest>();
  if (!reader.complete()) co_return malformed();
  // As many as fit, whatever their names are.
  constexpr size_t kLargest = sizeof(WireEntry) + kMaxNameBytes + sizeof(WireAttributes);
  const size_t room = request.room;
  if (room < sizeof(ListReply) + kLargest) co_return malformed();
  const auto fit = static_cast<uint32_t>((room - sizeof(ListReply)) / kLargest);
  const uint32_t most = std::min(asked.most, fit);
  const auto listed = co_await names_.read_directory(
      request.caller, Ino{asked.directory}, asked.cookie, most, asked.with_attributes != 0);
  if (!listed) co_return PosixError(listed.error());
  ListReply head;
  head.count = static_cast<uint32_t>(listed->size());
  reply.put(head);
  for (const Namespace::Listed& each : *listed) put_listed(each, reply);
  co_return PosixStatus{};
}

base::Task<PosixStatus> FilesCalls::parent_of(const FilesRequest& request, Writer& reply) {
  Ino ino{};
  if (!get_ino(request.body, ino)) co_return malformed();
  const auto parent = co_await names_.parent_of(ino);
  if (!parent) co_return PosixError(parent.error());
  reply.put(InoRequest{raw(*parent)});
  co_return PosixStatus{};
}

// ---- inodes ----

base::Task<PosixStatus> FilesCalls::attributes(const FilesRequest& request, Writer& reply) {
  Ino ino{};
  if (!get_ino(request.body, ino)) co_return malformed();
  const auto found = co_await names_.get_attributes(ino);
  co_return put_attributes(found, reply);
}

base::Task<PosixStatus> FilesCalls::set_attributes(const FilesRequest& request, Writer& reply) {
  Reader reader(request.body);
  const auto asked = reader.get<SetAttributesRequest>();
  if (!reader.complete()) co_return malformed();
  const AttributeChange change = change_of(asked);
  const Ino ino{asked.ino};
  std::optional<ChangeUnderWay> under_way;
  constexpr uint32_t kCached = AttributeChange::kSize | AttributeChange::kMode |
                               AttributeChange::kUid | AttributeChange::kGid;
  if ((change.set & kCached) != 0) {
    bool of_file = false;
    PosixStatus may = co_await check_change(request.caller, ino, change, of_file);
    if (!may) co_return std::move(may);
    if (of_file) {
      under_way.emplace(delegations_, request.owner, ino);
      const bool after_grace = !delegations_.is_admitted(request.owner, ino);
      if (must_wait(request.owner, ino, after_grace)) {
        co_return PosixError(kCachedElsewhere, "other clients have the file in their caches");
      }
    }
  }
  const auto changed = co_await names_.set_attributes(request.caller, ino, change);
  co_return put_attributes(changed, reply);
}

base::Task<PosixStatus> FilesCalls::check_change(const Caller& caller, Ino ino,
                                                 const AttributeChange& change, bool& of_file) {
  const auto found = co_await names_.get_attributes(ino);
  if (!found) co_return PosixError(found.error());
  of_file = found->type == FileType::kRegular;
  if ((change.set & AttributeChange::kSize) != 0) {
    PosixStatus may = co_await names_.access(caller, ino, W_OK);
    if (!may) co_return std::move(may);
  }
  const bool of_owner = (change.set & ~uint32_t{AttributeChange::kSize}) != 0;
  // Whatever it is that somebody else asks for, the namespace says whether that is an error.
  if (of_owner && caller.uid != 0 && caller.uid != found->uid) of_file = false;
  co_return PosixStatus{};
}

base::Task<PosixStatus> FilesCalls::access(const FilesRequest& request) {
  Reader reader(request.body);
  const auto asked = reader.get<AccessRequest>();
  if (!reader.complete()) co_return malformed();
  co_return co_await names_.access(request.caller, Ino{asked.ino}, static_cast<int>(asked.mask));
}

base::Task<PosixStatus> FilesCalls::touch(const FilesRequest& request) {
  Reader reader(request.body);
  const auto asked = reader.get<TouchRequest>();
  if (!reader.complete()) co_return malformed();
  const Touch touch{asked.written != 0, asked.read != 0, asked.read_age_ns};
  co_return co_await names_.touch(Ino{asked.ino}, touch);
}

// ---- data ----

base::Task<PosixStatus> FilesCalls::map(const FilesRequest& request, Writer& reply) {
  Reader reader(request.body);
  const auto asked = reader.get<MapRequest>();
  if (!reader.complete()) co_return malformed();
  const auto mapped =
      co_await names_.map(Ino{asked.ino}, asked.offset, asked.bytes, asked.allocate != 0);
  if (!mapped) co_return PosixError(mapped.error());
  co_return put_map(request, *mapped, 0, reply);
}

PosixStatus FilesCalls::put_map(const FilesRequest& request, const Namespace::Mapped& mapped,
                                uint64_t reservation, Writer& reply) {
  reply.put(to_wire(mapped.attributes));
  MapReply head{request.news_before, mapped.map.from, mapped.map.to, 0, 0, reservation};
  constexpr size_t kHeads = sizeof(WireAttributes) + sizeof head;
  if (request.room < kHeads) return malformed();
  const size_t fit = (request.room - kHeads) / sizeof(WireExtent);
  const std::vector<MapExtent>& extents = mapped.map.extents;
  if (extents.size() > fit) {
    if (fit == 0) return malformed();
    // The map as far as it fits.
    head.to = extents[fit].file_offset;
  }
  head.count = static_cast<uint32_t>(std::min(extents.size(), fit));
  reply.put(head);
  for (uint32_t i = 0; i < head.count; ++i) put_extent(extents[i], reply);
  return {};
}

base::Task<PosixStatus> FilesCalls::reserve(const FilesRequest& request, Writer& reply) {
  Reader reader(request.body);
  const auto asked = reader.get<RangeRequest>();
  if (!reader.complete()) co_return malformed();
  const auto reserved =
      co_await names_.reserve(Ino{asked.ino}, asked.offset, asked.bytes, request.owner);
  if (!reserved) co_return PosixError(reserved.error());
  co_return put_map(request, reserved->mapped, reserved->reservation, reply);
}

base::Task<PosixStatus> FilesCalls::publish(const FilesRequest& request, Writer& reply) {
  Reader reader(request.body);
  const auto asked = reader.get<PublishRequest>();
  if (!reader.complete()) co_return malformed();
  const auto published =
      co_await names_.publish(Ino{asked.ino}, asked.reservation, asked.size, request.owner);
  co_return put_attributes(published, reply);
}

base::Task<PosixStatus> FilesCalls::read(const FilesRequest& request, Writer& reply) {
  Reader reader(request.body);
  const auto asked = reader.get<RangeRequest>();
  if (!reader.complete() || asked.bytes > request.room) co_return malformed();
  const auto bytes = co_await names_.read(Ino{asked.ino}, asked.offset, asked.bytes);
  if (!bytes) co_return PosixError(bytes.error());
  reply.put_bytes({reinterpret_cast<const char*>(bytes->data()), bytes->size()});
  co_return PosixStatus{};
}

base::Task<PosixStatus> FilesCalls::write(const FilesRequest& request, Writer& reply) {
  Reader reader(request.body);
  const auto asked = reader.get<WriteRequest>();
  const std::string_view data = reader.get_bytes(asked.bytes);
  if (!reader.complete() || asked.bytes > kMaxMessageData) co_return malformed();
  std::optional<uint64_t> offset;
  if (asked.append == 0) offset = asked.offset;
  const auto bytes = std::as_bytes(std::span(data));
  const auto written = co_await names_.write(Ino{asked.ino}, offset, bytes, asked.atomic != 0);
  if (!written) co_return PosixError(written.error());
  reply.put(to_wire(written->attributes));
  reply.put(WriteReply{written->offset});
  co_return PosixStatus{};
}

base::Task<PosixStatus> FilesCalls::allocate(const FilesRequest& request, Writer& reply) {
  Reader reader(request.body);
  const auto asked = reader.get<AllocateRequest>();
  if (!reader.complete() || asked.mode > AllocateMode::kZeroRange) co_return malformed();
  const auto allocated =
      co_await names_.allocate(Ino{asked.ino}, asked.mode, asked.offset, asked.bytes);
  co_return put_attributes(allocated, reply);
}

// ---- locks ----

PosixStatus FilesCalls::lock(const FilesRequest& request, Writer& reply) {
  Reader reader(request.body);
  const auto asked = reader.get<LockRequest>();
  const auto lock = lock_of(asked);
  if (!reader.complete() || !lock) return malformed();
  LockReply answer;
  if (asked.reclaim != 0 && !in_grace()) {
    // Others may have had it, and given it up, since it was this client's.
    return PosixError(EIO, "the lock was given up: this client came back too late");
  }
  const bool early = asked.reclaim == 0 && lock->type != LockType::kUnlock;
  if (early && in_grace()) {
    answer.again = 1;
    reply.put(answer);
    return {};
  }
  switch (locks_.lock(request.owner, Ino{asked.ino}, *lock)) {
    case FileLocks::Outcome::kDone: break;
    case FileLocks::Outcome::kTooMany: return PosixError(ENOLCK, "this client has too many");
    case FileLocks::Outcome::kBusy:
    case FileLocks::Outcome::kDeadlock: return PosixError(EAGAIN);
  }
  reply.put(answer);
  return {};
}

// It has no number: a client has few of those, and may do a thousand things while it waits.
base::Task<PosixStatus> FilesCalls::await_lock(const FilesRequest& request, Writer& reply) {
  Reader reader(request.body);
  const auto asked = reader.get<LockRequest>();
  const auto lock = lock_of(asked);
  if (!reader.complete() || !lock || lock->type == LockType::kUnlock) co_return malformed();
  LockReply answer;
  if (in_grace()) {
    // Who had locks before the restart comes first.
    const uint64_t until_ns = executor_.now_ns() + options_.lock_patience_ns;
    co_await executor_.sleep_until(std::min(until_ns, options_.lock_grace_until_ns));
    answer.again = 1;
    reply.put(answer);
    co_return PosixStatus{};
  }
  const auto outcome =
      co_await locks_.wait(request.owner, Ino{asked.ino}, *lock, options_.lock_patience_ns);
  if (outcome == FileLocks::Outcome::kDeadlock) co_return PosixError(EDEADLK);
  // The client asks again in its next session, and may have given up before this one takes it.
  if (*request.ended || *request.forgotten) co_return PosixError(EIO, "the session has ended");
  if (outcome == FileLocks::Outcome::kDone) {
    const auto taken = locks_.lock(request.owner, Ino{asked.ino}, *lock);
    PMSTORE_CHECK(taken != FileLocks::Outcome::kBusy, "it was free in this turn");
    if (taken == FileLocks::Outcome::kTooMany) co_return PosixError(ENOLCK);
  }
  answer.again = outcome == FileLocks::Outcome::kBusy ? 1 : 0;
  reply.put(answer);
  co_return PosixStatus{};
}

PosixStatus FilesCalls::find_lock(const FilesRequest& request, Writer& reply) {
  Reader reader(request.body);
  const auto asked = reader.get<LockRequest>();
  const auto lock = lock_of(asked);
  if (!reader.complete() || !lock) return malformed();
  LockReply answer;
  if (const auto found = locks_.in_the_way(request.owner, Ino{asked.ino}, *lock)) {
    answer.found = 1;
    answer.type = found->type;
    answer.start = found->start;
    answer.end = found->end;
    answer.pid = found->pid;
  }
  reply.put(answer);
  return {};
}

// ---- extended attributes, usage ----

base::Task<PosixStatus> FilesCalls::get_xattr(const FilesRequest& request, Writer& reply) {
  Reader reader(request.body);
  const auto asked = reader.get<XattrRequest>();
  const std::string name = name_in(reader, asked.name_bytes);
  if (!reader.complete()) co_return malformed();
  const auto value = co_await names_.get_xattr(request.caller, Ino{asked.ino}, name);
  if (!value) co_return PosixError(value.error());
  reply.put_bytes({reinterpret_cast<const char*>(value->data()), value->size()});
  co_return PosixStatus{};
}

base::Task<PosixStatus> FilesCalls::set_xattr(const FilesRequest& request) {
  Reader reader(request.body);
  const auto asked = reader.get<XattrRequest>();
  const std::string name = name_in(reader, asked.name_bytes);
  const std::string value = name_in(reader, asked.value_bytes);
  if (!reader.complete() || asked.mode > XattrMode::kReplace) co_return malformed();
  co_return co_await names_.set_xattr(request.caller, Ino{asked.ino}, name,
                                      std::as_bytes(std::span(value)), asked.mode);
}

base::Task<PosixStatus> FilesCalls::remove_xattr(const FilesRequest& request) {
  Reader reader(request.body);
  const auto asked = reader.get<XattrRequest>();
  const std::string name = name_in(reader, asked.name_bytes);
  if (!reader.complete()) co_return malformed();
  co_return co_await names_.remove_xattr(request.caller, Ino{asked.ino}, name);
}

base::Task<PosixStatus> FilesCalls::list_xattrs(const FilesRequest& request, Writer& reply) {
  Ino ino{};
  if (!get_ino(request.body, ino)) co_return malformed();
  const auto names = co_await names_.list_xattrs(request.caller, ino);
  if (!names) co_return PosixError(names.error());
  for (const std::string& name : *names) reply.put_bytes({name.c_str(), name.size() + 1});
  co_return PosixStatus{};
}

base::Task<PosixStatus> FilesCalls::usage(const FilesRequest& request, Writer& reply) {
  if (!request.body.empty()) co_return malformed();
  const auto usage = co_await names_.usage();
  if (!usage) co_return PosixError(usage.error());
  reply.put(*usage);
  co_return PosixStatus{};
}

}  // namespace pmstore::fs::internal
