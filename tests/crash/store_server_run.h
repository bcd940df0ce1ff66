// The run of a store under lock discipline cpu behind its server, on the modelled machine: two
// clients whose transactions go to the server by calls, also at the same time; the power of the
// server may be cut at every store, flush, drain, msync and packet.
//
//   store-server       ADR
//   store-server-none  a file, outside of any persistence domain
//   vanish-server      a client vanishes before each of its work requests, and behind each; servers
//                      die at each moment of others' commits, and the clients reach the next one by
//                      themselves
//   group-server       a file, where transactions that wait share an msync: clients vanish and come
//                      back amid groups, and servers die
//   races-server       nobody dies: races-rnic (rnic_commit_run.h) under lock discipline cpu
// Seeds other than 0 draw sizes, distances and moments.
#pragma once

#include <memory>
#include <string>

#include "persist/domain.h"
#include "tests/crash/recorded_run.h"

namespace pmstore::crash {

std::unique_ptr<RecordedRun> store_server_run(const std::string& scenario, uint64_t seed,
                                              persist::Domain domain);
std::unique_ptr<RecordedRun> group_server_run(const std::string& scenario, uint64_t seed);
std::unique_ptr<RecordedRun> vanish_server_run(const std::string& scenario, uint64_t seed);

}  // namespace pmstore::crash
