// LogService's inside: endpoints (one per device that listens), peers (one per connection), and the
// appends that wait for the group's drain.
//
// A producer is born in a handshake, which acquires its log, and ends by fencing: first its
// connection is destroyed, so that nothing of it can land any more; then the log is released or
// acquired by the next. Invariant: producers[log] is there exactly while the store has the log as
// exclusive.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/task.h"
#include "fabric/message.h"
#include "fabric/rpc.h"
#include "log/log_service.h"
#include "persist/remote_writer.h"

namespace pmstore::log {
namespace internal {

// A client's end, session or producer.
struct LogPeer : std::enable_shared_from_this<LogPeer> {
  LogConnectionKind kind = LogConnectionKind::kSession;
  uint64_t client = 0;
  uint64_t number = 0;  // in the order of their hellos
  uint64_t log = 0;     // of a producer
  uint64_t data_offset = 0;
  uint64_t data_bytes = 0;
  uint64_t calls = 0;  // so far; the lease looks whether it grows
  uint64_t calls_seen = 0;
  unsigned silent_ticks = 0;
  bool leased = false;  // it is ended when it is silent for the lease
  SessionWork work;
  size_t endpoint = 0;
  bool connected = false;  // the handshake is over
  std::unique_ptr<fabric::MemoryRegion> data;
  std::unique_ptr<fabric::MemoryRegion> tail;
  std::unique_ptr<fabric::RpcPeer> rpc;  // empty once it has ended
};

struct LogEndpoint {
  fabric::Device* device = nullptr;
  persist::PersistCapability capability;
  std::unique_ptr<fabric::MemoryRegion> area;
  std::unique_ptr<fabric::MemoryRegion> words;
  std::string uri;
};

}  // namespace internal

struct LogService::State final : public fabric::RpcHandler {
  using Peer = std::shared_ptr<internal::LogPeer>;
  State(base::Executor& service_executor, LogStore& served_store,
        const LogServiceOptions& service_options)
      : executor(service_executor),
        store(served_store),
        options(service_options),
        persist_service(served_store.memory()),
        wake(service_executor) {}
  ~State() override { end_all(); }

  // log_service.cc
  Result<std::vector<std::byte>> greet(size_t endpoint, const LogHello& hello, Peer& made);
  Result<std::vector<std::byte>> greet_session(internal::LogEndpoint& at, internal::LogPeer& peer);
  Result<std::vector<std::byte>> greet_producer(internal::LogEndpoint& at, const Peer& peer,
                                                const LogHello& hello);
  Result<std::vector<std::byte>> grant(internal::LogEndpoint& at, internal::LogPeer& peer,
                                       const LogStore::Grant& granted);
  // Makes room for a session, if there is none, by ending the oldest one that has only said hello.
  Status make_place();
  void cut(const Peer& peer);
  void end(const Peer& peer);
  void end_all();
  SessionName name_of(const internal::LogPeer& peer) const;
  // Before the peer is cut: tells the observer.
  void tell_end(const internal::LogPeer& peer, SessionEnd why);
  // Sees silent peers and when peers work, as long as there is something to see. Does nothing while
  // it runs.
  void watch_peers() {
    if (watching_peers) return;
    watching = watch_peers_task();
    watching.start();
  }
  base::Task<void> watch_peers_task();
  bool look_at_peers();
  base::Task<void> commit_groups();
  void commit_group();
  // `appends` proves that the appends of the group are durable.
  void acknowledge_group(persist::Persisted appends);
  void join_group(fabric::RpcCall call, const AppendReply& reply);
  void on_peer_gone(fabric::RpcPeer& rpc, const Error& why) override;

  // log_service_calls.cc
  void on_call(fabric::RpcPeer& rpc, fabric::RpcCall call) override;
  void serve_producer(const Peer& peer, fabric::RpcCall call);
  void set_membership(const Peer& peer, fabric::RpcCall call);
  void agree(const Peer& peer, fabric::RpcCall call);
  Status serve(fabric::RpcCall& call);
  Status serve_create(fabric::RpcCall& call);
  Status serve_open(fabric::RpcCall& call);
  Status serve_list(fabric::RpcCall& call);
  Status serve_append(fabric::RpcCall& call);
  Status serve_trim(fabric::RpcCall& call);
  Status describe(const LogInfo& info, bool whole, fabric::MessageWriter& writer) const;
  void drop_malformed(const Peer& peer, fabric::RpcCall& call);

  base::Executor& executor;
  LogStore& store;
  LogServiceOptions options;
  persist::PersistService persist_service;
  LogServiceCounters counters;
  bool stopped = false;
  uint64_t hellos = 0;

  std::vector<std::unique_ptr<internal::LogEndpoint>> endpoints;
  std::set<Peer> peers;
  std::unordered_map<uint64_t, Peer> producers;  // by log
  std::map<std::pair<size_t, uint64_t>, Peer> handshakes;

  // Appended, not yet durable; their replies.
  std::vector<std::pair<fabric::RpcCall, AppendReply>> group;
  base::WaitList wake;
  base::Task<void> committing;
  base::Task<void> watching;
  bool watching_peers = false;
};

}  // namespace pmstore::log
