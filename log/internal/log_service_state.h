// LogService's inside: its two services, and the appends that wait for the group's drain.
//
// A producer is born in a handshake, which acquires its log, and ends by fencing: first its
// connection is destroyed, so that nothing of it can land any more; then the log is released or
// acquired by the next. Invariant: holders_[log] is there exactly while the store has the log as
// exclusive.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/task.h"
#include "fabric/message.h"
#include "fabric/rpc.h"
#include "log/internal/append_book.h"
#include "log/internal/log_creates.h"
#include "log/log_protocol.h"
#include "log/log_service.h"
#include "persist/remote_writer.h"

namespace pmstore::log {
namespace internal {

Error malformed_request();
std::vector<std::string> get_uris(fabric::MessageReader& reader, size_t count);
// After a call: tells the host when something of the pool could not be made durable.
void look_for_failure(const LogStore& store, service::Host& host);

class LogSessions;

struct AppendName {
  AppendOrigin origin;
  uint64_t number;
};

// Appends that were laid out and wait for one drain.
class AppendGroup {
 public:
  // `sessions` have joined; their host is told when a drain fails.
  AppendGroup(base::Executor& executor, LogStore& store, LogSessions& sessions);

  void join(fabric::RpcCall call, AppendName name, const AppendReply& reply);
  // One drain for everything that has arrived since the last. It may end sessions, whose
  // connections break while they are answered.
  void commit();
  bool empty() const { return waiting_.empty(); }
  uint64_t commits() const { return commits_; }

 private:
  struct Append {
    fabric::RpcCall call;
    AppendName name;
    AppendReply reply;
  };
  using Waiting = std::vector<Append>;
  base::Task<void> commit_groups();
  // `appends` proves that the appends of the group are durable.
  void acknowledge(persist::Persisted appends, Waiting& group);

  LogStore& store_;
  LogSessions& sessions_;
  Waiting waiting_;
  uint64_t commits_ = 0;
  base::WaitList wake_;
  base::Task<void> committing_;
};

struct LogSession final : service::Session {
  AppendOrigin origin;
};

// What sessions may READ through one device. Extents are registered when a client first hears of
// them.
class LogRegions final : public service::EndpointPart {
 public:
  // Is one of `all` as long as it lives. `host` is told of what the device refuses.
  LogRegions(const service::Endpoint& endpoint, LogStore& store, service::Host& host,
             std::vector<LogRegions*>& all);
  ~LogRegions() override;
  // Errors of Device::register_memory().
  Status register_words();
  const fabric::RemoteRegion& words() const { return words_->remote(); }
  // Registers the extent, unless that was done before.
  NamedExtent at(const LogExtent& extent);
  // The extent is no longer the logs'.
  void withdraw(uint64_t name) { extents_.erase(name); }
  size_t registered() const { return extents_.size() - refused(); }
  // Extents that the device refused when it was asked last.
  size_t refused() const;

 private:
  const service::Endpoint& endpoint_;
  LogStore& store_;
  service::Host& host_;
  std::vector<LogRegions*>& all_;
  std::unique_ptr<fabric::MemoryRegion> words_;
  std::map<uint64_t, std::unique_ptr<fabric::MemoryRegion>> extents_;  // nullptr: refused
};

// log_service_calls.cc
class LogSessions final : public service::Service {
 public:
  LogSessions(base::Executor& executor, LogStore& store, size_t max_sessions);
  ~LogSessions() override { store_.before_giving_back({}); }

  uint64_t epoch() const override { return store_.epoch(); }
  std::shared_ptr<service::Session> make_session() const override {
    return std::make_shared<LogSession>();
  }
  Result<std::vector<std::byte>> admit(service::Session& session,
                                       std::span<const std::byte> body) override;
  bool on_known_through(service::Session& session, uint64_t number) override;
  void on_call(service::Session& session, fabric::RpcCall call,
               std::span<const std::byte> body) override;
  void finish() override { group_.commit(); }
  void on_ended(service::Session& session, std::optional<SessionEnd>) override {
    const AppendOrigin& origin = static_cast<const LogSession&>(session).origin;
    present_.erase(origin);
    appends_.left(origin);
  }
  AppendBook& appends() { return appends_; }
  uint64_t appended() const { return appended_; }
  const std::vector<LogRegions*>& regions() const { return regions_; }
  const AppendGroup& group() const { return group_; }
  void tell_failure(const Error& why) { host().tell_failure(why); }

 protected:
  base::Task<Result<std::unique_ptr<service::EndpointPart>>> open(
      service::Endpoint& endpoint) override;

 private:
  using Body = std::span<const std::byte>;
  Status serve(LogSession& session, fabric::RpcCall& call, Body body);
  Status serve_create(LogSession& session, fabric::RpcCall& call, Body body);
  void answer_create(service::Session& session, fabric::RpcCall& call, const Result<LogInfo>& made);
  Status serve_open(const service::Endpoint& endpoint, fabric::RpcCall& call, Body body);
  Status serve_list(const service::Endpoint& endpoint, fabric::RpcCall& call, Body body);
  Status serve_append(LogSession& session, fabric::RpcCall& call, Body body);
  Status serve_trim(fabric::RpcCall& call, Body body);
  // To a client that came through `endpoint`.
  Status describe_log(const service::Endpoint& endpoint, const LogInfo& info, bool whole,
                      fabric::MessageWriter& writer) const;
  LogRegions& regions_at(const service::Endpoint& endpoint) const {
    return static_cast<LogRegions&>(*endpoint.parts[slot()]);
  }

  LogStore& store_;
  std::vector<LogRegions*> regions_;  // of all devices
  AppendBook appends_;
  std::unordered_map<AppendOrigin, LogSession*, HashOfOrigin> present_;
  AppendGroup group_;
  uint64_t appended_ = 0;
  LogCreates creates_;  // last: destroyed first
};

struct ProducerSession final : service::Session {
  uint64_t log = 0;
  uint64_t data_offset = 0;
  uint64_t data_bytes = 0;
};

// log_producers.cc
class LogProducers final : public service::Service {
 public:
  explicit LogProducers(LogStore& store);

  uint64_t epoch() const override { return store_.epoch(); }
  std::shared_ptr<service::Session> make_session() const override {
    return std::make_shared<ProducerSession>();
  }
  bool needs_lease(const service::Session&) const override;
  Result<std::vector<std::byte>> admit(service::Session& session,
                                       std::span<const std::byte> body) override;
  void on_call(service::Session& session, fabric::RpcCall call,
               std::span<const std::byte> body) override;
  void on_persist_write(service::Session& session, fabric::RpcCall call) override;
  void on_ended(service::Session& session, std::optional<SessionEnd> why) override;
  void describe(const service::Session& session, SessionReport& report) const override;
  uint64_t fenced() const { return fenced_; }

 private:
  Result<std::vector<std::byte>> grant(ProducerSession& session, const LogStore::Grant& granted);
  // Answers, or gives the error to answer with. Protocol costs the connection.
  Status serve(ProducerSession& session, fabric::RpcCall& call, std::span<const std::byte> body);

  LogStore& store_;
  persist::PersistService persist_service_;
  std::unordered_map<uint64_t, ProducerSession*> holders_;
  uint64_t fenced_ = 0;
};

}  // namespace internal

struct LogService::State {
  State(base::Executor& executor, LogStore& store, size_t max_sessions)
      : sessions(executor, store, max_sessions), producers(store) {}
  internal::LogSessions sessions;
  internal::LogProducers producers;
};

}  // namespace pmstore::log
