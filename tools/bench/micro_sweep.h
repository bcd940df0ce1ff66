// Sweeps: the parameters of a MicroPoint by name, and lists of points made from lists of values.
//
//   axis = NAME "=" value *( separator value )      separator: "," or, if there is one, ";"
//
// `payload` alone stands for the powers of two from 8 to 65536.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/bench/micro_point.h"

namespace pmstore::tools {

struct MicroAxis {
  std::string name;
  std::vector<std::string> values;
};

// One point of a list: the measurement, and its difference from the others.
struct MicroCase {
  std::string name;   // "side=two payload=64"
  std::string group;  // the same without the last axis
  std::string x;      // the value of the last axis
  MicroPoint point;
  std::string label;  // what a picture calls x; empty: x
};

// InvalidArgument, naming the valid ones, for an unknown name or value. Not checked: whether the
// whole makes sense.
Status set_parameter(MicroPoint& point, std::string_view name, std::string_view value);
// InvalidArgument likewise, also for no value or one twice.
Result<MicroAxis> parse_axis(std::string_view text);
// Every combination; the last axis changes fastest. Without an axis, `base` alone. InvalidArgument
// of check_point(), for an axis named twice, and for more than kMostCases.
Result<std::vector<MicroCase>> expand(const MicroPoint& base, const std::vector<MicroAxis>& axes);
inline constexpr size_t kMostCases = 10'000;

// Whether the values of this axis are numbers.
bool is_numeric(const MicroAxis& axis);

// The cumulative factor analysis: three series of rule sets, as in the published analysis of remote
// writes to persistent memory (docs/bench.md). `base` gives all but operation, side, payload,
// medium, pattern and rules. Rules in `fixed` are left out: those rows would be twice the same.
std::vector<MicroCase> factor_cases(const MicroPoint& base, persist::Rules fixed);

}  // namespace pmstore::tools
