// Of LogService: sessions, and what it does for each of their methods (log/log_protocol.h).
//
// A request lies in memory that its client may change at any time: what is checked is copied first.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/size_text.h"
#include "log/internal/log_service_state.h"

namespace pmstore::log::internal {
namespace {

Status fill(fabric::RpcCall& call, const fabric::MessageWriter& writer) {
  if (writer.overflowed()) {
    return make_error(ErrorCode::kTooLarge, "the answer does not fit in the room for the reply");
  }
  call.reply_filled(writer.bytes());
  return {};
}

}  // namespace

Error malformed_request() {
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

LogSessions::LogSessions(base::Executor& executor, LogStore& store, size_t max_sessions)
    : Service({.id = service::ServiceId::kLog, .name = "log", .max_sessions = max_sessions}),
      store_(store),
      group_(executor, store, *this),
      creates_(executor, store, [this](auto&... what) { answer_create(what...); }) {
  store_.before_giving_back([this](uint64_t extent) {
    for (LogRegions* const regions : regions_) regions->withdraw(extent);
  });
}

LogRegions::LogRegions(const service::Endpoint& endpoint, LogStore& store, service::Host& host,
                       std::vector<LogRegions*>& all)
    : endpoint_(endpoint), store_(store), host_(host), all_(all) {
  all_.push_back(this);
}

LogRegions::~LogRegions() { std::erase(all_, this); }

Status LogRegions::register_words() {
  PMSTORE_TRY(words_,
              endpoint_.device->register_memory(store_.words(), fabric::Access::kRemoteRead));
  return {};
}

size_t LogRegions::refused() const {
  return static_cast<size_t>(std::count_if(extents_.begin(), extents_.end(),
                                           [](const auto& each) { return !each.second; }));
}

NamedExtent LogRegions::at(const LogExtent& extent) {
  NamedExtent named{extent.name, {}};
  if (extent.bytes == 0) return named;  // of a log that is lost
  const auto [at, is_new] = extents_.try_emplace(extent.name);
  if (!at->second) {  // also again: a device that refused it may have room now
    auto made =
        endpoint_.device->register_memory(store_.memory_of(extent), fabric::Access::kRemoteRead);
    if (!made && is_new) {
      host_.warn(
          fmt::format("clients cannot read the logs in an extent of {} through {}, whose "
                      "device refuses it: {}; raise the limit of locked memory",
                      base::size_text(extent.bytes), endpoint_.name, made.error().message));
    }
    if (made) at->second = std::move(*made);
  }
  PMSTORE_CHECK(extents_.size() <= kMostLogExtents, "what is withdrawn is noted no more");
  if (at->second) named.region = at->second->remote();
  return named;
}

base::Task<Result<std::unique_ptr<service::EndpointPart>>> LogSessions::open(
    service::Endpoint& endpoint) {
  auto regions = std::make_unique<LogRegions>(endpoint, store_, host(), regions_);
  PMSTORE_CO_TRY_STATUS(regions->register_words());
  co_return std::unique_ptr<service::EndpointPart>(std::move(regions));
}

Result<std::vector<std::byte>> LogSessions::admit(service::Session& session, Body body) {
  fabric::MessageReader reader(body);
  const auto hello = reader.get<SessionHello>();
  if (!reader.complete() || hello.instance == 0) {
    return make_error(ErrorCode::kProtocol, "a malformed log hello");
  }
  LogRegions& regions = regions_at(*session.endpoint);
  auto& admitted = static_cast<LogSession&>(session);
  admitted.origin = {session.client, hello.instance};
  if (const auto before = present_.find(admitted.origin); before != present_.end()) {
    // The client has lost its old connection, over which no append may arrive from here on.
    host().end(*before->second, SessionEnd::kReplaced);
  }
  appends_.came(admitted.origin, hello.last_sent);
  present_[admitted.origin] = &admitted;
  LogSessionAnswer answer;
  answer.area = store_.area_identity();
  answer.words = regions.words();
  std::vector<NamedExtent> extents;
  for (const LogExtent& extent : store_.extents()) extents.push_back(regions.at(extent));
  PMSTORE_CHECK(extents.size() <= kMostLogExtents, "a pool has no more extents");
  answer.extents = static_cast<uint32_t>(extents.size());
  std::vector<std::byte> message = service::message_of(answer);
  const auto list = std::as_bytes(std::span(extents));
  message.insert(message.end(), list.begin(), list.end());
  return message;
}

bool LogSessions::on_known_through(service::Session& session, uint64_t number) {
  appends_.known(static_cast<LogSession&>(session).origin, number);
  return true;
}

void look_for_failure(const LogStore& store, service::Host& host) {
  if (!store.memory().failed()) return;
  const auto durable = store.memory().drain();  // says why, and asks for no further msync
  PMSTORE_CHECK(!durable, "after a drain has failed every later one fails");
  host.tell_failure(durable.error());
}

void LogSessions::on_call(service::Session& session, fabric::RpcCall call, Body body) {
  const Status served = serve(static_cast<LogSession&>(session), call, body);
  look_for_failure(store_, host());
  if (served) return;
  if (served.code() == ErrorCode::kProtocol) return host().drop_malformed(session, call);
  call.reply_error(served.error());
}

// Answers, or gives the error to answer with. Protocol costs the connection.
Status LogSessions::serve(LogSession& session, fabric::RpcCall& call, Body body) {
  fabric::MessageReader reader(body);
  switch (static_cast<LogMethod>(call.method())) {
    case LogMethod::kCreate: return serve_create(session, call, body);
    case LogMethod::kOpen: return serve_open(*session.endpoint, call, body);
    case LogMethod::kList: return serve_list(*session.endpoint, call, body);
    case LogMethod::kAppend: return serve_append(session, call, body);
    case LogMethod::kTrim: return serve_trim(call, body);
    case LogMethod::kSeal: {
      const auto request = reader.get<LogRequest>();
      if (!reader.complete()) return malformed_request();
      PMSTORE_TRY_STATUS(store_.seal(request.log));
      PMSTORE_TRY(const LogInfo info, store_.info(request.log));
      fabric::MessageWriter writer(call.reply_room());
      PMSTORE_TRY_STATUS(describe_log(*session.endpoint, info, false, writer));
      return fill(call, writer);
    }
    case LogMethod::kDelete: {
      const auto request = reader.get<LogRequest>();
      if (!reader.complete()) return malformed_request();
      PMSTORE_TRY_STATUS(store_.erase(request.log));
      call.reply({});
      return {};
    }
    default: return malformed_request();
  }
}

// LogReply, and when `whole` name, replicas and damaged ranges.
Status LogSessions::describe_log(const service::Endpoint& endpoint, const LogInfo& info, bool whole,
                                 fabric::MessageWriter& writer) const {
  PMSTORE_TRY(const LogStore::Where where, store_.where(info.id));
  LogReply reply{};
  reply.id = info.id;
  reply.extent = regions_at(endpoint).at(where.extent);
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

Status LogSessions::serve_create(LogSession& session, fabric::RpcCall& call, Body body) {
  fabric::MessageReader reader(body);
  const auto request = reader.get<CreateRequest>();
  const std::string name(reader.get_bytes(request.name_bytes));
  const ReplicaPlace replica{get_uris(reader, request.replicas), request.self, request.membership,
                             request.begin_lsn, request.begin_index};
  const bool known_policy = request.when_full == FullPolicy::kBackPressure ||
                            request.when_full == FullPolicy::kTrimOldest;
  if (!reader.complete() || !known_policy) return malformed_request();
  const LogOptions shape{request.bytes, request.when_full, request.identity};
  creates_.ask(session, std::move(call), {name, shape, replica});
  return {};
}

// The session may have ended meanwhile: then no answer is sent.
void LogSessions::answer_create(service::Session& session, fabric::RpcCall& call,
                                const Result<LogInfo>& made) {
  const auto answer = [&]() -> Status {
    PMSTORE_TRY_STATUS(made);
    fabric::MessageWriter writer(call.reply_room());
    PMSTORE_TRY_STATUS(describe_log(*session.endpoint, *made, false, writer));
    return fill(call, writer);
  };
  look_for_failure(store_, host());
  if (session.ended) return;
  const Status answered = answer();
  if (!answered) call.reply_error(answered.error());
}

Status LogSessions::serve_open(const service::Endpoint& endpoint, fabric::RpcCall& call,
                               Body body) {
  const auto bytes = body;
  if (bytes.size() > kMaxLogNameBytes) return malformed_request();
  const std::string name(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  PMSTORE_TRY(const LogInfo info, store_.find(name));
  fabric::MessageWriter writer(call.reply_room());
  PMSTORE_TRY_STATUS(describe_log(endpoint, info, true, writer));
  return fill(call, writer);
}

Status LogSessions::serve_list(const service::Endpoint& endpoint, fabric::RpcCall& call,
                               Body body) {
  fabric::MessageReader reader(body);
  const auto request = reader.get<ListRequest>();
  if (!reader.complete()) return malformed_request();
  const auto room = call.reply_room();
  fabric::MessageWriter writer(room.first(std::min<size_t>(room.size(), request.max_bytes)));
  ListReply reply{};
  writer.put(reply);
  for (const LogInfo& info : store_.list()) {
    PMSTORE_TRY(const LogStore::Where where, store_.where(info.id));
    if (where.word < request.from) continue;
    const size_t before = writer.bytes();
    PMSTORE_TRY_STATUS(describe_log(endpoint, info, false, writer));
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

Status LogSessions::serve_append(LogSession& session, fabric::RpcCall& call, Body body) {
  fabric::MessageReader reader(body);
  const auto request = reader.get<AppendRequest>();
  if (reader.failed() || request.number == 0 || request.count == 0 ||
      request.count > kMaxBatchEntries) {
    return malformed_request();
  }
  AppendItem items[kMaxBatchEntries];
  for (size_t i = 0; i < request.count; ++i) items[i] = reader.get<AppendItem>();
  std::span<const std::byte> payloads[kMaxBatchEntries];
  for (size_t i = 0; i < request.count && !reader.failed(); ++i) {
    payloads[i] = std::as_bytes(std::span(reader.get_bytes(items[i].bytes)));
  }
  if (!reader.complete() || call.reply_room().size() < sizeof(AppendReply))
    return malformed_request();
  const AppendOrigin& origin = session.origin;
  // Its first try may wait for the drain.
  if (appends_.may_be_repeated(origin, request.number)) finish();
  if (session.ended) return make_error(ErrorCode::kDisconnected, "the session has ended");
  PMSTORE_TRY(const auto before, appends_.repeated(origin, request.number));
  if (before) {
    call.reply(service::bytes_of(*before));
    return {};
  }
  PMSTORE_TRY(const LogStore::Range range, store_.append(request.log, {payloads, request.count}));
  appended_ += request.count;
  group_.join(std::move(call), {origin, request.number}, AppendReply{range.first, range.last});
  return {};
}

Status LogSessions::serve_trim(fabric::RpcCall& call, Body body) {
  fabric::MessageReader reader(body);
  const auto request = reader.get<TrimRequest>();
  if (!reader.complete()) return malformed_request();
  PMSTORE_TRY(const uint64_t start,
              request.through_lsn != 0
                  ? store_.trim(request.log, request.through_lsn)
                  : store_.trim_below_index(request.log, request.through_index));
  call.reply(service::bytes_of(TrimReply{start}));
  return {};
}

}  // namespace pmstore::log::internal
