// The requests of a LogClient.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/random.h"
#include "fabric/message.h"
#include "log/internal/log_client_state.h"
#include "log/log_client.h"
#include "log/ring_layout.h"

namespace pmstore::log {
namespace {

using fabric::MessageReader;
using fabric::MessageWriter;

constexpr size_t kCreateRequestBytes =
    sizeof(CreateRequest) + kMaxLogNameBytes + kMaxReplicas * (1 + UINT8_MAX);
// Of an opened log with all that is known of it, and of one page of a list.
constexpr uint32_t kLargeReply = 64 * 1024;
Status check_payloads(std::span<const std::span<const std::byte>> payloads) {
  if (payloads.empty() || payloads.size() > kMaxBatchEntries) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("{} entries cannot be appended at a time: 1 to {} can",
                                  payloads.size(), kMaxBatchEntries));
  }
  for (const auto& payload : payloads) {
    if (payload.empty()) {
      return make_error(ErrorCode::kInvalidArgument, "an entry has at least one byte");
    }
    if (payload.size() > kMaxEntryBytes) {
      return make_error(ErrorCode::kTooLarge,
                        fmt::format("an entry of {} bytes is over the limit of {}: use several",
                                    payload.size(), kMaxEntryBytes));
    }
  }
  return {};
}

}  // namespace

base::Task<Result<LogClient::State::Reply>> LogClient::State::call_on(
    LinkRef on, LogMethod method, std::span<const std::byte> body, uint32_t reply_capacity) {
  const std::span<std::byte> room = body_room();
  if (body.size() > room.size()) {
    co_return make_error(ErrorCode::kTooLarge,
                         fmt::format("a request is at most {} bytes", room.size()));
  }
  if (!body.empty() && body.data() != room.data()) {
    std::memcpy(room.data(), body.data(), body.size());
  }
  const service::RequestPrefix prefix = on->prefix();
  std::memcpy(message.get(), &prefix, sizeof prefix);
  const std::span<const std::byte> request(message.get(), sizeof prefix + body.size());
  auto answered = co_await on->rpc().call(static_cast<uint16_t>(method), request, reply_capacity);
  if (answered) co_return Reply{std::move(on), std::move(*answered)};
  // It says that it does not answer any more: the next call makes another session.
  if (lost_answer(answered.error())) on->drop();
  co_return std::move(answered.error());
}

base::Task<Result<LogClient::State::Reply>> LogClient::State::call(LogMethod method,
                                                                   std::span<const std::byte> body,
                                                                   uint32_t reply_capacity,
                                                                   bool* repeated) {
  const uint64_t give_up_ns = executor.now_ns() + options.reconnect_timeout_ns;
  while (true) {
    PMSTORE_CO_TRY(LinkRef on, co_await connected());
    auto answered = co_await call_on(std::move(on), method, body, reply_capacity);
    if (answered || !lost_answer(answered.error())) co_return std::move(answered);
    if (executor.now_ns() >= give_up_ns) co_return std::move(answered);
    if (repeated != nullptr) *repeated = true;
    co_await executor.sleep_for(kRepeatPauseNs);
  }
}

Result<LogInfo> LogClient::State::note(const LogReply& reply, std::string_view name) {
  // A log that is lost, or that the server's device refuses, is in no region.
  const uint64_t extent_bytes =
      reply.extent.region.bytes != 0 ? reply.extent.region.bytes : kMaxLsn;
  const bool sane =
      reply.id != 0 && reply.region_bytes >= kMinRingBytes &&
      reply.region_bytes % kRingHeaderBytes == 0 && reply.region_offset <= extent_bytes &&
      reply.region_bytes <= extent_bytes - reply.region_offset &&
      reply.extent.name >> 32 <= kMostLogExtents &&
      reply.word < answer.words.bytes / sizeof(LogWords) && reply.start_lsn <= reply.tail_lsn &&
      reply.tail_lsn - reply.start_lsn <= reply.region_bytes - kRingHeaderBytes &&
      full_policy_name(reply.when_full) != full_policy_name(FullPolicy{}) && check_log_name(name);
  if (!sane) return malformed("a question about a log");
  remember(reply, name);
  note_extent(reply.extent);
  LogInfo info;
  info.id = reply.id;
  info.name = name;
  info.bytes = reply.region_bytes - kRingHeaderBytes;
  info.when_full = reply.when_full;
  info.sealed = reply.sealed != 0;
  info.exclusive = reply.exclusive != 0;
  info.start_lsn = reply.start_lsn;
  info.tail_lsn = reply.tail_lsn;
  info.next_index = reply.next_index;
  info.incarnation = reply.incarnation;
  info.membership = reply.membership;
  info.agreed = reply.agreed != 0;
  info.identity = reply.identity;
  return info;
}

// ---- create, open, list ----

Status put_uris(MessageWriter& request, std::span<const std::string> uris) {
  for (const std::string& uri : uris) {
    request.put(static_cast<uint8_t>(uri.size()));
    request.put_bytes(uri);
    if (!request.overflowed() && uri.size() <= UINT8_MAX) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("{} replicas do not fit in a request: at most {}, with shorter "
                                  "URIs",
                                  uris.size(), kMaxReplicas));
  }
  return {};
}

base::Task<Result<LogInfo>> LogClient::create(std::string_view name, const LogOptions& options) {
  const ReplicaPlace alone;
  LogOptions given = options;
  if (given.identity == 0) given.identity = base::random_identity();
  co_return co_await create_replica(name, given, alone);
}

base::Task<Result<LogInfo>> LogClient::create_replica(std::string_view name,
                                                      const LogOptions& options,
                                                      const ReplicaPlace& replica) {
  PMSTORE_CO_TRY_STATUS(check_log_name(name));
  const std::string kept(name);
  CreateRequest fixed{};
  fixed.bytes = options.bytes;
  fixed.when_full = options.when_full;
  fixed.name_bytes = static_cast<uint8_t>(kept.size());
  fixed.replicas = static_cast<uint8_t>(replica.replicas.size());
  fixed.self = static_cast<uint8_t>(replica.self);
  fixed.membership = replica.membership;
  fixed.begin_lsn = replica.begin_lsn;
  fixed.begin_index = replica.begin_index;
  fixed.identity = options.identity;
  std::array<std::byte, kCreateRequestBytes> room;
  MessageWriter request(room);
  request.put(fixed);
  request.put_bytes(kept);
  PMSTORE_CO_TRY_STATUS(put_uris(request, replica.replicas));
  bool repeated = false;
  auto answer =
      co_await state_->call(LogMethod::kCreate, request.message(), sizeof(LogReply), &repeated);
  if (!answer && repeated && answer.code() == ErrorCode::kAlreadyExists) {
    // The first try may have made it.
    auto there = co_await open(kept);
    if (there && there->identity == fixed.identity && fixed.identity != 0)
      co_return std::move(there);
  }
  if (!answer) co_return std::move(answer.error());
  MessageReader reader(answer->bytes());
  const auto reply = reader.get<LogReply>();
  if (!reader.complete()) co_return state_->malformed("a create");
  co_return state_->note(reply, kept);
}

base::Task<Result<LogInfo>> LogClient::open(std::string_view name) {
  PMSTORE_CO_TRY_STATUS(check_log_name(name));
  const std::string kept(name);
  auto answer =
      co_await state_->call(LogMethod::kOpen, std::as_bytes(std::span(kept)), kLargeReply);
  if (!answer) co_return std::move(answer.error());
  MessageReader reader(answer->bytes());
  const auto reply = reader.get<LogReply>();
  const std::string_view its_name = reader.get_bytes(reply.name_bytes);
  std::vector<std::string> replicas;
  for (size_t i = 0; i < std::min<size_t>(reply.replicas, kMaxReplicas); ++i) {
    const auto bytes = reader.get<uint8_t>();
    replicas.emplace_back(reader.get_bytes(bytes));
  }
  std::vector<DamagedRange> damaged;
  for (uint32_t i = 0; i < reply.damaged && !reader.failed(); ++i) {
    damaged.push_back(reader.get<DamagedRange>());
  }
  if (!reader.complete() || its_name != kept) co_return state_->malformed("an open of a log");
  PMSTORE_CO_TRY(LogInfo info, state_->note(reply, kept));
  info.replicas = std::move(replicas);
  info.damaged = std::move(damaged);
  co_return std::move(info);
}

base::Task<Result<std::vector<LogInfo>>> LogClient::list() { return state_->list(); }

base::Task<Result<std::vector<LogInfo>>> LogClient::State::list(uint64_t wanted,
                                                                std::optional<KnownLog>* found) {
  std::vector<LogInfo> all;
  ListRequest request{0, kLargeReply};
  do {
    auto page = co_await call(LogMethod::kList, std::as_bytes(std::span(&request, 1)), kLargeReply);
    if (!page) co_return std::move(page.error());
    MessageReader reader(page->bytes());
    const auto head = reader.get<ListReply>();
    for (uint32_t i = 0; i < head.count; ++i) {
      const auto reply = reader.get<LogReply>();
      const std::string_view name = reader.get_bytes(reply.name_bytes);
      if (reader.failed()) break;
      PMSTORE_CO_TRY(LogInfo info, note(reply, name));
      if (found != nullptr && reply.id == wanted) *found = KnownLog{std::string(name), reply};
      all.push_back(std::move(info));
    }
    const bool onwards = head.next == 0 || head.next > request.from;
    if (!reader.complete() || !onwards) co_return malformed("a list of logs");
    request.from = head.next;
  } while (request.from != 0);
  co_return std::move(all);
}

base::Task<Result<KnownLog>> LogClient::State::find(uint64_t log) {
  if (const auto at = known.find(log); at != known.end()) co_return KnownLog(at->second);
  // Looked at while the list is read: there may be more logs than are remembered.
  std::optional<KnownLog> found;
  if (auto listed = co_await list(log, &found); !listed) co_return std::move(listed.error());
  if (found) co_return std::move(*found);
  co_return make_error(ErrorCode::kNotFound,
                       fmt::format("there is no log with id {}: open it by its name", log));
}

void LogClient::State::remember(const LogReply& reply, std::string_view name) {
  if (!known.contains(reply.id)) {
    if (known_in_order.size() == kMostKnown) {
      known.erase(known_in_order.front());
      known_in_order.pop_front();
    }
    known_in_order.push_back(reply.id);
  }
  known[reply.id] = KnownLog{std::string(name), reply};
  PMSTORE_CHECK(known.size() == known_in_order.size() && known.size() <= kMostKnown,
                "each known log has one place in the order, and their number is bounded");
}

void LogClient::State::forget(uint64_t log) {
  if (known.erase(log) > 0) std::erase(known_in_order, log);
}

base::Task<Result<LogInfo>> LogClient::State::ask(LogClient& self, uint64_t log) {
  PMSTORE_CO_TRY(const KnownLog before, co_await find(log));
  PMSTORE_CO_TRY(LogInfo info, co_await self.open(before.name));
  if (info.id != log) {
    co_return make_error(
        ErrorCode::kNotFound,
        fmt::format("there is no log with id {}: {} is another one now", log, before.name));
  }
  co_return std::move(info);
}

// ---- append ----

// One append, as long as it has no answer.
class LogClient::State::NumberedAppend {
 public:
  explicit NumberedAppend(State& state) : state_(state), number_(++state.last_append) {
    state_.appends_under_way.push_back({number_, 0});
  }
  NumberedAppend(const NumberedAppend&) = delete;
  NumberedAppend& operator=(const NumberedAppend&) = delete;
  ~NumberedAppend() {
    state_.appends_under_way.erase(here());
    state_.note_known();
    state_.append_sent.notify_all();
  }
  uint64_t number() const { return number_; }
  bool may_be_sent() const {
    const auto at = here();
    return at == state_.appends_under_way.begin() || (at - 1)->sent_in == state_.generation;
  }
  void sent() {
    PMSTORE_CHECK(may_be_sent(), "appends of one client stay in their order");
    here()->sent_in = state_.generation;
    state_.last_sent = std::max(state_.last_sent, number_);
    state_.append_sent.notify_all();
  }

 private:
  // Mostly the last one.
  std::vector<AppendUnderWay>::iterator here() const {
    auto at = state_.appends_under_way.end();
    do {
      PMSTORE_CHECK(at != state_.appends_under_way.begin(), "it is under way");
      --at;
    } while (at->number != number_);
    return at;
  }

  State& state_;
  const uint64_t number_;
};

void LogClient::State::note_known() {
  *known_through = appends_under_way.empty() ? last_append : appends_under_way.front().number - 1;
}

Result<std::span<const std::byte>> LogClient::State::append_message(
    uint64_t log, uint64_t number, std::span<const std::span<const std::byte>> payloads) {
  MessageWriter request(body_room());
  request.put(AppendRequest{log, number, static_cast<uint32_t>(payloads.size()), 0});
  for (const auto& payload : payloads) {
    request.put(AppendItem{static_cast<uint32_t>(payload.size())});
  }
  for (const auto& payload : payloads) {
    request.put_bytes({reinterpret_cast<const char*>(payload.data()), payload.size()});
  }
  if (!request.overflowed()) return request.message();
  return make_error(ErrorCode::kTooLarge,
                    fmt::format("{} entries are together over the {} bytes of a request: append "
                                "fewer at a time",
                                payloads.size(), body_room().size()));
}

std::optional<Result<Appended>> LogClient::append_at_once(
    uint64_t log, std::span<const std::span<const std::byte>> payloads) {
  State& state = *state_;
  if (state.embedded == nullptr) return std::nullopt;
  if (payloads.size() == 1) [[likely]] {
    if (const auto appended = state.embedded->append_one(log, payloads[0])) return *appended;
  }
  if (Status good = check_payloads(payloads); !good) return std::move(good.error());
  return state.embedded->append(log, payloads);
}

base::Task<Result<Appended>> LogClient::append_batch(
    uint64_t log, std::span<const std::span<const std::byte>> payloads) {
  State& state = *state_;
  if (auto appended = append_at_once(log, payloads)) {
    if (state.has_had_its_turn()) co_await state.executor.yield();
    co_return std::move(*appended);
  }
  PMSTORE_CO_TRY_STATUS(check_payloads(payloads));
  co_return co_await state.append(log, payloads);
}

Error LogClient::State::in_doubt(const std::string& why) {
  return make_error(ErrorCode::kCommitUnknown,
                    "the entries may or may not be there: look behind what the log's next index "
                    "was (" +
                        why + ")");
}

base::Task<Result<Appended>> LogClient::State::append(
    uint64_t log, std::span<const std::span<const std::byte>> payloads) {
  NumberedAppend append(*this);
  const uint64_t give_up_ns = executor.now_ns() + options.reconnect_timeout_ns;
  std::optional<uint64_t> epoch;  // of the server that may have executed it
  while (true) {
    if (!usable()) {
      const Status again = co_await reconnector.connected();
      if (!again) co_return epoch ? in_doubt(again.error().to_string()) : again.error();
    }
    if (!append.may_be_sent()) {
      co_await append_sent.wait();
      continue;
    }
    const uint64_t now_in = link->welcome().epoch;
    if (epoch && *epoch != now_in) {
      co_return in_doubt("the server has been started again meanwhile");
    }
    PMSTORE_CO_TRY(const auto request, append_message(log, append.number(), payloads));
    epoch = now_in;
    append.sent();
    auto answered = co_await call_on(link, LogMethod::kAppend, request, sizeof(AppendReply));
    if (answered) {
      MessageReader reader(answered->bytes());
      const auto reply = reader.get<AppendReply>();
      if (!reader.complete()) co_return malformed("an append");
      co_return reply.last;
    }
    const bool lost = lost_answer(answered.error());
    if (!lost && answered.code() != ErrorCode::kOutcomeExpired)
      co_return std::move(answered.error());
    if (!lost || executor.now_ns() >= give_up_ns) co_return in_doubt(answered.error().to_string());
    co_await executor.sleep_for(kRepeatPauseNs);
  }
}

base::Task<Result<Appended>> LogClient::append(uint64_t log, std::span<const std::byte> payload) {
  const std::span<const std::byte> one[] = {payload};
  const std::span<const std::span<const std::byte>> batch(one);
  if (auto appended = append_at_once(log, batch)) {
    if (state_->has_had_its_turn()) co_await state_->executor.yield();
    co_return std::move(*appended);
  }
  co_return co_await append_batch(log, batch);
}

// ---- trim, seal, erase ----

base::Task<Result<uint64_t>> LogClient::State::trim(TrimRequest request) {
  auto trimmed =
      co_await call(LogMethod::kTrim, std::as_bytes(std::span(&request, 1)), sizeof(TrimReply));
  if (!trimmed) co_return std::move(trimmed.error());
  MessageReader reader(trimmed->bytes());
  const auto reply = reader.get<TrimReply>();
  if (!reader.complete()) co_return malformed("a trim");
  co_return reply.start_lsn;
}

base::Task<Result<uint64_t>> LogClient::trim(uint64_t log, uint64_t through_lsn) {
  if (through_lsn > 0) return state_->trim({log, through_lsn, 0});
  // The protocol's 0 means "by index", and nothing lies below LSN 0.
  return state_->trim({log, 0, 1});
}

base::Task<Result<uint64_t>> LogClient::trim_below_index(uint64_t log, uint64_t index) {
  return state_->trim({log, 0, index});
}

base::Task<Status> LogClient::seal(uint64_t log) {
  State& state = *state_;
  const LogRequest request{log};
  auto answer = co_await state.call(LogMethod::kSeal, std::as_bytes(std::span(&request, 1)),
                                    sizeof(LogReply));
  if (!answer) co_return std::move(answer.error());
  if (answer->bytes().size() != sizeof(LogReply)) co_return state.malformed("a seal");
  co_return Status{};
}

base::Task<Status> LogClient::erase(uint64_t log) {
  State& state = *state_;
  const LogRequest request{log};
  bool repeated = false;
  auto answer =
      co_await state.call(LogMethod::kDelete, std::as_bytes(std::span(&request, 1)), 0, &repeated);
  // An id is never used again, so the first try has deleted it.
  const bool gone = !answer && repeated && answer.code() == ErrorCode::kNotFound;
  if (!answer && !gone) co_return std::move(answer.error());
  state.forget(log);
  co_return Status{};
}

}  // namespace pmstore::log
