// The content of the servers of a replicated log after a start, as the oracle compares it; and a
// start of all servers except the lost one, with a producer that takes the log over.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "log/replicated_log.h"
#include "tests/crash/recorded_run.h"
#include "tests/crash/replica_servers.h"

namespace pmstore::crash {

struct ReplicaContent {
  size_t gone = 0;              // the number of servers: none
  uint64_t last = 0;            // index of the newest entry
  std::vector<size_t> members;  // without the one that is gone
  // Of the oldest entry, by member: an interrupted trim has got to some of them.
  uint64_t least_first = 1;
  uint64_t most_first = 1;
  bool operator==(const ReplicaContent&) const = default;

  uint64_t digest() const;
  std::string text() const;
};

// The common content of all of these. An error says that they differ, or that an entry is missing
// or is not the appended one.
Result<ReplicaContent> replica_content(ReplicaServers& servers, log::ReplicatedLog& log);

class RestartedReplicas final : public Restarted {
 public:
  static Result<std::unique_ptr<Restarted>> open(std::span<std::byte> memory, size_t servers,
                                                 persist::Domain domain);
  ~RestartedReplicas() override { log_.reset(); }
  std::vector<persist::Memory*> memories() override { return servers_.memories(); }
  Result<uint64_t> recover() override;
  // One of these: an entry; a member is dropped, or one that was is added again.
  Result<uint64_t> work() override;

 private:
  RestartedReplicas(std::span<std::byte> memory, size_t servers, persist::Domain domain)
      : servers_(executor_, memory, servers, domain) {}
  Status start();
  Status take_over(const std::vector<std::string>& servers, log::ReplicatedLogOptions options);
  Status change_members();
  Result<ReplicaContent> content();

  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  ReplicaServers servers_;
  std::unique_ptr<log::ReplicatedLog> log_;
  size_t gone_ = 0;
  // Before anything was taken over, of all servers: the newest entry that a reader saw, and the
  // highest membership of those that are there.
  uint64_t seen_ = 0;
  uint64_t membership_ = 0;
};

}  // namespace pmstore::crash
