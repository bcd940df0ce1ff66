// The session of a LogClient: made, kept alive, used for one-sided access.
#include "log/log_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

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
      secret(options.secret.empty() ? ClientSecret::random() : options.secret),
      server_uri(uri) {}

// The connection goes before the memory that its peer or its queue can still reach.
LogClient::State::~State() { link.reset(); }

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
  service::LinkOptions with;
  with.service = service::ServiceId::kLog;
  with.secret = secret;
  with.connect_timeout_ns = options.connect_timeout_ns;
  with.rpc = options.rpc;
  with.rpc.call_timeout_ns = options.call_timeout_ns;
  PMSTORE_CO_TRY(link, co_await service::Link::open(*device, server_uri, with, {}));
  const std::span<const std::byte> given = link->body();
  if (given.size() != sizeof answer) co_return bad_answer("has the wrong length");
  std::memcpy(&answer, given.data(), sizeof answer);
  if (answer.words.bytes % sizeof(LogWords) != 0) co_return bad_answer("grants half a word");
  message_bytes = link->rpc().max_request_bytes();
  // Not touched before it is used, so a large one costs nothing.
  message = std::unique_ptr<std::byte[]>(new std::byte[message_bytes]);
  link->keep_lease();
  co_return Status{};
}

fabric::RemoteAddress LogClient::State::data_at(const KnownLog& log, uint64_t lsn) const {
  return answer.regions.at(log.reply.region_offset + kRingHeaderBytes + lsn % log.data_bytes());
}

void LogClient::State::retire(std::unique_ptr<internal::ReadBuffer> buffer) {
  std::erase_if(retired, [](const auto& each) { return !each->under_way(); });
  if (buffer != nullptr && buffer->under_way()) retired.push_back(std::move(buffer));
}

Error LogClient::State::malformed(std::string_view what) {
  link->drop();
  return make_error(ErrorCode::kProtocol,
                    fmt::format("the server's reply to {} is malformed: connect again", what));
}

ClientId LogClient::id() const { return state_->secret.id(); }
uint64_t LogClient::area() const { return state_->answer.area; }
const fabric::Uri& LogClient::uri() const { return state_->uri; }
fabric::Counters LogClient::counters() const { return state_->link->connection().counters(); }
base::Executor& LogClient::executor() { return state_->executor; }

}  // namespace pmstore::log
