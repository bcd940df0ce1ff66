// Sessions of the store: which place each has, and what its end leaves behind. See
// pmstore/server/server_state.h.

#include <algorithm>
#include <bit>
#include <utility>

#include "base/random.h"
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
      rings(*this),
      group(*this) {
  discipline_decided = options.discipline.has_value();
  if (options.discipline) discipline = *options.discipline;
  store->log().before_truncation([this] {
    for (const Place& place : places) {
      if (place.session) tell_known(*place.session);
    }
  });
  store->log().on_less_held([this] {
    if (move_again_.waiting() > 0 && !store->moving_is_held()) move_again_.notify_all();
  });
  host.add(*this);
  host.add(admin);
}

ServerCore::~ServerCore() { shut_down(); }

Status ServerCore::start_logs() {
  // Of an area that the first log makes: the same after each start, so that clients that come back
  // take the server for the same one.
  constexpr uint64_t kOfLogs = 0x4c4f4753;  // "LOGS"
  const uint64_t identity = base::mix64(store->catalog().header().pool ^ kOfLogs);
  PMSTORE_TRY(logs, log::LogStore::open(pool, std::max<uint64_t>(identity, 1)));
  logs->keep_free([this] { return store->catalog().kept_for_rings(); });
  log_service = std::make_unique<log::LogService>(executor, *logs, options.most_clients);
  log_service->serve(host);
  return {};
}

void ServerCore::go_by(persist::SpaceRules rules) {
  using persist::ExtentKind;
  store->arena().limit_to(rules.of(ExtentKind::kRecords).limit_bytes);
  logs->limit_to(rules.of(ExtentKind::kLog).limit_bytes);
  // File data knows nothing of what records and logs leave to the first rings without a reserve.
  rules.leave_first_rings(store->catalog().first_rings_bytes());
  pool.set_space_rules(rules);
  has_set_rules_ = true;
}

void ServerCore::shut_down() {
  host.shut_down();
  // A suspended handler may keep its session, whose connection is gone.
  for (Place& place : places) place = {};
  // The coroutines before the loopback connection for which they wait; nothing is polled between.
  tasks.clear();
  rings.abandon();
  group.abandon();
  host.close_endpoints();
  log_service.reset();
  // Once: the pool may have another server when this object is destroyed.
  if (!std::exchange(has_set_rules_, false)) return;
  pool.set_space_rules({});
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

size_t ServerCore::resolving() const {
  return static_cast<size_t>(std::count_if(
      places.begin(), places.end(), [](const Place& place) { return place.resolving != nullptr; }));
}

// ---- places ----

// A client whose handshake has not ended keeps no other client out.
std::optional<uint32_t> ServerCore::take_place_of_hello() {
  service::Session* const waiting = host.oldest_hello(*this);
  if (waiting == nullptr) return std::nullopt;
  const uint32_t place = static_cast<Session*>(waiting)->place;
  host.end(*waiting, SessionEnd::kReplaced);
  if (places[place].resolving) return std::nullopt;
  return place;
}

// A place is not tied to a client.
Result<uint32_t> ServerCore::choose_place(ClientId client) {
  const size_t most = discipline == LockDiscipline::kCpu
                          ? options.most_clients
                          : std::min<size_t>(options.most_clients, LockWord::kMaxOwner);
  const Error still_resolving = make_error(
      ErrorCode::kBackPressure, "this client's last session is still being resolved; try again");
  std::optional<uint32_t> unused;
  for (uint32_t i = 0; i < places.size(); ++i) {
    const auto session = places[i].session;
    if (places[i].resolving) {
      if (places[i].resolving->client == client) return still_resolving;
    } else if (!session) {
      if (!unused && i < most) unused = i;
    } else if (session->client == client) {
      // The client has lost its old connection, over which nothing may take effect from here on.
      host.end(*session, SessionEnd::kReplaced);
      if (places[i].resolving) return still_resolving;
      return i;
    }
  }
  if (unused) return *unused;
  if (places.size() < most) {
    places.emplace_back();
    return static_cast<uint32_t>(places.size() - 1);
  }
  if (const auto freed = take_place_of_hello()) return *freed;
  return make_error(ErrorCode::kBackPressure,
                    "all " + std::to_string(most) +
                        " client places of this server are taken; end one of the clients, or start "
                        "it with more --most-clients");
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
  auto answer = give_place(static_cast<Session&>(session), body);
  if (!answer) look_for_failure();
  return answer;
}

Result<std::vector<std::byte>> ServerCore::give_place(Session& session,
                                                      std::span<const std::byte> body) {
  MessageReader reader(body);
  const auto hello = reader.get<ClientHello>();
  const bool padded = std::all_of(std::begin(hello.padding), std::end(hello.padding),
                                  [](uint8_t byte) { return byte == 0; });
  if (!reader.complete() || !padded || hello.reads_by_rpc > 1) {
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
  PMSTORE_TRY(const uint32_t place, choose_place(session.client));
  PMSTORE_CHECK(!places[place].session && !places[place].resolving,
                "a place has one session at a time");
  session.place = place;
  PMSTORE_TRY(session.first_sequence, store->begin_session());
  const bool may_access = discipline == LockDiscipline::kRnic || hello.reads_by_rpc == 0;
  PMSTORE_TRY(auto answer, make_answer(session, may_access));
  places[place].session = std::static_pointer_cast<Session>(session.shared_from_this());
  return answer;
}

uint64_t ServerCore::max_redo_bytes() const {
  if (discipline == LockDiscipline::kCpu) return store->max_redo_bytes();
  return log::max_payload_bytes(store->catalog().header().ring_bytes - log::kRingHeaderBytes);
}

// `may_access`: the client reads or writes records one-sided. Frames that it is not told of may be
// given back while it is connected.
Result<std::vector<std::byte>> ServerCore::make_answer(Session& session, bool may_access) {
  const StoreRegions& regions = regions_at(*session.endpoint);
  ServerHello answer;
  answer.pool = store->catalog().header().pool;
  answer.records = regions.records->first();
  answer.words = regions.words->remote();
  PMSTORE_TRY(answer.buckets, regions.growing->provide(RegionKind::kBuckets, 0));
  answer.bucket_count = store->index().hash().bucket_count();
  answer.max_redo_bytes = static_cast<uint32_t>(std::min<uint64_t>(max_redo_bytes(), UINT32_MAX));
  answer.next_sequence = session.first_sequence;
  answer.owner = session.owner();
  answer.discipline = static_cast<uint8_t>(discipline);
  answer.padding_off = pool.info().padding.off_bits();
  answer.one_sided_commit = discipline == LockDiscipline::kRnic &&
                            has(regions.records->rights(), fabric::Access::kRemoteWrite);
  answer.region_list = region_list;
  answer.hear_ms = options.lease_ms;
  session.reads_frames = may_access;
  std::vector<fabric::RemoteRegion> frames;
  if (may_access) {
    frames = regions.records->list(session.known_frames);
    answer.frame_shift =
        static_cast<uint8_t>(std::countr_zero(store->arena().frames().frame_bytes()));
  }
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
  for (const Place& place : places) {
    if (!place.session || place.session->client != client) continue;
    place.session->reads_frames = false;  // from here on it has this process read for it
    if (std::exchange(place.session->known_frames, 0) != 0) look_at_frames_again();
    follow_frames();
    return std::make_unique<DirectCalls>(*this, place.session, std::move(known_through));
  }
  return nullptr;
}

void ServerCore::on_ended(service::Session& ended, std::optional<SessionEnd>) {
  auto& session = static_cast<Session&>(ended);
  Place& place = places[session.place];
  PMSTORE_CHECK(place.session.get() == &session, "a session has its place until it ends");
  PMSTORE_CHECK(!place.resolving, "a place that is being resolved has no session");
  std::shared_ptr<Session> keep = std::exchange(place.session, nullptr);
  if (session.known_frames != 0) look_at_frames_again();
  follow_frames();
  if (!session.goodbye) ++totals.fenced;
  if (discipline == LockDiscipline::kCpu) {
    // Every transaction was one uninterrupted call, or its group is finished: no lock is held, no
    // outcome is in doubt; but those of several servers.
    tell_known(session);
    return end_two_phase(session);
  }
  // Without a ring it has reserved and logged nothing. Nor has it locked words, unless its client
  // breaks the protocol: such locks stay until the next start.
  if (!session.ring && session.active == 0) return rings.release(session);
  place.resolving = keep;
  run(resolve(std::move(keep)));
}

void ServerCore::describe(const service::Session& described, SessionReport& report) const {
  const auto& session = static_cast<const Session&>(described);
  report.ring = session.ring;
  if (session.ring) {
    const log::RingPosition position = store->rings().at(*session.ring).position();
    report.ring_used_bytes = position.tail_lsn - position.start_lsn;
  }
  report.commits = session.commits;
  report.locks = session.lock_lists ? session.lock_lists->slots().size() : 0;
}

void ServerCore::watch_held_locks() {
  if (!std::exchange(watching_held_, true)) run(end_who_keeps_locks());
}

// Runs as long as a session may lock.
base::Task<void> ServerCore::end_who_keeps_locks() {
  bool any = true;
  while (any && !store->failed()) {
    co_await executor.sleep_for(lease_ns(options) / kLooksPerLease);
    any = false;
    for (size_t i = 0; i < places.size(); ++i) {
      const std::shared_ptr<Session> session = places[i].session;
      if (!session || !session->may_log()) continue;
      any = true;
      const HeldLocks::Looks looks =
          session->held_locks.look(session->lock_lists->slots(), store->words(), session->owner(),
                                   store->arena().slot_space_bytes());
      if (looks.counted > kLooksPerLease || looks.excused > kExcusedLooks) {
        host.end(*session, SessionEnd::kHeldLock);
      }
    }
  }
  watching_held_ = false;
}

base::Task<void> ServerCore::resolve(std::shared_ptr<Session> session) {
  // Handlers of this session that wait for the RNIC end by themselves, at the latest by its
  // timeout.
  while (session->active > 0) co_await executor.sleep_for(kHandlersPauseNs);
  // A session that was never told of its ring has locked and logged nothing.
  if (session->may_log()) {
    log::Ring& ring = store->rings().at(*session->ring);
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
  }
  Place& place = places[session->place];
  PMSTORE_CHECK(place.resolving == session && !place.session,
                "no session uses a place before it is resolved");
  place.resolving.reset();
  rings.release(*session);
}

}  // namespace pmstore::internal
