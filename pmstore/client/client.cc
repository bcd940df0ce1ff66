// The client's control path: connecting, tables, scans, outcomes, the orderly end.
#include "pmstore/client.h"

#include <algorithm>
#include <array>

#include "base/random.h"
#include "pmstore/client/client_state.h"
#include "pmstore/client/embedded.h"
#include "pmstore/client/transaction_state.h"
#include "pmstore/layout/record_layout.h"
#include "pmstore/layout/redo.h"

namespace pmstore {
namespace {

// Transactions are named after it for ever, so it comes from the system, not from a seed.
uint64_t random_client_id() { return base::random_identity(); }

constexpr uint64_t kLockedScanNs = 10'000'000'000;

}  // namespace

Client::State::State(Executor& on, fabric::Uri at, ClientOptions with)
    : executor(on),
      uri(std::move(at)),
      options(std::move(with)),
      id(options.client != 0 ? options.client : random_client_id()),
      server_uri(uri),
      cache(options.location_cache_entries),
      reconnected(on) {}

Client::State::~State() = default;

Client::Client(std::unique_ptr<State> state) : state_(std::move(state)) {}
Client::~Client() = default;

Task<Result<std::unique_ptr<Client>>> Client::connect(Executor& executor, fabric::Uri uri,
                                                      ClientOptions options) {
  auto state = std::make_unique<State>(executor, std::move(uri), std::move(options));
  PMSTORE_CO_TRY(std::unique_ptr<fabric::Device> device,
                 fabric::open_device(state->uri.scheme, executor, state->options.devices));
  state->device = std::move(device);
  Status connected = co_await state->connect_once();
  if (!connected && connected.code() == ErrorCode::kBackPressure && state->options.client != 0) {
    // What this client has left behind before is being resolved; wait for that.
    auto later = co_await state->connected();
    connected = later ? Status{} : Status(std::move(later.error()));
  }
  const bool nobody_there = !connected && connected.code() == ErrorCode::kDisconnected;
  if (nobody_there && state->uri.scheme == fabric::Scheme::kLocal &&
      state->options.devices == nullptr) {
    // No server of this process listens there, so it is the path of a pool.
    PMSTORE_CO_TRY(state->embedded,
                   co_await internal::Embedded::open(executor, state->uri.name, state->options));
    state->server_uri = state->embedded->uri;
    connected = co_await state->connect_once();
  }
  if (!connected) co_return std::move(connected.error());
  co_return std::unique_ptr<Client>(new Client(std::move(state)));
}

Task<void> Client::close() {
  State& state = *state_;
  if (state.closed) co_return;
  while (state.reconnecting) co_await state.reconnected.wait();
  state.closed = true;
  state.lease = {};
  const internal::SessionRef session = std::exchange(state.session, {});
  const uint64_t deadline = state.executor.now_ns() + state.options.call_timeout_ns;
  constexpr uint64_t kPauseNs = 50'000;
  while (session && session->usable() && (session->passive > 0 || !state.running.empty()) &&
         state.executor.now_ns() < deadline) {
    co_await state.executor.sleep_for(kPauseNs);
  }
  const bool nothing_in_doubt =
      state.running.empty() && state.doubtful.empty() && session && session->passive == 0;
  if (nothing_in_doubt && session->usable()) {
    std::array<std::byte, sizeof(RequestPrefix)> room;
    MessageWriter request(room);
    request.put(session->prefix());
    const auto answer =
        co_await session->rpc().call(static_cast<uint16_t>(Method::kGoodbye), request.message(), 0);
    static_cast<void>(answer);  // without it the server ends the session when its lease is over
  }
  if (state.embedded != nullptr) {
    // All that was acknowledged is durable; at worst the next open recovers.
    [[maybe_unused]] const Status stopped = co_await state.embedded->server->stop();
    state.embedded.reset();
  }
}

// ---- requests ----

namespace {

constexpr size_t kSmallRequest = 128;

// A request of a fixed part and some bytes, to the current connection.
template <typename Fixed>
MessageWriter& build(MessageWriter& request, const internal::ClientSession& session,
                     const Fixed& fixed, std::string_view bytes = {}) {
  request.put(session.prefix());
  request.put(fixed);
  request.put_bytes(bytes);
  return request;
}

}  // namespace

Task<Result<ScanPage>> Client::scan(TableId table, uint64_t cursor, uint32_t max_bytes,
                                    DamagedRecords damaged) {
  PMSTORE_CO_TRY(const internal::SessionRef session, co_await state_->connected());
  // The largest record must fit, or the scan could never get past it.
  constexpr uint32_t kLeast = sizeof(ScanReply) + sizeof(ScanItem) + kMaxKeyBytes + kMaxValueBytes;
  const uint32_t capacity = std::min(std::max(max_bytes, kLeast), session->rpc().max_reply_bytes());
  std::array<std::byte, kSmallRequest> room;
  MessageWriter request(room);
  build(
      request, *session,
      ScanRequest{
          cursor, std::min(max_bytes, capacity), raw(table), damaged == DamagedRecords::kSkip, {}});
  auto answer = co_await session->rpc().call(static_cast<uint16_t>(Method::kScan),
                                             request.message(), capacity);
  // The next record is locked: by a commit, which takes microseconds, or by a client that is gone,
  // whose locks go with its lease.
  Executor& executor = state_->executor;
  const uint64_t give_up_ns = executor.now_ns() + kLockedScanNs;
  uint64_t pause_ns = 10'000;
  while (!answer && answer.code() == ErrorCode::kConflict) {
    if (executor.now_ns() >= give_up_ns) {
      co_return make_error(ErrorCode::kConflict,
                           "a record has been locked by another client for 10 s; scan again");
    }
    co_await executor.sleep_for(pause_ns);
    if (pause_ns < 10'000'000) pause_ns *= 2;
    answer = co_await session->rpc().call(static_cast<uint16_t>(Method::kScan), request.message(),
                                          capacity);
  }
  if (!answer) co_return std::move(answer.error());
  MessageReader reader(answer->bytes());
  const auto reply = reader.get<ScanReply>();
  ScanPage page;
  page.cursor = reply.cursor;
  page.damaged = reply.damaged;
  for (uint32_t i = 0; i < reply.count && !reader.failed(); ++i) {
    const auto item = reader.get<ScanItem>();
    const std::string_view key = reader.get_bytes(item.key_bytes);
    const std::string_view value = reader.get_bytes(item.value_bytes);
    page.records.push_back({std::string(key), std::string(value)});
  }
  if (!reader.complete()) co_return session->malformed_reply("a scan");
  co_return std::move(page);
}

Task<Result<Outcome>> Client::outcome(TxId tx) {
  State& state = *state_;
  const auto of_mine = [&](const std::vector<uint64_t>& sequences) {
    return tx.client == state.id &&
           std::find(sequences.begin(), sequences.end(), tx.sequence) != sequences.end();
  };
  const auto still_running = [&]() -> Status {
    if (!of_mine(state.running)) return {};
    return make_error(ErrorCode::kCommitUnknown,
                      "transaction " + tx.to_string() + " is still running; ask again later");
  };
  PMSTORE_CO_TRY_STATUS(still_running());
  // A session with something in doubt was given up, so this one began after its end: the server
  // has fenced the old one, and nothing of it can happen any more.
  PMSTORE_CO_TRY(const internal::SessionRef session, co_await state.connected());
  PMSTORE_CO_TRY_STATUS(still_running());
  if (tx.client == state.id) {
    if (tx.sequence >= state.end_sequence) {
      co_return make_error(ErrorCode::kInvalidArgument,
                           "there is no transaction " + tx.to_string() +
                               " yet: its number is beyond those of this session");
    }
    // What is answered about a number of ours is final: it is never used from here on.
    state.next_sequence = std::max(state.next_sequence, tx.sequence + 1);
  }
  std::array<std::byte, kSmallRequest> room;
  MessageWriter request(room);
  build(request, *session, OutcomeRequest{tx.client, tx.sequence});
  auto answer = co_await session->rpc().call(static_cast<uint16_t>(Method::kOutcome),
                                             request.message(), sizeof(OutcomeReply));
  if (!answer) co_return std::move(answer.error());
  MessageReader reader(answer->bytes());
  const auto reply = reader.get<OutcomeReply>();
  if (!reader.complete() ||
      (reply.outcome != Outcome::kCommitted && reply.outcome != Outcome::kAborted)) {
    co_return session->malformed_reply("a question for an outcome");
  }
  if (of_mine(state.doubtful)) std::erase(state.doubtful, tx.sequence);
  co_return reply.outcome;
}

Task<Result<std::string>> Client::server_stat() {
  PMSTORE_CO_TRY(const internal::SessionRef session, co_await state_->connected());
  std::array<std::byte, kSmallRequest> room;
  MessageWriter request(room);
  request.put(session->prefix());
  constexpr uint32_t kCapacity = 64 * 1024;
  auto answer = co_await session->rpc().call(static_cast<uint16_t>(Method::kStat),
                                             request.message(), kCapacity);
  if (!answer) co_return std::move(answer.error());
  const auto bytes = answer->bytes();
  co_return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// ---- looking ----

Transaction Client::begin() { return Transaction(state_->take_transaction()); }
uint64_t Client::id() const { return state_->id; }
Status Client::check_room(std::span<const WriteSize> writes) const {
  const uint64_t limit = state_->info.max_redo_bytes;
  const bool rnic = state_->info.discipline == LockDiscipline::kRnic;
  uint64_t bytes = redo_header_bytes(1);
  for (const WriteSize& write : writes) {
    bytes += redo_write_bytes(record_bytes(write.key_bytes, write.value_bytes));
    // There the client cannot know that the record will not move.
    if (rnic) bytes += redo_write_bytes(record_bytes(write.key_bytes, 0));
  }
  if (limit == 0 || bytes <= limit) return {};
  return make_error(ErrorCode::kTooLarge,
                    "the transaction needs " + std::to_string(bytes) +
                        " bytes of redo log and this pool allows " + std::to_string(limit) +
                        "; split it, or create the pool with larger --ring-bytes");
}
const SessionInfo& Client::session() const { return state_->info; }
fabric::Counters Client::counters() const { return state_->book->counters(); }
Executor& Client::executor() { return state_->executor; }
Server* Client::local_server() {
  return state_->embedded == nullptr ? nullptr : state_->embedded->server.get();
}

}  // namespace pmstore
