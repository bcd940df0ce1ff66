#include "fabric/local/local_device.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "fabric/local/fault_injection.h"
#include "fabric/local/local_connection.h"
#include "fabric/local/local_listener.h"

namespace pmstore::fabric {

LocalRegion::LocalRegion(LocalDevice& device, std::span<std::byte> memory, Access access,
                         uint64_t key)
    : MemoryRegion(memory, access), device_(device) {
  remote_ = {reinterpret_cast<uintptr_t>(memory.data()), memory.size(), key};
}

LocalRegion::~LocalRegion() { device_.withdraw(remote_.key); }

struct LocalDevice::Connecting {
  Connecting(LocalDevice& owner, LocalHandshake& made, uint64_t until_ns)
      : device(owner), handshake(made), deadline_ns(until_ns), over(owner.executor_) {
    device.connecting_.push_back(this);
    handshake.set_waiting(&device.executor_);
  }
  ~Connecting() {
    handshake.set_waiting(nullptr);
    std::erase(device.connecting_, this);
  }
  Connecting(const Connecting&) = delete;
  Connecting& operator=(const Connecting&) = delete;

  LocalDevice& device;
  LocalHandshake& handshake;
  const uint64_t deadline_ns;
  base::WaitList over;
};

LocalDevice::LocalDevice(base::Executor& executor, const LocalDeviceOptions& options)
    : Device(executor), notices_dead_peers_(options.notices_dead_peers) {
  if (options.late_effects_seed) late_random_.emplace(*options.late_effects_seed);
  executor_.add_poller(this);
}

LocalDevice::~LocalDevice() {
  PMSTORE_CHECK(connections_ == 0, "connections are destroyed before their device");
  PMSTORE_CHECK(listening_.empty(), "listeners are destroyed before their device");
  PMSTORE_CHECK(connecting_.empty(), "every connect ends before its device does");
  executor_.remove_poller(this);
  if (destroyed_ != nullptr) *destroyed_ = true;
}

Result<std::unique_ptr<MemoryRegion>> LocalDevice::register_memory(std::span<std::byte> memory,
                                                                   Access access) {
  if (internal::memory_is_refused(memory.size())) {
    return make_error(ErrorCode::kIo, "an injected fault refuses this memory");
  }
  const uint64_t key = regions_.add(memory, access);
  if (key == 0) {
    return make_error(ErrorCode::kIo,
                      "this device has 16384 memory regions already; register fewer, larger ones");
  }
  return std::unique_ptr<MemoryRegion>(new LocalRegion(*this, memory, access, key));
}

Result<std::unique_ptr<Listener>> LocalDevice::listen(const Uri& uri, Acceptor& acceptor) {
  if (uri.scheme != Scheme::kLocal) {
    return make_error(ErrorCode::kInvalidArgument, "the local provider cannot listen at " +
                                                       uri.to_string() + "; use local:NAME");
  }
  return LocalListener::create(*this, uri, acceptor);
}

base::Task<Result<std::unique_ptr<Connection>>> LocalDevice::connect(Uri uri,
                                                                     ConnectOptions options) {
  if (options.hello.size() > kMaxHelloBytes) {
    co_return make_error(ErrorCode::kInvalidArgument, "a hello is at most 4096 bytes");
  }
  const Error nobody =
      make_error(ErrorCode::kDisconnected, "nobody in this process serves " + uri.to_string());
  std::shared_ptr<LocalListening> listening = find_listening(uri.name);
  if (uri.scheme != Scheme::kLocal || listening == nullptr) co_return nobody;

  auto handshake = std::make_shared<LocalHandshake>();
  handshake->hello.assign(options.hello.begin(), options.hello.end());
  handshake->operation_timeout_ns = options.operation_timeout_ns;
  Channel& channel = *handshake->channel;
  auto connection = std::make_unique<LocalConnection>(
      *this, handshake->channel, channel.connector, channel.listener, options.operation_timeout_ns);
  Connecting connecting(*this, *handshake, executor_.now_ns() + options.timeout_ns);
  {
    std::lock_guard lock(listening->mutex);
    if (listening->closed) co_return nobody;
    listening->handshakes.push_back(handshake);
    listening->waiting.store(true, std::memory_order_release);
    listening->device->executor().wake();
  }
  listening.reset();
  // Usually answered within a few turns; after that, waiting lets virtual time pass.
  constexpr int kQuickTurns = 64;
  for (int turn = 0; turn < kQuickTurns && !handshake->answered(); ++turn) {
    co_await executor_.yield();
  }
  while (!handshake->answered()) {
    if (executor_.now_ns() >= connecting.deadline_ns) {
      co_return make_error(ErrorCode::kTimeout, uri.to_string() + " did not answer the handshake");
    }
    co_await connecting.over.wait();
  }
  if (handshake->answer.load(std::memory_order_acquire) == LocalHandshake::Answer::kRefused) {
    co_return std::move(handshake->refusal);
  }
  connection->meet_peer();
  connection->set_peer_hello(std::move(handshake->answer_hello));
  co_return std::unique_ptr<Connection>(std::move(connection));
}

base::Task<Result<std::unique_ptr<Connection>>> LocalDevice::loopback() {
  if (internal::loopback_is_refused()) {
    co_return make_error(ErrorCode::kDisconnected, "an injected fault refuses this loopback");
  }
  auto channel = std::make_shared<Channel>();
  Endpoint& both = channel->connector;
  const uint64_t timeout_ns = ConnectOptions{}.operation_timeout_ns;
  auto connection =
      std::make_unique<LocalConnection>(*this, std::move(channel), both, both, timeout_ns);
  connection->meet_peer();
  co_return std::unique_ptr<Connection>(std::move(connection));
}

void LocalDevice::schedule(Endpoint& endpoint) {
  if (endpoint.scheduled.exchange(true, std::memory_order_acq_rel)) return;
  Endpoint* top = scheduled_.load(std::memory_order_relaxed);
  do {
    endpoint.next_scheduled = top;
  } while (!scheduled_.compare_exchange_weak(top, &endpoint, std::memory_order_release,
                                             std::memory_order_relaxed));
  executor_.wake();
}

void LocalDevice::schedule_own(Endpoint& endpoint) {
  if (endpoint.same_thread) {
    if (endpoint.scheduled.load(std::memory_order_relaxed)) return;
    endpoint.scheduled.store(true, std::memory_order_relaxed);
  } else {
    if (endpoint.scheduled.exchange(true, std::memory_order_acq_rel)) return;
  }
  enqueue(endpoint);
}

void LocalDevice::enqueue(Endpoint& endpoint) {
  endpoint.next_scheduled = nullptr;
  (first_ == nullptr ? first_ : last_->next_scheduled) = &endpoint;
  last_ = &endpoint;
  ++queued_;
}

void LocalDevice::take_scheduled() {
  if (scheduled_.load(std::memory_order_relaxed) == nullptr) return;
  Endpoint* endpoint = scheduled_.exchange(nullptr, std::memory_order_acquire);
  Endpoint* oldest = nullptr;
  while (endpoint != nullptr) {  // reverse the stack: the endpoint scheduled first is served first
    Endpoint* const below = endpoint->next_scheduled;
    endpoint->next_scheduled = oldest;
    oldest = endpoint;
    endpoint = below;
  }
  while (oldest != nullptr) {
    Endpoint* const next = oldest->next_scheduled;
    enqueue(*oldest);
    oldest = next;
  }
}

void LocalDevice::unschedule(Endpoint& endpoint) {
  if (!endpoint.scheduled.load(std::memory_order_acquire)) return;
  take_scheduled();
  Endpoint* before = nullptr;
  for (Endpoint* at = first_; at != nullptr; before = at, at = at->next_scheduled) {
    if (at != &endpoint) continue;
    (before == nullptr ? first_ : before->next_scheduled) = at->next_scheduled;
    if (last_ == at) last_ = before;
    --queued_;
    break;
  }
  endpoint.scheduled.store(false, std::memory_order_release);
}

bool LocalDevice::poll_scheduled(size_t& handled, const bool& destroyed) {
  deferred_ = false;
  take_scheduled();
  // Only what is there now: what has to be looked at again waits for the next poll.
  for (size_t left = queued_; left > 0 && first_ != nullptr; --left) {
    Endpoint& endpoint = *first_;
    first_ = endpoint.next_scheduled;
    --queued_;
    if (late_random_ && late_random_->below(2) == 0) [[unlikely]] {
      enqueue(endpoint);
      deferred_ = true;
      continue;
    }
    // Before looking at it, so that what arrives meanwhile schedules it again.
    if (endpoint.same_thread) {
      endpoint.scheduled.store(false, std::memory_order_relaxed);
    } else {
      endpoint.scheduled.exchange(false, std::memory_order_acq_rel);
    }
    handled += endpoint.connection->deliver();
    if (destroyed) return true;
  }
  return false;
}

size_t LocalDevice::poll_connecting() {
  const uint64_t now_ns = executor_.now_ns();
  size_t over = 0;
  for (Connecting* each : connecting_) {
    if (each->over.waiting() == 0) continue;
    if (!each->handshake.answered() && now_ns < each->deadline_ns) continue;
    each->over.notify_all();
    ++over;
  }
  return over;
}

size_t LocalDevice::poll() {
  // What is delivered may resume a coroutine that destroys this device.
  bool destroyed = false;
  bool* const outer = std::exchange(destroyed_, &destroyed);
  size_t handled = connecting_.empty() ? 0 : poll_connecting();
  bool gone = poll_scheduled(handled, destroyed);
  if (!gone && (!late_.empty() || !incoming_.empty())) [[unlikely]] {
    gone = poll_late(handled, destroyed);
  }
  // A copy: the acceptor may open or close listeners.
  for (size_t i = 0; !gone && i < listening_.size(); ++i) {
    const std::shared_ptr<LocalListening> listening = listening_[i];
    handled += listening->serve();
    gone = destroyed;
  }
  if (gone) {
    if (outer != nullptr) *outer = true;
    return handled;
  }
  destroyed_ = outer;
  return handled;
}

bool LocalDevice::arm() {
  PMSTORE_CHECK((first_ == nullptr) == (queued_ == 0), "the queue is as long as it is counted");
  if (first_ != nullptr || scheduled_.load(std::memory_order_acquire) != nullptr) return false;
  return std::none_of(listening_.begin(), listening_.end(),
                      [](const auto& listening) {
                        return listening->waiting.load(std::memory_order_acquire);
                      }) &&
         std::none_of(connecting_.begin(), connecting_.end(),
                      [](const Connecting* each) { return each->handshake.answered(); });
}

uint64_t LocalDevice::next_event_ns() const {
  uint64_t next_ns = next_late_event_ns();
  for (const Connecting* each : connecting_) next_ns = std::min(next_ns, each->deadline_ns);
  return next_ns;
}

Result<std::unique_ptr<Device>> open_local_device(base::Executor& executor,
                                                  const LocalDeviceOptions& options) {
  return std::unique_ptr<Device>(new LocalDevice(executor, options));
}

}  // namespace pmstore::fabric
