#include "pmstore/client.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "pmstore/client/client_state.h"
#include "pmstore/client/commit_room.h"
#include "pmstore/client/probe.h"
#include "pmstore/client/single_write.h"
#include "pmstore/client/table_calls.h"
#include "pmstore/client/transaction_state.h"
#include "pmstore/layout/record_layout.h"

namespace pmstore {
namespace {

constexpr uint64_t kLockedScanNs = 10'000'000'000;

// Nothing is validated, so a part that met a record which was locked for long is read again.
Task<Result<Values>> get_part(Client& client, TableId table,
                              std::span<const std::string_view> keys) {
  constexpr unsigned kTries = 4;
  for (unsigned tries = 1;; ++tries) {
    Transaction reading = client.begin();
    auto values = co_await reading.get_many(table, keys);
    if (values || values.code() != ErrorCode::kConflict || tries == kTries) {
      co_return std::move(values);
    }
  }
}

}  // namespace

Client::State::State(Executor& client_executor, std::shared_ptr<fabric::Device> client_device,
                     fabric::Uri uri, ClientOptions client_options)
    : executor(client_executor),
      options(std::move(client_options)),
      device(std::move(client_device)),
      secret(options.secret.empty() ? ClientSecret::random() : options.secret),
      numbers(secret.id()),
      reader(executor, options.location_cache_entries),
      connector(executor, device, std::move(uri), options, secret, numbers) {}

Client::State::~State() = default;

Transaction::Ref Client::State::take_transaction() {
  Transaction::State* state = nullptr;
  if (spare.empty()) {
    state = new Transaction::State(*this);
  } else {
    state = spare.back().release();
    spare.pop_back();
  }
  PMSTORE_CHECK(state->unused(), "a transaction begins empty");
  return state->hold();
}

Client::Client(std::unique_ptr<State> state) : state_(std::move(state)) {}
Client::~Client() = default;

Task<Result<std::unique_ptr<Client>>> Client::connect(Executor& executor, fabric::Uri uri,
                                                      ClientOptions options) {
  PMSTORE_CO_TRY(std::unique_ptr<fabric::Device> device,
                 fabric::open_device(uri.scheme, executor, options.devices));
  auto state = std::make_unique<State>(executor, std::move(device), uri, std::move(options));
  Status connected = co_await state->connector.connect_once();
  if (!connected && connected.code() == ErrorCode::kBackPressure &&
      !state->options.secret.empty()) {
    // The server resolves what an earlier session of this client has left; wait for that.
    auto later = co_await state->connector.connected();
    connected = later ? Status{} : Status(std::move(later.error()));
  }
  const bool no_server = !connected && connected.code() == ErrorCode::kDisconnected;
  if (no_server && uri.scheme == fabric::Scheme::kLocal && state->options.devices == nullptr) {
    // No server of this process listens there, so it is the path of a pool.
    PMSTORE_CO_TRY(state->embedded,
                   co_await internal::Embedded::open(executor, uri.name, state->options));
    state->connector.set_server(*state->embedded);
    connected = co_await state->connector.connect_once();
  }
  if (!connected) co_return std::move(connected.error());
  co_return std::unique_ptr<Client>(new Client(std::move(state)));
}

Task<void> Client::close() {
  State& state = *state_;
  if (state.connector.closed()) co_return;
  co_await state.connector.close();
  if (state.embedded != nullptr) {
    // All that was acknowledged is durable; at worst the next open recovers.
    [[maybe_unused]] const Status stopped = co_await state.embedded->server->stop();
    state.embedded.reset();
  }
}

// ---- single operations ----

template <typename Wanted>
[[gnu::hot]] Task<Result<typename Wanted::Value>> Client::State::get(TableId table,
                                                                     std::string_view key,
                                                                     Wanted wanted) {
  if (Status sizes = check_key(key); !sizes) co_return std::move(sizes.error());
  internal::SessionRef session = connector.session();
  if (!connector.may_begin()) {
    PMSTORE_CO_TRY(session, co_await connector.connected());
  }
  if constexpr (std::is_same_v<Wanted, internal::GivesValueView>) {
    if (!session->in_process()) co_return internal::Reader::no_view_error();
  }
  auto located = co_await reader.locate(session, table, key, wanted.room());
  if (!located) co_return std::move(located.error());
  if (!located->found) co_return make_error(ErrorCode::kNotFound);
  co_return wanted.give();
}

[[gnu::hot]] Task<Result<std::string>> Client::get(TableId table, std::string_view key) {
  return state_->get(table, key, internal::GivesString{});
}
[[gnu::hot]] Task<Result<size_t>> Client::get(TableId table, std::string_view key,
                                              std::span<std::byte> into) {
  return state_->get(table, key, internal::FillsBuffer{into});
}

Task<Result<ValueView>> Client::view(TableId table, std::string_view key) {
  return state_->get(table, key, internal::GivesValueView{});
}
void ValueView::end() { slots_->end_view(slot_); }

Task<Result<Values>> Client::get_many(TableId table, std::span<const std::string_view> keys) {
  Values values;
  values.reserve(keys.size());
  while (!keys.empty()) {
    const auto part = keys.first(std::min(keys.size(), Transaction::State::kKeysTogether));
    keys = keys.subspan(part.size());
    if (state_->connector.has_usable_session() && state_->connector.session()->in_process()) {
      PMSTORE_CO_TRY_STATUS(co_await state_->get_in_turn(table, part, values));
      continue;
    }
    PMSTORE_CO_TRY(Values some, co_await get_part(*this, table, part));
    std::move(some.begin(), some.end(), std::back_inserter(values));
  }
  co_return values;
}

Task<Status> Client::State::get_in_turn(TableId table, std::span<const std::string_view> keys,
                                        Values& values) {
  PMSTORE_CHECK(values.capacity() - values.size() >= keys.size(), "values stay where they are");
  connector.session()->calls().prefetch(table, keys);
  for (const std::string_view key : keys) {
    PMSTORE_CO_TRY_STATUS(check_key(key));
    internal::SessionRef session = connector.session();
    if (!connector.has_usable_session()) {
      PMSTORE_CO_TRY(session, co_await connector.connected());
    }
    std::optional<std::string>& value = values.emplace_back(std::in_place);
    auto located = co_await reader.locate(session, table, key, internal::ValueRoom(*value));
    if (!located) co_return std::move(located.error());
    if (!located->found) value.reset();
  }
  co_return Status{};
}

[[gnu::hot]] Task<Status> Client::put(TableId table, std::string_view key, std::string_view value) {
  return internal::write_one(*this, state_->connector, state_->numbers, WriteKind::kPut, table, key,
                             value);
}
Task<Status> Client::insert(TableId table, std::string_view key, std::string_view value) {
  return internal::write_one(*this, state_->connector, state_->numbers, WriteKind::kInsert, table,
                             key, value);
}
Task<Status> Client::erase(TableId table, std::string_view key) {
  return internal::write_one(*this, state_->connector, state_->numbers, WriteKind::kErase, table,
                             key, {});
}

// ---- tables ----

Task<Result<TableId>> Client::open_table(std::string_view name, bool create) {
  return internal::open_table(state_->connector, state_->reader, name, create);
}
Task<Result<TableId>> Client::create_table(std::string_view name, TableKind kind) {
  return internal::create_table(state_->connector, state_->reader, name, kind);
}
Task<Result<std::vector<TableInfo>>> Client::list_tables() {
  return internal::list_tables(state_->connector);
}
Task<Status> Client::drop_table(std::string_view name) {
  return internal::drop_table(state_->connector, state_->executor, name);
}
Task<Result<TableUsage>> Client::table_usage(TableId table) {
  return internal::table_usage(state_->connector, state_->executor, table);
}
Task<Result<uint64_t>> Client::count_records(TableId table) {
  PMSTORE_CO_TRY(const TableUsage usage,
                 co_await internal::table_usage(state_->connector, state_->executor, table, true));
  co_return usage.records;
}
Task<Result<PoolProbe>> Client::probe() {
  return internal::probe_pool(state_->connector, state_->numbers);
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
  PMSTORE_CO_TRY(const internal::SessionRef session, co_await state_->connector.connected());
  // The largest record must fit, or the scan could never get past it.
  constexpr uint32_t kLeast = sizeof(ScanReply) + sizeof(ScanItem) + kMaxKeyBytes + kMaxValueBytes;
  const uint32_t capacity = std::min(std::max(max_bytes, kLeast), session->rpc().max_reply_bytes());
  const ScanRequest request{
      cursor, std::min(max_bytes, capacity), raw(table), damaged == DamagedRecords::kSkip, {}};
  auto page = co_await session->calls().scan(request, capacity);
  // The next record is locked: by a commit, which takes microseconds, or by a client that is gone,
  // whose locks go with its lease.
  Executor& executor = state_->executor;
  const uint64_t give_up_ns = executor.now_ns() + kLockedScanNs;
  uint64_t pause_ns = 10'000;
  while (!page && page.code() == ErrorCode::kConflict) {
    if (executor.now_ns() >= give_up_ns) {
      co_return make_error(ErrorCode::kConflict,
                           "a record has been locked by another client for 10 s; scan again");
    }
    co_await executor.sleep_for(pause_ns);
    if (pause_ns < 10'000'000) pause_ns *= 2;
    page = co_await session->calls().scan(request, capacity);
  }
  co_return page;
}

Task<Result<Outcome>> Client::outcome(TxId tx) {
  State& state = *state_;
  const auto still_running = [&]() -> Status {
    if (!state.numbers.is_running(tx)) return {};
    return make_error(ErrorCode::kCommitUnknown,
                      "transaction " + tx.to_string() + " is still running; ask again later");
  };
  PMSTORE_CO_TRY_STATUS(still_running());
  // A session with something in doubt was given up, so this one began after its end: the server
  // has fenced the old one, and nothing of it can happen any more.
  PMSTORE_CO_TRY(const internal::SessionRef session, co_await state.connector.connected());
  PMSTORE_CO_TRY_STATUS(still_running());
  // What is answered about a number of this client is final: it is never used from here on.
  if (tx.client == state.numbers.client() && !state.numbers.retire(tx.sequence)) {
    co_return make_error(ErrorCode::kInvalidArgument,
                         "there is no transaction " + tx.to_string() +
                             " yet: its number is beyond those of this session");
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
  state.numbers.resolve(tx);
  co_return reply.outcome;
}

Task<Result<std::string>> Client::server_stat() {
  PMSTORE_CO_TRY(const internal::SessionRef session, co_await state_->connector.connected());
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
ClientId Client::id() const { return state_->numbers.client(); }
Status Client::check_room(std::span<const WriteSize> writes) const {
  const uint64_t limit = state_->connector.info().max_redo_bytes;
  const bool rnic = state_->connector.info().discipline == LockDiscipline::kRnic;
  internal::CommitRoom room(state_->connector.info().discipline);
  // Under rnic the client cannot know that the record will not move.
  for (const WriteSize& each : writes) room.add_write(each.key_bytes, each.value_bytes, rnic);
  if (room.fits(limit, 0)) return {};
  if (room.has_too_many_records()) {
    return make_error(ErrorCode::kTooLarge, "a transaction under lock discipline rnic may touch " +
                                                std::to_string(internal::OpBuffer::kWords) +
                                                " records; split it");
  }
  const std::string bytes = std::to_string(room.redo_bytes());
  return make_error(ErrorCode::kTooLarge,
                    "the transaction needs " + bytes + " bytes of redo log and this pool allows " +
                        std::to_string(limit) + "; split it, or create the pool with larger " +
                        (rnic ? "--ring-bytes" : "--shard-log-bytes"));
}
const SessionInfo& Client::session() const { return state_->connector.info(); }
fabric::Counters Client::counters() const { return state_->connector.counters(); }
Executor& Client::executor() { return state_->executor; }
Server* Client::local_server() {
  return state_->embedded == nullptr ? nullptr : state_->embedded->server.get();
}

}  // namespace pmstore
