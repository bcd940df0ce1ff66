// DaemonConfig: what pmstored is told, by flags and by a TOML file whose keys are the flags' names.
//
//   pool = "/dev/dax0.0"
//   listen = ["verbs://0.0.0.0:7000", "tcp://127.0.0.1:7000"]
//   lease-ms = 5000
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/daemon/pool_service.h"

namespace CLI {
class App;
}

namespace pmstore::tools {

struct DaemonConfig {
  std::string pool;
  std::vector<std::string> listen;
  std::string locks = "auto";
  std::string assume_domain;
  std::string ddio = "on";
  std::string poll = "adaptive";
  std::string io_uring = "auto";
  std::string create;
  bool sparse = false;
  bool data_server = false;
  uint64_t max_inodes = 0;  // 0: as many as fit
  uint64_t max_opens = fs::FilesServerOptions{}.max_opens;
  bool files = false;
  std::string file_limit = {};
  std::string record_limit = {};
  std::string log_limit = {};
  std::string record_reserve = {};
  std::string ring_reserve = {};
  std::string log_reserve = {};
  std::string file_reserve = {};
  uint32_t lease_ms = ServerOptions{}.lease_ms;
  uint32_t most_clients = ServerOptions{}.most_clients;
  std::string message_memory = "1G";
  uint32_t outcome_retention_ms = ServerOptions{}.outcome_retention_ms;
  uint32_t recovery_threads = 0;  // 0: one for each core
  bool ignore_checkpoint = false;
  bool json = false;
  std::string log_file;  // empty: standard error
  std::string log_level = "info";

  // Flags win over --config FILE. A key that is no flag, or a value of a wrong kind, is wrong
  // usage.
  void add_to(CLI::App& app);
  void add_files_to(CLI::App& app);   // a part of add_to()
  void add_limits_to(CLI::App& app);  // likewise
  void add_own_to(CLI::App& app);     // likewise
  // Call after parsing; checks made there cannot fail here.
  ServiceOptions service_options() const;
  void add_space_rules_to(ServerOptions& options) const;  // a part of service_options()

  // A setting that another configuration has otherwise.
  struct Difference {
    std::string_view name;
    std::string now;
    std::string next;
    bool may_change;  // while the pool is served
  };
  std::vector<Difference> differences(const DaemonConfig& next) const;
};

}  // namespace pmstore::tools
