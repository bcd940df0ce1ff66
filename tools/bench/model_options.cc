#include "tools/bench/model_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tools/cli/session_options.h"

namespace pmstore::tools {
namespace {

using persist::Rule;

constexpr uint64_t kLeastPoolBytes = uint64_t{1} << 20;

// The rules that can be switched for a store. Its server has one core, so H2 has no meaning here.
constexpr Rule kSwitchable[] = {Rule::kH1, Rule::kH3, Rule::kH4, Rule::kH5,
                                Rule::kH6, Rule::kH7, Rule::kH8, Rule::kH9};

bool is_switchable(Rule rule) {
  return std::find(std::begin(kSwitchable), std::end(kSwitchable), rule) != std::end(kSwitchable);
}

}  // namespace

Status ModelOptions::check() const {
  PMSTORE_TRY_STATUS(parameters());
  PMSTORE_TRY_STATUS(store_rules());
  if (*parse_bytes(pool_bytes) >= kLeastPoolBytes) return {};
  return make_error(ErrorCode::kInvalidArgument, fmt::format("--model-pool {}: use at least {}M",
                                                             pool_bytes, kLeastPoolBytes >> 20));
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
    if (is_switchable(rule)) {
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

std::vector<Rule> ModelOptions::kept_rules() const {
  const persist::RuleChoice choice = *persist::parse_rules(rules);
  std::vector<Rule> kept;
  for (unsigned number = 1; number <= persist::kRules; ++number) {
    const auto rule = static_cast<Rule>(number);
    if (!choice.on.has(rule) && !is_switchable(rule)) kept.push_back(rule);
  }
  return kept;
}

}  // namespace pmstore::tools
