// Sessions: handshake, fencing, leases. See pmstore/server/server_state.h.

#include <algorithm>
#include <cstring>

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
      places(store->rings().size()) {
  for (RingPlace& place : places) place.departed_ns = executor.now_ns();
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
  // Connections before the regions and devices that they use. A handler that is suspended may keep
  // its session; what holds on to the device goes here.
  handshakes.clear();
  for (RingPlace& place : places) {
    if (!place.session) continue;
    place.session->disconnect();
    place.session.reset();
  }
  // Before the loopback connection that they wait for; nothing is polled in between.
  tasks.clear();
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
  return std::any_of(places.begin(), places.end(), [](const RingPlace& p) { return p.resolving; });
}

// ---- rings ----

// Those that departed before this server started did so in the order in which they had come.
bool ServerCore::departed_before(uint32_t one, uint32_t other) const {
  if (places[one].departed_ns != places[other].departed_ns) {
    return places[one].departed_ns < places[other].departed_ns;
  }
  return store->session_sequence(one) < store->session_sequence(other);
}

Result<uint32_t> ServerCore::choose_ring(uint64_t client) {
  const auto& rings = store->rings();
  std::optional<uint32_t> unowned;
  std::optional<uint32_t> oldest;
  std::optional<uint32_t> greeted;  // whose client has said hello and has not connected, longest
  for (uint32_t i = 0; i < rings.size(); ++i) {
    if (rings[i].owner() == client) {
      if (places[i].session) {
        // The client has lost its old connection: nothing of it may land from here on.
        const auto old = places[i].session;
        fence(old, SessionEnd::kReplaced);
      }
      if (places[i].resolving) {
        return make_error(ErrorCode::kBackPressure,
                          "this client's last session is still being resolved; try again");
      }
      return i;
    }
    if (places[i].session && !places[i].session->connected) {
      if (!greeted || places[i].greeted_ns < places[*greeted].greeted_ns) greeted = i;
    }
    if (places[i].session || places[i].resolving) continue;
    if (rings[i].owner() == 0) {
      if (!unowned) unowned = i;
    } else if (!oldest || departed_before(i, *oldest)) {
      oldest = i;
    }
  }
  if (unowned) return *unowned;
  // Its outcomes are kept in DRAM from then on: nobody waits for a place of a client that is gone.
  if (oldest) return *oldest;
  if (greeted) {
    // A client that has only said hello keeps no other one out.
    const auto waiting = places[*greeted].session;
    fence(waiting, SessionEnd::kReplaced);
    if (!places[*greeted].resolving) return *greeted;
  }
  return make_error(
      ErrorCode::kBackPressure,
      "all " + std::to_string(rings.size()) +
          " client places of this pool are taken by clients; end one of them, or create the pool "
          "with more --rings");
}

Status ServerCore::take_ring(uint32_t ring, uint64_t client) {
  const uint64_t until_ns = places[ring].departed_ns + retention_ns();
  return store->take_ring(ring, client, until_ns, executor.now_ns());
}

// After an orderly end the ring is nobody's again; who asks later hears OutcomeExpired. So it is
// when a new client has only said hello.
void ServerCore::leave_ring(Session& session) {
  places[session.ring].departed_ns = executor.now_ns();
  // A client that has connected may have sent what never arrived, and asks for its outcome.
  const bool nothing_to_ask = !session.connected && session.new_owner;
  if (!session.goodbye && !nothing_to_ask) return;
  auto given_back = store->take_ring(session.ring, 0, 0, executor.now_ns());
  // Not given back, it stays the client's until the retention time is over: no harm.
  if (!given_back) places[session.ring].departed_ns = executor.now_ns();
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
  PMSTORE_TRY(const uint32_t ring, choose_ring(hello.client));
  auto session = std::make_shared<Session>();
  session->client = hello.client;
  session->ring = ring;
  session->endpoint = &endpoint;
  PMSTORE_TRY(session->peer,
              fabric::RpcPeer::create(*endpoint.device, options.rpc, hello.reply_region, *this));
  session->peer->owner = session.get();
  session->new_owner = store->rings()[ring].owner() != hello.client;
  PMSTORE_TRY_STATUS(take_ring(ring, hello.client));
  PMSTORE_TRY(auto answer, greet(endpoint, *session, hello));
  places[ring].session = session;
  places[ring].greeted_ns = executor.now_ns();
  handshakes[{&endpoint, token}] = session;
  return answer;
}

Result<std::vector<std::byte>> ServerCore::greet(Endpoint& endpoint, Session& session,
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
  answer.lease_ms = options.lease_ms;
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
  if (found == handshakes.end()) return;  // fenced meanwhile: the connection goes with this scope
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
  return places[session->ring].session;
}

void ServerCore::on_peer_gone(fabric::RpcPeer& peer, const Error& why) {
  if (why.code == ErrorCode::kProtocol) ++totals.malformed;
  const bool malformed = why.code == ErrorCode::kProtocol;
  if (auto session = session_of(peer)) {
    fence(session, malformed ? SessionEnd::kMalformed : SessionEnd::kDisconnected);
  }
}

SessionName name_of(const Session& session) {
  return {"store", session.client, session.endpoint->name};
}

void ServerCore::fence(const std::shared_ptr<Session>& keep, std::optional<SessionEnd> why) {
  const std::shared_ptr<Session> session = keep;  // `keep` may be the place that is cleared below
  if (places[session->ring].session != session) return;
  std::erase_if(handshakes, [&](const auto& entry) { return entry.second == session; });
  session->disconnect();
  if (!session->goodbye) ++totals.fenced;
  if (options.observer != nullptr && session->connected && why) {
    options.observer->on_ended(name_of(*session), session->goodbye ? SessionEnd::kGoodbye : *why);
  }
  RingPlace& place = places[session->ring];
  if (discipline == LockDiscipline::kCpu) {
    // Every transaction was one uninterrupted call: nothing is locked, nothing is in doubt.
    leave_ring(*session);
    place.session.reset();
    return;
  }
  place.resolving = true;
  place.session.reset();
  run(resolve(session));
}

std::vector<SessionReport> ServerCore::sessions() const {
  std::vector<SessionReport> found;
  for (const RingPlace& place : places) {
    if (!place.session || !place.session->connected) continue;
    const Session& session = *place.session;
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
  for (const RingPlace& place : places) {
    const auto session = place.session;
    if (!session || !session->connected || session->client != client) continue;
    fence(session, SessionEnd::kKicked);
    ++kicked;
  }
  return kicked;
}

base::Task<void> ServerCore::resolve(std::shared_ptr<Session> session) {
  // Handlers of this session that are waiting for the RNIC end by themselves, bounded by its
  // timeout.
  while (session->active > 0) co_await executor.sleep_for(kHandlersPauseNs);
  log::Ring& ring = store->rings()[session->ring];
  WordChanger* const words = changer();
  if (words == nullptr) co_return;  // the server is going away; the next start recovers
  const std::vector<SlotOffset> announced = session->lock_lists->slots();
  Status resolved = co_await store->resolve(*words, session->owner(), ring, announced);
  while (!resolved) {
    // Its locks stay and its place stays taken, until a later try or the next start. A damaged ring
    // will not be whole another time.
    if (resolved.code() == ErrorCode::kBadPool || store->failed()) co_return;
    co_await executor.sleep_for(kResolveAgainNs);
    resolved = co_await store->resolve(*words, session->owner(), ring, announced);
  }
  leave_ring(*session);
  places[session->ring].resolving = false;
}

base::Task<void> ServerCore::watch_leases(std::shared_ptr<ServerCore> self) {
  const uint64_t tick_ns = uint64_t{options.lease_ms} * 1'000'000 / kLeaseTicks;
  while (!self->stopped) {
    co_await executor.sleep_for(tick_ns);
    for (RingPlace& place : places) {
      const auto session = place.session;
      if (!session || !session->peer) continue;
      const bool heard = session->calls != session->calls_seen || session->active > 0;
      session->calls_seen = session->calls;
      session->work.look(session->calls, executor.now_ns());
      session->silent_ticks = heard ? 0 : session->silent_ticks + 1;
      if (session->silent_ticks <= kLeaseTicks) continue;
      ++totals.leases_expired;
      fence(session, SessionEnd::kSilent);
    }
  }
}

}  // namespace pmstore::internal
