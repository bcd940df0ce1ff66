// ServerCore: the store as a service of a host (service/host.h), with the host itself and its other
// services: which session uses which place, and what the store does for each request.
//
// A session's hello gives it a place: a number, and there are as many as
// ServerOptions::most_clients. Under lock discipline rnic the place names the owner in lock words,
// and a session that commits one-sided asks for a redo ring (ring_keeper.h). When the host has
// ended the session, nothing of the client takes effect any more; then, under rnic, its ring and
// its locks are resolved. Only then are the place and the ring free for another session.
// Invariants: a place has at most one session, and none while it is being resolved; a session's
// transaction number is executed at most once; a ring changes hands, and a transaction's outcome is
// told, only while no group of transactions waits for its drain (commit_group.h). Threads: the
// executor's. Lifetimes: executor and pool outlive the server.
#pragma once

#include <algorithm>
#include <array>
#include <bitset>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
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
#include "pmstore/server/expected_reads.h"
#include "pmstore/server/held_locks.h"
#include "pmstore/server/leaf_regions.h"
#include "pmstore/server/lock_lists.h"
#include "pmstore/server/record_regions.h"
#include "pmstore/server/region_table.h"
#include "pmstore/server/ring_keeper.h"
#include "pmstore/server/rnic_words.h"
#include "pmstore/server/scan_patience.h"
#include "pmstore/server/store_calls.h"
#include "pmstore/shard/store.h"
#include "service/host.h"

namespace pmstore::internal {

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
  // Will use() refuse it for ever?
  bool was_used(uint64_t number) const {
    if (number > highest_) return false;
    return highest_ - number >= kWindow || seen_.test(number % kWindow);
  }

 private:
  uint64_t highest_ = 0;
  std::bitset<kWindow> seen_;
};

struct Session final : service::Session {
  uint32_t place = 0;
  uint64_t first_sequence = 1;  // of this connection
  uint64_t commits = 0;         // that the server has executed or applied
  uint64_t told_through = 0;    // of known_through: what the shard log knows
  unsigned prepared = 0;        // transactions of several servers that wait for a decision
  uint64_t group = 0;           // the number of the last group of transactions that it was in
  // It is told of the frames of records, and accesses them one-sided.
  bool reads_frames = false;
  // A bit for each frame whose region the client was told of, and has not confirmed a list without.
  uint64_t known_frames = 0;
  // While a frame that it knows is set aside: when a request of it was seen last, and how many
  // there were then (SessionWork::calls).
  uint64_t heard_ns = 0;
  uint64_t heard_calls = 0;
  uint16_t notice = 0;  // that its replies show; 0: none yet
  ExecutedNumbers executed;
  // Discipline rnic only; needed until the session is resolved. The lists are there from the answer
  // on that grants the ring.
  bool asks_for_ring = false;
  std::optional<uint32_t> ring;
  std::unique_ptr<LockLists> lock_lists;
  HeldLocks held_locks;  // of the words in the lists

  uint16_t owner() const { return static_cast<uint16_t>(place + 1); }
  bool may_log() const { return lock_lists != nullptr; }
};

// What is watched for a session's lease is looked at so often in its time.
inline constexpr uint32_t kLooksPerLease = 4;
// Four leases: by default four times as long as a client waits for an answer.
inline constexpr uint32_t kExcusedLooks = 4 * kLooksPerLease;
inline uint64_t lease_ns(const ServerOptions& options) {
  return uint64_t{options.lease_ms} * 1'000'000;
}

struct Place {
  std::shared_ptr<Session> session;    // empty: no session
  std::shared_ptr<Session> resolving;  // the last session, which is fenced, and being resolved
};

// What the store has registered at an endpoint of the host.
struct StoreRegions final : service::EndpointPart {
  std::unique_ptr<RecordRegions> records;
  std::unique_ptr<fabric::MemoryRegion> words;
  std::unique_ptr<RegionTable> growing;  // memory that is registered piece by piece
  std::unique_ptr<LeafRegions> leaves;
  std::unique_ptr<RnicWords> rnic_words;  // discipline rnic only
};

struct ServerTotals {
  uint64_t fenced = 0;  // sessions that ended without a goodbye
  uint64_t commits = 0;
  uint64_t conflicts = 0;
  uint64_t gets = 0;  // the server does not see one-sided reads
  // Gets whose memory was asked for while they waited.
  uint64_t gets_expected = 0;
  uint64_t scans = 0;    // pages
  uint64_t applied = 0;  // redo records of clients, under lock discipline rnic
  uint64_t frames_freed = 0;
  uint64_t frames_deaf = 0;   // sessions that were ended because they confirmed no list of frames
  uint64_t holes_failed = 0;  // blocks of freed extents that the file system did not take
};

class ServerCore final : public service::Service {
 public:
  ServerCore(Executor& executor, persist::Pool& pool, ServerOptions options,
             std::unique_ptr<Store> store);
  ~ServerCore() override;

  // Opens the logs, where the pool has a log area.
  Status start_logs();
  // Behind start_logs(): the pool's rules from here on, until shut_down().
  void go_by(persist::SpaceRules rules);

  // Stops accepting and destroys every connection; resolves nothing. No coroutine of the server
  // runs afterwards.
  void shut_down();

  // As service::Service.
  uint64_t epoch() const override { return store->catalog().header().epoch; }
  std::shared_ptr<service::Session> make_session() const override {
    return std::make_shared<Session>();
  }
  bool needs_lease(const service::Session&) const override;
  Result<std::vector<std::byte>> admit(service::Session& session,
                                       std::span<const std::byte> body) override;
  void on_call(service::Session& session, fabric::RpcCall call,
               std::span<const std::byte> body) override;
  void on_waiting(uint16_t method, std::span<const std::byte> body) override;
  bool on_known_through(service::Session& session, uint64_t number) override;
  void on_persist_write(service::Session& session, fabric::RpcCall call) override;
  void finish() override {
    group.finish();
    follow_frames();
  }
  void on_ended(service::Session& session, std::optional<SessionEnd> why) override;
  void describe(const service::Session& session, SessionReport& report) const override;

  size_t resolving() const;
  // record_frames_work.cc: starts the work on frames that were taken or are empty, if there is
  // some.
  void follow_frames() {
    if (frames_seen_ != store->arena().changes() && !following_frames_) run(work_on_frames());
    if (store->arena().looks_sparse() && !moving_records_) follow_sparse_slabs();
  }
  // What it knew of frames is known no more: one may be freed now.
  void look_at_frames_again() { frames_seen_ = 0; }
  // An extent was freed that was no frame: its blocks can go back to the file system.
  void follow_freed_extent() {
    look_at_frames_again();
    follow_frames();
  }
  // After a start from a checkpoint: looks at the headers of slabs beside the answers.
  void follow_checkpoint() {
    if (store->recovery().from_checkpoint) run(look_at_headers());
  }
  // Starts a coroutine that belongs to this server: shut_down() destroys it.
  void run(base::Task<void> task);
  void watch_held_locks();  // a session may lock from now on

  // The calls of the client in this process; nullptr when it has no session, and under discipline
  // rnic. They may outlive this server.
  // `known_through`: as service::LinkOptions.
  std::unique_ptr<StoreCalls> direct_calls(ClientId client,
                                           std::shared_ptr<const uint64_t> known_through);

  // server_calls.cc
  // False: the transaction writes, and its number is not one of the session's, or was used before.
  bool use_number(Session& session, const CommitView& request);
  void count_commit(Session& session, const Status& committed);
  void answer_commit(Session& session, fabric::RpcCall& call, const Status& committed);
  // server_two_phase.cc: of a transaction of several servers.
  void answer_step(Session& session, fabric::RpcCall& call, GroupStep step, const Status& done);
  // Tells the host when the store has failed.
  void look_for_failure();

  StoreRegions& regions_at(const service::Endpoint& endpoint) const {
    return static_cast<StoreRegions&>(*endpoint.parts[slot()]);
  }
  // nullptr under discipline cpu, and when no endpoint is open.
  WordChanger* changer() const;

  Executor& executor;
  persist::Pool& pool;
  ServerOptions options;
  LockDiscipline discipline = LockDiscipline::kCpu;
  // Without an explicit choice, the first fabric decides.
  bool discipline_decided = false;
  std::unique_ptr<Store> store;
  ExpectedReads expected{*store};
  // Both empty in a pool without a log area.
  std::unique_ptr<log::LogStore> logs;
  std::unique_ptr<log::LogService> log_service;
  AdminService admin;
  service::Host host;
  persist::PersistService persist_service;
  std::deque<Place> places;  // more are added when clients come
  RingKeeper rings;          // discipline rnic only
  ServerTotals totals;
  uint64_t region_list = 0;      // RegionsReply::list
  std::vector<TableId> freeing;  // dropped tables whose records are being freed
  // Members of the statistics that other services add: name, JSON.
  std::vector<std::pair<std::string, std::function<std::string()>>> more_stat;
  CommitGroup group;  // discipline cpu only
  std::list<base::Task<void>> tasks;

 protected:
  // server.cc
  base::Task<Result<std::unique_ptr<service::EndpointPart>>> open(
      service::Endpoint& endpoint) override;

 private:
  Status fit_discipline(const service::Endpoint& endpoint);
  // server_session.cc
  Result<uint32_t> choose_place(ClientId client);
  std::optional<uint32_t> take_place_of_hello();
  Result<std::vector<std::byte>> give_place(Session& session, std::span<const std::byte> body);
  Result<std::vector<std::byte>> make_answer(Session& session, bool may_access);
  uint64_t max_redo_bytes() const;
  // record_frames_work.cc
  base::Task<void> work_on_frames();
  base::Task<void> work_on_changes();
  void follow_sparse_slabs();
  base::Task<void> move_records();
  base::Task<void> wait_for_fewer_erases();
  base::Task<void> wait_for_scans();
  base::Task<void> move_while_quiet();
  base::Task<void> pause_after_move(uint64_t took_ns);
  bool moving_is_too_early() const;
  base::Task<void> pause_while_held();
  base::Task<void> end_pause_in(uint64_t ns);
  bool release_some_blocks();
  bool register_one_frame();
  bool is_known(uint32_t frame) const;
  bool set_frame_aside();
  void tell_of_list(Session& session);
  void note_heard(Session& session);
  void confirm_list(Session& session, uint64_t list);
  base::Task<void> watch_leaving();
  bool is_late_to_confirm(const Session& session) const;
  base::Task<void> look_at_headers();
  std::optional<uint32_t> frame_to_free() const;
  void free_frame(uint32_t frame);
  // A part of what slabs without records keep of a sparse file; false: there was nothing to do.
  bool give_back_idle_slabs();
  bool release_leftovers();
  base::Task<void> serve_frames(std::shared_ptr<Session> session, fabric::RpcCall call);
  base::Task<void> resolve(std::shared_ptr<Session> session);
  base::Task<void> end_who_keeps_locks();
  void tell_known(Session& session);
  // server_calls.cc
  void serve(Session& session, fabric::RpcCall& call, std::span<const std::byte> body);
  void serve_commit(Session& session, fabric::RpcCall& call, std::span<const std::byte> body);
  // Memory for a copy of a request. It grows to the largest request so far, which is at most half a
  // request ring.
  std::span<std::byte> request_copy(size_t bytes);
  Result<OutcomeReply> answer_outcome(Session& session, const OutcomeRequest& request);
  bool may_still_commit(TxId id, bool own) const;
  Status open_table(fabric::RpcCall& call, std::span<const std::byte> body);
  // server_tables.cc
  void serve_drop_table(Session& session, fabric::RpcCall& call, std::span<const std::byte> body);
  void serve_range_scan(Session& session, fabric::RpcCall& call, std::span<const std::byte> body);
  void serve_table_usage(Session& session, fabric::RpcCall& call, std::span<const std::byte> body);
  Result<TableId> drop_table(std::string_view name);
  base::Task<void> free_dropped(TableId table);
  void list_tables(fabric::RpcCall& call);
  base::Task<void> serve_regions(std::shared_ptr<Session> session, fabric::RpcCall call,
                                 RegionsRequest request);
  base::Task<void> serve_rnic(std::shared_ptr<Session> session, fabric::RpcCall call);
  base::Task<Status> serve_rnic_body(Session& session, fabric::RpcCall& call);
  void drop_malformed(Session& session, fabric::RpcCall& call) {
    host.drop_malformed(session, call);
  }
  // server_two_phase.cc
  void serve_two_phase(Session& session, fabric::RpcCall& call, std::span<const std::byte> body);
  Status serve_lock(Session& session, std::span<const std::byte> body);
  void serve_prepare(Session& session, fabric::RpcCall& call, std::span<const std::byte> body);
  void serve_decide(Session& session, fabric::RpcCall& call, std::span<const std::byte> body);
  bool is_own(const Session& session, TxId id) const;
  void note_step(Session& session, GroupStep step);
  // False: it has ended the session.
  bool finish_step_of(Session& session, TxId id);
  Result<VoteReply> vote(const VoteRequest& request) const;
  Result<size_t> list_undecided(const UndecidedRequest& request, std::span<std::byte> room) const;
  Status check_ended(TxId id) const;
  bool was_executed(TxId id) const;
  void end_two_phase(Session& session);
  base::Task<void> watch_locks();
  std::unique_ptr<std::byte[]> copy_;
  size_t copy_bytes_ = 0;
  bool watching_locks_ = false;  // watch_locks() runs
  const uint64_t started_ns_ = executor.now_ns();
  uint64_t frames_seen_ = UINT64_MAX;  // SlabArena::changes() that work_on_frames() has looked at
  bool following_frames_ = false;
  bool has_set_rules_ = false;           // go_by()
  bool moving_records_ = false;          // move_records() runs
  ScanPatience scan_patience_;           // of it
  uint64_t scans_over_at_ = 0;           // ScanCursors::pages() when all scans were over
  base::WaitList move_again_{executor};  // pause_while_held()
  uint64_t move_at_ns_ = 0;              // though the log is held
  // The same of give_back_idle_slabs(), and of release_leftovers().
  uint64_t idle_seen_ = UINT64_MAX;
  uint64_t leftovers_seen_ = UINT64_MAX;
  // Of a frame that is set aside and that sessions know: the first list without it, and until when
  // they may confirm that.
  struct Leaving {
    uint64_t list = 0;
    uint64_t until_ns = 0;
  };
  std::array<Leaving, kMostFrames> leaving_{};
  bool watching_leaving_ = false;  // watch_leaving() runs
  bool watching_held_ = false;     // end_who_keeps_locks() runs
};

service::HostOptions host_options(const persist::Pool& pool, const ServerOptions& options);

// server_stat.cc
// `text` as the content of a JSON string, without the quotes.
std::string json_text(std::string_view text);
std::string server_stat_json(const ServerCore& core);
// server_stat_json() and the pool, the endpoints, and the report of recovery.
std::string admin_stat_json(const ServerCore& core);

}  // namespace pmstore::internal
