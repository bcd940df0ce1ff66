// Of LogService: handshakes, leases, fencing, group commit. The calls are in log_service_calls.cc.
#include "log/log_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "log/internal/log_service_state.h"

namespace pmstore::log {
namespace {

constexpr unsigned kLeaseTicks = 4;
constexpr size_t kMaxGroup = 1024;  // appends that wait for one drain

template <typename T>
std::vector<std::byte> as_message(const T& value) {
  std::vector<std::byte> bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

Status check_hello(const LogHello& hello, size_t bytes) {
  if (bytes < 2 * sizeof(uint32_t) || hello.version != kLogProtocolVersion) {
    return make_error(ErrorCode::kVersionMismatch,
                      fmt::format("this server speaks log protocol version {}; use a client of the "
                                  "same release",
                                  kLogProtocolVersion));
  }
  const bool known_kind =
      hello.kind == LogConnectionKind::kSession || hello.kind == LogConnectionKind::kProducer;
  const bool known_takeover =
      hello.takeover == Takeover::kIfFree || hello.takeover == Takeover::kSteal;
  const bool padded = std::all_of(std::begin(hello.padding), std::end(hello.padding),
                                  [](uint8_t byte) { return byte == 0; });
  if (bytes != sizeof hello || !known_kind || !known_takeover || !padded) {
    return make_error(ErrorCode::kProtocol, "a malformed log hello");
  }
  if (hello.client != 0) return {};
  return make_error(ErrorCode::kInvalidArgument, "a client's id is not 0");
}

}  // namespace

Error no_log_area() {
  return make_error(ErrorCode::kUnsupported,
                    "this pool has no log area; create it with --log-bytes");
}

LogService::LogService(std::unique_ptr<State> state) : state_(std::move(state)) {}
LogService::~LogService() = default;

Result<std::unique_ptr<LogService>> LogService::start(base::Executor& executor, LogStore& store,
                                                      const LogServiceOptions& options) {
  if (options.lease_ms == 0 || options.max_sessions == 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a log service needs a lease of at least 1 ms and room for a session");
  }
  auto state = std::make_unique<State>(executor, store, options);
  state->committing = state->commit_groups();
  state->committing.start();
  return std::unique_ptr<LogService>(new LogService(std::move(state)));
}

Result<size_t> LogService::add_endpoint(fabric::Device& device,
                                        const persist::PersistCapability& capability) {
  auto endpoint = std::make_unique<internal::LogEndpoint>();
  endpoint->device = &device;
  endpoint->capability = capability;
  PMSTORE_TRY(endpoint->area,
              device.register_memory(state_->store.area(), fabric::Access::kRemoteRead));
  PMSTORE_TRY(endpoint->words,
              device.register_memory(state_->store.words(), fabric::Access::kRemoteRead));
  state_->endpoints.push_back(std::move(endpoint));
  return state_->endpoints.size() - 1;
}

void LogService::remove_last_endpoint() { state_->endpoints.pop_back(); }

void LogService::name_endpoint(size_t endpoint, std::string uri) {
  state_->endpoints.at(endpoint)->uri = std::move(uri);
}

const LogServiceCounters& LogService::counters() const { return state_->counters; }

// ---- handshake ----

bool LogService::is_log_hello(std::span<const std::byte> hello) {
  uint32_t magic = 0;
  if (hello.size() < sizeof magic) return false;
  std::memcpy(&magic, hello.data(), sizeof magic);
  return magic == kLogProtocolMagic;
}

Result<std::vector<std::byte>> LogService::on_hello(size_t endpoint, uint64_t token,
                                                    std::span<const std::byte> bytes) {
  State& s = *state_;
  LogHello hello;
  hello.version = 0;
  std::memcpy(&hello, bytes.data(), std::min(bytes.size(), sizeof hello));
  PMSTORE_TRY_STATUS(check_hello(hello, bytes.size()));
  if (s.stopped) return make_error(ErrorCode::kDisconnected, "the server is stopping");
  State::Peer peer;
  PMSTORE_TRY(auto answer, s.greet(endpoint, hello, peer));
  s.peers.insert(peer);
  s.handshakes[{endpoint, token}] = peer;
  if (peer->leased) s.watch_peers();
  return answer;
}

Result<std::vector<std::byte>> LogService::State::greet(size_t endpoint, const LogHello& hello,
                                                        Peer& made) {
  internal::LogEndpoint& at = *endpoints.at(endpoint);
  made = std::make_shared<internal::LogPeer>();
  made->kind = hello.kind;
  made->client = hello.client;
  made->number = ++hellos;
  made->endpoint = endpoint;
  made->work.begin(executor.now_ns());
  PMSTORE_TRY(made->rpc,
              fabric::RpcPeer::create(*at.device, options.rpc, hello.reply_region, *this));
  made->rpc->owner = made.get();
  // A producer keeps others from its log, so it has to show that it is there and not only
  // connected.
  made->leased = hello.kind == LogConnectionKind::kProducer || !at.device->notices_dead_peers();
  if (hello.kind == LogConnectionKind::kProducer) return greet_producer(at, made, hello);
  PMSTORE_TRY_STATUS(make_place());
  return greet_session(at, *made);
}

Status LogService::State::make_place() {
  PMSTORE_CHECK(producers.size() <= peers.size(), "every producer is a peer");
  if (peers.size() - producers.size() >= options.max_sessions) {
    const Peer* oldest = nullptr;
    for (const auto& [token, peer] : handshakes) {
      if (peer->kind != LogConnectionKind::kSession) continue;
      if (oldest == nullptr || peer->number < (*oldest)->number) oldest = &peer;
    }
    if (oldest == nullptr) {
      return make_error(ErrorCode::kBackPressure,
                        fmt::format("all {} sessions of the log service are taken; try again later",
                                    options.max_sessions));
    }
    end(*oldest);
  }
  return {};
}

Result<std::vector<std::byte>> LogService::State::greet_session(internal::LogEndpoint& at,
                                                                internal::LogPeer& peer) {
  LogSessionAnswer answer;
  answer.area = store.area_identity();
  answer.epoch = store.epoch();
  answer.request_region = peer.rpc->request_region();
  answer.regions = at.area->remote();
  answer.words = at.words->remote();
  answer.lease_ms = peer.leased ? options.lease_ms : 0;
  answer.domain = static_cast<uint8_t>(at.capability.domain);
  answer.landing = static_cast<uint8_t>(at.capability.landing);
  answer.native_flush = at.capability.native_flush;
  ++counters.sessions;
  return as_message(answer);
}

Result<std::vector<std::byte>> LogService::State::greet_producer(internal::LogEndpoint& at,
                                                                 const Peer& peer,
                                                                 const LogHello& hello) {
  PMSTORE_TRY_STATUS(store.may_acquire(hello.log, hello.membership));
  const auto holder = producers.find(hello.log);
  if (holder != producers.end()) {
    const Peer old = holder->second;
    const bool itself = old->client == hello.client;
    if (!itself && hello.takeover != Takeover::kSteal) {
      return make_error(ErrorCode::kBusy,
                        "another producer has this log; wait until its lease ends, or steal it");
    }
    // After cut() no WRITE of the old producer can arrive.
    if (!itself) ++counters.fenced;
    tell_end(*old, SessionEnd::kReplaced);
    cut(old);
  }
  peer->log = hello.log;
  auto granted = store.acquire(hello.log, hello.membership);
  if (!granted) {
    // Io: the pool is lost for this process. The one before is fenced all the same.
    producers.erase(hello.log);
    return granted.error();
  }
  producers[hello.log] = peer;
  auto answer = grant(at, *peer, *granted);
  if (!answer) end(peer);
  return answer;
}

Result<std::vector<std::byte>> LogService::State::grant(internal::LogEndpoint& at,
                                                        internal::LogPeer& peer,
                                                        const LogStore::Grant& granted) {
  const auto writable = fabric::Access::kRemoteRead | fabric::Access::kRemoteWrite;
  peer.data_offset = granted.data_offset;
  peer.data_bytes = granted.position.data_bytes;
  PMSTORE_CHECK(store.memory().contains(peer.data_offset, peer.data_bytes) && !peer.data,
                "a producer would write outside of its log");
  const auto data = store.memory().mapping().subspan(peer.data_offset, peer.data_bytes);
  PMSTORE_TRY(peer.data, at.device->register_memory(data, writable));
  const auto tail = std::as_writable_bytes(std::span(granted.tail_word, 1));
  PMSTORE_TRY(peer.tail, at.device->register_memory(tail, writable));
  LogProducerAnswer answer;
  answer.request_region = peer.rpc->request_region();
  answer.data = peer.data->remote();
  answer.tail = peer.tail->remote();
  answer.start_lsn = granted.position.start_lsn;
  answer.tail_lsn = granted.position.tail_lsn;
  answer.next_index = granted.next_index;
  answer.incarnation = granted.position.incarnation;
  answer.salt = granted.position.salt;
  answer.lease_ms = options.lease_ms;
  answer.domain = static_cast<uint8_t>(at.capability.domain);
  answer.landing = static_cast<uint8_t>(at.capability.landing);
  answer.native_flush = at.capability.native_flush;
  answer.padding_off = granted.padding.off_bits();
  ++counters.producers;
  return as_message(answer);
}

bool LogService::has_handshake(size_t endpoint, uint64_t token) const {
  return state_->handshakes.contains({endpoint, token});
}

void LogService::on_connected(size_t endpoint, uint64_t token,
                              std::unique_ptr<fabric::Connection> connection) {
  const auto found = state_->handshakes.find({endpoint, token});
  if (found == state_->handshakes.end()) return;  // fenced meanwhile: the connection goes
  const State::Peer peer = found->second;
  state_->handshakes.erase(found);
  if (!peer->rpc) return;
  peer->connected = true;
  if (state_->options.observer != nullptr) {
    state_->options.observer->on_session(state_->name_of(*peer));
  }
  peer->rpc->attach(std::move(connection));
}

void LogService::on_abandoned(size_t endpoint, uint64_t token) {
  const auto found = state_->handshakes.find({endpoint, token});
  if (found != state_->handshakes.end()) state_->end(State::Peer(found->second));
}

// ---- the end of a connection ----

// Destroys the queue pair: no WRITE of the peer can arrive after it returns.
void LogService::State::cut(const Peer& keep) {
  const Peer peer = keep;  // `keep` may be in what is erased here
  std::erase_if(handshakes, [&](const auto& entry) { return entry.second == peer; });
  peer->rpc.reset();
  peer->tail.reset();
  peer->data.reset();
  peers.erase(peer);
}

void LogService::State::end(const Peer& keep) {
  const Peer peer = keep;
  cut(peer);
  const auto holder = producers.find(peer->log);
  if (holder == producers.end() || holder->second != peer) return;
  producers.erase(holder);
  // Io: nothing of this pool is served any more, and the next start walks the log.
  (void)store.release(peer->log);
}

SessionName LogService::State::name_of(const internal::LogPeer& peer) const {
  const bool producer = peer.kind == LogConnectionKind::kProducer;
  return {producer ? "producer" : "log", peer.client, endpoints.at(peer.endpoint)->uri};
}

void LogService::State::tell_end(const internal::LogPeer& peer, SessionEnd why) {
  if (options.observer == nullptr || !peer.connected) return;
  options.observer->on_ended(name_of(peer), why);
}

std::vector<SessionReport> LogService::sessions() const {
  std::vector<SessionReport> found;
  for (const State::Peer& peer : state_->peers) {
    if (!peer->connected) continue;
    const SessionName name = state_->name_of(*peer);
    SessionReport& report = found.emplace_back();
    report.kind = name.kind;
    report.client = peer->client;
    report.via = name.via;
    report.begun_ns = peer->work.begun_ns;
    report.worked_ns = peer->work.worked_ns;
    report.calls = peer->calls;
    report.log = peer->log;
  }
  return found;
}

size_t LogService::kick(uint64_t client) {
  size_t kicked = 0;
  const std::set<State::Peer> all = state_->peers;
  for (const State::Peer& peer : all) {
    if (peer->client != client || !peer->connected) continue;
    if (peer->kind == LogConnectionKind::kProducer) ++state_->counters.fenced;
    state_->tell_end(*peer, SessionEnd::kKicked);
    state_->end(peer);
    ++kicked;
  }
  return kicked;
}

void LogService::State::end_all() {
  stopped = true;
  committing = {};
  watching = {};
  group.clear();
  const std::set<Peer> all = peers;
  for (const Peer& peer : all) cut(peer);
  producers.clear();
  endpoints.clear();
}

void LogService::stop() {
  State& s = *state_;
  if (s.stopped) return;
  s.stopped = true;
  s.commit_group();
  const std::set<State::Peer> all = s.peers;
  for (const State::Peer& peer : all) s.end(peer);
  s.end_all();
}

void LogService::State::on_peer_gone(fabric::RpcPeer& rpc, const Error& why) {
  if (why.code == ErrorCode::kProtocol) ++counters.malformed;
  auto* const gone = static_cast<internal::LogPeer*>(rpc.owner);
  const auto found = std::find_if(peers.begin(), peers.end(),
                                  [&](const Peer& peer) { return peer.get() == gone; });
  if (found == peers.end()) return;
  const bool malformed = why.code == ErrorCode::kProtocol;
  tell_end(**found, malformed ? SessionEnd::kMalformed : SessionEnd::kDisconnected);
  end(Peer(*found));
}

base::Task<void> LogService::State::watch_peers_task() {
  watching_peers = true;
  const uint64_t tick_ns = uint64_t{options.lease_ms} * 1'000'000 / kLeaseTicks;
  do {
    co_await executor.sleep_for(tick_ns);
  } while (look_at_peers());
  watching_peers = false;
}

// False: no peer has a lease, and none has sent anything since the last look.
bool LogService::State::look_at_peers() {
  bool anything = false;
  const std::set<Peer> all = peers;
  for (const Peer& peer : all) {
    if (!peer->rpc) continue;
    const bool heard = peer->calls != peer->calls_seen;
    peer->work.look(peer->calls, executor.now_ns());
    peer->calls_seen = peer->calls;
    anything |= heard || peer->leased;
    if (!peer->leased) continue;
    peer->silent_ticks = heard ? 0 : peer->silent_ticks + 1;
    if (peer->silent_ticks <= kLeaseTicks) continue;
    if (peer->kind == LogConnectionKind::kProducer) ++counters.fenced;
    tell_end(*peer, SessionEnd::kSilent);
    end(peer);
  }
  return anything;
}

// ---- group commit ----

base::Task<void> LogService::State::commit_groups() {
  while (!stopped) {
    if (group.empty()) co_await wake.wait();
    commit_group();
  }
}

// One drain for everything that has arrived since the last.
void LogService::State::commit_group() {
  if (group.empty()) return;
  const auto durable = store.commit_appends();
  ++counters.group_commits;
  if (durable) {
    acknowledge_group(*durable);
  } else {
    for (auto& [call, reply] : group) call.reply_error(durable.error());
  }
  group.clear();
}

void LogService::State::acknowledge_group(persist::Persisted /*appends*/) {
  PMSTORE_CHECK(!group.empty() && group.size() <= kMaxGroup, "the group is bounded");
  for (auto& [call, reply] : group) call.reply(std::as_bytes(std::span(&reply, 1)));
}

void LogService::State::join_group(fabric::RpcCall call, const AppendReply& reply) {
  group.emplace_back(std::move(call), reply);
  if (group.size() >= kMaxGroup) {
    commit_group();
  } else {
    wake.notify_one();
  }
}

}  // namespace pmstore::log
