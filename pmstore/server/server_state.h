// ServerCore: a server of one pool: endpoints (one per fabric on which it listens), sessions (one
// per client), and which session uses which redo ring.
//
// A session begins with the client's hello, which gives it a ring, and is connected when the
// handshake ends. It ends by fencing: first its connection is destroyed, so that no WRITE or atomic
// of the client can take effect any more; then, under lock discipline rnic, its ring and its locks
// are resolved. Only then is the ring free for another client.
// Invariants: a ring has at most one session, and none while it is being resolved; a session's
// transaction number is executed at most once; a ring changes hands, and a transaction's outcome is
// told, only while no group of transactions waits for its drain (commit_group.h). Threads: the
// executor's. Lifetimes: executor and pool outlive the server; devices outlive what is registered
// or connected on them.
#pragma once

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "base/executor.h"
#include "fabric/device.h"
#include "fabric/rpc.h"
#include "log/log_service.h"
#include "log/log_store.h"
#include "persist/remote_writer.h"
#include "pmstore/server.h"
#include "pmstore/server/admin_service.h"
#include "pmstore/server/commit_group.h"
#include "pmstore/server/lock_lists.h"
#include "pmstore/server/rnic_words.h"
#include "pmstore/server/store_calls.h"
#include "pmstore/shard/store.h"
#include "service/session_observer.h"

namespace pmstore::internal {

struct Endpoint;

// The transaction numbers that one session has used; each is executed once. A session uses its
// numbers nearly in order, so a number that is kWindow or more below the highest counts as used.
class ExecutedNumbers {
 public:
  static constexpr uint64_t kWindow = 4096;
  // False: the number was used before, or counts as used.
  bool use(uint64_t number) {
    if (number > highest_) {
      const uint64_t steps = std::min(number - highest_, kWindow);
      for (uint64_t i = 1; i <= steps; ++i) seen_.reset((highest_ + i) % kWindow);
      if (number - highest_ > kWindow) seen_.reset();
      highest_ = number;
    } else if (highest_ - number >= kWindow || seen_.test(number % kWindow)) {
      return false;
    }
    PMSTORE_CHECK(!seen_.test(number % kWindow), "a number is executed once");
    seen_.set(number % kWindow);
    return true;
  }

 private:
  uint64_t highest_ = 0;
  std::bitset<kWindow> seen_;
};

struct Session {
  uint64_t client = 0;
  uint32_t ring = 0;
  uint64_t first_sequence = 1;  // of this connection
  uint64_t calls = 0;           // requests so far
  uint64_t calls_seen = 0;      // at the last tick of the lease
  unsigned silent_ticks = 0;    // since the last request
  unsigned active = 0;          // handlers that are suspended
  bool leased = false;          // it is fenced when it is silent for the lease
  bool goodbye = false;
  bool connected = false;  // the handshake has ended
  bool new_owner = false;  // the ring was not this client's before
  uint64_t commits = 0;    // that the server has executed or applied
  uint64_t group = 0;      // the number of the last group of transactions that it was in
  SessionWork work;
  ExecutedNumbers executed;
  Endpoint* endpoint = nullptr;
  // Discipline rnic only. The regions are deregistered when the session is fenced; the lists are
  // needed until it is resolved.
  std::unique_ptr<LockLists> lock_lists;
  std::unique_ptr<fabric::MemoryRegion> lock_lists_region;
  std::unique_ptr<fabric::MemoryRegion> ring_region;
  std::unique_ptr<fabric::RpcPeer> peer;  // empty once fenced

  // From here on no WRITE, READ or atomic of the client takes effect.
  void disconnect() {
    peer.reset();  // destroys the queue pair; before the regions are deregistered
    ring_region.reset();
    lock_lists_region.reset();
  }

  uint16_t owner() const { return static_cast<uint16_t>(ring + 1); }
};

// Who uses a redo ring of the pool.
struct RingState {
  std::shared_ptr<Session> session;  // empty: no session
  bool resolving = false;            // the last session is fenced, and being resolved
  uint64_t ended_ns = 0;             // when the last session ended
  uint64_t hello_ns = 0;             // when the last session began
};

struct Endpoint {
  fabric::Scheme scheme;
  fabric::Uri uri;
  std::string name;  // the URI as text, for sessions that came through it
  std::unique_ptr<fabric::Device> device;
  std::unique_ptr<fabric::MemoryRegion> records;
  std::unique_ptr<fabric::MemoryRegion> words;
  std::unique_ptr<fabric::MemoryRegion> buckets;
  std::unique_ptr<RnicWords> rnic_words;  // discipline rnic only
  std::unique_ptr<fabric::Acceptor> acceptor;
  std::unique_ptr<fabric::Listener> listener;
  size_t log_endpoint = 0;  // its number at the log service
  bool cpu_moves_data = true;
  bool native_flush = false;
};

struct ServerTotals {
  uint64_t sessions = 0;
  uint64_t fenced = 0;  // ended without a goodbye
  uint64_t leases_expired = 0;
  uint64_t malformed = 0;
  uint64_t calls = 0;
  uint64_t commits = 0;
  uint64_t conflicts = 0;
  uint64_t gets = 0;     // the server does not see one-sided reads
  uint64_t scans = 0;    // pages
  uint64_t applied = 0;  // redo records of clients, under lock discipline rnic
};

class ServerCore final : public fabric::RpcHandler {
 public:
  ServerCore(Executor& executor, persist::Pool& pool, ServerOptions options,
             std::unique_ptr<Store> store);
  ~ServerCore() override;

  // Opens the logs, where the pool has a log area.
  Status start_logs();

  // Stops accepting and destroys every connection; resolves nothing. No coroutine of the server
  // runs afterwards.
  void shut_down();

  // server_session.cc
  Result<std::vector<std::byte>> on_hello(Endpoint& endpoint, uint64_t token,
                                          std::span<const std::byte> hello);
  void on_connected(Endpoint& endpoint, uint64_t token,
                    std::unique_ptr<fabric::Connection> connection);
  void on_abandoned(Endpoint& endpoint, uint64_t token);
  void on_peer_gone(fabric::RpcPeer& peer, const Error& why) override;
  // Ends the session: destroys its connection, and then releases or resolves its ring. Does nothing
  // when it has ended. `why` goes to the observer, if the session was connected; nullopt when the
  // server stops and the observer is not told.
  void fence(const std::shared_ptr<Session>& session, std::optional<SessionEnd> why);
  std::vector<SessionReport> sessions() const;
  // Fences every session of that client, those of the log service too; gives their number.
  size_t kick(uint64_t client);
  // Sees silent sessions and when sessions work, as long as there is something to see. Does nothing
  // while it runs.
  void watch_sessions() {
    if (!watching_sessions_) run(watch_sessions_task());
  }
  bool resolving_any() const;
  // Starts a coroutine that belongs to this server: shut_down() destroys it.
  void run(base::Task<void> task);

  // The calls of the client in this process; nullptr when it has no session, and under discipline
  // rnic. They may outlive this server.
  std::unique_ptr<StoreCalls> direct_calls(uint64_t client);

  // server_calls.cc
  void on_call(fabric::RpcPeer& peer, fabric::RpcCall call) override;
  // A request, by message or direct.
  void count_call(Session& session) {
    ++session.calls;
    ++totals.calls;
    watch_sessions();
  }
  // False: the transaction writes, and its number is not one of the session's, or was used before.
  bool use_number(Session& session, const CommitView& request);
  void count_commit(Session& session, const Status& committed);
  void answer_commit(Session& session, fabric::RpcCall& call, const Status& committed);
  // Tells the observer, once, when the store has failed.
  void look_for_failure();

  // nullptr under discipline cpu, and when no endpoint is open.
  WordChanger* changer() const;

  Executor& executor;
  persist::Pool& pool;
  ServerOptions options;
  LockDiscipline discipline = LockDiscipline::kCpu;
  std::unique_ptr<Store> store;
  // Both empty in a pool without a log area.
  std::unique_ptr<log::LogStore> logs;
  std::unique_ptr<log::LogService> log_service;
  std::unique_ptr<AdminService> admin;  // empty once shut down
  persist::PersistService persist_service;
  std::vector<RingState> ring_states;  // one per ring of the pool
  std::vector<std::unique_ptr<Endpoint>> endpoints;
  std::map<std::pair<Endpoint*, uint64_t>, std::shared_ptr<Session>> handshakes;
  ServerTotals totals;
  std::vector<TableId> freeing;  // dropped tables whose records are being freed
  bool stopped = false;
  CommitGroup group;  // discipline cpu only
  std::list<base::Task<void>> tasks;

 private:
  // server_session.cc
  uint64_t retention_ns() const { return uint64_t{options.outcome_retention_ms} * 1'000'000; }
  bool ended_before(uint32_t one, uint32_t other) const;
  Result<uint32_t> choose_ring(uint64_t client);
  Status take_ring(uint32_t ring, uint64_t client);
  Result<std::vector<std::byte>> make_answer(Endpoint& endpoint, Session& session,
                                             const ClientHello& hello);
  base::Task<void> resolve(std::shared_ptr<Session> session);
  base::Task<void> watch_sessions_task();
  bool look_at_sessions();
  void release_ring(Session& session);
  // server_calls.cc
  void serve(Session& session, fabric::RpcCall& call, std::span<const std::byte> body);
  void serve_commit(Session& session, fabric::RpcCall& call, std::span<const std::byte> body);
  // Memory for a copy of a request. It grows to the largest request so far, which is at most half a
  // request ring.
  std::span<std::byte> request_copy(size_t bytes);
  Result<OutcomeReply> answer_outcome(Session& session, const OutcomeRequest& request);
  Status open_table(fabric::RpcCall& call, std::span<const std::byte> body);
  // server_tables.cc
  void serve_drop_table(Session& session, fabric::RpcCall& call, std::span<const std::byte> body);
  void serve_table_usage(Session& session, fabric::RpcCall& call, std::span<const std::byte> body);
  Result<TableId> drop_table(std::string_view name);
  base::Task<void> free_dropped(TableId table);
  void list_tables(fabric::RpcCall& call);
  base::Task<void> serve_rnic(std::shared_ptr<Session> session, fabric::RpcCall call);
  base::Task<Status> serve_rnic_body(Session& session, fabric::RpcCall& call);
  void drop_malformed(Session& session, fabric::RpcCall& call);
  std::shared_ptr<Session> session_of(const fabric::RpcPeer& peer) const;
  bool watching_sessions_ = false;
  bool failure_told_ = false;
  std::unique_ptr<std::byte[]> copy_;
  size_t copy_bytes_ = 0;
};

SessionName name_of(const Session& session);

// server_stat.cc
// `text` as the content of a JSON string, without the quotes.
std::string json_text(std::string_view text);
std::string server_stat_json(const ServerCore& core);
// server_stat_json() and the pool, the endpoints, and the report of recovery.
std::string admin_stat_json(const ServerCore& core);

}  // namespace pmstore::internal
