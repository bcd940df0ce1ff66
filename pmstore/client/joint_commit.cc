#include "pmstore/client/joint_commit.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/check.h"
#include "pmstore/client/client_cpu_commit.h"
#include "pmstore/client/commit_message.h"
#include "pmstore/client/settlement.h"
#include "pmstore/client/transaction_state.h"
#include "pmstore/joint_commit.h"

namespace pmstore::internal {

// One transaction that writes.
struct JointCommit::Writer {
  Writer(Transaction::State& of, SessionRef on)
      : state(of), client(of.client), session(std::move(on)), id(client.numbers.take()) {
    state.id = id;
    running.emplace(client.numbers, id.sequence);
  }

  // Nobody knows what this request has done.
  bool in_doubt() const {
    if (status) return false;
    const ErrorCode code = status.code();
    return code == ErrorCode::kDisconnected || code == ErrorCode::kTimeout ||
           code == ErrorCode::kCommitUnknown || code == ErrorCode::kProtocol ||
           code == ErrorCode::kIo;
  }

  Transaction::State& state;  // until let_go()
  Client::State& client;
  const SessionRef session;
  const TxId id;
  std::optional<TransactionNumbers::Running> running;
  std::optional<TransactionNumbers::Held> held;
  std::vector<std::byte> lock;
  std::vector<std::byte> prepare;
  std::vector<std::byte> decision;
  Status status;       // of the last request
  bool holds = false;  // what the next decision is about
  bool sent = false;   // something was, and the server may hold locks or more
};

JointCommit::JointCommit(std::span<Transaction> transactions)
    : answered_(executor_of(transactions[0])) {
  for (Transaction& each : transactions) readers_.push_back(each.state_.get());
}

// Destroyed before its end, it leaves in doubt what it has begun. The sessions go before the
// numbers are let go: a later session says nothing of them.
JointCommit::~JointCommit() {
  if (!over_) drop_all();
}

void JointCommit::drop_all() {
  for (const auto& writer : writers_) {
    if (writer->sent) writer->session->drop();
  }
}

void JointCommit::settled() {
  if (!over_) return;
  for (const auto& writer : writers_) writer->running->settled();
}

void JointCommit::let_go() {
  readers_.clear();
  for (const auto& writer : writers_) {
    std::vector<std::byte>().swap(writer->lock);
    std::vector<std::byte>().swap(writer->prepare);
  }
}

// By the votes, like anybody else: what they say is what run() has decided, if it has.
base::Task<void> JointCommit::pursue(bool caller_knows) {
  constexpr uint64_t kPursuitNs = 20'000'000'000;
  constexpr uint64_t kFirstPauseNs = 10'000'000;
  constexpr uint64_t kLongestPauseNs = 2'000'000'000;
  if (!unanswered_) co_return;
  std::vector<Connector*> connectors;
  std::vector<TxId> names;
  for (const auto& writer : writers_) {
    writer->held.emplace(writer->client.numbers, writer->id.sequence);
    writer->running.reset();  // nobody waits for it at the end of the client
    connectors.push_back(&writer->client.connector);
    names.push_back(writer->id);
  }
  base::Executor& executor = writers_.front()->client.executor;
  const uint64_t give_up_ns = executor.now_ns() + kPursuitNs;
  uint64_t pause_ns = kFirstPauseNs;
  while (unanswered_ && executor.now_ns() < give_up_ns) {
    co_await executor.sleep_for(pause_ns);
    pause_ns = std::min(2 * pause_ns, kLongestPauseNs);
    Settlement settlement(connectors);
    const Status settled = co_await settlement.settle_one(names);
    unanswered_ = !settled;
  }
  if (unanswered_) co_return;
  over_ = true;
  for (const auto& writer : writers_) {
    writer->held.reset();
    if (caller_knows) writer->client.numbers.resolve(writer->id);
  }
}

// What is remembered without need takes room, and at last it keeps new transactions away.
base::Task<void> JointCommit::forget() {
  for (const auto& writer : writers_) {
    writer->running.reset();
    writer->holds = remembered_ && writer->client.numbers.is_held_back(writer->id.sequence);
  }
  if (std::any_of(writers_.begin(), writers_.end(), [](const auto& each) { return each->holds; })) {
    co_await decide(Decision::kForget);  // who does not answer remembers it until it is settled
  }
}

base::Executor& JointCommit::executor_of(const Transaction& transaction) {
  return transaction.state_->client.executor;
}

// ---- before the first lock ----

// As Transaction::State::commit_held(), up to what it sends.
base::Task<Status> JointCommit::begin(Transaction::State& state) {
  if (!state.is_ready()) {
    Status ready = co_await state.get_ready();
    if (!ready) co_return std::move(ready);
  }
  state.drop_empty_erases();
  if (const auto impossible = state.what_cannot_be()) {
    Status unchanged = co_await state.validate();
    if (unchanged) unchanged = make_error(*impossible);
    co_return std::move(unchanged);
  }
  if (!state.items.has_writes()) co_return Status{};
  if (!state.client.numbers.available()) {
    co_return Transaction::State::stale_error();
  }
  if (state.participants.only().session->discipline() == LockDiscipline::kRnic) {
    co_return make_error(
        ErrorCode::kUnsupported,
        "a transaction of several servers needs lock discipline cpu at each server "
        "that it writes to");
  }
  co_return Status{};
}

base::Task<Status> JointCommit::run() {
  Status begun;
  for (Transaction::State* const state : readers_) {
    if (std::exchange(state->over, true)) co_return Transaction::State::over_error();
    state->views.end();
    if (begun && state->failure) begun = *state->failure;
  }
  if (!begun) co_return std::move(begun);
  std::erase_if(readers_, [](const Transaction::State* state) {
    return state->items.empty() && state->scanned.pages() == 0;
  });
  for (Transaction::State* const state : readers_) {
    begun = co_await begin(*state);
    if (!begun) co_return std::move(begun);
  }
  const auto first_writer =
      std::stable_partition(readers_.begin(), readers_.end(),
                            [](Transaction::State* state) { return !state->items.has_writes(); });
  for (auto state = first_writer; state != readers_.end(); ++state) {
    SessionRef session = (*state)->participants.only().session;
    const Connector& connector = (*state)->client.connector;
    // Another transaction's step may have cost the connection since this one was looked at.
    if (!connector.has_usable_session() || &*session != &*connector.session()) {
      over_ = true;  // nothing was sent
      co_return Transaction::State::stale_error();
    }
    writers_.push_back(std::make_unique<Writer>(**state, std::move(session)));
  }
  readers_.erase(first_writer, readers_.end());
  if (writers_.empty()) co_return co_await validate_readers();
  co_return co_await run_writers();
}

base::Task<Status> JointCommit::validate_readers() {
  for (Transaction::State* const state : readers_) {
    Status valid = co_await state->validate(/*alone=*/false);
    if (!valid) co_return std::move(valid);
  }
  co_return Status{};
}

// ---- messages ----

std::vector<ShardParticipant> JointCommit::others_of(const Writer& writer) const {
  std::vector<ShardParticipant> others;
  for (const auto& each : writers_) {
    if (each.get() == &writer) continue;
    others.push_back({each->session->hello().pool, each->id.client, each->id.sequence,
                      each->session->prefix().epoch, 0, 0, 0});
  }
  return others;
}

Status JointCommit::lay_out() {
  if (writers_.size() > kMostParticipants + 1) {
    return make_error(ErrorCode::kTooLarge, "a transaction of several servers writes to at most " +
                                                std::to_string(kMostParticipants + 1) +
                                                "; split it");
  }
  for (const auto& writer : writers_) {
    ClientSession& session = *writer->session;
    const std::vector<ShardParticipant> others = others_of(*writer);
    const CommitView view =
        view_of(writer->id, writer->state.items, writer->state.scanned, true, writer->client.parts);
    writer->lock.resize(session.largest_commit_bytes());
    MessageWriter lock(writer->lock);
    lock.put(RequestPrefix{});  // call() knows it
    lock.put(LockRequest{static_cast<uint16_t>(others.size()), {}});
    for (const ShardParticipant& each : others) lock.put(each);
    put_commit(lock, view);
    if (lock.overflowed()) {
      return make_error(ErrorCode::kTooLarge, "a transaction may take " +
                                                  std::to_string(writer->lock.size()) +
                                                  " bytes as a message; split it");
    }
    writer->lock.resize(lock.bytes());
    writer->prepare.resize(sizeof(RequestPrefix) + sizeof(PrepareRequest) + view.reads.size() +
                           view.absences.size());
    MessageWriter prepare(writer->prepare);
    prepare.put(RequestPrefix{});
    prepare.put(PrepareRequest{writer->id.sequence,
                               static_cast<uint32_t>(view.reads.size() / sizeof(ReadCheck)),
                               static_cast<uint32_t>(view.absences.size() / sizeof(AbsenceCheck))});
    for (const std::span<const std::byte> checks : {view.reads, view.absences}) {
      prepare.put_bytes({reinterpret_cast<const char*>(checks.data()), checks.size()});
    }
    PMSTORE_CHECK(!prepare.overflowed(), "its size is known before");
  }
  return {};
}

// ---- the phases ----

base::Task<void> JointCommit::call(Writer& writer, Method method) {
  std::vector<std::byte>& message = method == Method::kLock      ? writer.lock
                                    : method == Method::kPrepare ? writer.prepare
                                                                 : writer.decision;
  // What it says is known may have grown since the message was laid out.
  const RequestPrefix prefix = writer.session->prefix();
  std::memcpy(message.data(), &prefix, sizeof prefix);
  writer.sent = true;
  const auto answer = co_await writer.session->rpc().call(static_cast<uint16_t>(method), message,
                                                          sizeof(CommitReply));
  writer.status = Status();
  if (!answer) {
    writer.status = answer.error();
    // The locks were held for too long.
    if (writer.status.code() == ErrorCode::kNotFound && method == Method::kPrepare) {
      writer.status = make_error(ErrorCode::kConflict, answer.error().message);
    }
  } else if (answer->bytes().size() != sizeof(CommitReply)) {
    writer.status = writer.session->malformed_reply("a commit at several servers");
  }
  if (!over_ && writer.in_doubt()) writer.session->drop();
  answered_.notify_one();
}

base::Task<void> JointCommit::call_all(Method method) {
  std::vector<base::Task<void>> calls;
  for (const auto& writer : writers_) {
    if (method == Method::kDecide && !writer->holds) continue;
    calls.push_back(call(*writer, method));
  }
  for (auto& each : calls) each.start();
  while (!std::all_of(calls.begin(), calls.end(), [](const auto& each) { return each.done(); })) {
    co_await answered_.wait();
  }
}

base::Task<void> JointCommit::decide(Decision decision) {
  for (const auto& writer : writers_) {
    writer->decision.resize(sizeof(RequestPrefix) + sizeof(DecideRequest));
    MessageWriter message(writer->decision);
    message.put(RequestPrefix{});
    message.put(DecideRequest{writer->id.client, writer->id.sequence, decision, {}});
    PMSTORE_CHECK(!message.overflowed(), "its size is known before");
  }
  return call_all(Method::kDecide);
}

base::Task<Status> JointCommit::run_writers() {
  Status laid_out = lay_out();
  if (!laid_out) {
    over_ = true;
    co_return std::move(laid_out);
  }
  const auto failed = [](const auto& writer) { return !writer->status; };
  co_await call_all(Method::kLock);
  const auto unlocked = std::find_if(writers_.begin(), writers_.end(), failed);
  if (unlocked != writers_.end()) co_return co_await give_up((*unlocked)->status.error());
  Status valid = co_await validate_readers();
  if (!valid) co_return co_await give_up(valid.error());
  co_await call_all(Method::kPrepare);
  for (const auto& writer : writers_) writer->holds = writer->status.has_value();
  if (std::any_of(writers_.begin(), writers_.end(), failed)) co_return co_await abort_or_doubt();
  // From here on every vote is for it.
  if (writers_.size() > 1) co_await decide(Decision::kCommit);
  over_ = std::none_of(writers_.begin(), writers_.end(), failed);
  remembered_ = over_ && writers_.size() > 1;
  unanswered_ = !over_;
  co_return Status{};
}

// Nothing is prepared anywhere. What is locked is unlocked, or its server does it when the session
// is over.
base::Task<Status> JointCommit::give_up(Error why) {
  for (const auto& writer : writers_) writer->holds = writer->status.has_value();
  co_await decide(Decision::kAbort);
  over_ = true;
  co_return why;
}

// A writer is not prepared, or has not said so.
base::Task<Status> JointCommit::abort_or_doubt() {
  std::optional<Error> why;  // of a writer that never will be
  for (const auto& writer : writers_) {
    if (!writer->status && !writer->in_doubt() && !why) why = writer->status.error();
  }
  const auto lost = std::find_if(writers_.begin(), writers_.end(),
                                 [](const auto& writer) { return writer->in_doubt(); });
  const std::optional<Error> lost_why =
      lost == writers_.end() ? std::nullopt : std::optional<Error>((*lost)->status.error());
  co_await decide(Decision::kAbort);
  for (const auto& writer : writers_) {
    if (why || !writer->holds || !writer->status) continue;
    why = lost_why;
    if (why->code == ErrorCode::kCommitUnknown) why->code = ErrorCode::kDisconnected;
  }
  unanswered_ = std::any_of(writers_.begin(), writers_.end(), [](const auto& writer) {
    return writer->in_doubt() || (writer->holds && !writer->status);
  });
  if (why) {
    over_ = true;
    co_return std::move(*why);
  }
  drop_all();
  co_return make_error(ErrorCode::kCommitUnknown,
                       "transaction " + writers_[0]->id.to_string() +
                           " of several servers may or may not have committed; settle it, then ask "
                           "for its outcome (" +
                           lost_why->to_string() + ")");
}

// ---- the task ----

base::Task<void> JointCommit::run_task(std::vector<Transaction> transactions, JointTask& task) {
  std::optional<JointCommit> commit(std::in_place, std::span<Transaction>(transactions));
  Status status = co_await commit->run();
  // What follows may take long, and needs no more than the names.
  commit->let_go();
  transactions.clear();
  const bool told = task.awaited != nullptr;
  if (told) commit->settled();
  const bool knows_end = told && status;
  if (told) task.awaited->finish(std::move(status));
  co_await commit->pursue(knows_end);
  co_await commit->forget();
  // The frame stays until a client has its next commit of this kind, or goes.
  commit.reset();
}

std::shared_ptr<JointTask> JointCommit::begin_task(std::vector<Transaction> transactions) {
  auto task = std::make_shared<JointTask>();
  std::vector<Client::State*> clients;
  for (const Transaction& each : transactions) clients.push_back(&each.state_->client);
  task->work = run_task(std::move(transactions), *task);
  for (Client::State* const client : clients) client->joint_commits.add(task);
  return task;
}

}  // namespace pmstore::internal

namespace pmstore {

base::Task<Status> commit_together(std::vector<Transaction> transactions) {
  if (transactions.empty()) co_return Status{};
  if (transactions.size() == 1) co_return co_await transactions[0].commit();
  base::Executor& executor = internal::JointCommit::executor_of(transactions[0]);
  const std::shared_ptr<internal::JointTask> task =
      internal::JointCommit::begin_task(std::move(transactions));
  internal::CommitEnd end(task->awaited, executor);
  task->work.start();
  co_return co_await end;
}

}  // namespace pmstore
