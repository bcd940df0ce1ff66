#include "fabric/internal/polled_device.h"

#include <algorithm>
#include <utility>

#include "fabric/internal/handshake_listener.h"

namespace pmstore::fabric::internal {

namespace {

constexpr uint64_t kTickNs = 1'000'000;
constexpr uint64_t kHandshakeTickNs = 20'000;
// A connection that has rested for so long gives memory back. One that is used more often does not
// take it again each time.
constexpr uint64_t kSurplusNs = 1'000'000'000;
// How long a client's handshake waits between looks: a part of the time that it has taken, so that
// a server that does not answer costs little.
constexpr uint64_t kHandshakePart = 8;
constexpr uint64_t kLongestHandshakeWaitNs = 1'000'000;

uint64_t handshake_wait_ns(uint64_t now_ns, uint64_t since_ns) {
  return std::clamp((now_ns - since_ns) / kHandshakePart, kHandshakeTickNs,
                    kLongestHandshakeWaitNs);
}

}  // namespace

PolledDevice::PolledDevice(base::Executor& executor, Scheme scheme)
    : Device(executor), scheme_(scheme) {
  executor_.add_poller(this);
}

PolledDevice::~PolledDevice() {
  executor_.remove_poller(this);
  PMSTORE_CHECK(connections_ == 0 && attentive_.empty() && listeners_.empty(),
                "connections and listeners use their device to the end");
}

base::Task<Result<std::unique_ptr<Connection>>> PolledDevice::loopback() {
  co_return make_error(ErrorCode::kUnsupported,
                       "tcp and shm have no remote atomics, so there is no use for a loopback; "
                       "choose the lock discipline 'cpu'");
}

void PolledDevice::add(PolledConnection& connection) {
  ++connections_;
  attend(connection);
}

void PolledDevice::remove(PolledConnection& connection) {
  PMSTORE_CHECK(connections_ > 0, "a connection is removed once");
  --connections_;
  if (connection.attention_.listed) attentive_.remove(connection);
  if (connection.surplus_.listed) surplus_.remove(connection);
}

[[gnu::hot]] void PolledDevice::attend(PolledConnection& connection) {
  attentive_.push_back(connection);
  if (connection.surplus_.listed) surplus_.remove(connection);
}

[[gnu::hot]] void PolledDevice::let_rest(PolledConnection& connection, uint64_t now_ns) {
  attentive_.remove(connection);
  connection.rest();
  if (!connection.has_surplus()) return;
  connection.rested_ns_ = now_ns;
  surplus_.push_back(connection);
}

void PolledDevice::remove(HandshakeListener& listener) { std::erase(listeners_, &listener); }

[[gnu::hot]] size_t PolledDevice::poll() {
  DestructionWatch watch(lifetime_);
  size_t handled = poll_queues();
  if (watch.destroyed()) return handled;
  polls_since_look_ += handled > 0 ? 1 : 2;
  if (polls_since_look_ >= kLookNow) {
    polls_since_look_ = 0;
    tick();
    if (watch.destroyed()) return handled + 1;
  }
  return handled + std::exchange(events_, 0);
}

[[gnu::hot]] bool PolledDevice::arm() {
  if (next_tick_ns_ == 0) return false;
  const uint64_t now_ns = executor_.now_ns();
  uint64_t until_ns = kNoEvent;
  for_each_attentive([&](PolledConnection& connection) {
    if (!connection.needs_attention()) return let_rest(connection, now_ns);
    until_ns = std::min(until_ns, connection.next_tick_ns(now_ns));
  });
  if (!surplus_.empty()) until_ns = std::min(until_ns, surplus_.front()->rested_ns_ + kSurplusNs);
  for (HandshakeListener* listener : listeners_) {
    until_ns = std::min(until_ns, listener->next_tick_ns(now_ns));
  }
  // No tick comes earlier than that.
  if (until_ns != kNoEvent && handshakes_ == 0) until_ns = std::max(until_ns, next_tick_ns_);
  armed_until_ns_ = until_ns;
  return true;
}

[[gnu::hot]] void PolledDevice::disarm() {
  armed_until_ns_ = kNoEvent;
  polls_since_look_ = kLookNow;  // time has passed
}

[[gnu::hot]] void PolledDevice::tick() {
  const uint64_t now_ns = executor_.now_ns();
  if (now_ns < next_tick_ns_ &&
      (handshakes_ == 0 || now_ns + kTickNs - kHandshakeTickNs < next_tick_ns_)) {
    return;
  }
  next_tick_ns_ = now_ns + kTickNs;
  DestructionWatch watch(lifetime_);
  tick_connections(now_ns);
  if (watch.destroyed()) return;
  while (!surplus_.empty() && now_ns >= surplus_.front()->rested_ns_ + kSurplusNs) {
    surplus_.pop_front().give_back();
  }
  for (size_t i = 0; i < listeners_.size(); ++i) listeners_[i]->tick(now_ns);
}

// Each is ticked once. Those that need attention from now on are behind the others.
[[gnu::hot]] void PolledDevice::tick_connections(uint64_t now_ns) {
  DestructionWatch watch(lifetime_);
  const uint64_t tick = ++ticks_;
  while (!watch.destroyed() && !attentive_.empty()) {
    PolledConnection& connection = *attentive_.front();
    if (connection.visited_ == tick) return;
    count_visit();
    if (!connection.needs_attention()) {
      let_rest(connection, now_ns);
      continue;
    }
    attentive_.remove(connection);
    attentive_.push_back(connection);
    connection.visited_ = tick;
    connection.tick(now_ns);
  }
}

base::Task<Result<std::unique_ptr<Connection>>> PolledDevice::connect(Uri uri,
                                                                      ConnectOptions options) {
  // Copied here and not in the coroutine, which starts later, when the caller's buffer may be gone.
  return shake_hands(std::move(uri), {options.hello.begin(), options.hello.end()},
                     options.timeout_ns, options.operation_timeout_ns);
}

base::Task<Result<HandshakeMessage>> PolledDevice::await_answer(PolledConnection& connection,
                                                                MessageKind kind,
                                                                uint64_t deadline_ns,
                                                                const std::string& where) {
  const uint64_t since_ns = executor_.now_ns();
  for (;;) {
    // An answer counts even if the listener has closed after it.
    if (auto message = connection.take_control()) {
      Result<HandshakeMessage> answer = decode(*message);
      if (!answer) co_return std::move(answer.error());
      if (answer->kind == MessageKind::kRefuse) co_return answer->to_error();
      if (answer->kind == kind) co_return std::move(*answer);
      co_return make_error(ErrorCode::kProtocol, where + " answered the handshake with nonsense");
    }
    if (connection.broken()) co_return connection.why_broken();
    const uint64_t now_ns = executor_.now_ns();
    if (now_ns >= deadline_ns) {
      co_return make_error(ErrorCode::kTimeout,
                           where + " did not answer the handshake in time; check that it runs");
    }
    co_await executor_.sleep_for(handshake_wait_ns(now_ns, since_ns));
  }
}

base::Task<Result<std::unique_ptr<Connection>>> PolledDevice::shake_hands(
    Uri uri, std::vector<std::byte> hello, uint64_t timeout_ns, uint64_t operation_timeout_ns) {
  if (uri.scheme != scheme_) {
    co_return make_error(ErrorCode::kInvalidArgument,
                         uri.to_string() + " is not an address of the '" +
                             std::string(scheme_name(scheme_)) + "' device");
  }
  if (hello.size() > kMaxHelloBytes) {
    co_return make_error(ErrorCode::kInvalidArgument, "a hello of " + std::to_string(hello.size()) +
                                                          " bytes is over the limit of " +
                                                          std::to_string(kMaxHelloBytes));
  }
  struct Busy {
    PolledDevice& device;
    explicit Busy(PolledDevice& d) : device(d) { device.handshake_started(); }
    ~Busy() { device.handshake_ended(); }
  } busy(*this);
  const uint64_t since_ns = executor_.now_ns();
  const uint64_t deadline_ns = since_ns + timeout_ns;
  const std::string where = uri.to_string();
  const ConnectionOptions options{operation_timeout_ns};
  PMSTORE_CO_TRY(std::unique_ptr<PolledConnection> connection, dial(uri, options));
  while (!connection->transport_ready()) {
    if (connection->broken()) co_return connection->why_broken();
    const uint64_t now_ns = executor_.now_ns();
    if (now_ns >= deadline_ns) {
      co_return make_error(
          ErrorCode::kTimeout,
          where + " does not answer; check the address and that pmstored runs there");
    }
    co_await executor_.sleep_for(handshake_wait_ns(now_ns, since_ns));
  }
  HandshakeMessage hello_message{
      MessageKind::kHello, connection->endpoint_name(), std::move(hello), {}};
  std::vector<std::byte> encoded = encode(hello_message);
  PMSTORE_CO_TRY_STATUS(connection->send_control(std::move(encoded)));
  base::Task<Result<HandshakeMessage>> accepting =
      await_answer(*connection, MessageKind::kAccept, deadline_ns, where);
  Result<HandshakeMessage> answer = co_await std::move(accepting);
  if (!answer) co_return std::move(answer.error());
  PMSTORE_CO_TRY_STATUS(connection->link(answer->endpoint));
  connection->peer_has_linked();
  connection->set_peer_hello(std::move(answer->body));
  HandshakeMessage ready{MessageKind::kReady, {}, {}, {}};
  encoded = encode(ready);
  PMSTORE_CO_TRY_STATUS(connection->send_control(std::move(encoded)));
  base::Task<Result<HandshakeMessage>> welcoming =
      await_answer(*connection, MessageKind::kWelcome, deadline_ns, where);
  Result<HandshakeMessage> welcome = co_await std::move(welcoming);
  if (!welcome) co_return std::move(welcome.error());
  connection->establish();
  co_return std::unique_ptr<Connection>(std::move(connection));
}

}  // namespace pmstore::fabric::internal
