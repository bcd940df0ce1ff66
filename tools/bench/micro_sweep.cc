#include "tools/bench/micro_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>

#include "tools/cli/invalid_argument.h"
#include "tools/cli/session_options.h"

namespace pmstore::tools {

using persist::Rule;
using persist::Rules;

namespace {

Result<bool> parse_switch(std::string_view name, std::string_view text) {
  if (text == "on") return true;
  if (text == "off") return false;
  return invalid_argument(fmt::format("{} is '{}': use on or off", name, text));
}

Status set_count(uint32_t& to, std::string_view name, std::string_view text) {
  const auto number = parse_bytes(text);
  if (!number || *number == 0 || *number > UINT32_MAX) {
    return invalid_argument(
        fmt::format("{} is '{}': use a number from 1 on, for instance 16 or 2K", name, text));
  }
  to = static_cast<uint32_t>(*number);
  return {};
}

template <typename T>
Status take(T& value, Result<T> parsed) {
  if (!parsed) return std::move(parsed.error());
  value = *parsed;
  return {};
}

struct Parameter {
  std::string_view name;
  Status (*set)(MicroPoint& point, std::string_view value);
};

// `name` again in some of them is for their messages.
constexpr Parameter kParameters[] = {
    {"op", [](MicroPoint& p, std::string_view v) { return take(p.op, parse_op(v)); }},
    {"side", [](MicroPoint& p, std::string_view v) { return take(p.side, parse_side(v)); }},
    {"medium", [](MicroPoint& p, std::string_view v) { return take(p.medium, parse_medium(v)); }},
    {"pattern",
     [](MicroPoint& p, std::string_view v) { return take(p.pattern, parse_pattern(v)); }},
    {"payload",
     [](MicroPoint& p, std::string_view v) { return set_count(p.payload_bytes, "payload", v); }},
    {"range",
     [](MicroPoint& p, std::string_view v) -> Status {
       PMSTORE_TRY(p.range_bytes, parse_bytes(v));
       return {};
     }},
    {"clients",
     [](MicroPoint& p, std::string_view v) { return set_count(p.clients, "clients", v); }},
    {"connections",
     [](MicroPoint& p, std::string_view v) { return set_count(p.connections, "connections", v); }},
    {"window", [](MicroPoint& p, std::string_view v) { return set_count(p.window, "window", v); }},
    {"batch", [](MicroPoint& p, std::string_view v) { return set_count(p.batch, "batch", v); }},
    {"server-threads",
     [](MicroPoint& p, std::string_view v) {
       return set_count(p.server_threads, "server-threads", v);
     }},
    {"rules",
     [](MicroPoint& p, std::string_view v) -> Status {
       PMSTORE_TRY(const persist::RuleChoice choice, persist::parse_rules(v));
       p.rules = choice.on;
       p.named_rules = choice.named;
       return {};
     }},
    {"strategy", [](MicroPoint& p,
                    std::string_view v) { return take(p.strategy, persist::parse_strategy(v)); }},
    {"persistent",
     [](MicroPoint& p, std::string_view v) {
       return take(p.persistent, parse_switch("persistent", v));
     }},
    {"single-dimm",
     [](MicroPoint& p, std::string_view v) {
       return take(p.single_dimm, parse_switch("single-dimm", v));
     }},
    {"ddio",
     [](MicroPoint& p, std::string_view v) -> Status {
       PMSTORE_TRY(p.ddio, parse_switch("ddio", v));
       return {};
     }},
};

const Parameter* find_parameter(std::string_view name) {
  const auto found = std::find_if(std::begin(kParameters), std::end(kParameters),
                                  [&](const Parameter& each) { return each.name == name; });
  return found == std::end(kParameters) ? nullptr : found;
}

Error unknown(std::string_view name) {
  std::string names;
  for (const Parameter& each : kParameters) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", each.name);
  }
  return invalid_argument(fmt::format("there is no parameter '{}': use one of {}", name, names));
}

}  // namespace

Status set_parameter(MicroPoint& point, std::string_view name, std::string_view value) {
  const Parameter* const parameter = find_parameter(name);
  if (parameter == nullptr) return unknown(name);
  return parameter->set(point, value);
}

Result<MicroAxis> parse_axis(std::string_view text) {
  const size_t equals = text.find('=');
  MicroAxis axis{std::string(text.substr(0, equals)), {}};
  if (find_parameter(axis.name) == nullptr) return unknown(axis.name);
  if (equals == std::string_view::npos) {
    if (axis.name != "payload") {
      return invalid_argument(fmt::format(
          "sweep of {}: say over which values, for instance {}=VALUE,VALUE", axis.name, axis.name));
    }
    for (uint32_t bytes = 8; bytes <= 65536; bytes *= 2)
      axis.values.push_back(std::to_string(bytes));
    return axis;
  }
  std::string_view rest = text.substr(equals + 1);
  // Rules have commas of their own.
  const char separator =
      axis.name == "rules" || rest.find(';') != std::string_view::npos ? ';' : ',';
  MicroPoint scratch;
  for (bool more = true; more;) {
    const size_t end = rest.find(separator);
    more = end != std::string_view::npos;
    std::string value(rest.substr(0, end));
    if (more) rest = rest.substr(end + 1);
    PMSTORE_TRY_STATUS(set_parameter(scratch, axis.name, value));
    if (std::find(axis.values.begin(), axis.values.end(), value) != axis.values.end()) {
      return invalid_argument(fmt::format("sweep of {}: {} is there twice", axis.name, value));
    }
    axis.values.push_back(std::move(value));
  }
  return axis;
}

bool is_numeric(const MicroAxis& axis) {
  return std::all_of(axis.values.begin(), axis.values.end(),
                     [](const std::string& value) { return parse_bytes(value).has_value(); });
}

Result<std::vector<MicroCase>> expand(const MicroPoint& base, const std::vector<MicroAxis>& axes) {
  std::vector<MicroCase> cases = {{"", "", "", base, ""}};
  for (size_t i = 0; i < axes.size(); ++i) {
    const MicroAxis& axis = axes[i];
    for (size_t before = 0; before < i; ++before) {
      if (axes[before].name == axis.name) {
        return invalid_argument(
            fmt::format("two sweeps of {}: give all its values to one", axis.name));
      }
    }
    std::vector<MicroCase> more;
    for (const MicroCase& each : cases) {
      for (const std::string& value : axis.values) {
        if (more.size() == kMostCases) {
          return invalid_argument(
              fmt::format("these sweeps make more than {} measurements", kMostCases));
        }
        MicroCase next = each;
        PMSTORE_TRY_STATUS(set_parameter(next.point, axis.name, value));
        next.group = each.name;
        next.x = value;
        next.name += fmt::format("{}{}={}", each.name.empty() ? "" : " ", axis.name, value);
        more.push_back(std::move(next));
      }
    }
    cases = std::move(more);
  }
  if (axes.empty()) cases.front().name = point_text(base);
  for (const MicroCase& each : cases) {
    PMSTORE_TRY_STATUS(check_point(each.point));
  }
  return cases;
}

namespace {

struct FactorStep {
  const char* name;
  Rules rules;
  const char* label;
};

void add_series(std::vector<MicroCase>& cases, const MicroPoint& base, Rules fixed, MicroSide side,
                uint32_t payload_bytes, const std::vector<FactorStep>& steps) {
  std::string group = fmt::format("{}-sided {} B", side_name(side), payload_bytes);
  const auto without_fixed = [&](Rules rules) {
    for (unsigned i = 1; i <= persist::kRules; ++i) {
      const Rule rule = static_cast<Rule>(i);
      if (fixed.has(rule)) rules = rules.without(rule);
    }
    return rules;
  };
  std::optional<Rules> last;
  for (const FactorStep& step : steps) {
    MicroCase one{"", group, step.name, base, step.label};
    one.name = fmt::format("{}: {}", group, step.name);
    one.point.op = MicroOp::kWrite;
    one.point.side = side;
    one.point.payload_bytes = payload_bytes;
    one.point.pattern = MicroPattern::kRandom;
    one.point.medium = MicroMedium::kNvm;
    one.point.rules = without_fixed(step.rules);
    one.point.named_rules = Rules::none();
    if (last && *last == one.point.rules) continue;
    last = one.point.rules;
    cases.push_back(std::move(one));
  }
}

}  // namespace

std::vector<MicroCase> factor_cases(const MicroPoint& base, Rules fixed) {
  const Rules none = Rules::none();
  const Rules h1 = none.with(Rule::kH1);
  const Rules h13 = h1.with(Rule::kH3);
  std::vector<MicroCase> cases;
  const FactorStep bare = {"none", none, "no rule"};
  const FactorStep near = {"+h1", h1, "+ h1: near socket"};
  const FactorStep no_ddio = {"+h3", h13, "+ h3: DDIO off"};
  const FactorStep wide = {"+h5", h13.with(Rule::kH5), "+ h5: 256-byte units"};
  const FactorStep narrow = {"h6 instead of h5", h13.with(Rule::kH6), "h6, not h5: 64-byte units"};
  const FactorStep streamed = {"+h7", h1.with(Rule::kH7), "+ h7: 64-byte units, streamed"};
  add_series(cases, base, fixed, MicroSide::kOneSided, 16, {bare, near, no_ddio, wide, narrow});
  add_series(cases, base, fixed, MicroSide::kOneSided, 2048, {bare, near, no_ddio, wide});
  add_series(cases, base, fixed, MicroSide::kTwoSided, 16, {bare, near, streamed});
  return cases;
}

}  // namespace pmstore::tools
