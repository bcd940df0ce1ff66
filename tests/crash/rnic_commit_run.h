// Short runs of a store under lock discipline rnic, for the mutants of its client
// (tests/crash/mutants): the steps of store_rnic_run.h in their smallest form, and effects that
// only a second client can see. ADR, DDIO off: logs and commits are one-sided.
//
//   commit-rnic  each kind of commit, alone and beside others of the same client, in a ring that is
//                always nearly full; conflicts; deaths of the server
//   queue-rnic   the commit phase of one commit waits for all of a send queue; others pass it
//   room-rnic    an append waits for the room of a truncation, and that for a busy server
//   vanish-rnic  a client vanishes before each of the work requests of each kind of commit; the
//                other one finds all of the transaction or nothing, and goes on
//   return-rnic  a client is there again by a second connection, at every moment of its commits
//   races-rnic, races-server  nobody dies, under lock discipline rnic or cpu: two clients'
//   transactions at every distance in time, and what would
//                not be serializable does not happen. No power cuts: its trace is empty
// vanish and races also have a form with an ordered table, whose ranges are scanned.
// Seeds other than 0 draw sizes and distances.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "pmstore/types.h"
#include "tests/crash/recorded_run.h"

namespace pmstore::crash {

std::unique_ptr<RecordedRun> commit_rnic_run(const std::string& scenario, uint64_t seed);
std::unique_ptr<RecordedRun> queue_rnic_run(const std::string& scenario, uint64_t seed);
std::unique_ptr<RecordedRun> room_rnic_run(const std::string& scenario, uint64_t seed);
std::unique_ptr<RecordedRun> vanish_rnic_run(const std::string& scenario, uint64_t seed,
                                             TableKind kind);
std::unique_ptr<RecordedRun> return_rnic_run(const std::string& scenario, uint64_t seed);
std::unique_ptr<RecordedRun> races_run(const std::string& scenario, uint64_t seed,
                                       LockDiscipline discipline, TableKind kind);

}  // namespace pmstore::crash
