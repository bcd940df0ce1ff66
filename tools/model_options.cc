#include "tools/model_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tools/session_options.h"

namespace pmstore::tools {
namespace {

using persist::Rule;

// What can be switched around a store. The layout of its records and logs follows H5 to H7 always,
// and its server has one core, so that H2 is out of question.
constexpr Rule kSwitchable[] = {Rule::kH1, Rule::kH3, Rule::kH4, Rule::kH8, Rule::kH9};

}  // namespace

void ModelOptions::add_to(CLI::App& command) {
  command.add_option("--model", name,
                     fmt::format("run on a modelled machine in virtual time, instead of --uri: {}",
                                 fmt::join(model::parameter_set_names(), ", ")));
  command.add_option("--hosts", hosts, "of the model: one serves, the others are clients")
      ->check(CLI::Range(2u, model::Cluster::kMaxHosts))
      ->capture_default_str();
  command.add_option("--model-parameters", parameters_file,
                     "a TOML file that changes parameters of the model");
  command
      .add_option("--rules", rules,
                  "of the model: which of the rules h1 to h9 hold; h1, h3, h4, h8 and h9 can be "
                  "switched (all, none, all,-h3, none,+h1)")
      ->check(parsed_by(persist::parse_rules, "RULES"))
      ->capture_default_str();
  command.add_option("--model-pool", pool_bytes, "size of the modelled server's pool")
      ->check(parsed_by(parse_bytes, "BYTES"))
      ->capture_default_str();
}

Result<model::Parameters> ModelOptions::parameters() const {
  PMSTORE_TRY(model::Parameters parameters, model::named_parameters(name));
  if (!parameters_file.empty()) {
    PMSTORE_TRY_STATUS(model::override_parameters(parameters, parameters_file));
  }
  return parameters;
}

Result<persist::Rules> ModelOptions::store_rules() const {
  const persist::RuleChoice choice = *persist::parse_rules(rules);
  persist::Rules on = persist::Rules::all();
  for (unsigned number = 1; number <= persist::kRules; ++number) {
    const auto rule = static_cast<Rule>(number);
    if (choice.on.has(rule)) continue;
    if (std::find(std::begin(kSwitchable), std::end(kSwitchable), rule) != std::end(kSwitchable)) {
      on = on.without(rule);
    } else if (choice.named.has(rule)) {
      return make_error(ErrorCode::kUnsupported,
                        fmt::format("rule {} ({}) cannot be switched off for a store; use bench "
                                    "micro, which can",
                                    persist::rule_name(rule), persist::rule_summary(rule)));
    }
  }
  return on;
}

}  // namespace pmstore::tools
