#include "pmstore/client/connector.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "pmstore/layout/protocol.h"

namespace pmstore::internal {
namespace {

constexpr uint64_t kCommitsPauseNs = 1'000'000;
constexpr uint64_t kClosePauseNs = 50'000;

}  // namespace

Connector::Connector(Executor& executor, std::shared_ptr<fabric::Device> device, fabric::Uri uri,
                     const ClientOptions& options, const ClientSecret& secret,
                     TransactionNumbers& numbers)
    : executor_(executor),
      options_(options),
      secret_(secret),
      numbers_(numbers),
      uri_(std::move(uri)),
      device_(std::move(device)),
      reconnector_(executor, *this, {options.reconnect_timeout_ns, options.connect_timeout_ns}) {}

base::Task<Result<SessionRef>> Connector::connected() {
  PMSTORE_CO_TRY_STATUS(co_await reconnector_.connected());
  if (session_->may_have_ended()) {
    const SessionRef asked = session_;
    co_await asked->ask_alive();
    PMSTORE_CO_TRY_STATUS(co_await reconnector_.connected());
  }
  PMSTORE_CHECK(session_ && numbers_.available(), "a new session has numbers to use");
  co_return session_;
}

// Of a session that has used up its numbers: without that, its end would leave them in doubt. Not
// longer than they may take.
base::Task<void> Connector::let_go() {
  const uint64_t deadline = executor_.now_ns() + options_.call_timeout_ns;
  while (session_ && commits_run(*session_) && executor_.now_ns() < deadline) {
    co_await executor_.sleep_for(kCommitsPauseNs);
  }
}

base::Task<Status> Connector::connect_once() {
  PMSTORE_CHECK(!closed(), "a closed client does not connect");
  const bool again = !info_.uri.empty();  // tries in between have failed, and left no session
  // The server fences the old session before it answers, so the rest of it may go: operations that
  // are still unwinding keep it until they have ended.
  session_ = {};
  SessionOptions session_options;
  session_options.secret = secret_;
  session_options.known_through = numbers_.known_through();
  session_options.call_timeout_ns = options_.call_timeout_ns;
  session_options.connect_timeout_ns = options_.connect_timeout_ns;
  session_options.one_sided_reads = options_.one_sided_reads;
  session_options.misses = options_.misses;
  session_options.log_strategy = options_.log_strategy;
  session_options.required_discipline = options_.required_discipline;
  const fabric::Uri server = embedded_ == nullptr ? uri_ : embedded_->uri;
  auto opened = co_await ClientSession::open(device_, book_, server, session_options);
  if (!opened) co_return std::move(opened.error());
  Server* const in_process = embedded_ == nullptr ? options_.server : embedded_->server.get();
  if (in_process != nullptr) {
    auto calls = Embedded::calls_of(*in_process, numbers_.client(), numbers_.known_through());
    if (calls != nullptr) (*opened)->call_directly(std::move(calls));
  }
  const ServerHello& hello = (*opened)->hello();
  PMSTORE_CO_TRY_STATUS(numbers_.begin_session(hello.next_sequence));
  session_ = std::move(*opened);
  describe(hello, again);
  largest_commit_bytes_ = session_->largest_commit_bytes();
  session_->link().keep_lease();
  co_return Status{};
}

void Connector::describe(const ServerHello& hello, bool again) {
  info_.uri = uri_.to_string();
  info_.epoch = session_->link().welcome().epoch;
  info_.discipline = session_->discipline();
  info_.persist = session_->link().welcome().persist_capability();
  info_.log_strategy = session_->log_strategy();
  info_.one_sided_reads = session_->one_sided_reads();
  info_.misses = session_->misses();
  info_.one_sided_commit = session_->one_sided_commit();
  info_.max_redo_bytes = hello.max_redo_bytes;
  info_.reconnects += again;
}

base::Task<void> Connector::close() {
  co_await reconnector_.close();
  const SessionRef session = std::exchange(session_, {});
  const uint64_t deadline = executor_.now_ns() + options_.call_timeout_ns;
  while (session && commits_run(*session) && executor_.now_ns() < deadline) {
    co_await executor_.sleep_for(kClosePauseNs);
  }
  const bool nothing_in_doubt =
      numbers_.nothing_running() && numbers_.nothing_in_doubt() && session && session->passive == 0;
  if (nothing_in_doubt && session->usable()) {
    const auto answer = co_await session->link().call(service::kGoodbyeMethod, {}, 0);
    static_cast<void>(answer);  // without it the server ends the session with the connection
  }
}

}  // namespace pmstore::internal
