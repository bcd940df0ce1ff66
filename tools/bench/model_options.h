// ModelOptions: the options that put a benchmark on the modelled machine, and the machine that
// follows from them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/cluster.h"
#include "persist/domain.h"
#include "persist/rules.h"
#include "persist/strategy.h"

namespace CLI {
class App;
}

namespace pmstore::tools {

struct ModelOptions {
  std::string name;             // empty: no model
  std::string parameters_file;  // empty: none
  uint32_t hosts = 2;           // one serves
  uint32_t data_servers = 1;    // of files; bench fs only: so many serve
  std::string rules = "all";
  std::string pool_bytes = "256M";

  bool on() const { return !name.empty(); }
  // Errors of parameters() and store_rules(), and InvalidArgument for a pool that is too small.
  Status check() const;
  // --model, --hosts, --model-parameters, --rules, --model-pool
  void add_to(CLI::App& command);

  // Errors of named_parameters() and override_parameters().
  Result<model::Parameters> parameters() const;
  // The rules in force. Unsupported for a rule that was switched by name and that a store cannot
  // switch.
  Result<persist::Rules> store_rules() const;
  // Those that `rules` leaves out and that hold all the same, because a store has no other way.
  std::vector<persist::Rule> kept_rules() const;
};

}  // namespace pmstore::tools
