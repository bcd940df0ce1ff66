// What the log service does for each RPC method (log/log_protocol.h).
//
// A request lies in memory that its client may change at any time: what is checked is copied first.
#include <algorithm>
#include <cstring>
#include <string>

#include "log/internal/log_service_state.h"

namespace pmstore::log {
namespace {

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

Error malformed() {
  return make_error(ErrorCode::kProtocol, "a malformed request; the connection is closed");
}

std::vector<std::string> get_uris(fabric::MessageReader& reader, size_t count) {
  std::vector<std::string> uris;
  for (size_t i = 0; i < count && !reader.failed(); ++i) {
    const auto bytes = reader.get<uint8_t>();
    uris.emplace_back(reader.get_bytes(bytes));
  }
  return uris;
}

Status fill(fabric::RpcCall& call, const fabric::MessageWriter& writer) {
  if (writer.overflowed()) {
    return make_error(ErrorCode::kTooLarge, "the answer does not fit in the room for the reply");
  }
  call.reply_filled(writer.bytes());
  return {};
}

}  // namespace

void LogService::State::drop_malformed(const Peer& peer, fabric::RpcCall& call) {
  ++counters.malformed;
  call.reply_error(malformed());
  tell_end(*peer, SessionEnd::kMalformed);
  end(peer);
}

void LogService::State::on_call(fabric::RpcPeer& rpc, fabric::RpcCall call) {
  auto* const from = static_cast<internal::LogPeer*>(rpc.owner);
  const Peer peer = from->shared_from_this();
  ++peer->calls;
  watch_peers();
  if (static_cast<LogMethod>(call.method()) == LogMethod::kPing) {
    if (!call.request().empty()) return drop_malformed(peer, call);
    ++peer->work.pings;
    return call.reply({});
  }
  if (peer->kind == LogConnectionKind::kProducer) return serve_producer(peer, std::move(call));
  const Status served = serve(call);
  if (served) return;
  if (served.code() == ErrorCode::kProtocol) return drop_malformed(peer, call);
  call.reply_error(served.error());
}

void LogService::State::serve_producer(const Peer& peer, fabric::RpcCall call) {
  if (call.method() == persist::kPersistWriteMethod) {
    return persist_service.on_call(std::move(call), peer->data_offset, peer->data_bytes);
  }
  if (static_cast<LogMethod>(call.method()) == LogMethod::kSetMembership) {
    return set_membership(peer, std::move(call));
  }
  if (static_cast<LogMethod>(call.method()) == LogMethod::kAgree) {
    return agree(peer, std::move(call));
  }
  fabric::MessageReader reader(call.request());
  const auto request = reader.get<MakeRoomRequest>();
  if (static_cast<LogMethod>(call.method()) != LogMethod::kMakeRoom || !reader.complete()) {
    return drop_malformed(peer, call);
  }
  const auto start = store.make_room(peer->log, request.bytes);
  if (!start) return call.reply_error(start.error());
  call.reply(bytes_of(TrimReply{*start}));
}

void LogService::State::set_membership(const Peer& peer, fabric::RpcCall call) {
  fabric::MessageReader reader(call.request());
  const auto request = reader.get<MembershipRequest>();
  ReplicaPlace replica;
  replica.self = request.self;
  replica.membership = request.membership;
  replica.replicas = get_uris(reader, request.replicas);
  if (!reader.complete()) return drop_malformed(peer, call);
  const Status set = store.set_membership(peer->log, request.expected, replica);
  if (!set) return call.reply_error(set.error());
  call.reply({});
}

void LogService::State::agree(const Peer& peer, fabric::RpcCall call) {
  fabric::MessageReader reader(call.request());
  const auto request = reader.get<AgreeRequest>();
  if (!reader.complete()) return drop_malformed(peer, call);
  const Status marked = store.agree(peer->log, request.membership);
  if (!marked) return call.reply_error(marked.error());
  call.reply({});
}

// Answers, or gives the error to answer with. Protocol costs the connection.
Status LogService::State::serve(fabric::RpcCall& call) {
  fabric::MessageReader reader(call.request());
  switch (static_cast<LogMethod>(call.method())) {
    case LogMethod::kCreate: return serve_create(call);
    case LogMethod::kOpen: return serve_open(call);
    case LogMethod::kList: return serve_list(call);
    case LogMethod::kAppend: return serve_append(call);
    case LogMethod::kTrim: return serve_trim(call);
    case LogMethod::kSeal: {
      const auto request = reader.get<LogRequest>();
      if (!reader.complete()) return malformed();
      PMSTORE_TRY_STATUS(store.seal(request.log));
      PMSTORE_TRY(const LogInfo info, store.info(request.log));
      fabric::MessageWriter writer(call.reply_room());
      PMSTORE_TRY_STATUS(describe(info, false, writer));
      return fill(call, writer);
    }
    case LogMethod::kDelete: {
      const auto request = reader.get<LogRequest>();
      if (!reader.complete()) return malformed();
      PMSTORE_TRY_STATUS(store.erase(request.log));
      call.reply({});
      return {};
    }
    default: return malformed();
  }
}

// LogReply, and when `whole` name, replicas and damaged ranges.
Status LogService::State::describe(const LogInfo& info, bool whole,
                                   fabric::MessageWriter& writer) const {
  PMSTORE_TRY(const LogStore::Where where, store.where(info.id));
  LogReply reply{};
  reply.id = info.id;
  reply.region_offset = where.region_offset;
  reply.region_bytes = where.region_bytes;
  reply.start_lsn = info.start_lsn;
  reply.tail_lsn = info.tail_lsn;
  reply.next_index = info.next_index;
  reply.membership = info.membership;
  reply.identity = info.identity;
  reply.agreed = info.agreed;
  reply.word = where.word;
  reply.incarnation = info.incarnation;
  reply.salt = where.salt;
  reply.damaged = whole ? static_cast<uint32_t>(info.damaged.size()) : 0;
  reply.when_full = info.when_full;
  reply.sealed = info.sealed;
  reply.exclusive = info.exclusive;
  reply.name_bytes = static_cast<uint8_t>(info.name.size());
  reply.replicas = whole ? static_cast<uint8_t>(info.replicas.size()) : 0;
  writer.put(reply);
  if (!whole) return {};
  writer.put_bytes(info.name);
  for (const std::string& uri : info.replicas) {
    writer.put(static_cast<uint8_t>(uri.size()));
    writer.put_bytes(uri);
  }
  for (const DamagedRange& range : info.damaged) writer.put(range);
  return {};
}

Status LogService::State::serve_create(fabric::RpcCall& call) {
  fabric::MessageReader reader(call.request());
  const auto request = reader.get<CreateRequest>();
  const std::string name(reader.get_bytes(request.name_bytes));
  const ReplicaPlace replica{get_uris(reader, request.replicas), request.self, request.membership,
                             request.begin_lsn, request.begin_index};
  const bool known_policy = request.when_full == FullPolicy::kBackPressure ||
                            request.when_full == FullPolicy::kTrimOldest;
  if (!reader.complete() || !known_policy) return malformed();
  const LogOptions shape{request.bytes, request.when_full, request.identity};
  PMSTORE_TRY(const LogInfo info, store.create(name, shape, replica));
  fabric::MessageWriter writer(call.reply_room());
  PMSTORE_TRY_STATUS(describe(info, false, writer));
  return fill(call, writer);
}

Status LogService::State::serve_open(fabric::RpcCall& call) {
  const auto bytes = call.request();
  if (bytes.size() > kMaxLogNameBytes) return malformed();
  const std::string name(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  PMSTORE_TRY(const LogInfo info, store.find(name));
  fabric::MessageWriter writer(call.reply_room());
  PMSTORE_TRY_STATUS(describe(info, true, writer));
  return fill(call, writer);
}

Status LogService::State::serve_list(fabric::RpcCall& call) {
  fabric::MessageReader reader(call.request());
  const auto request = reader.get<ListRequest>();
  if (!reader.complete()) return malformed();
  const auto room = call.reply_room();
  fabric::MessageWriter writer(room.first(std::min<size_t>(room.size(), request.max_bytes)));
  ListReply reply{};
  writer.put(reply);
  for (const LogInfo& info : store.list()) {
    PMSTORE_TRY(const LogStore::Where where, store.where(info.id));
    if (where.word < request.from) continue;
    const size_t before = writer.bytes();
    PMSTORE_TRY_STATUS(describe(info, false, writer));
    writer.put_bytes(info.name);
    if (!writer.overflowed()) {
      ++reply.count;
      continue;
    }
    if (reply.count == 0) return fill(call, writer);  // TooLarge
    reply.next = where.word;
    std::memcpy(room.data(), &reply, sizeof reply);
    call.reply_filled(before);
    return {};
  }
  if (!writer.overflowed()) std::memcpy(room.data(), &reply, sizeof reply);
  return fill(call, writer);
}

Status LogService::State::serve_append(fabric::RpcCall& call) {
  fabric::MessageReader reader(call.request());
  const auto request = reader.get<AppendRequest>();
  if (reader.failed() || request.count == 0 || request.count > kMaxBatchEntries) {
    return malformed();
  }
  AppendItem items[kMaxBatchEntries];
  for (size_t i = 0; i < request.count; ++i) items[i] = reader.get<AppendItem>();
  std::span<const std::byte> payloads[kMaxBatchEntries];
  for (size_t i = 0; i < request.count && !reader.failed(); ++i) {
    payloads[i] = std::as_bytes(std::span(reader.get_bytes(items[i].bytes)));
  }
  if (!reader.complete() || call.reply_room().size() < sizeof(AppendReply)) return malformed();
  PMSTORE_TRY(const LogStore::Range range, store.append(request.log, {payloads, request.count}));
  counters.shared_appends += request.count;
  join_group(std::move(call), AppendReply{range.first, range.last});
  return {};
}

Status LogService::State::serve_trim(fabric::RpcCall& call) {
  fabric::MessageReader reader(call.request());
  const auto request = reader.get<TrimRequest>();
  if (!reader.complete()) return malformed();
  PMSTORE_TRY(const uint64_t start,
              request.through_lsn != 0
                  ? store.trim(request.log, request.through_lsn)
                  : store.trim_below_index(request.log, request.through_index));
  call.reply(bytes_of(TrimReply{start}));
  return {};
}

}  // namespace pmstore::log
