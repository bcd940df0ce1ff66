// The steps of runs of a store behind its server (store_rnic_run.h, rnic_commit_run.h,
// store_server_run.h): a server and two clients on the modelled machine, their transactions, and
// deaths of each. Every step keeps the run's oracle up to date.
//
// Invariant: a start after a power cut must find `now_`, with or without each of `under_way_`;
// these have different keys. Threads: one.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/task.h"
#include "fabric/local/fault_injection.h"
#include "model/page_bytes.h"
#include "persist/pool.h"
#include "pmstore/client.h"
#include "pmstore/server.h"
#include "tests/crash/crash_machine.h"
#include "tests/crash/recorded_run.h"
#include "tests/crash/restarted_store.h"

namespace pmstore::crash {

struct ServedStore {
  persist::Domain domain = persist::Domain::kMemoryController;
  bool ddio = false;
  uint32_t chunks = 5;      // that its records have
  uint32_t send_queue = 0;  // see CrashMachine
  LockDiscipline discipline = LockDiscipline::kRnic;
  TableKind kind = TableKind::kHash;
  bool groups = false;      // transactions that wait share an msync, however quick it is
  bool reconnects = false;  // clients outlive their server, and reach the next one by themselves
};

class ServedStoreSteps : public RecordedRun {
 public:
  Result<std::unique_ptr<Restarted>> restart(std::span<std::byte> memory) const override {
    return RestartedStore::open(memory, what_.domain, history_);
  }
  // A start of a store takes about 100 us.
  uint64_t samples() const override { return 64; }
  uint64_t death_every() const override { return 16; }

 protected:
  using Writes = std::vector<KeyWrite>;
  using Places = std::vector<std::pair<uint64_t, uint64_t>>;  // slot, version
  struct Commit {
    uint32_t client = 0;
    Writes writes = {};
    uint64_t after_ns = 0;  // begins so much later
    TxId id{};
    uint64_t epoch = 0;  // of the server, when it began
    Places before = {};  // of its keys
    std::optional<Status> over = std::nullopt;
  };
  static constexpr uint32_t kClients = 2;

  // Formats the store, starts the server, connects both clients.
  ServedStoreSteps(const std::string& scenario, uint64_t seed, const ServedStore& what);
  // The last thing that a run's constructor does.
  void end();

  // ---- transactions ----

  // Of one client, acknowledged on return, or refused.
  void commit(uint32_t client, const Writes& writes) { commit_together({{client, writes}}); }
  // At the same time. A client may have several.
  void commit_together(std::vector<Commit> commits);
  // A transaction of client 0 that has read `read`, and that client 1 changes `read` before it
  // writes `written`: it is refused.
  void refuse(const char* read, const char* written, size_t bytes);
  KeyWrite write(const char* key, size_t bytes);  // of a value that there was never before
  static KeyWrite erase(const char* key) { return {key, std::nullopt}; }

  // ---- deaths ----

  // The server's process dies that long after the commits have begun, and another one starts.
  void die_amid(std::vector<Commit> commits, uint64_t ns);
  // The same, when it was stopped in order.
  void stop_and_start();
  // The client vanishes before its `request`-th request from here (from 1) takes effect, or with
  // another fault after that. The other client finds the whole transaction or nothing of it,
  // immediately and unlocked, and writes the same keys. The server tells the outcome to a client
  // that comes back under the same id. False: the transaction had fewer requests.
  bool vanish_amid(const Commit& commit, uint64_t request,
                   fabric::Fault fault = fabric::Fault::kBreakBefore);

  // The client comes back by a second connection that long after its commit has begun on the first,
  // which the server ends. Then the same holds.
  void come_back_amid(const Commit& commit, uint64_t ns);

  // The records that a client finds; it waits for locks. Those of an ordered table are scanned.
  std::optional<std::string> read(uint32_t client, const std::string& key);
  StoreContent read_all(uint32_t client);

  // Of the present server.
  std::string stat() const { return server_->stat_json(); }

  Random& random() { return random_; }
  CrashMachine& machine() { return *machine_; }
  Client& client(uint32_t number) { return *clients_[number]; }
  const StoreHistory& history() const { return history_; }
  const StoreContent& now() const { return now_; }

 private:
  StoreContent scan_all(uint32_t client);
  void format();
  void start();
  void start_server();
  void connect(uint32_t client);
  // The other client must find all of the transaction or nothing; then its outcome is settled.
  bool find_whole(const Commit& commit);
  // Allows this content from here on, until the next call.
  void promise();
  void begin(std::vector<Commit>& commits);
  void finish(const std::vector<Commit>& commits);
  base::Task<void> run(Commit& commit);
  void settle(const Commit& commit, bool committed);
  // For a commit that was not acknowledged, of a client that is there again.
  Outcome outcome_of(const Commit& commit);
  // Of the keys of these, as a start on a copy of the memory finds them.
  Places places_of(const Writes& writes) const;

  ServedStore what_;
  Random random_;
  model::PageBytes region_;
  std::optional<CrashMachine> machine_;
  std::unique_ptr<persist::Pool> pool_;
  ServerOptions server_options_;
  std::unique_ptr<Server> server_;
  std::array<std::unique_ptr<Client>, kClients> clients_;
  StoreContent now_;
  std::vector<const Commit*> under_way_;
  uint64_t values_ = 0;
  std::array<bool, kClients> orphaned_{};  // its server died, and it may not have noticed yet
  StoreHistory history_;
};

}  // namespace pmstore::crash
