#include "pmstore/server/ring_keeper.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "persist/zero_ahead.h"
#include "pmstore/server/server_state.h"

namespace pmstore::internal {

RingKeeper::RingKeeper(ServerCore& core) : core_(core), uses_(core.store->rings().most()) {
  for (Use& use : uses_) use.ended_ns = core_.executor.now_ns();
}

uint64_t RingKeeper::retention_ns() const {
  return uint64_t{core_.options.outcome_retention_ms} * 1'000'000;
}

void RingKeeper::abandon() {
  asked_.clear();
  for (Use& use : uses_) use.user.reset();
}

// ---- which ring ----

std::optional<uint32_t> RingKeeper::owned_by(ClientId client) const {
  const ClientRings& rings = core_.store->rings();
  for (uint32_t i = 0; i < rings.most(); ++i) {
    if (rings.has(i) && rings.at(i).owner() == ring_owner(client)) return i;
  }
  return std::nullopt;
}

std::optional<uint32_t> RingKeeper::unowned() const {
  const ClientRings& rings = core_.store->rings();
  for (uint32_t i = 0; i < rings.most(); ++i) {
    if (rings.has(i) && rings.at(i).owner() == 0) return i;
  }
  return std::nullopt;
}

// Sessions that ended before this server started are ordered by their beginnings.
bool RingKeeper::ended_before(uint32_t one, uint32_t other) const {
  if (uses_[one].ended_ns != uses_[other].ended_ns) {
    return uses_[one].ended_ns < uses_[other].ended_ns;
  }
  return core_.store->session_sequence(one) < core_.store->session_sequence(other);
}

std::optional<uint32_t> RingKeeper::departed_longest_ago() const {
  const ClientRings& rings = core_.store->rings();
  std::optional<uint32_t> oldest;
  for (uint32_t i = 0; i < rings.most(); ++i) {
    if (!rings.has(i) || uses_[i].user) continue;
    if (!oldest || ended_before(i, *oldest)) oldest = i;
  }
  return oldest;
}

// One part in each turn.
base::Task<Status> RingKeeper::zero_ahead(const Session& session) {
  const uint64_t part_bytes = persist::zeroed_at_a_time(core_.pool.info().domain);
  for (;;) {
    const auto more = core_.store->zero_ahead_of_rings(part_bytes);
    if (!more) co_return more.error();
    if (!*more) co_return Status{};
    PMSTORE_CO_TRY_STATUS(co_await next_turn(session));
    if (core_.store->failed()) co_return core_.store->failure();
  }
}

base::Task<Status> RingKeeper::find_ring(Session& session) {
  ClientRings& rings = core_.store->rings();
  if (const auto own = owned_by(session.client)) {
    if (!uses_[*own].user) co_return take(session, *own);
    co_return make_error(ErrorCode::kBackPressure,
                         "this client's last session is still being resolved; try again");
  }
  auto free = unowned();
  if (!free) {
    PMSTORE_CO_TRY_STATUS(co_await zero_ahead(session));
    free = unowned();  // a ring may have lost its owner in those turns
  }
  if (free) co_return take(session, *free);
  auto made = core_.store->make_ring();
  if (made) {
    // Rings of an extent that no client has used yet stay where they are meanwhile.
    if (Status here = co_await next_turn(session); !here) {
      if (Status back = core_.store->give_back_ring(*made); !back) core_.look_for_failure();
      core_.follow_freed_extent();
      co_return std::move(here);
    }
    co_return take(session, *made);
  }
  if (made.code() != ErrorCode::kFull) co_return std::move(made.error());
  // Taking the ring moves the outcomes of its client to DRAM, so a new client need not wait until
  // they expire.
  if (const auto oldest = departed_longest_ago()) co_return take(session, *oldest);
  if (rings.count() < rings.most()) co_return std::move(made.error());
  co_return make_error(ErrorCode::kBackPressure,
                       "all " + std::to_string(rings.count()) +
                           " client rings of this pool are used by clients that write; end one of "
                           "them, or create the pool with more --rings");
}

Status RingKeeper::take(Session& session, uint32_t ring) {
  Store& store = *core_.store;
  PMSTORE_CHECK(!uses_[ring].user && !session.ring, "a ring has one user, and a session one ring");
  const uint64_t until_ns = uses_[ring].ended_ns + retention_ns();
  PMSTORE_TRY_STATUS(store.take_ring(ring, session.client, until_ns, core_.executor.now_ns()));
  session.first_sequence = store.session_sequence(ring);
  session.ring = ring;
  uses_[ring].user = std::static_pointer_cast<Session>(session.shared_from_this());
  return {};
}

// ---- a request ----

void RingKeeper::ask(std::shared_ptr<Session> session, fabric::RpcCall call) {
  PMSTORE_CHECK(!session->ended, "a session that has ended sends nothing");
  ++session->active;
  session->asks_for_ring = true;
  asked_.push_back({std::move(session), std::move(call)});
  if (!serving_) core_.run(serve());
}

base::Task<void> RingKeeper::serve() {
  serving_ = true;
  while (!asked_.empty()) {
    Asked asked = std::move(asked_.front());
    asked_.pop_front();
    Session& session = *asked.session;
    auto granted = co_await grant(session);
    PMSTORE_CHECK(session.active > 0, "resolving waits until a session's handlers have ended");
    --session.active;
    session.asks_for_ring = false;
    granted ? ++counters_.granted : ++counters_.refused;
    if (granted) {
      asked.call.reply(service::bytes_of(*granted));
    } else {
      asked.call.reply_error(granted.error());
    }
    core_.look_for_failure();
  }
  serving_ = false;
}

// Disconnected: the session has ended meanwhile.
base::Task<Status> RingKeeper::next_turn(const Session& session) {
  co_await core_.executor.yield();  // the answers of other sessions go first
  if (!session.ended) co_return Status{};
  co_return make_error(ErrorCode::kDisconnected, "the session has ended");
}

base::Task<Result<RingReply>> RingKeeper::grant(Session& session) {
  using fabric::Access;
  PMSTORE_CO_TRY_STATUS(co_await next_turn(session));
  if (core_.store->failed()) co_return core_.store->failure();
  // After an error below, the session has a ring already.
  if (!session.ring) {
    PMSTORE_CO_TRY_STATUS(co_await find_ring(session));
    PMSTORE_CO_TRY_STATUS(co_await next_turn(session));
  }
  fabric::Device& device = *session.endpoint->device;
  ClientRings& rings = core_.store->rings();
  const log::Ring& ring = rings.at(*session.ring);
  const log::RingPosition position = ring.position();
  const auto data =
      core_.store->memory().mapping().subspan(ring.data_offset(), position.data_bytes);
  PMSTORE_CO_TRY(auto own_ring,
                 device.register_memory(data, Access::kRemoteRead | Access::kRemoteWrite));
  PMSTORE_CO_TRY_STATUS(co_await next_turn(session));
  PMSTORE_CO_TRY(auto lock_lists, LockLists::create());
  PMSTORE_CO_TRY(auto lists, device.register_memory(lock_lists->bytes(), Access::kRemoteWrite));
  RingReply reply;
  reply.ring = own_ring->remote();
  reply.lock_lists = lists->remote();
  reply.start_lsn = position.start_lsn;
  reply.tail_lsn = position.tail_lsn;
  reply.incarnation = position.incarnation;
  reply.salt = position.salt;
  reply.next_sequence = session.first_sequence;
  session.grants.push_back(std::move(own_ring));
  session.grants.push_back(std::move(lists));
  session.lock_lists = std::move(lock_lists);
  core_.watch_held_locks();
  rings.lend(*session.ring);
  co_return reply;
}

// ---- the end of a session ----

void RingKeeper::release(Session& session) {
  PMSTORE_CHECK(session.grants.empty(), "no device has a right to a ring that may be given back");
  if (session.ring) {
    if (session.lock_lists != nullptr) core_.store->rings().end_loan(*session.ring);
    uses_[*session.ring] = {nullptr, core_.executor.now_ns()};
  }
  if (!session.goodbye) return watch();
  // The client may have come back without asking for the ring of its last session.
  const auto owned = owned_by(session.client);
  if (owned && !uses_[*owned].user) disown(*owned);
}

// False: the ring stays where it is until the next start, which does no harm.
bool RingKeeper::disown(uint32_t ring) {
  PMSTORE_CHECK(!uses_[ring].user, "a ring that is given back has no user");
  Status given_back = core_.store->take_ring(ring, {}, 0, core_.executor.now_ns());
  if (given_back) given_back = core_.store->give_back_ring(ring);
  if (!given_back) core_.look_for_failure();
  core_.follow_freed_extent();
  return given_back.has_value();
}

// Of a client that is gone, whose outcomes are kept in its ring for it to ask.
bool RingKeeper::is_kept(uint32_t ring) const {
  const ClientRings& rings = core_.store->rings();
  return rings.comes_back(ring) && rings.at(ring).owner() != 0 && !uses_[ring].user;
}

void RingKeeper::watch() {
  if (!watching_) core_.run(give_rings_back());
}

// Gives back the rings of clients that are gone when their outcomes need not be kept any more. Each
// may free an extent, so each has a turn of its own.
base::Task<void> RingKeeper::give_rings_back() {
  watching_ = true;
  for (;;) {
    const uint64_t now_ns = core_.executor.now_ns();
    std::optional<uint64_t> next_ns;
    bool gave_back = false;
    for (uint32_t i = 0; i < uses_.size() && !gave_back; ++i) {
      if (!is_kept(i)) continue;
      const uint64_t until_ns = uses_[i].ended_ns + retention_ns();
      if (until_ns <= now_ns) gave_back = disown(i);
      if (until_ns > now_ns) next_ns = std::min(next_ns.value_or(until_ns), until_ns);
    }
    if (core_.store->failed() || (!gave_back && !next_ns)) break;
    if (gave_back) {
      co_await core_.executor.yield();  // answers go first, and more sessions may have ended then
    } else {
      co_await core_.executor.sleep_for(*next_ns - now_ns);
    }
  }
  watching_ = false;
}

}  // namespace pmstore::internal
