// Sessions of the store: which ring each has, and what its end leaves behind. See
// pmstore/server/server_state.h.

#include <algorithm>
#include <bit>
#include <utility>

#include "pmstore/server/direct_calls.h"
#include "pmstore/server/server_state.h"

namespace pmstore::internal {

namespace {

constexpr uint64_t kResolveAgainNs = 1'000'000'000;
constexpr uint64_t kHandlersPauseNs = 10'000;

}  // namespace

service::HostOptions host_options(const persist::Pool& pool, const ServerOptions& options) {
  service::HostOptions with;
  with.lease_ms = options.lease_ms;
  with.rpc = options.rpc;
  with.message_bytes = options.message_bytes;
  with.domain = pool.info().domain;
  with.device_landing = options.device_landing;
  with.devices = options.devices;
  with.observer = options.observer;
  return with;
}

ServerCore::ServerCore(Executor& executor_in, persist::Pool& pool_in, ServerOptions options_in,
                       std::unique_ptr<Store> store_in)
    : Service({.id = service::ServiceId::kStore, .name = "store"}),
      executor(executor_in),
      pool(pool_in),
      options(std::move(options_in)),
      store(std::move(store_in)),
      admin(*this),
      host(executor_in, host_options(pool_in, options)),
      persist_service(pool_in.memory()),
      ring_states(store->rings().most()),
      group(*this) {
  for (RingState& state : ring_states) state.ended_ns = executor.now_ns();
  discipline_decided = options.discipline.has_value();
  if (options.discipline) discipline = *options.discipline;
  store->log().before_truncation([this] {
    for (const RingState& state : ring_states) {
      if (state.session) tell_known(*state.session);
    }
  });
  host.add(*this);
  host.add(admin);
}

ServerCore::~ServerCore() { shut_down(); }

Status ServerCore::start_logs() {
  if (!log::LogStore::is_in(pool)) {
    log::LogService::decline(host);
    return {};
  }
  PMSTORE_TRY(logs, log::LogStore::open(pool));
  log_service = std::make_unique<log::LogService>(executor, *logs);
  log_service->serve(host);
  return {};
}

void ServerCore::shut_down() {
  host.shut_down();
  // A suspended handler may keep its session, whose connection is gone.
  for (RingState& state : ring_states) state.session.reset();
  // The coroutines before the loopback connection for which they wait; nothing is polled between.
  tasks.clear();
  group.abandon();
  host.close_endpoints();
  log_service.reset();
}

void ServerCore::run(base::Task<void> task) {
  std::erase_if(tasks, [](const base::Task<void>& each) { return each.done(); });
  tasks.push_back(std::move(task));
  tasks.back().start();
}

WordChanger* ServerCore::changer() const {
  for (const auto& endpoint : host.endpoints()) {
    if (WordChanger* const words = regions_at(*endpoint).rnic_words.get()) return words;
  }
  return nullptr;
}

bool ServerCore::resolving_any() const {
  return std::any_of(ring_states.begin(), ring_states.end(),
                     [](const RingState& p) { return p.resolving; });
}

// ---- places and rings ----

// A client whose handshake has not ended keeps no other client out.
std::optional<uint32_t> ServerCore::take_place_of_hello() {
  service::Session* const waiting = host.oldest_hello(*this);
  if (waiting == nullptr) return std::nullopt;
  const uint32_t place = static_cast<Session*>(waiting)->ring;
  host.end(*waiting, SessionEnd::kReplaced);
  if (ring_states[place].resolving) return std::nullopt;
  return place;
}

// Under discipline cpu: a place is not tied to a client.
Result<uint32_t> ServerCore::choose_place(ClientId client) {
  std::optional<uint32_t> unused;
  for (uint32_t i = 0; i < ring_states.size(); ++i) {
    const auto session = ring_states[i].session;
    if (!session) {
      if (!unused && i < options.most_clients) unused = i;
    } else if (session->client == client) {
      host.end(*session, SessionEnd::kReplaced);  // as in choose_ring()
      return i;
    }
  }
  if (unused) return *unused;
  if (ring_states.size() < options.most_clients) {
    ring_states.emplace_back();
    return static_cast<uint32_t>(ring_states.size() - 1);
  }
  if (const auto freed = take_place_of_hello()) return *freed;
  return make_error(ErrorCode::kBackPressure,
                    "all " + std::to_string(options.most_clients) +
                        " client places of this server are taken; end one of the clients, or start "
                        "it with more --most-clients");
}

// Sessions that ended before this server started are ordered by their beginnings.
bool ServerCore::ended_before(uint32_t one, uint32_t other) const {
  if (ring_states[one].ended_ns != ring_states[other].ended_ns) {
    return ring_states[one].ended_ns < ring_states[other].ended_ns;
  }
  return store->session_sequence(one) < store->session_sequence(other);
}

std::optional<uint32_t> ServerCore::ring_owned_by(ClientId client) const {
  for (uint32_t i = 0; i < store->rings().most(); ++i) {
    if (store->rings().has(i) && store->rings().at(i).owner() == ring_owner(client)) return i;
  }
  return std::nullopt;
}

Result<uint32_t> ServerCore::choose_ring(ClientId client) {
  if (discipline == LockDiscipline::kCpu) return choose_place(client);
  const ClientRings& rings = store->rings();
  if (const auto own = ring_owned_by(client)) {
    if (ring_states[*own].session) {
      // The client has lost its old connection, over which nothing may take effect from here on.
      host.end(*ring_states[*own].session, SessionEnd::kReplaced);
    }
    if (ring_states[*own].resolving) {
      return make_error(ErrorCode::kBackPressure,
                        "this client's last session is still being resolved; try again");
    }
    // The end of a session that never connected may have given its ring back.
    if (rings.has(*own)) return *own;
  }
  std::optional<uint32_t> unowned;
  std::optional<uint32_t> oldest;
  for (uint32_t i = 0; i < rings.most(); ++i) {
    if (!rings.has(i)) continue;
    if (ring_states[i].session || ring_states[i].resolving) continue;
    if (rings.at(i).owner() == 0) {
      if (!unowned) unowned = i;
    } else if (!oldest || ended_before(i, *oldest)) {
      oldest = i;
    }
  }
  if (unowned) return *unowned;
  auto made = store->make_ring();
  if (made || made.code() != ErrorCode::kFull) return made;
  // Taking the ring moves the outcomes of its client to DRAM, so a new client need not wait until
  // they expire.
  if (oldest) return *oldest;
  if (const auto freed = take_place_of_hello()) {
    if (rings.has(*freed)) return *freed;
    return store->make_ring();  // the other's was given back
  }
  return make_error(
      ErrorCode::kBackPressure,
      "all " + std::to_string(rings.count()) +
          " client places of this pool are taken by clients; end one of them, or create the pool "
          "with more --rings");
}

Status ServerCore::take_ring(Session& session) {
  if (discipline == LockDiscipline::kCpu) {
    PMSTORE_TRY(session.first_sequence, store->begin_session());
    return {};
  }
  session.new_owner = store->rings().at(session.ring).owner() != ring_owner(session.client);
  const uint64_t until_ns = ring_states[session.ring].ended_ns + retention_ns();
  PMSTORE_TRY_STATUS(store->take_ring(session.ring, session.client, until_ns, executor.now_ns()));
  session.first_sequence = store->session_sequence(session.ring);
  return {};
}

// After an orderly end the ring has no owner any more, and its outcomes are OutcomeExpired; also
// when a new client did not complete its handshake. Else the client stays the owner, so that it can
// ask for outcomes.
void ServerCore::release_ring(Session& session) {
  ring_states[session.ring].ended_ns = executor.now_ns();
  if (discipline == LockDiscipline::kCpu) return;
  PMSTORE_CHECK(session.grants.empty(), "no device has a right to a ring that may be given back");
  // A connected client may have sent a transaction that never arrived, and may ask for its outcome.
  const bool nothing_to_ask = !session.connected && session.new_owner;
  if (!session.goodbye && !nothing_to_ask) return watch_rings();
  disown_ring(session.ring);
}

// If this fails, the ring stays where it is until the next start, which does no harm.
void ServerCore::disown_ring(uint32_t ring) {
  Status given_back = store->take_ring(ring, 0, 0, executor.now_ns());
  if (given_back) given_back = store->give_back_ring(ring);
  if (!given_back) look_for_failure();
}

// Of a client that is gone, whose outcomes are kept in its ring for it to ask.
bool ServerCore::is_kept_ring(uint32_t ring) const {
  return store->rings().comes_back(ring) && store->rings().at(ring).owner() != 0 &&
         !ring_states[ring].session && !ring_states[ring].resolving;
}

void ServerCore::watch_rings() {
  if (!watching_rings_) run(give_rings_back());
}

// Gives back the rings of clients that are gone when their outcomes need not be kept any more.
base::Task<void> ServerCore::give_rings_back() {
  watching_rings_ = true;
  for (;;) {
    const uint64_t now_ns = executor.now_ns();
    std::optional<uint64_t> next_ns;
    for (uint32_t i = 0; i < store->rings().most(); ++i) {
      if (!is_kept_ring(i)) continue;
      const uint64_t until_ns = ring_states[i].ended_ns + retention_ns();
      if (until_ns <= now_ns) disown_ring(i);
      if (until_ns > now_ns) next_ns = std::min(next_ns.value_or(until_ns), until_ns);
    }
    if (!next_ns || store->failed()) break;
    co_await executor.sleep_for(*next_ns - now_ns);
  }
  watching_rings_ = false;
}

// ---- handshake ----

// Under discipline cpu a session holds nothing between two requests but its place, and that goes
// with its connection, unless it has prepared a transaction of several servers. Under rnic locks
// and redo records of its own are in its reach at any time. What is prepared waits for its client's
// decision, and keeps others from its records.
bool ServerCore::needs_lease(const service::Session& session) const {
  return discipline == LockDiscipline::kRnic || static_cast<const Session&>(session).prepared > 0;
}

Result<std::vector<std::byte>> ServerCore::admit(service::Session& session,
                                                 std::span<const std::byte> body) {
  auto answer = give_ring(static_cast<Session&>(session), body);
  if (!answer) look_for_failure();
  return answer;
}

Result<std::vector<std::byte>> ServerCore::give_ring(Session& session,
                                                     std::span<const std::byte> body) {
  MessageReader reader(body);
  const auto hello = reader.get<ClientHello>();
  const bool padded = std::all_of(std::begin(hello.padding), std::end(hello.padding),
                                  [](uint8_t byte) { return byte == 0; });
  if (!reader.complete() || !padded) {
    return make_error(ErrorCode::kProtocol, "a malformed hello of a store's client");
  }
  if (hello.required_discipline != 0 &&
      hello.required_discipline != static_cast<uint8_t>(discipline)) {
    return make_error(ErrorCode::kUnsupported,
                      "this server's lock discipline is " +
                          std::string(discipline_name(discipline)) +
                          ", not what the client requires; start it with the other --locks");
  }
  if (store->failed()) return store->failure();
  PMSTORE_TRY(const uint32_t ring, choose_ring(session.client));
  PMSTORE_CHECK(!ring_states[ring].session && !ring_states[ring].resolving,
                "a ring has one session at a time");
  session.ring = ring;
  PMSTORE_TRY_STATUS(take_ring(session));
  PMSTORE_TRY(auto answer, make_answer(session));
  ring_states[ring].session = std::static_pointer_cast<Session>(session.shared_from_this());
  return answer;
}

Result<std::vector<std::byte>> ServerCore::make_answer(Session& session) {
  const StoreRegions& regions = regions_at(*session.endpoint);
  ServerHello answer;
  answer.pool = store->catalog().header().pool;
  answer.records = regions.records->first();
  answer.words = regions.words->remote();
  PMSTORE_TRY(answer.buckets, regions.growing->provide(RegionKind::kBuckets, 0));
  answer.bucket_count = store->index().hash().bucket_count();
  answer.max_redo_bytes = static_cast<uint32_t>(store->max_redo_bytes());
  if (discipline == LockDiscipline::kRnic) {
    using fabric::Access;
    fabric::Device& device = *session.endpoint->device;
    const log::Ring& ring = store->rings().at(session.ring);
    const auto data =
        store->memory().mapping().subspan(ring.data_offset(), ring.position().data_bytes);
    PMSTORE_TRY(auto own_ring,
                device.register_memory(data, Access::kRemoteRead | Access::kRemoteWrite));
    PMSTORE_TRY(session.lock_lists, LockLists::create());
    PMSTORE_TRY(auto lists,
                device.register_memory(session.lock_lists->bytes(), Access::kRemoteWrite));
    answer.ring = own_ring->remote();
    answer.lock_lists = lists->remote();
    session.grants.push_back(std::move(own_ring));
    session.grants.push_back(std::move(lists));
    answer.ring_start_lsn = ring.position().start_lsn;
    answer.ring_tail_lsn = ring.position().tail_lsn;
    answer.ring_incarnation = ring.position().incarnation;
    answer.ring_salt = ring.position().salt;
    answer.max_redo_bytes = static_cast<uint32_t>(
        std::min<uint64_t>(log::max_payload_bytes(ring.position().data_bytes), UINT32_MAX));
  }
  answer.next_sequence = session.first_sequence;
  answer.owner = session.owner();
  answer.discipline = static_cast<uint8_t>(discipline);
  answer.padding_off = pool.info().padding.off_bits();
  answer.one_sided_commit = discipline == LockDiscipline::kRnic &&
                            has(regions.records->rights(), fabric::Access::kRemoteWrite);
  const auto frames = regions.records->list(session.known_frames);
  answer.frame_shift =
      static_cast<uint8_t>(std::countr_zero(store->arena().frames().frame_bytes()));
  std::vector<std::byte> message = service::message_of(answer);
  const auto list = std::as_bytes(std::span(frames));
  message.insert(message.end(), list.begin(), list.end());
  return message;
}

// ---- the end of a session ----

// A number that does not exist yet may be known: its commit is refused (use_number()).
bool ServerCore::on_known_through(service::Session& session, uint64_t number) {
  if (!store->two_phase().empty()) store->two_phase().forget_through({session.client, number});
  return number < static_cast<Session&>(session).first_sequence + kSessionSequences;
}

// Numbers before the session's own are of sessions whose knowledge was told at their end.
void ServerCore::tell_known(Session& session) {
  if (discipline != LockDiscipline::kCpu) return;  // rings keep what they have room for
  if (session.commits == 0) return;                // it has no record that could leave the log
  const uint64_t known = session.known_through;
  if (known < session.first_sequence || known <= session.told_through) return;
  store->log().known({session.client, known});
  session.told_through = known;
}

std::unique_ptr<StoreCalls> ServerCore::direct_calls(
    ClientId client, std::shared_ptr<const uint64_t> known_through) {
  if (discipline != LockDiscipline::kCpu) return nullptr;
  for (const RingState& state : ring_states) {
    if (!state.session || state.session->client != client) continue;
    state.session->known_frames = 0;  // from here on it has this process read for it
    return std::make_unique<DirectCalls>(*this, state.session, std::move(known_through));
  }
  return nullptr;
}

void ServerCore::on_ended(service::Session& ended, std::optional<SessionEnd>) {
  auto& session = static_cast<Session&>(ended);
  RingState& state = ring_states[session.ring];
  PMSTORE_CHECK(state.session.get() == &session, "a session has its ring until it ends");
  PMSTORE_CHECK(!state.resolving, "a ring that is being resolved has no session");
  const std::shared_ptr<Session> keep = std::exchange(state.session, nullptr);
  if (session.known_frames != 0) frames_seen_ = 0;  // what it knew may be given back now
  follow_frames();
  if (!session.goodbye) ++totals.fenced;
  if (discipline == LockDiscipline::kCpu) {
    // Every transaction was one uninterrupted call, or its group is finished: no lock is held, no
    // outcome is in doubt; but those of several servers.
    tell_known(session);
    end_two_phase(session);
    return release_ring(session);
  }
  state.resolving = true;
  run(resolve(keep));
}

void ServerCore::describe(const service::Session& described, SessionReport& report) const {
  const auto& session = static_cast<const Session&>(described);
  report.ring = session.ring;
  if (discipline == LockDiscipline::kRnic && store->rings().has(session.ring)) {
    const log::RingPosition position = store->rings().at(session.ring).position();
    report.ring_used_bytes = position.tail_lsn - position.start_lsn;
  }
  report.commits = session.commits;
  report.locks = session.lock_lists ? session.lock_lists->slots().size() : 0;
}

base::Task<void> ServerCore::resolve(std::shared_ptr<Session> session) {
  // Handlers of this session that wait for the RNIC end by themselves, at the latest by its
  // timeout.
  while (session->active > 0) co_await executor.sleep_for(kHandlersPauseNs);
  log::Ring& ring = store->rings().at(session->ring);
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
  ring_states[session->ring].resolving = false;
  release_ring(*session);
}

}  // namespace pmstore::internal
