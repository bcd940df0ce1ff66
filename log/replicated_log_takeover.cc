// Of ReplicatedLog: how it is taken over, its members changed, and replicas made equal.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "log/internal/replicated_log_state.h"
#include "log/log_reader.h"
#include "log/replicated_log.h"

namespace pmstore::log {

using internal::AskedServer;
using internal::at_server;

namespace {

// Of what is copied at a time.
constexpr size_t kCopyEntries = 64;
constexpr uint64_t kCopyBytes = 256 << 10;
// Producers that take the log from each other: the first member's lease decides.
constexpr int kAcquireTries = 4;

}  // namespace

base::Task<Result<std::unique_ptr<ReplicatedLog>>> ReplicatedLog::open(
    base::Executor& executor, std::string name, std::vector<std::string> servers,
    ReplicatedLogOptions options, bool* only_if_gone) {
  bool unless_gone = false;
  auto state = std::make_unique<State>(executor, std::move(name), std::move(options));
  const Status taken = co_await state->take_over(std::move(servers), unless_gone);
  if (only_if_gone != nullptr) *only_if_gone = unless_gone;
  if (!taken) co_return taken.error();
  co_return std::unique_ptr<ReplicatedLog>(new ReplicatedLog(std::move(state)));
}

base::Task<Status> ReplicatedLog::State::take_over(std::vector<std::string> servers,
                                                   bool& only_if_gone) {
  std::vector<AskedServer> asked =
      co_await internal::ask_servers(executor, name, servers, options.drop, options.client);
  PMSTORE_CO_TRY(membership, internal::decide_membership(asked, options.drop));
  const bool change = membership.pending || !options.drop.empty();
  if (!options.drop.empty()) {
    PMSTORE_CO_TRY(Membership after, internal::without(membership, options.drop));
    const Status safe = internal::check_drop(membership, after);
    only_if_gone = !safe && !options.dropped_are_gone;
    if (only_if_gone) co_return safe.error();
    membership = std::move(after);
  }
  for (const std::string& uri : membership.replicas) {
    const auto found = std::find_if(asked.begin(), asked.end(),
                                    [&](const AskedServer& server) { return server.uri == uri; });
    members.push_back({uri, std::move(found->client), std::move(*found->info), nullptr});
  }
  PMSTORE_CO_TRY_STATUS(co_await acquire_all());
  for (size_t i = 0; change && i < members.size(); ++i) {
    PMSTORE_CO_TRY_STATUS(co_await record(members[i], membership));
  }
  PMSTORE_CO_TRY_STATUS(co_await agree());
  membership.pending = false;
  check_members();
  PMSTORE_CO_TRY_STATUS(co_await make_equal());
  co_return co_await acknowledge_all();
}

// ---- leases ----

base::Task<Status> ReplicatedLog::State::acquire(Member& member, uint64_t number) {
  member.producer.reset();
  const auto now = co_await member.client->open(name);
  if (!now) co_return at_server(member.uri, now.error());
  if (now->identity != membership.identity) {
    co_return at_server(member.uri,
                        make_error(ErrorCode::kConflict,
                                   "the log was deleted there and made again: open it again"));
  }
  // A membership has one list. Another one is of another log, and would keep this one from being
  // opened ever again once it is filled.
  if (now->membership == number && now->replicas != member.info.replicas) {
    co_return at_server(
        member.uri, make_error(ErrorCode::kConflict,
                               fmt::format("its membership {} has other replicas than when it was "
                                           "asked: open the log again",
                                           number)));
  }
  member.info = *now;
  // To what these members are, not to what it has recorded since they were asked: Conflict.
  LogProducerOptions producing = options.producer;
  producing.membership = number;
  auto producer = co_await LogProducer::open(*member.client, member.info.id, producing);
  if (!producer) co_return at_server(member.uri, producer.error());
  member.producer = std::move(*producer);
  co_return Status{};
}

base::Task<Result<size_t>> ReplicatedLog::State::first_lost() {
  for (size_t i = 0; i < members.size(); ++i) {
    const auto holds = co_await members[i].producer->holds_lease();
    if (!holds) co_return at_server(members[i].uri, holds.error());
    if (!*holds) co_return i;
  }
  co_return members.size();
}

// In the order of the members. Of two that take them from each other the one that has the first
// goes on, the other one gives up what it has.
base::Task<Status> ReplicatedLog::State::acquire_all() {
  for (Member& member : members) {
    PMSTORE_CO_TRY_STATUS(co_await acquire(member, member.info.membership));
  }
  for (int tries = 0; tries < kAcquireTries; ++tries) {
    PMSTORE_CO_TRY(const size_t lost, co_await first_lost());
    if (lost == members.size()) co_return Status{};
    if (lost == 0 || options.producer.takeover != Takeover::kSteal) break;
    PMSTORE_CO_TRY_STATUS(co_await acquire(members[lost], members[lost].info.membership));
  }
  co_return make_error(
      ErrorCode::kFenced,
      fmt::format("another producer takes the log {} over at the same time", name));
}

base::Task<Status> ReplicatedLog::State::record(Member& member, const Membership& decided) {
  if (member.info.membership == decided.number) co_return Status{};
  const ReplicaPlace place{decided.replicas, decided.place_of(member.uri), decided.number};
  const Status recorded = co_await member.producer->set_membership(member.info.membership, place);
  if (!recorded) co_return at_server(member.uri, recorded.error());
  member.info.membership = decided.number;
  member.info.agreed = false;
  co_return Status{};
}

void ReplicatedLog::State::check_members() const {
  PMSTORE_CHECK(members.size() == membership.replicas.size(), "every member has the log");
  for (size_t i = 0; i < members.size(); ++i) {
    PMSTORE_CHECK(members[i].uri == membership.replicas[i],
                  "an append would go to a server that is no member");
  }
}

// Behind the last record(): all have it. From here on some of them may go on without others.
base::Task<Status> ReplicatedLog::State::agree() {
  for (Member& member : members) {
    if (member.info.agreed) continue;
    const Status told = co_await member.producer->agree(membership.number);
    if (!told) co_return at_server(member.uri, told.error());
    member.info.agreed = true;
  }
  co_return Status{};
}

// ---- equal entries ----

// Nothing that was there before can land any more, and all replicas hold prefixes of one sequence:
// the longest has everything that was acknowledged, as each of them has.
base::Task<Status> ReplicatedLog::State::make_equal() {
  const auto longest =
      std::max_element(members.begin(), members.end(), [](const Member& a, const Member& b) {
        return a.producer->tail_lsn() < b.producer->tail_lsn();
      });
  const uint64_t tail = longest->producer->tail_lsn();
  for (Member& member : members) {
    if (member.producer->tail_lsn() == tail) continue;
    PMSTORE_CO_TRY_STATUS(co_await copy(*longest, tail, member));
  }
  next_index = longest->producer->next_index();
  acknowledged_lsn = tail;
  for (const Member& member : members) {
    if (member.producer->next_index() == next_index) continue;
    co_return make_error(
        ErrorCode::kDamaged,
        fmt::format("{} counts its entries up to {}, {} up to {}: drop the one "
                    "whose medium has lost some",
                    member.uri, member.producer->next_index(), longest->uri, next_index));
  }
  co_return Status{};
}

base::Task<Status> ReplicatedLog::State::copy(Member& from, uint64_t to_lsn, Member& to) {
  LogReaderOptions reading;
  reading.current_replica = true;
  reading.unpublished_to_lsn = to_lsn;
  PMSTORE_CO_TRY(const auto reader, co_await LogReader::open(*from.client, from.info.id, reading));
  if (to.producer->tail_lsn() > 0) reader->seek(to.producer->tail_lsn());
  uint64_t lsn = 0;
  while (to.producer->tail_lsn() < to_lsn) {
    std::vector<std::vector<std::byte>> held;
    std::vector<std::span<const std::byte>> payloads;
    uint64_t bytes = 0;
    uint64_t end = to.producer->tail_lsn();
    while (end < to_lsn && held.size() < kCopyEntries && bytes < kCopyBytes) {
      const auto entry = co_await reader->next();
      if (!entry) co_return at_server(from.uri, entry.error());
      if (entry->index != to.producer->next_index() + held.size()) {
        co_return at_server(from.uri, make_error(ErrorCode::kDamaged,
                                                 "entries that another replica needs are lost: "
                                                 "drop one of the two"));
      }
      held.emplace_back(entry->payload.begin(), entry->payload.end());
      bytes += entry->payload.size();
      lsn = entry->lsn;
      end = entry->next_lsn;
    }
    payloads.assign(held.begin(), held.end());
    const auto appended =
        co_await to.producer->append_batch_at(payloads, to.producer->next_index());
    if (!appended) co_return at_server(to.uri, appended.error());
    if (appended->lsn != lsn || appended->next_lsn != end) {
      co_return at_server(to.uri, make_error(ErrorCode::kConflict,
                                             "its entries lie elsewhere than those of " + from.uri +
                                                 ": drop it, delete the log there, add it again"));
    }
  }
  co_return Status{};
}

base::Task<Status> ReplicatedLog::State::acknowledge_all() {
  for (Member& member : members) {
    member.producer->acknowledge(acknowledged_lsn);
    const Status published = co_await member.producer->publish();
    if (!published) co_return at_server(member.uri, published.error());
  }
  co_return Status{};
}

// ---- a new member ----

// What a member that was dropped still has of this log.
base::Task<Status> ReplicatedLog::State::erase_old(Member& member) {
  const auto old = co_await member.client->open(name);
  if (!old && old.code() == ErrorCode::kNotFound) co_return Status{};
  if (!old) co_return at_server(member.uri, old.error());
  if (!internal::is_of(*old, membership)) {
    co_return at_server(member.uri, make_error(ErrorCode::kConflict,
                                               "it has another log of that name: delete that one "
                                               "there, or add another server"));
  }
  if (old->agreed && old->membership > membership.number) {
    co_return at_server(member.uri,
                        make_error(ErrorCode::kFenced, "it is a member of a later membership"));
  }
  const Status erased = co_await member.client->erase(old->id);
  if (!erased) co_return at_server(member.uri, erased.error());
  co_return Status{};
}

base::Task<Status> ReplicatedLog::State::connect_new(Member& member, bool replace) {
  PMSTORE_CO_TRY(const fabric::Uri parsed, fabric::parse_uri(member.uri));
  auto client = co_await LogClient::connect(executor, parsed, options.client);
  if (!client) co_return at_server(member.uri, client.error());
  member.client = std::move(*client);
  for (const Member& other : members) {
    if (other.client->area() == member.client->area()) {
      co_return internal::same_pool(other.uri, member.uri);
    }
  }
  if (!replace) co_return Status{};
  co_return co_await erase_old(member);
}

base::Task<Status> ReplicatedLog::add(std::string uri, bool replace) {
  State& s = *state_;
  if (s.skewed) {
    PMSTORE_CO_TRY_STATUS(co_await s.resynchronise());
  }
  PMSTORE_CO_TRY_STATUS(s.usable());
  internal::Membership after{.number = s.membership.number + 1,
                             .replicas = s.membership.replicas,
                             .identity = s.membership.identity};
  if (after.place_of(uri) < after.replicas.size() || after.replicas.size() == kMaxReplicas) {
    co_return make_error(ErrorCode::kInvalidArgument,
                         fmt::format("{} cannot be added: it is a replica, or there are {} already",
                                     uri, kMaxReplicas));
  }
  after.replicas.push_back(uri);
  // Who was fenced does not know whom others have added since: he would erase what that one has.
  PMSTORE_CO_TRY(const size_t lost, co_await s.first_lost());
  if (lost < s.members.size()) {
    s.broken = make_error(ErrorCode::kFenced,
                          fmt::format("another producer has taken the log {} over", s.name));
    co_return Error(*s.broken);
  }
  State::Member member{uri, nullptr, {}, nullptr};
  PMSTORE_CO_TRY_STATUS(co_await s.connect_new(member, replace));
  State::Member& source = s.members.front();
  LogReaderOptions reading;
  reading.current_replica = true;
  reading.unpublished_to_lsn = s.acknowledged_lsn;
  PMSTORE_CO_TRY(auto reader, co_await LogReader::open(*source.client, source.info.id, reading));
  const auto oldest = co_await reader->next();
  if (!oldest && oldest.code() != ErrorCode::kNotFound) {
    co_return at_server(source.uri, oldest.error());
  }
  const ReplicaPlace place{after.replicas, after.replicas.size() - 1, after.number,
                           oldest ? oldest->lsn : s.acknowledged_lsn,
                           oldest ? oldest->index : s.next_index};
  const LogOptions shape{source.info.bytes, source.info.when_full, source.info.identity};
  const auto made = co_await member.client->create_replica(s.name, shape, place);
  if (!made) co_return at_server(uri, made.error());
  member.info.replicas = after.replicas;
  PMSTORE_CO_TRY_STATUS(co_await s.acquire(member, after.number));
  PMSTORE_CO_TRY_STATUS(co_await s.copy(source, s.acknowledged_lsn, member));
  s.members.push_back(std::move(member));
  s.membership = after;
  for (State::Member& each : s.members) {
    const Status recorded = co_await s.record(each, after);
    if (recorded) continue;
    s.broken = recorded.error();
    co_return recorded;
  }
  s.check_members();
  const Status agreed = co_await s.agree();
  if (!agreed) {
    s.broken = agreed.error();
    co_return agreed;
  }
  co_return co_await s.acknowledge_all();
}

}  // namespace pmstore::log
