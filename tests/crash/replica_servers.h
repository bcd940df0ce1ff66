// ReplicaServers: the servers of a replicated log, side by side in one memory. A power cut of all
// servers, or of some, is one content of this memory; each server drains only its own part. One
// word says which server a cut has taken for good.
//
// That word is stored once for each server and never flushed. So its line is always in doubt, and
// the explorer tries every state with each server gone, and with none.
//
// Threads: one. The memory is borrowed.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/executor.h"
#include "log/log_host.h"
#include "log/replicated_log.h"
#include "persist/pool.h"
#include "tests/crash/crash_machine.h"

namespace pmstore::crash {

inline constexpr size_t kMostServers = 3;
inline constexpr char kReplicatedName[] = "log";
inline constexpr uint64_t kReplicatedBytes = 16 * 1024;
inline constexpr uint64_t kReplicatedIdentity = 99;

class ReplicaServers {
 public:
  static size_t memory_bytes(size_t servers);
  // Makes their pools, with a log area each.
  static void format(std::span<std::byte> memory, size_t servers, persist::Domain domain);
  // `machine`: the modelled one that they run on; nullptr: they store with their CPUs.
  ReplicaServers(base::Executor& executor, std::span<std::byte> memory, size_t servers,
                 persist::Domain domain, CrashMachine* machine = nullptr);

  size_t count() const { return servers_.size(); }
  static std::string uri(size_t server);
  static size_t number_of(const std::string& uri);
  std::vector<std::string> uris() const;  // of all
  // Opens the pools; stores nothing.
  Status open();
  // Each server's, and that of the word.
  std::vector<persist::Memory*> memories();
  // Recovers, and listens.
  Status start(size_t server);
  void kill(size_t server) { servers_[server].host.reset(); }
  bool runs(size_t server) const { return servers_[server].host != nullptr; }
  log::LogHost& host(size_t server) { return *servers_[server].host; }
  // What it says of the log.
  Result<log::LogInfo> info(size_t server) const;
  // How clients reach them.
  log::LogClientOptions client() const;

  // count(): none.
  size_t gone() const;
  // Durable on return.
  Status set_gone(size_t server);
  // From here on each of them may be the one, or none.
  void doubt_who_is_gone();

 private:
  struct Server {
    std::unique_ptr<persist::Pool> pool;
    std::unique_ptr<log::LogHost> host;
  };
  static std::span<std::byte> part(std::span<std::byte> memory, size_t server);
  void store_gone(uint64_t word);

  base::Executor& executor_;
  std::span<std::byte> memory_;
  persist::Domain domain_;
  CrashMachine* machine_;
  std::vector<Server> servers_;
  std::unique_ptr<persist::Memory> word_;
};

// The payload of the entry with this index.
std::string replica_text(uint64_t index);
// Appends so many entries as a batch, with these texts.
base::Task<Result<log::Appended>> append_texts(log::ReplicatedLog& log, uint64_t count);

}  // namespace pmstore::crash
