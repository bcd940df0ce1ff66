// Sessions: handshake, fencing, leases. See pmstore/server/server_state.h.

#include <algorithm>
#include <cstring>

#include "pmstore/server/direct_calls.h"
#include "pmstore/server/server_state.h"

namespace pmstore::internal {

namespace {

constexpr unsigned kLeaseTicks = 4;
constexpr uint64_t kResolveAgainNs = 1'000'000'000;
constexpr uint64_t kHandlersPauseNs = 10'000;

}  // namespace

ServerCore::ServerCore(Executor& executor_in, persist::Pool& pool_in, ServerOptions options_in,
                       std::unique_ptr<Store> store_in)
    : executor(executor_in),
      pool(pool_in),
      options(std::move(options_in)),
      store(std::move(store_in)),
      persist_service(pool_in.memory()),
      ring_states(store->rings().size()),
      group(*this) {
  for (RingState& state : ring_states) state.ended_ns = executor.now_ns();
  admin = std::make_unique<AdminService>(*this);
}

ServerCore::~ServerCore() { shut_down(); }

Status ServerCore::start_logs() {
  if (!log::LogStore::is_in(pool)) return {};
  PMSTORE_TRY(logs, log::LogStore::open(pool));
  log::LogServiceOptions log_options;
  log_options.lease_ms = options.lease_ms;
  log_options.rpc = options.rpc;
  log_options.observer = options.observer;
  PMSTORE_TRY(log_service, log::LogService::start(executor, *logs, log_options));
  return {};
}

void ServerCore::shut_down() {
  stopped = true;
  for (auto& endpoint : endpoints) endpoint->listener.reset();
  log_service.reset();
  admin.reset();
  // Connections before the regions and devices that they use. A suspended handler may keep its
  // session object alive, so its peer and regions are destroyed here.
  handshakes.clear();
  for (RingState& state : ring_states) {
    if (!state.session) continue;
    state.session->disconnect();
    state.session.reset();
  }
  // The coroutines before the loopback connection for which they wait; nothing is polled between.
  tasks.clear();
  group.abandon();
  endpoints.clear();
}

void ServerCore::run(base::Task<void> task) {
  std::erase_if(tasks, [](const base::Task<void>& each) { return each.done(); });
  tasks.push_back(std::move(task));
  tasks.back().start();
}

WordChanger* ServerCore::changer() const {
  for (const auto& endpoint : endpoints) {
    if (endpoint->rnic_words) return endpoint->rnic_words.get();
  }
  return nullptr;
}

bool ServerCore::resolving_any() const {
  return std::any_of(ring_states.begin(), ring_states.end(),
                     [](const RingState& p) { return p.resolving; });
}

// ---- rings ----

// Sessions that ended before this server started are ordered by their beginnings.
bool ServerCore::ended_before(uint32_t one, uint32_t other) const {
  if (ring_states[one].ended_ns != ring_states[other].ended_ns) {
    return ring_states[one].ended_ns < ring_states[other].ended_ns;
  }
  return store->session_sequence(one) < store->session_sequence(other);
}

Result<uint32_t> ServerCore::choose_ring(uint64_t client) {
  const auto& rings = store->rings();
  std::optional<uint32_t> unowned;
  std::optional<uint32_t> oldest;
  std::optional<uint32_t> hello_only;  // of a session whose handshake has not ended; the oldest
  for (uint32_t i = 0; i < rings.size(); ++i) {
    if (rings[i].owner() == client) {
      if (ring_states[i].session) {
        // The client has lost its old connection, over which nothing may take effect from here on.
        const auto old = ring_states[i].session;
        fence(old, SessionEnd::kReplaced);
      }
      if (ring_states[i].resolving) {
        return make_error(ErrorCode::kBackPressure,
                          "this client's last session is still being resolved; try again");
      }
      return i;
    }
    if (ring_states[i].session && !ring_states[i].session->connected) {
      if (!hello_only || ring_states[i].hello_ns < ring_states[*hello_only].hello_ns)
        hello_only = i;
    }
    if (ring_states[i].session || ring_states[i].resolving) continue;
    if (rings[i].owner() == 0) {
      if (!unowned) unowned = i;
    } else if (!oldest || ended_before(i, *oldest)) {
      oldest = i;
    }
  }
  if (unowned) return *unowned;
  // Taking the ring moves the outcomes of its client to DRAM, so a new client need not wait until
  // they expire.
  if (oldest) return *oldest;
  if (hello_only) {
    // A client whose handshake has not ended keeps no other client out.
    const auto waiting = ring_states[*hello_only].session;
    fence(waiting, SessionEnd::kReplaced);
    if (!ring_states[*hello_only].resolving) return *hello_only;
  }
  return make_error(
      ErrorCode::kBackPressure,
      "all " + std::to_string(rings.size()) +
          " client places of this pool are taken by clients; end one of them, or create the pool "
          "with more --rings");
}

Status ServerCore::take_ring(uint32_t ring, uint64_t client) {
  const uint64_t until_ns = ring_states[ring].ended_ns + retention_ns();
  return store->take_ring(ring, client, until_ns, executor.now_ns());
}

// After an orderly end the ring has no owner any more, and its outcomes are OutcomeExpired; also
// when a new client did not complete its handshake. Else the client stays the owner, so that it can
// ask for outcomes.
void ServerCore::release_ring(Session& session) {
  ring_states[session.ring].ended_ns = executor.now_ns();
  // A connected client may have sent a transaction that never arrived, and may ask for its outcome.
  const bool nothing_to_ask = !session.connected && session.new_owner;
  if (!session.goodbye && !nothing_to_ask) return;
  auto given_back = store->take_ring(session.ring, 0, 0, executor.now_ns());
  // If this fails, the client stays the owner until the retention time is over, which does no harm.
  if (!given_back) ring_states[session.ring].ended_ns = executor.now_ns();
}

// ---- handshake ----

Result<std::vector<std::byte>> ServerCore::on_hello(Endpoint& endpoint, uint64_t token,
                                                    std::span<const std::byte> bytes) {
  ClientHello hello;
  if (bytes.size() < 2 * sizeof(uint32_t)) {
    return make_error(ErrorCode::kVersionMismatch, "not a pmstore client's hello");
  }
  std::memcpy(&hello, bytes.data(), std::min(bytes.size(), sizeof(hello)));
  if (hello.magic != kProtocolMagic || hello.version != kProtocolVersion ||
      bytes.size() != sizeof(hello)) {
    return make_error(ErrorCode::kVersionMismatch, "this server speaks protocol version " +
                                                       std::to_string(kProtocolVersion) +
                                                       "; use a client of the same release");
  }
  if (hello.client == 0) return make_error(ErrorCode::kInvalidArgument, "a client's id is not 0");
  if (hello.required_discipline != 0 &&
      hello.required_discipline != static_cast<uint8_t>(discipline)) {
    return make_error(ErrorCode::kUnsupported,
                      "this server's lock discipline is " +
                          std::string(discipline_name(discipline)) +
                          ", not what the client requires; start it with the other --locks");
  }
  if (stopped) return make_error(ErrorCode::kDisconnected, "the server is stopping");
  group.finish();
  if (store->failed()) return store->failure();
  PMSTORE_TRY(const uint32_t ring, choose_ring(hello.client));
  auto session = std::make_shared<Session>();
  session->client = hello.client;
  session->ring = ring;
  session->endpoint = &endpoint;
  PMSTORE_TRY(session->peer,
              fabric::RpcPeer::create(*endpoint.device, options.rpc, hello.reply_region, *this));
  session->peer->owner = session.get();
  PMSTORE_CHECK(!ring_states[ring].session && !ring_states[ring].resolving,
                "a ring has one session at a time");
  session->new_owner = store->rings()[ring].owner() != hello.client;
  PMSTORE_TRY_STATUS(take_ring(ring, hello.client));
  PMSTORE_TRY(auto answer, make_answer(endpoint, *session, hello));
  ring_states[ring].session = session;
  ring_states[ring].hello_ns = executor.now_ns();
  handshakes[{&endpoint, token}] = session;
  if (session->leased) watch_sessions();
  return answer;
}

Result<std::vector<std::byte>> ServerCore::make_answer(Endpoint& endpoint, Session& session,
                                                       const ClientHello&) {
  const log::Ring& ring = store->rings()[session.ring];
  ServerHello answer;
  answer.pool = store->catalog().header().pool;
  answer.epoch = store->catalog().header().epoch;
  answer.request_region = session.peer->request_region();
  answer.records = endpoint.records->remote();
  answer.words = endpoint.words->remote();
  answer.buckets = endpoint.buckets->remote();
  if (discipline == LockDiscipline::kRnic) {
    const auto data =
        store->memory().mapping().subspan(ring.data_offset(), ring.position().data_bytes);
    PMSTORE_TRY(session.ring_region,
                endpoint.device->register_memory(
                    data, fabric::Access::kRemoteRead | fabric::Access::kRemoteWrite));
    answer.ring = session.ring_region->remote();
    PMSTORE_TRY(session.lock_lists, LockLists::create());
    PMSTORE_TRY(session.lock_lists_region,
                endpoint.device->register_memory(session.lock_lists->bytes(),
                                                 fabric::Access::kRemoteWrite));
    answer.lock_lists = session.lock_lists_region->remote();
  }
  answer.ring_start_lsn = ring.position().start_lsn;
  answer.ring_tail_lsn = ring.position().tail_lsn;
  answer.ring_incarnation = ring.position().incarnation;
  answer.ring_salt = ring.position().salt;
  answer.max_redo_bytes = static_cast<uint32_t>(
      std::min<uint64_t>(log::max_payload_bytes(ring.position().data_bytes), UINT32_MAX));
  session.first_sequence = store->session_sequence(session.ring);
  answer.next_sequence = session.first_sequence;
  // Under discipline cpu a session holds nothing between two requests but its place, and that goes
  // with its connection. Under rnic locks and redo records of its own are in its reach at any time.
  session.leased = discipline == LockDiscipline::kRnic || !endpoint.device->notices_dead_peers();
  answer.lease_ms = session.leased ? options.lease_ms : 0;
  answer.owner = session.owner();
  answer.discipline = static_cast<uint8_t>(discipline);
  answer.domain = static_cast<uint8_t>(pool.info().domain);
  answer.landing = static_cast<uint8_t>(endpoint.cpu_moves_data ? persist::WriteLanding::kCpu
                                                                : options.device_landing);
  answer.native_flush = endpoint.native_flush;
  answer.padding_off = pool.info().padding.off_bits();
  answer.one_sided_commit = discipline == LockDiscipline::kRnic &&
                            has(endpoint.records->access(), fabric::Access::kRemoteWrite);
  std::vector<std::byte> bytes(sizeof(answer));
  std::memcpy(bytes.data(), &answer, sizeof(answer));
  return bytes;
}

void ServerCore::on_connected(Endpoint& endpoint, uint64_t token,
                              std::unique_ptr<fabric::Connection> connection) {
  const auto found = handshakes.find({&endpoint, token});
  if (found == handshakes.end()) return;  // fenced meanwhile: destroys the connection
  const auto session = found->second;
  handshakes.erase(found);
  if (!session->peer) return;
  ++totals.sessions;
  session->connected = true;
  session->work.begin(executor.now_ns());
  if (options.observer != nullptr) options.observer->on_session(name_of(*session));
  session->peer->attach(std::move(connection));
}

void ServerCore::on_abandoned(Endpoint& endpoint, uint64_t token) {
  const auto found = handshakes.find({&endpoint, token});
  if (found == handshakes.end()) return;
  const auto session = found->second;
  handshakes.erase(found);
  fence(session, SessionEnd::kDisconnected);
}

// ---- the end of a session ----

std::shared_ptr<Session> ServerCore::session_of(const fabric::RpcPeer& peer) const {
  const auto* session = static_cast<const Session*>(peer.owner);
  return ring_states[session->ring].session;
}

void ServerCore::on_peer_gone(fabric::RpcPeer& peer, const Error& why) {
  if (why.code == ErrorCode::kProtocol) ++totals.malformed;
  const bool malformed = why.code == ErrorCode::kProtocol;
  if (auto session = session_of(peer)) {
    fence(session, malformed ? SessionEnd::kMalformed : SessionEnd::kDisconnected);
  }
}

std::unique_ptr<StoreCalls> ServerCore::direct_calls(uint64_t client) {
  if (discipline != LockDiscipline::kCpu) return nullptr;
  for (const RingState& state : ring_states) {
    if (!state.session || state.session->client != client) continue;
    return std::make_unique<DirectCalls>(*this, state.session);
  }
  return nullptr;
}

SessionName name_of(const Session& session) {
  return {"store", session.client, session.endpoint->name};
}

void ServerCore::fence(const std::shared_ptr<Session>& keep, std::optional<SessionEnd> why) {
  const std::shared_ptr<Session> session = keep;  // `keep` may refer to what is reset below
  group.finish();                                 // it may end this session
  if (ring_states[session->ring].session != session) return;
  std::erase_if(handshakes, [&](const auto& entry) { return entry.second == session; });
  session->disconnect();
  if (!session->goodbye) ++totals.fenced;
  if (options.observer != nullptr && session->connected && why) {
    options.observer->on_ended(name_of(*session), session->goodbye ? SessionEnd::kGoodbye : *why);
  }
  RingState& state = ring_states[session->ring];
  if (discipline == LockDiscipline::kCpu) {
    // Every transaction was one uninterrupted call, or its group is finished: no lock is held, no
    // outcome is in doubt.
    release_ring(*session);
    state.session.reset();
    return;
  }
  PMSTORE_CHECK(!state.resolving, "a ring that is being resolved has no session");
  state.resolving = true;
  state.session.reset();
  run(resolve(session));
}

std::vector<SessionReport> ServerCore::sessions() const {
  std::vector<SessionReport> found;
  for (const RingState& state : ring_states) {
    if (!state.session || !state.session->connected) continue;
    const Session& session = *state.session;
    const log::RingPosition position = store->rings()[session.ring].position();
    SessionReport& report = found.emplace_back();
    report.kind = name_of(session).kind;
    report.client = session.client;
    report.via = session.endpoint->name;
    report.begun_ns = session.work.begun_ns;
    report.worked_ns = session.work.worked_ns;
    report.calls = session.calls;
    report.ring = session.ring;
    report.ring_used_bytes = position.tail_lsn - position.start_lsn;
    report.commits = session.commits;
    report.locks = session.lock_lists ? session.lock_lists->slots().size() : 0;
  }
  if (!log_service) return found;
  for (SessionReport& report : log_service->sessions()) found.push_back(std::move(report));
  return found;
}

size_t ServerCore::kick(uint64_t client) {
  size_t kicked = log_service ? log_service->kick(client) : 0;
  for (const RingState& state : ring_states) {
    const auto session = state.session;
    if (!session || !session->connected || session->client != client) continue;
    fence(session, SessionEnd::kKicked);
    ++kicked;
  }
  return kicked;
}

base::Task<void> ServerCore::resolve(std::shared_ptr<Session> session) {
  // Handlers of this session that wait for the RNIC end by themselves, at the latest by its
  // timeout.
  while (session->active > 0) co_await executor.sleep_for(kHandlersPauseNs);
  log::Ring& ring = store->rings()[session->ring];
  WordChanger* const words = changer();
  if (words == nullptr) co_return;  // the server is going away; the next start recovers
  const std::vector<SlotOffset> announced = session->lock_lists->slots();
  Status resolved = co_await store->resolve(*words, session->owner(), ring, announced);
  while (!resolved) {
    // The session's locks and its ring stay taken until a later try or the next start. A damaged
    // ring stays damaged, so there is no other try.
    if (resolved.code() == ErrorCode::kBadPool || store->failed()) co_return;
    co_await executor.sleep_for(kResolveAgainNs);
    resolved = co_await store->resolve(*words, session->owner(), ring, announced);
  }
  PMSTORE_CHECK(ring_states[session->ring].resolving && !ring_states[session->ring].session,
                "no session uses a ring before it is resolved");
  release_ring(*session);
  ring_states[session->ring].resolving = false;
}

base::Task<void> ServerCore::watch_sessions_task() {
  watching_sessions_ = true;
  const uint64_t tick_ns = uint64_t{options.lease_ms} * 1'000'000 / kLeaseTicks;
  do {
    co_await executor.sleep_for(tick_ns);
  } while (look_at_sessions());
  watching_sessions_ = false;
}

// False: no session has a lease, and none has sent anything since the last look.
bool ServerCore::look_at_sessions() {
  bool anything = false;
  for (RingState& state : ring_states) {
    const auto session = state.session;
    if (!session || !session->peer) continue;
    const bool heard = session->calls != session->calls_seen || session->active > 0;
    session->calls_seen = session->calls;
    session->work.look(session->calls, executor.now_ns());
    anything |= heard || session->leased;
    if (!session->leased) continue;
    session->silent_ticks = heard ? 0 : session->silent_ticks + 1;
    if (session->silent_ticks <= kLeaseTicks) continue;
    ++totals.leases_expired;
    fence(session, SessionEnd::kSilent);
  }
  return anything;
}

}  // namespace pmstore::internal
