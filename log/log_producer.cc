// The control path of LogProducer: its connection, its lease, its end.
#include "log/log_producer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "log/entry.h"
#include "log/internal/log_producer_state.h"
#include "log/ring_layout.h"

namespace pmstore::log {
namespace {

// Its replies are a few bytes, or an error's text.
constexpr uint32_t kReplyArenaBytes = 64 * 1024;
// How often close() looks whether the server has taken the lease back.
constexpr uint64_t kClosePauseNs = 200'000;

Error bad_handshake(std::string_view what) {
  return make_error(ErrorCode::kProtocol,
                    fmt::format("the server's handshake with a producer {}; is it a pmstore server "
                                "of this version?",
                                what));
}

// True, or one more, as long as this lives.
class Meanwhile {
 public:
  explicit Meanwhile(bool& flag) : flag_(&flag) { flag = true; }
  explicit Meanwhile(size_t& count) : count_(&count) { ++count; }
  ~Meanwhile() {
    if (flag_ != nullptr) *flag_ = false;
    if (count_ != nullptr) --*count_;
  }
  Meanwhile(const Meanwhile&) = delete;
  Meanwhile& operator=(const Meanwhile&) = delete;

 private:
  bool* flag_ = nullptr;
  size_t* count_ = nullptr;
};

}  // namespace

LogProducer::State::State(LogClient& session, KnownLog known_log,
                          const LogProducerOptions& producer_options)
    : executor(session.executor()),
      client(session),
      log(std::move(known_log)),
      options(producer_options),
      asked(session.executor()) {}

LogProducer::State::~State() {
  publishing = {};
  link.reset();  // before the memory that its peer or its queue can still reach
  if (words != nullptr) client.state_->retire(std::move(words));
}

LogProducer::LogProducer(std::unique_ptr<State> state) : state_(std::move(state)) {}
LogProducer::~LogProducer() = default;

base::Task<Result<std::unique_ptr<LogProducer>>> LogProducer::open(LogClient& client, uint64_t log,
                                                                   LogProducerOptions options) {
  PMSTORE_CO_TRY(const LogInfo info, co_await client.state_->ask(client, log));
  if (!info.replicas.empty() && !options.replica) {
    co_return make_error(ErrorCode::kUnsupported,
                         fmt::format("the log {} is replicated: append through a ReplicatedLog, "
                                     "which has all of its replicas",
                                     info.name));
  }
  PMSTORE_CO_TRY(KnownLog known, co_await client.state_->find(log));
  auto state = std::make_unique<State>(client, std::move(known), options);
  const uint64_t membership = options.replica ? options.membership : info.membership;
  PMSTORE_CO_TRY_STATUS(co_await state->connect(membership));
  co_return std::unique_ptr<LogProducer>(new LogProducer(std::move(state)));
}

base::Task<Status> LogProducer::State::connect(uint64_t membership) {
  LogClient::State& session = *client.state_;
  fabric::Device& device = *session.device;
  PMSTORE_CO_TRY(words, internal::ReadBuffer::create(device, sizeof(LogWords)));
  ProducerHello hello;
  hello.takeover = options.takeover;
  hello.log = log.reply.id;
  hello.membership = membership;
  service::LinkOptions with;
  with.service = service::ServiceId::kProducer;
  with.secret = session.secret;
  with.connect_timeout_ns = session.options.connect_timeout_ns;
  with.rpc = session.options.rpc;
  with.rpc.call_timeout_ns = session.options.call_timeout_ns;
  with.rpc.reply_arena_bytes = std::min(with.rpc.reply_arena_bytes, kReplyArenaBytes);
  PMSTORE_CO_TRY(link, co_await service::Link::open(device, session.server_uri, with,
                                                    service::bytes_of(hello)));
  PMSTORE_CO_TRY_STATUS(check_answer());
  fabric::Connection& connection = link->connection();

  persist::RemoteWriterOptions writer_options;
  writer_options.strategy = options.strategy;
  PMSTORE_CO_TRY(
      writer, persist::RemoteWriter::create(device, connection, &link->rpc(), answer.data,
                                            link->welcome().persist_capability(), writer_options));
  // Of what lies behind the last entry that was acknowledged a replica knows nothing.
  const uint64_t acknowledged = options.replica ? answer.start_lsn : answer.tail_lsn;
  PMSTORE_CO_TRY(publisher,
                 internal::TailPublisher::create(device, connection, answer.tail, acknowledged));
  writer->set_rider(*publisher);
  const RingPosition position{answer.data.bytes, answer.start_lsn, answer.tail_lsn,
                              answer.incarnation, answer.salt};
  // All replicas of a log lay out their entries alike.
  const auto padding = options.replica ? persist::PaddingRules{}
                                       : persist::PaddingRules::from_off_bits(answer.padding_off);
  PMSTORE_CO_TRY(appender,
                 RemoteAppender::create(device, *writer, position, options.staging_bytes, padding));
  next_index = answer.next_index;
  prefix.durable_lsn = acknowledged;
  landed_lsn = answer.tail_lsn;
  link->keep_lease();
  publishing = publish_when_idle();
  publishing.start();
  co_return Status{};
}

// What addresses are computed from.
Status LogProducer::State::check_answer() {
  const std::span<const std::byte> given = link->body();
  if (given.size() != sizeof answer) return bad_handshake("has the wrong length");
  std::memcpy(&answer, given.data(), sizeof answer);
  if ((answer.padding_off & ~persist::PaddingRules::kOffBits) != 0) {
    return bad_handshake("names rules that this client does not know");
  }
  if (answer.tail.bytes != sizeof(uint64_t) || link->welcome().lease_ms == 0) {
    return bad_handshake("grants no tail or no lease");
  }
  if (answer.data.bytes != log.data_bytes() || answer.start_lsn > answer.tail_lsn ||
      answer.tail_lsn - answer.start_lsn > answer.data.bytes ||
      !is_boundary(answer.start_lsn, answer.data.bytes) ||
      !is_boundary(answer.tail_lsn, answer.data.bytes)) {
    return bad_handshake("grants an impossible log");
  }
  if (!link->connection().capabilities().write_after_write) {
    return make_error(ErrorCode::kUnsupported,
                      "this fabric does not order WRITEs, so no tail can be published: append "
                      "through LogClient");
  }
  return {};
}

// One timer, whatever is appended meanwhile: what it saw unpublished before it slept, and what no
// append has carried since, is posted now.
base::Task<void> LogProducer::State::publish_when_idle() {
  while (true) {
    while (publisher->all_posted()) co_await publisher->wait();
    const uint64_t seen = publisher->durable();
    co_await executor.sleep_for(options.publish_delay_ns);
    if (publisher->posted() < seen) publisher->post();
    if (broken()) co_return;
  }
}

base::Task<Status> LogProducer::State::publish_all() {
  Status published = co_await publisher->publish(client.state_->options.call_timeout_ns);
  if (!published && broken()) co_return co_await why_lost(published.error());
  co_return std::move(published);
}

base::Task<Status> LogProducer::publish() {
  State& state = *state_;
  if (state.link == nullptr || state.closing) co_return State::closed_error();
  const Meanwhile under_way(state.calls_under_way);
  co_return co_await state.publish_all();
}

base::Task<Status> LogProducer::close() {
  State& state = *state_;
  if (state.link == nullptr) co_return Status{};
  if (state.closing) co_return make_error(ErrorCode::kBusy, "another call is closing it");
  const Meanwhile closing(state.closing);
  // Calls that are under way end first: nothing would tell them that their connection is gone. No
  // other one begins.
  while (!state.appender->idle()) co_await state.executor.sleep_for(kClosePauseNs);
  while (state.calls_under_way > 0) co_await state.executor.sleep_for(kClosePauseNs);
  Status published = co_await state.publish_all();
  state.publishing = {};
  state.lost = State::closed_error();
  state.ended = state.link->connection().counters();
  state.link.reset();
  if (!published) co_return std::move(published);
  // Whoever wants the log next need not wait for the server to notice.
  const uint64_t give_up_ns =
      state.executor.now_ns() + state.client.state_->options.call_timeout_ns;
  while (state.executor.now_ns() < give_up_ns) {
    const auto now = co_await state.client.open(state.log.name);
    if (!now) co_return Error(now.error());
    if (!now->exclusive || now->incarnation != state.answer.incarnation) break;
    co_await state.executor.sleep_for(kClosePauseNs);
  }
  co_return Status{};
}

uint64_t LogProducer::next_index() const { return state_->next_index; }
uint64_t LogProducer::tail_lsn() const { return state_->landed_lsn; }

// ---- of a replica ----

void LogProducer::acknowledge(uint64_t lsn) {
  State& state = *state_;
  lsn = std::min(lsn, state.landed_lsn);  // a member that was just added may have less
  if (lsn <= state.publisher->durable()) return;
  state.publisher->set_acknowledged(lsn);
  state.prefix.durable_lsn = lsn;
}

base::Task<Status> LogProducer::set_membership(uint64_t expected, const ReplicaPlace& replica) {
  State& state = *state_;
  if (state.link == nullptr || state.closing) co_return State::closed_error();
  const Meanwhile under_way(state.calls_under_way);
  MembershipRequest fixed{};
  fixed.expected = expected;
  fixed.membership = replica.membership;
  fixed.replicas = static_cast<uint8_t>(replica.replicas.size());
  fixed.self = static_cast<uint8_t>(replica.self);
  std::array<std::byte, sizeof fixed + kMaxReplicas*(1 + UINT8_MAX)> room;
  fabric::MessageWriter request(room);
  request.put(fixed);
  PMSTORE_CO_TRY_STATUS(put_uris(request, replica.replicas));
  const auto answered = co_await state.link->call(static_cast<uint16_t>(LogMethod::kSetMembership),
                                                  request.message(), 0);
  co_return answered ? Status{} : Status(answered.error());
}

base::Task<Status> LogProducer::agree(uint64_t membership) {
  State& state = *state_;
  if (state.link == nullptr || state.closing) co_return State::closed_error();
  const Meanwhile under_way(state.calls_under_way);
  const AgreeRequest request{membership};
  const auto answered = co_await state.link->call(static_cast<uint16_t>(LogMethod::kAgree),
                                                  service::bytes_of(request), 0);
  co_return answered ? Status{} : Status(answered.error());
}

base::Task<Result<bool>> LogProducer::holds_lease() {
  State& state = *state_;
  PMSTORE_CO_TRY(const LogInfo now, co_await state.client.open(state.log.name));
  co_return !state.lost && state.link != nullptr && !state.broken() && now.exclusive &&
      now.id == state.log.reply.id && now.incarnation == state.answer.incarnation;
}
persist::WriteStrategy LogProducer::strategy() const { return state_->writer->strategy(); }
fabric::Counters LogProducer::counters() const {
  return state_->link == nullptr ? state_->ended : state_->link->connection().counters();
}

}  // namespace pmstore::log
