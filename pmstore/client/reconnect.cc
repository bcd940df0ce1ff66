// The client's connection: made, lost, made again; and kept alive while nothing else is sent.
#include <array>

#include "base/check.h"
#include "pmstore/client/client_state.h"
#include "pmstore/client/transaction_state.h"

namespace pmstore {
namespace {

constexpr uint64_t kFirstPauseNs = 1'000'000;
constexpr uint64_t kLongestReconnectPauseNs = 200'000'000;

// Until when may the next attempt help? A server that is gone may come back. One that is busy with
// what the old session left behind says BackPressure, and is through in a moment.
uint64_t retry_until(ErrorCode code, uint64_t began_ns, const ClientOptions& options) {
  switch (code) {
    case ErrorCode::kDisconnected:
    case ErrorCode::kTimeout: return began_ns + options.reconnect_timeout_ns;
    case ErrorCode::kBackPressure: return began_ns + options.connect_timeout_ns;
    default: return 0;
  }
}

}  // namespace

// One attempt to connect again. When its coroutine is destroyed, those who wait try themselves.
class Client::State::Reconnecting {
 public:
  explicit Reconnecting(State& state) : state_(state) {
    PMSTORE_CHECK(!state_.reconnecting, "one attempt at a time");
    state_.reconnecting = true;
    state_.reconnect_failure.reset();
  }
  Reconnecting(const Reconnecting&) = delete;
  Reconnecting& operator=(const Reconnecting&) = delete;
  ~Reconnecting() {
    state_.reconnecting = false;
    state_.reconnected.notify_all();
  }

 private:
  State& state_;
};

Task<Result<internal::SessionRef>> Client::State::connected() {
  bool waited = false;
  while (reconnecting) {
    co_await reconnected.wait();
    waited = true;
  }
  if (closed) {
    co_return make_error(ErrorCode::kDisconnected, "the client was closed; connect another one");
  }
  if (has_usable_session()) co_return session;
  // One try for all who asked while it ran.
  if (waited && reconnect_failure) co_return Error(*reconnect_failure);
  const Reconnecting attempt(*this);
  const uint64_t began_ns = executor.now_ns();
  uint64_t pause_ns = kFirstPauseNs;
  if (session && session->usable()) co_await wait_for_commits();
  Status done = co_await connect_once();
  while (!done && executor.now_ns() + pause_ns < retry_until(done.code(), began_ns, options)) {
    co_await executor.sleep_for(pause_ns);
    pause_ns = std::min(2 * pause_ns, kLongestReconnectPauseNs);
    done = co_await connect_once();
  }
  if (!done) {
    reconnect_failure = done.error();
    co_return std::move(done.error());
  }
  co_return session;
}

Task<void> Client::State::wait_for_commits() {
  const uint64_t deadline = executor.now_ns() + options.call_timeout_ns;
  while (session->usable() && (!running.empty() || session->passive > 0) &&
         executor.now_ns() < deadline) {
    co_await executor.sleep_for(kFirstPauseNs);
  }
}

Task<Status> Client::State::connect_once() {
  const bool again = !info.uri.empty();  // tries in between have failed, and left no session
  // The server fences the old session before it answers, so what is left of it may go: operations
  // that are still unwinding keep it until they are through.
  session = {};
  lease = {};
  internal::SessionOptions with;
  with.client = id;
  with.call_timeout_ns = options.call_timeout_ns;
  with.connect_timeout_ns = options.connect_timeout_ns;
  with.one_sided_reads = options.one_sided_reads;
  with.log_strategy = options.log_strategy;
  with.required_discipline = options.required_discipline;
  auto opened = co_await internal::ClientSession::open(device, book, server_uri, with);
  if (!opened) co_return std::move(opened.error());
  const ServerHello& hello = (*opened)->hello();
  const uint64_t end = hello.next_sequence + kSessionSequences;
  if (std::max(next_sequence, hello.next_sequence) >= end) {
    co_return make_error(ErrorCode::kProtocol,
                         "the server numbers transactions from " +
                             std::to_string(hello.next_sequence) + " on, this client is at " +
                             std::to_string(next_sequence) +
                             ": it may serve an old copy of the pool; connect a new client");
  }
  session = std::move(*opened);
  next_sequence = std::max(next_sequence, hello.next_sequence);
  end_sequence = end;

  info.uri = uri.to_string();
  info.epoch = hello.epoch;
  info.discipline = session->discipline();
  info.persist = hello.persist_capability();
  info.log_strategy = session->discipline() == LockDiscipline::kRnic
                          ? session->ring().strategy()
                          : persist::WriteStrategy::kTwoSided;
  info.one_sided_reads = session->one_sided_reads();
  info.one_sided_commit = session->one_sided_commit();
  info.max_redo_bytes = hello.max_redo_bytes;
  info.reconnects += again;

  // A single write of the largest size must fit, so that it is the connection that refuses it.
  constexpr size_t kLargestWrite = 64 + kMaxKeyBytes + kMaxValueBytes + 8;
  const size_t bytes = std::max<size_t>(session->rpc().max_request_bytes(), kLargestWrite);
  if (bytes > scratch_bytes) {
    scratch = std::make_unique_for_overwrite<std::byte[]>(bytes);
    scratch_bytes = bytes;
  }
  if (hello.lease_ms > 0) {
    lease = keep_lease(uint64_t{hello.lease_ms} * 1'000'000 / 3);
    lease.start();
  }
  co_return Status{};
}

Task<void> Client::State::keep_lease(uint64_t interval_ns) {
  uint64_t sent = 0;
  while (true) {
    co_await executor.sleep_for(interval_ns);
    if (!session || !session->usable()) continue;  // the next operation reconnects
    const internal::SessionRef at = session;
    // Only requests count: the server does not see one-sided operations.
    const uint64_t& now_sent = at->connection().counters().server_messages;
    if (std::exchange(sent, now_sent) != now_sent) continue;
    std::array<std::byte, sizeof(RequestPrefix)> room;
    MessageWriter request(room);
    request.put(at->prefix());
    const auto answer =
        co_await at->rpc().call(static_cast<uint16_t>(Method::kPing), request.message(), 0);
    if (!answer) at->drop();
    sent = now_sent;
  }
}

Error Client::State::in_doubt(TxId tx, internal::ClientSession& of, const Error& why) {
  of.drop();
  add_doubt(tx.sequence);
  return make_error(ErrorCode::kCommitUnknown,
                    "transaction " + tx.to_string() +
                        " may or may not have committed; ask for its outcome (" + why.to_string() +
                        ")");
}

Transaction::Ref Client::State::take_transaction() {
  Transaction::State* state = nullptr;
  if (spare.empty()) {
    state = new Transaction::State(*this);
  } else {
    state = spare.back().release();
    spare.pop_back();
  }
  return state->hold();
}

void Client::State::run_commit(Task<void> commit) {
  // Those that have ended are suspended at their ends by now: this is not called by one of them.
  ended_commits.clear();
  commits.push_back(std::move(commit));
  commits.back().start();
}

}  // namespace pmstore
