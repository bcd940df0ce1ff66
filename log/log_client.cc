// The session of a LogClient: made, kept alive, used for one-sided access.
#include "log/log_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/random.h"
#include "log/internal/log_client_state.h"
#include "log/ring_layout.h"

namespace pmstore::log {
namespace {

Error bad_answer(std::string_view what) {
  return make_error(ErrorCode::kProtocol,
                    fmt::format("the server's handshake {}; is it a pmstore server of this "
                                "version?",
                                what));
}

}  // namespace

uint64_t KnownLog::data_bytes() const { return reply.region_bytes - kRingHeaderBytes; }

LogClient::State::State(base::Executor& client_executor, fabric::Uri server,
                        LogClientOptions client_options)
    : executor(client_executor),
      uri(std::move(server)),
      options(client_options),
      secret(options.secret.empty() ? ClientSecret::random() : options.secret),
      instance(base::random_identity()),
      server_uri(uri),
      append_sent(executor),
      reconnector(executor, *this, {options.reconnect_timeout_ns, options.connect_timeout_ns}) {}

// The connection goes before the memory that its peer or its queue can still reach.
LogClient::State::~State() { drop_link(); }

LogClient::LogClient(std::unique_ptr<State> state) : state_(std::move(state)) {}
LogClient::~LogClient() = default;

base::Task<Result<std::unique_ptr<LogClient>>> LogClient::connect(base::Executor& executor,
                                                                  fabric::Uri uri,
                                                                  LogClientOptions options) {
  auto state = std::make_unique<State>(executor, std::move(uri), options);
  PMSTORE_CO_TRY(state->device,
                 fabric::open_device(state->uri.scheme, executor, state->options.devices));
  Status connected = co_await state->connect_once();
  const bool nobody_there = !connected && connected.code() == ErrorCode::kDisconnected;
  if (nobody_there && state->uri.scheme == fabric::Scheme::kLocal && options.devices == nullptr) {
    // No server of this process listens there, so it is the path of a pool.
    EmbeddedLogOptions with;
    with.assume_domain = options.assume_domain;
    PMSTORE_CO_TRY(state->embedded, co_await EmbeddedLog::open(executor, state->uri.name, with));
    state->server_uri = state->embedded->uri();
    connected = co_await state->connect_once();
  }
  if (!connected) co_return std::move(connected.error());
  co_return std::unique_ptr<LogClient>(new LogClient(std::move(state)));
}

// What an append in flight leaves in doubt is asked for on the next session.
base::Task<void> LogClient::State::let_go() { co_return; }

void LogClient::State::drop_link() {
  if (link != nullptr) ended += link->connection().counters();
  link.reset();
}

base::Task<Status> LogClient::State::connect_once() {
  drop_link();
  service::LinkOptions with;
  with.service = service::ServiceId::kLog;
  with.secret = secret;
  with.known_through = known_through;
  with.connect_timeout_ns = options.connect_timeout_ns;
  with.rpc = options.rpc;
  with.rpc.call_timeout_ns = options.call_timeout_ns;
  PMSTORE_CO_TRY(LinkRef opened, co_await service::Link::open(
                                     *device, server_uri, with,
                                     service::bytes_of(SessionHello{instance, last_sent})));
  PMSTORE_CO_TRY_STATUS(check_answer(*opened));
  PMSTORE_CHECK(link == nullptr, "one session at a time");
  link = std::move(opened);
  ++generation;
  // The regions of the session before are gone. Places are asked for again.
  known.clear();
  known_in_order.clear();
  link->keep_lease();
  co_return Status{};
}

Status LogClient::State::check_answer(const service::Link& opened) {
  const std::span<const std::byte> given = opened.body();
  LogSessionAnswer said;
  if (given.size() < sizeof said) return bad_answer("has the wrong length");
  std::memcpy(&said, given.data(), sizeof said);
  if (said.extents > kMostLogExtents ||
      given.size() != sizeof said + said.extents * sizeof(NamedExtent)) {
    return bad_answer("has the wrong length");
  }
  if (said.words.bytes % sizeof(LogWords) != 0) return bad_answer("grants half a word");
  if (generation > 0 && said.area != answer.area) {
    // Waiting would not help, so it is not Disconnected.
    return make_error(ErrorCode::kProtocol,
                      fmt::format("{} serves the logs of another pool now: connect a new client",
                                  uri.to_string()));
  }
  const size_t bytes = opened.rpc().max_request_bytes();
  // Not touched before it is used, so a large one costs nothing.
  if (bytes != message_bytes) message.reset(new std::byte[bytes]);
  message_bytes = bytes;
  answer = said;
  extents.clear();
  for (uint32_t i = 0; i < said.extents; ++i) {
    NamedExtent extent;
    std::memcpy(&extent, given.data() + sizeof said + i * sizeof extent, sizeof extent);
    note_extent(extent);
  }
  return {};
}

base::Task<Result<LogClient::State::LinkRef>> LogClient::State::connected() {
  if (!usable()) {
    PMSTORE_CO_TRY_STATUS(co_await reconnector.connected());
  }
  co_return link;
}

Result<fabric::RemoteAddress> LogClient::State::data_at(const KnownLog& log, uint64_t lsn) const {
  const NamedExtent& said = log.reply.extent;
  const auto at = extents.find(said.name >> 32);
  const bool is_known = at != extents.end() && at->second.name == said.name;
  if (said.region.bytes == 0 || (is_known && at->second.region.bytes == 0)) {
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("the server's device gives no right to read the log {}: see the "
                                  "limit of locked memory there",
                                  log.name));
  }
  const bool there = is_known && at->second.region.bytes == said.region.bytes;
  if (!there) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("the log {} was deleted: open another one", log.name));
  }
  return at->second.region.at(log.reply.region_offset + kRingHeaderBytes + lsn % log.data_bytes());
}

void LogClient::State::retire(std::unique_ptr<internal::ReadBuffer> buffer) {
  std::erase_if(retired, [](const auto& each) { return !each->under_way(); });
  if (buffer != nullptr && buffer->under_way()) retired.push_back(std::move(buffer));
}

Error LogClient::State::malformed(std::string_view what) {
  if (link != nullptr) link->drop();
  return make_error(
      ErrorCode::kProtocol,
      fmt::format("the server's reply to {} is malformed; the session was given up", what));
}

ClientId LogClient::id() const { return state_->secret.id(); }
uint64_t LogClient::area() const { return state_->answer.area; }
const fabric::Uri& LogClient::uri() const { return state_->uri; }
fabric::Counters LogClient::counters() const {
  fabric::Counters all = state_->ended;
  if (state_->link != nullptr) all += state_->link->connection().counters();
  return all;
}
uint64_t LogClient::reconnects() const { return state_->generation - 1; }
base::Executor& LogClient::executor() { return state_->executor; }

}  // namespace pmstore::log
