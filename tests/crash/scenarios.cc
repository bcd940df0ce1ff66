#include "tests/crash/convert_run.h"
#include "tests/crash/files_extend_run.h"
#include "tests/crash/files_grow_run.h"
#include "tests/crash/files_move_run.h"
#include "tests/crash/files_run.h"
#include "tests/crash/late_writes_run.h"
#include "tests/crash/log_run.h"
#include "tests/crash/log_server_run.h"
#include "tests/crash/pool_run.h"
#include "tests/crash/recorded_run.h"
#include "tests/crash/replica_decisions_run.h"
#include "tests/crash/replica_identity_run.h"
#include "tests/crash/replica_races_run.h"
#include "tests/crash/replica_run.h"
#include "tests/crash/ring_rnic_run.h"
#include "tests/crash/ring_run.h"
#include "tests/crash/rnic_commit_run.h"
#include "tests/crash/store_rnic_run.h"
#include "tests/crash/store_run.h"
#include "tests/crash/store_server_run.h"
#include "tests/crash/tables_run.h"
#include "tests/crash/two_phase_run.h"

namespace pmstore::crash {
namespace {

using persist::Domain;

std::function<std::unique_ptr<RecordedRun>(uint64_t)> replicas(std::string name,
                                                               const ReplicaRunOptions& what) {
  return [=](uint64_t seed) { return replica_run(name, seed, what); };
}

std::unique_ptr<RecordedRun> replica_races(uint64_t seed) {
  return replica_races_run("replica-races", seed);
}

std::unique_ptr<RecordedRun> replica_decisions(uint64_t seed) {
  return replica_decisions_run("replica-decisions", seed);
}

std::unique_ptr<RecordedRun> log_version_one(uint64_t seed) {
  return log_run("log-version1", seed, Domain::kMemoryController, log::LogWriter::kCpu,
                 log::LogVersion::kOne);
}

std::unique_ptr<RecordedRun> log_by_need(uint64_t seed) {
  return log_run("log-by-need", seed, Domain::kMemoryController, log::LogWriter::kCpu,
                 log::LogVersion::kByNeed);
}

std::unique_ptr<RecordedRun> replica_identity(uint64_t seed) {
  return replica_identity_run("replica-identity", seed);
}

auto ring(std::string name, Domain domain, RingWriter writer) {
  return [=](uint64_t seed) { return ring_run(name, seed, domain, writer); };
}
auto ring_rnic(std::string name, const RnicRing& what) {
  return [=](uint64_t seed) { return ring_rnic_run(name, seed, what); };
}
auto log_area(std::string name, Domain domain, log::LogWriter writer) {
  return [=](uint64_t seed) { return log_run(name, seed, domain, writer, log::LogVersion::kNone); };
}
auto store(std::string name, Domain domain, StoreSize size = StoreSize::kSmall,
           const persist::PaddingRules& padding = {}) {
  return [=](uint64_t seed) { return store_run(name, seed, domain, size, padding); };
}
auto races(std::string name, LockDiscipline discipline, TableKind kind) {
  return [=](uint64_t seed) { return races_run(name, seed, discipline, kind); };
}

auto vanish(std::string name, TableKind kind) {
  return [=](uint64_t seed) { return vanish_rnic_run(name, seed, kind); };
}

auto store_rnic(std::string name, const ServedStore& what) {
  return [=](uint64_t seed) { return store_rnic_run(name, seed, what); };
}

std::vector<Scenario> ring_scenarios() {
  return {
      {"pool", "extents of a pool in a plain region, ADR",
       [](uint64_t seed) { return pool_run("pool", seed, Domain::kMemoryController); }},
      {"ring", "redo ring, appended by the owner's CPU, ADR",
       ring("ring", Domain::kMemoryController, RingWriter::kCpu)},
      {"ring-eadr", "the same, eADR", ring("ring-eadr", Domain::kCpuCache, RingWriter::kCpu)},
      {"ring-none", "the same in a file: only what msync covers is durable",
       ring("ring-none", Domain::kNone, RingWriter::kCpu)},
      {"ring-dma", "redo ring, appended by one-sided writes, ADR, DDIO off",
       ring("ring-dma", Domain::kMemoryController, RingWriter::kDevice)},
      {"ring-ddio", "redo ring, appended by one-sided writes, eADR, DDIO on",
       ring("ring-ddio", Domain::kCpuCache, RingWriter::kDevice)},
      {"ring-rnic", "redo ring of a server, appended over the modelled machine, ADR",
       ring_rnic("ring-rnic", {})},
      {"ring-rnic-eadr", "the same, eADR, DDIO on",
       ring_rnic("ring-rnic-eadr",
                 {.domain = Domain::kCpuCache, .ddio = true, .two_sided_bytes = 1000})},
      {"ring-rnic-ddio", "the same, ADR, DDIO on: two-sided",
       ring_rnic("ring-rnic-ddio", {.ddio = true, .rule_h7 = false})},
  };
}

std::vector<Scenario> log_scenarios() {
  return {
      {"log", "logs of a log area, producers' entries in the caches, ADR",
       log_area("log", Domain::kMemoryController, log::LogWriter::kCpu)},
      {"log-eadr", "the same, eADR", log_area("log-eadr", Domain::kCpuCache, log::LogWriter::kCpu)},
      {"log-none", "the same in a file: only what msync covers is durable",
       log_area("log-none", Domain::kNone, log::LogWriter::kCpu)},
      {"log-dma", "logs, producers' entries by one-sided writes, ADR, DDIO off",
       log_area("log-dma", Domain::kMemoryController, log::LogWriter::kDevice)},
      {"log-ddio", "the same, eADR, DDIO on",
       log_area("log-ddio", Domain::kCpuCache, log::LogWriter::kDevice)},
      {"log-version1", "the same as log, in an area of version 1", log_version_one},
      {"log-by-need", "the same, of logs that take extents of the pool and give them back",
       log_by_need},
  };
}

std::vector<Scenario> replica_scenarios() {
  return {
      {"replica-decisions", "decisions about the members of a replicated log; no power cuts",
       replica_decisions, true, false},
      {"replica-identity", "replicated logs of one name, one after the other; no power cuts",
       replica_identity, true, false},
      {"replica-races", "two producers take an empty replicated log; no power cuts", replica_races,
       true, false},
      {"replicas2", "a log on two servers, whose CPUs store; each may be gone for good; ADR",
       replicas("replicas2", {.servers = 2}), true, false},
      {"replicas3", "the same on three", replicas("replicas3", {.servers = 3}), true, false},
      {"replicas2-rnic", "a log on two servers, one-sided, on the modelled machine, ADR",
       replicas("replicas2-rnic", {.servers = 2, .rnic = true}), false},
      {"replicas3-rnic", "the same on three",
       replicas("replicas3-rnic", {.servers = 3, .rnic = true}), false},
  };
}

std::vector<Scenario> store_scenarios() {
  return {
      {"store", "one-server commit, lock discipline cpu, ADR",
       store("store", Domain::kMemoryController)},
      {"store-eadr", "the same, eADR", store("store-eadr", Domain::kCpuCache)},
      {"store-none", "the same in a file: only what msync covers is durable",
       store("store-none", Domain::kNone)},
      {"store-unpadded", "the same as store, in a pool without the rules H5 to H7",
       store("store-unpadded", Domain::kMemoryController, StoreSize::kSmall,
             persist::PaddingRules::from_off_bits(persist::PaddingRules::kOffBits))},
      {"store-checkpoint", "the same as store, with orderly stops that leave checkpoints",
       store("store-checkpoint", Domain::kMemoryController, StoreSize::kWithRoom)},
      {"store-checkpoint-none", "the same in a file",
       store("store-checkpoint-none", Domain::kNone, StoreSize::kWithRoom)},
      {"store-large", "records of several chunks, ADR",
       store("store-large", Domain::kMemoryController, StoreSize::kLarge)},
      {"store-frames", "records take extents from the pool and give them back, ADR",
       store("store-frames", Domain::kMemoryController, StoreSize::kFrames)},
      {"store-frames-none", "the same in a file",
       store("store-frames-none", Domain::kNone, StoreSize::kFrames)},
      {"store-large-frames", "the headers of such an extent are blanked in steps, ADR",
       store("store-large-frames", Domain::kMemoryController, StoreSize::kLargeFrames)},
      {"store-large-frames-none", "the same in a file",
       store("store-large-frames-none", Domain::kNone, StoreSize::kLargeFrames)},
      {"two-phase", "one server's part of transactions of several servers, ADR",
       [](uint64_t seed) { return two_phase_run("two-phase", seed, Domain::kMemoryController); }},
      {"two-phase-none", "the same in a file",
       [](uint64_t seed) { return two_phase_run("two-phase-none", seed, Domain::kNone); }},
      {"convert", "a pool of an earlier release is converted and used, ADR",
       [](uint64_t seed) { return convert_run("convert", seed, Domain::kMemoryController, 2); }},
      {"convert-none", "the same in a file, with a pool of the first release",
       [](uint64_t seed) { return convert_run("convert-none", seed, Domain::kNone, 1); }},
      {"convert-log", "the same with a pool that had a shard log, ADR",
       [](uint64_t seed) {
         return convert_run("convert-log", seed, Domain::kMemoryController, 3);
       }},
      {"tables", "a table of tables that is larger than the pool's root area, ADR",
       [](uint64_t seed) { return tables_run("tables", seed, Domain::kMemoryController); }},
  };
}

std::vector<Scenario> server_scenarios() {
  const auto logs = [](std::string name, const LogServer& what) {
    return [=](uint64_t seed) { return log_server_run(name, seed, what); };
  };
  const auto served = [](std::string name, Domain domain) {
    return [=](uint64_t seed) { return store_server_run(name, seed, domain); };
  };
  return {
      {"log-server", "two clients of a log service append, with group commit, ADR",
       logs("log-server", {}), true, false},
      {"log-server-none", "the same in a file", logs("log-server-none", {.domain = Domain::kNone}),
       false},
      {"log-server-rnic", "the same as log-server, on the modelled machine",
       logs("log-server-rnic", {.modelled = true}), false},
      {"store-server", "lock discipline cpu, two clients of a server on the modelled machine, ADR",
       served("store-server", Domain::kMemoryController), true, false},
      {"store-server-none", "the same in a file", served("store-server-none", Domain::kNone),
       false},
      {"group-server", "the same, where transactions that wait share an msync",
       [](uint64_t seed) { return group_server_run("group-server", seed); }, true, false},
      {"vanish-server", "a client of it vanishes at each work request; servers die amid commits",
       [](uint64_t seed) { return vanish_server_run("vanish-server", seed); }, true, false},
      {"races-server", "two clients' transactions at every distance; no power cuts",
       races("races-server", LockDiscipline::kCpu, TableKind::kHash), true, false},
      {"races-server-ordered", "the same in an ordered table, with scans",
       races("races-server-ordered", LockDiscipline::kCpu, TableKind::kOrdered), true, false},
  };
}

std::vector<Scenario> rnic_scenarios() {
  return {
      {"store-rnic", "one-server commit, lock discipline rnic, on the modelled machine, ADR",
       store_rnic("store-rnic", {}), false},
      {"store-rnic-ordered", "the same with an ordered table",
       store_rnic("store-rnic-ordered", {.kind = TableKind::kOrdered}), false},
      {"store-rnic-eadr", "the same, eADR, DDIO on",
       store_rnic("store-rnic-eadr", {.domain = Domain::kCpuCache, .ddio = true}), false},
      {"store-rnic-ddio", "the same, ADR, DDIO on: through the server's CPU",
       store_rnic("store-rnic-ddio", {.ddio = true}), false},
      {"commit-rnic", "the same as store-rnic in its smallest form",
       [](uint64_t seed) { return commit_rnic_run("commit-rnic", seed); }, true, false},
      {"queue-rnic", "a commit that waits for a full send queue, while others pass it",
       [](uint64_t seed) { return queue_rnic_run("queue-rnic", seed); }, true, false},
      {"room-rnic", "an append that waits for the room of a truncation, at a busy server",
       [](uint64_t seed) { return room_rnic_run("room-rnic", seed); }, true, false},
      {"vanish-rnic", "a client vanishes before each work request of its commits",
       vanish("vanish-rnic", TableKind::kHash), true, false},
      {"vanish-rnic-ordered", "the same in an ordered table",
       vanish("vanish-rnic-ordered", TableKind::kOrdered), true, false},
      {"return-rnic", "a client comes back by another connection amid its commits",
       [](uint64_t seed) { return return_rnic_run("return-rnic", seed); }, true, false},
      {"races-rnic", "two clients' transactions at every distance; no power cuts",
       races("races-rnic", LockDiscipline::kRnic, TableKind::kHash), true, false},
      {"races-rnic-ordered", "the same in an ordered table, with scans",
       races("races-rnic-ordered", LockDiscipline::kRnic, TableKind::kOrdered), true, false},
  };
}

std::vector<Scenario> files_scenarios() {
  return {
      {"files", "a file system: names, sizes, extents, quarantine, ADR",
       [](uint64_t seed) { return files_run("files", seed, Domain::kMemoryController); }},
      {"files-none", "the same in a file: only what msync covers is durable",
       [](uint64_t seed) { return files_run("files-none", seed, Domain::kNone); }},
      {"files-extend", "clients write one-sided at the ends of files, and die amid that, ADR",
       [](uint64_t seed) {
         return files_extend_run("files-extend", seed, Domain::kMemoryController);
       },
       true, false},
      {"files-extend-none", "the same by calls, in files",
       [](uint64_t seed) { return files_extend_run("files-extend-none", seed, Domain::kNone); },
       false},
      {"files-grow", "file data takes sections of the pool and gives them back, ADR",
       [](uint64_t seed) { return files_grow_run("files-grow", seed, Domain::kMemoryController); }},
      {"files-grow-none", "the same in a file",
       [](uint64_t seed) { return files_grow_run("files-grow-none", seed, Domain::kNone); }},
      {"files-move", "data of files is moved from a data server that is drained, ADR",
       [](uint64_t seed) { return files_move_run("files-move", seed, Domain::kMemoryController); }},
      {"files-move-none", "the same in files",
       [](uint64_t seed) { return files_move_run("files-move-none", seed, Domain::kNone); }},
      {"late-writes", "a client writes to freed units of a file area behind its word, ADR",
       [](uint64_t seed) {
         return late_writes_run("late-writes", seed, Domain::kMemoryController);
       }},
  };
}

}  // namespace

const std::vector<Scenario>& scenarios() {
  static const std::vector<Scenario> all = [] {
    std::vector<Scenario> some;
    for (const auto& part :
         {ring_scenarios(), log_scenarios(), replica_scenarios(), store_scenarios(),
          server_scenarios(), rnic_scenarios(), files_scenarios()}) {
      some.insert(some.end(), part.begin(), part.end());
    }
    return some;
  }();
  return all;
}

const Scenario* find_scenario(const std::string& name) {
  for (const Scenario& scenario : scenarios()) {
    if (scenario.name == name) return &scenario;
  }
  return nullptr;
}

}  // namespace pmstore::crash
