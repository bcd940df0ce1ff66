#include "persist/rules.h"

#include <fmt/format.h>

#include <optional>

namespace pmstore::persist {
namespace {

Error unreadable(std::string_view text, std::string_view why) {
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("rules '{}': {}; write all or none, then changes of h1 to h9, for "
                                "instance all,-h3 or none,+h1,+h6",
                                text, why));
}

// The part up to the next comma, which is taken away.
std::string_view take_part(std::string_view& rest) {
  const size_t comma = rest.find(',');
  const std::string_view part = rest.substr(0, comma);
  rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  return part;
}

std::optional<Rule> parse_rule(std::string_view name) {
  if (name.size() != 2 || (name[0] != 'h' && name[0] != 'H')) return std::nullopt;
  if (name[1] < '1' || name[1] >= char('1' + kRules)) return std::nullopt;
  return static_cast<Rule>(name[1] - '0');
}

}  // namespace

Result<RuleChoice> parse_rules(std::string_view text) {
  if (text.ends_with(',')) return unreadable(text, "it ends with a comma");
  std::string_view rest = text;
  const std::string_view start = take_part(rest);
  RuleChoice choice;
  if (start == "none") {
    choice.on = Rules::none();
  } else if (start != "all") {
    return unreadable(text, fmt::format("'{}' is neither all nor none", start));
  }
  while (!rest.empty()) {
    const std::string_view change = take_part(rest);
    const bool add = change.starts_with('+');
    const auto rule = change.empty() ? std::nullopt : parse_rule(change.substr(1));
    if (!rule || (!add && !change.starts_with('-'))) {
      return unreadable(text, fmt::format("'{}' changes no rule", change));
    }
    if (choice.named.has(*rule)) {
      return unreadable(text, fmt::format("{} is named twice", rule_name(*rule)));
    }
    choice.named = choice.named.with(*rule);
    choice.on = add ? choice.on.with(*rule) : choice.on.without(*rule);
  }
  return choice;
}

Result<Rules> parse_pool_rules(std::string_view text) {
  PMSTORE_TRY(const RuleChoice choice, parse_rules(text));
  const Rules others = choice.named.with_padding({false, false, false});
  if (!others.empty()) {
    return unreadable(text, "a pool can switch only h5, h6 and h7");
  }
  return Rules::all().with_padding(choice.on.padding());
}

std::string rules_text(Rules rules) {
  std::string added = "none";
  std::string removed = "all";
  for (unsigned i = 1; i <= kRules; ++i) {
    const Rule rule = static_cast<Rule>(i);
    (rules.has(rule) ? added : removed) +=
        fmt::format(",{}{}", rules.has(rule) ? '+' : '-', rule_name(rule));
  }
  return removed.size() < added.size() ? removed : added;
}

std::string rule_name(Rule rule) { return fmt::format("h{}", static_cast<unsigned>(rule)); }

std::string_view rule_summary(Rule rule) {
  switch (rule) {
    case Rule::kH1: return "the RNIC's own socket";
    case Rule::kH2: return "few CPU writers on a DIMM";
    case Rule::kH3: return "DDIO off";
    case Rule::kH4: return "non-temporal stores from 256 B on";
    case Rule::kH5: return "256 B alignment and padding";
    case Rule::kH6: return "64 B alignment and padding of small one-sided writes";
    case Rule::kH7: return "64 B alignment, padding and non-temporal stores, two-sided";
    case Rule::kH8: return "no atomics on persistent memory";
    case Rule::kH9: return "one doorbell";
  }
  return "?";
}

}  // namespace pmstore::persist
