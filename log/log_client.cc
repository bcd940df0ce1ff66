// The session of a LogClient: made, kept alive, used for one-sided access.
#include "log/log_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/random.h"
#include "log/internal/keep_lease.h"
#include "log/internal/log_client_state.h"
#include "log/ring_layout.h"

namespace pmstore::log {
namespace {

Error bad_answer(std::string_view what) {
  return make_error(ErrorCode::kProtocol,
                    fmt::format("the server's handshake {}; is it a pmstore server of this "
                                "version, with a log area?",
                                what));
}

}  // namespace

uint64_t KnownLog::data_bytes() const { return reply.region_bytes - kRingHeaderBytes; }

LogClient::State::State(base::Executor& client_executor, fabric::Uri server,
                        LogClientOptions client_options)
    : executor(client_executor),
      uri(std::move(server)),
      options(client_options),
      id(options.client != 0 ? options.client : base::random_identity()),
      server_uri(uri) {}

LogClient::State::~State() {
  lease = {};
  // The connection goes before the memory that its peer or its queue can still reach.
  if (connection != nullptr) connection->set_receiver(nullptr);
  connection.reset();
}

LogClient::LogClient(std::unique_ptr<State> state) : state_(std::move(state)) {}
LogClient::~LogClient() = default;

base::Task<Result<std::unique_ptr<LogClient>>> LogClient::connect(base::Executor& executor,
                                                                  fabric::Uri uri,
                                                                  LogClientOptions options) {
  auto state = std::make_unique<State>(executor, std::move(uri), options);
  PMSTORE_CO_TRY(state->device,
                 fabric::open_device(state->uri.scheme, executor, state->options.devices));
  Status connected = co_await state->connect();
  const bool nobody_there = !connected && connected.code() == ErrorCode::kDisconnected;
  if (nobody_there && state->uri.scheme == fabric::Scheme::kLocal && options.devices == nullptr) {
    // No server of this process listens there, so it is the path of a pool.
    EmbeddedLogOptions with;
    with.assume_domain = options.assume_domain;
    PMSTORE_CO_TRY(state->embedded, co_await EmbeddedLog::open(executor, state->uri.name, with));
    state->server_uri = state->embedded->uri();
    connected = co_await state->connect();
  }
  if (!connected) co_return std::move(connected.error());
  co_return std::unique_ptr<LogClient>(new LogClient(std::move(state)));
}

base::Task<Status> LogClient::State::connect() {
  fabric::RpcOptions rpc_options = options.rpc;
  rpc_options.call_timeout_ns = options.call_timeout_ns;
  PMSTORE_CO_TRY(rpc, fabric::RpcClient::create(*device, rpc_options));
  LogHello hello;
  hello.client = id;
  hello.reply_region = rpc->reply_region();
  hello.kind = LogConnectionKind::kSession;
  fabric::ConnectOptions connect_options;
  connect_options.hello = std::as_bytes(std::span(&hello, 1));
  connect_options.timeout_ns = options.connect_timeout_ns;
  connect_options.operation_timeout_ns = options.call_timeout_ns;
  auto connected = co_await device->connect(server_uri, connect_options);
  if (!connected) co_return std::move(connected.error());
  connection = std::move(*connected);
  PMSTORE_CO_TRY_STATUS(check_answer());
  PMSTORE_CO_TRY_STATUS(rpc->attach(*connection, answer.request_region));
  message_bytes = rpc->max_request_bytes();
  // Not touched before it is used, so a large one costs nothing.
  message = std::unique_ptr<std::byte[]>(new std::byte[message_bytes]);
  if (answer.lease_ms > 0) {
    const uint64_t interval_ns = uint64_t{answer.lease_ms} * 1'000'000 / 3;
    lease = internal::keep_lease(executor, *connection, *rpc, interval_ns);
    lease.start();
  }
  co_return Status{};
}

Status LogClient::State::check_answer() {
  const std::span<const std::byte> given = connection->peer_hello();
  if (given.size() < offsetof(LogSessionAnswer, area)) return bad_answer("is too short");
  std::memcpy(&answer, given.data(), std::min(given.size(), sizeof answer));
  if (answer.magic != kLogProtocolMagic) return bad_answer("does not start with the logs' magic");
  if (answer.version != kLogProtocolVersion) {
    return make_error(ErrorCode::kVersionMismatch,
                      fmt::format("the server's logs speak protocol version {}, this client {}: "
                                  "use the same release on both sides",
                                  answer.version, kLogProtocolVersion));
  }
  if (given.size() != sizeof answer) return bad_answer("has the wrong length");
  if (answer.words.bytes % sizeof(LogWords) != 0) return bad_answer("grants half a word");
  return {};
}

fabric::RemoteAddress LogClient::State::data_at(const KnownLog& log, uint64_t lsn) const {
  return answer.regions.at(log.reply.region_offset + kRingHeaderBytes + lsn % log.data_bytes());
}

void LogClient::State::retire(std::unique_ptr<internal::ReadBuffer> buffer) {
  std::erase_if(retired, [](const auto& each) { return !each->under_way(); });
  if (buffer != nullptr && buffer->under_way()) retired.push_back(std::move(buffer));
}

Error LogClient::State::malformed(std::string_view what) {
  given_up = true;
  return make_error(ErrorCode::kProtocol,
                    fmt::format("the server's reply to {} is malformed: connect again", what));
}

uint64_t LogClient::id() const { return state_->id; }
uint64_t LogClient::area() const { return state_->answer.area; }
const fabric::Uri& LogClient::uri() const { return state_->uri; }
fabric::Counters LogClient::counters() const { return state_->connection->counters(); }
base::Executor& LogClient::executor() { return state_->executor; }

}  // namespace pmstore::log
