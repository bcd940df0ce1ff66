// Of ReplicatedLog: create, appends, the end.
#include "log/replicated_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "fabric/uri.h"
#include "log/internal/replicated_log_state.h"

namespace pmstore::log {

using internal::at_server;

namespace {

// Errors of an append that has written nothing, and whose producer goes on.
bool wrote_nothing(const Error& error) {
  return error.code == ErrorCode::kBackPressure || error.code == ErrorCode::kTooLarge ||
         error.code == ErrorCode::kInvalidArgument || error.code == ErrorCode::kConflict;
}

}  // namespace

ReplicatedLog::State::State(base::Executor& log_executor, std::string log_name,
                            ReplicatedLogOptions log_options)
    : executor(log_executor),
      name(std::move(log_name)),
      options(std::move(log_options)),
      idle(log_executor) {
  options.producer.replica = true;
}

ReplicatedLog::ReplicatedLog(std::unique_ptr<State> state) : state_(std::move(state)) {}
ReplicatedLog::~ReplicatedLog() = default;

// ---- create ----

base::Task<Status> ReplicatedLog::create(base::Executor& executor, std::string name,
                                         LogOptions options, std::vector<std::string> replicas,
                                         ReplicatedLogOptions how) {
  if (replicas.empty() || replicas.size() > kMaxReplicas) {
    co_return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("a log has 1 to {} replicas, not {}", kMaxReplicas, replicas.size()));
  }
  // Before anything is made anywhere: can all be reached, and are they different pools?
  std::vector<std::unique_ptr<LogClient>> clients;
  for (size_t i = 0; i < replicas.size(); ++i) {
    PMSTORE_CO_TRY(const fabric::Uri uri, fabric::parse_uri(replicas[i]));
    auto client = co_await LogClient::connect(executor, uri, how.client);
    if (!client) co_return at_server(replicas[i], client.error());
    for (size_t other = 0; other < i; ++other) {
      if (clients[other]->area() != (*client)->area()) continue;
      co_return internal::same_pool(replicas[other], replicas[i]);
    }
    clients.push_back(std::move(*client));
  }
  if (options.identity == 0) options.identity = base::random_identity();
  const auto unfinished = [&](const LogInfo& there) {
    return there.replicas == replicas && there.membership == 1 && there.next_index == 1 &&
           !there.sealed;
  };
  // Nor may another log of that name be on any of them: a part of a new one beside it would be in
  // the way of both.
  for (size_t i = 0; i < replicas.size(); ++i) {
    const auto there = co_await clients[i]->open(name);
    // It is made in this order: the first one has what was drawn, and only others that are of it
    // are of the same attempt.
    if (there && i == 0) options.identity = there->identity;
    if (there && (!unfinished(*there) || there->identity != options.identity)) {
      co_return at_server(
          replicas[i],
          make_error(ErrorCode::kAlreadyExists, fmt::format("there is a log '{}' already", name)));
    }
    if (!there && there.code() != ErrorCode::kNotFound) {
      co_return at_server(replicas[i], there.error());
    }
  }
  size_t found = 0;
  for (size_t i = 0; i < replicas.size(); ++i) {
    const ReplicaPlace place{replicas, i};
    auto made = co_await clients[i]->create_replica(name, options, place);
    if (made) continue;
    if (made.code() != ErrorCode::kAlreadyExists) co_return at_server(replicas[i], made.error());
    const auto there = co_await clients[i]->open(name);
    if (!there) co_return at_server(replicas[i], there.error());
    if (i == 0) options.identity = there->identity;
    if (!unfinished(*there) || there->identity != options.identity) {
      co_return at_server(replicas[i], made.error());
    }
    ++found;
  }
  if (found < replicas.size()) co_return Status{};
  co_return make_error(ErrorCode::kAlreadyExists,
                       fmt::format("there is a replicated log '{}' already", name));
}

// ---- append ----

// Notices when a coroutine is destroyed in the middle of an append: then nobody will ever know
// which replicas have its entries.
struct ReplicatedLog::State::UnderWay {
  explicit UnderWay(State& s) : state(s) { ++state.under_way; }
  ~UnderWay() {
    PMSTORE_CHECK(state.under_way > 0, "an append would end twice");
    --state.under_way;
    if (!finished && !state.broken) {
      state.broken =
          make_error(ErrorCode::kDisconnected, "an append was abandoned: open the log again");
    }
    state.idle.notify_all();
  }
  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;
  State& state;
  bool finished = false;
};

base::Task<void> ReplicatedLog::State::append_part(
    LogProducer& producer, std::span<const std::span<const std::byte>> payloads,
    uint64_t first_index, Part& part, Together& together) {
  part.result = co_await producer.append_batch_at(payloads, first_index);
  PMSTORE_CHECK(together.left > 0, "a replica would count twice");
  --together.left;
  together.done.notify_all();
}

Status ReplicatedLog::State::usable() const {
  if (broken) return Error(*broken);
  return {};
}

// Indexes that were given to entries which nobody has.
base::Task<Status> ReplicatedLog::State::resynchronise() {
  while (skewed && under_way > 0) co_await idle.wait();
  if (!skewed) co_return Status{};
  PMSTORE_CHECK(under_way == 0, "an append under way still has its index");
  skewed = false;
  next_index = members.front().producer->next_index();
  for (const Member& member : members) {
    if (member.producer->next_index() == next_index) continue;
    broken = make_error(ErrorCode::kConflict,
                        fmt::format("{} has other entries than {}: open the log again", member.uri,
                                    members.front().uri));
  }
  co_return usable();
}

base::Task<Result<Appended>> ReplicatedLog::State::append(
    std::span<const std::span<const std::byte>> payloads) {
  if (skewed) {
    PMSTORE_CO_TRY_STATUS(co_await resynchronise());
  }
  PMSTORE_CO_TRY_STATUS(usable());
  const uint64_t first_index = next_index;
  next_index += payloads.size();
  UnderWay call(*this);  // goes behind the parts
  Together together(executor);
  std::array<Part, kMaxReplicas> parts;
  together.left = members.size();
  for (size_t i = 0; i < members.size(); ++i) {
    parts[i].task = append_part(*members[i].producer, payloads, first_index, parts[i], together);
    parts[i].task.start();
  }
  while (together.left > 0) co_await together.done.wait();
  call.finished = true;
  co_return conclude(std::span(parts).first(members.size()));
}

Result<Appended> ReplicatedLog::State::conclude(std::span<const Part> parts) {
  PMSTORE_CHECK(parts.size() == members.size(), "every replica has answered");
  const Part* done = nullptr;  // what the others must agree with
  const Part* failed = nullptr;
  const Part* lost = nullptr;  // better one that did not answer than one that disagrees
  for (const Part& part : parts) {
    if (done == nullptr && part.result) done = &part;
    if (part.result && part.result->lsn == done->result->lsn) continue;
    failed = &part;
    const bool uncertain = part.result || !wrote_nothing(part.result.error());
    if (uncertain && (lost == nullptr || (lost->result && !part.result))) lost = &part;
  }
  if (failed == nullptr) {
    const Appended& last = *parts.front().result;
    acknowledged_lsn = std::max(acknowledged_lsn, last.next_lsn);
    for (Member& member : members) member.producer->acknowledge(acknowledged_lsn);
    return last;
  }
  const bool nowhere = std::all_of(parts.begin(), parts.end(), [](const Part& part) {
    return !part.result && wrote_nothing(part.result.error());
  });
  if (nowhere) {
    skewed = true;
    const Error& why = parts.front().result.error();
    if (why.code != ErrorCode::kConflict) return why;
    // Its indexes follow those of an append that was refused while this one was under way.
    return make_error(ErrorCode::kBackPressure,
                      "nothing was appended, as one before it was refused meanwhile: append it "
                      "again after that one");
  }
  const Part* const worst = lost != nullptr ? lost : failed;
  const std::string& uri = members[static_cast<size_t>(worst - parts.data())].uri;
  const bool fenced = !worst->result && worst->result.code() == ErrorCode::kFenced;
  const std::string why =
      worst->result ? "it has other entries" : worst->result.error().to_string();
  const Error unknown =
      make_error(fenced ? ErrorCode::kFenced : ErrorCode::kCommitUnknown,
                 fmt::format("{} has not confirmed it, other replicas may have it: open the log "
                             "again, without that one if it is lost ({})",
                             uri, why));
  if (!broken) {
    broken = make_error(fenced ? ErrorCode::kFenced : ErrorCode::kDisconnected,
                        fmt::format("the replica {} was lost: open the log again, without it if it "
                                    "does not come back",
                                    uri));
  }
  return unknown;
}

base::Task<Result<Appended>> ReplicatedLog::append(std::span<const std::byte> payload) {
  const std::span<const std::byte> one[] = {payload};
  const std::span<const std::span<const std::byte>> batch(one);
  co_return co_await state_->append(batch);
}

base::Task<Result<Appended>> ReplicatedLog::append_batch(
    std::span<const std::span<const std::byte>> payloads) {
  return state_->append(payloads);
}

// ---- the rest ----

base::Task<Status> ReplicatedLog::publish() {
  PMSTORE_CO_TRY_STATUS(state_->usable());
  co_return co_await state_->acknowledge_all();
}

base::Task<Status> ReplicatedLog::close() {
  State& s = *state_;
  Status first;
  for (State::Member& member : s.members) {
    if (member.producer == nullptr) continue;
    const Status closed = co_await member.producer->close();
    if (!closed && first) first = at_server(member.uri, closed.error());
  }
  if (!s.broken)
    s.broken = make_error(ErrorCode::kDisconnected, "the log was closed: open it again");
  co_return first;
}

uint64_t ReplicatedLog::next_index() const {
  const State& s = *state_;
  const bool settled = s.skewed && s.under_way == 0;
  return settled ? s.members.front().producer->next_index() : s.next_index;
}
uint64_t ReplicatedLog::tail_lsn() const { return state_->acknowledged_lsn; }
persist::WriteStrategy ReplicatedLog::strategy() const {
  return state_->members.front().producer->strategy();
}
uint64_t ReplicatedLog::membership() const { return state_->membership.number; }
std::vector<std::string> ReplicatedLog::replicas() const { return state_->membership.replicas; }

fabric::Counters ReplicatedLog::counters() const {
  fabric::Counters sum;
  for (const State::Member& member : state_->members) {
    const fabric::Counters one = member.producer->counters();
    sum.doorbells += one.doorbells;
    sum.work_requests += one.work_requests;
    sum.completions += one.completions;
    sum.round_trips += one.round_trips;
    sum.server_messages += one.server_messages;
  }
  return sum;
}

}  // namespace pmstore::log
