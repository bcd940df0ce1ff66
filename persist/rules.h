// Rules: the nine rules H1 to H9 of writing to persistent memory over RDMA, each on or off by name,
// so that the effect of each can be measured.
//
//   rules  = ("all" | "none") *("," change)
//   change = ("+" | "-") "h" DIGIT          for instance  all   none   all,-h3   none,+h1,+h6
//
// What a rule means is up to who applies it; docs/bench.md says it for the benchmarks, and
// persist/padding.h has the arithmetic of H5, H6 and H7.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "persist/padding.h"

namespace pmstore::persist {

enum class Rule : uint8_t {
  kH1 = 1,  // no access to persistent memory of another socket
  kH2,      // a bounded number of CPU writers on a DIMM
  kH3,      // DDIO off for large one-sided writes
  kH4,      // non-temporal stores for large CPU writes
  kH5,      // writes of 256 bytes and more: aligned and padded to 256
  kH6,      // one-sided writes below 256 bytes: aligned and padded to 64
  kH7,      // two-sided writes below 256 bytes: the same, with non-temporal stores
  kH8,      // no atomics on persistent memory
  kH9,      // a persistent one-sided write is one post with one doorbell
};
inline constexpr unsigned kRules = 9;

class Rules {
 public:
  static constexpr Rules all() { return Rules(((1u << kRules) - 1) << 1); }
  static constexpr Rules none() { return Rules(0); }

  constexpr bool has(Rule rule) const { return (bits_ & bit(rule)) != 0; }
  constexpr Rules with(Rule rule) const { return Rules(bits_ | bit(rule)); }
  constexpr Rules without(Rule rule) const { return Rules(bits_ & ~bit(rule)); }
  // With H5, H6 and H7 as `padding` has them.
  constexpr Rules with_padding(const PaddingRules& padding) const {
    Rules rules = without(Rule::kH5).without(Rule::kH6).without(Rule::kH7);
    if (padding.xp_line) rules = rules.with(Rule::kH5);
    if (padding.one_sided_line) rules = rules.with(Rule::kH6);
    if (padding.two_sided_line) rules = rules.with(Rule::kH7);
    return rules;
  }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool operator==(const Rules&) const = default;

  constexpr PaddingRules padding() const {
    return {has(Rule::kH5), has(Rule::kH6), has(Rule::kH7)};
  }

 private:
  static constexpr uint16_t bit(Rule rule) { return uint16_t(1u << static_cast<unsigned>(rule)); }
  constexpr explicit Rules(unsigned bits) : bits_(static_cast<uint16_t>(bits)) {}
  uint16_t bits_;
};

struct RuleChoice {
  Rules on = Rules::all();
  // Those that were switched by name: whoever cannot apply one of these has to refuse it.
  Rules named = Rules::none();
};

// InvalidArgument, saying how it is written, for anything else, and for a rule that is named twice.
Result<RuleChoice> parse_rules(std::string_view text);
// The rules of a pool, of which H5, H6 and H7 can be switched: a pool keeps them for all of its
// writers (PoolOpenOptions::padding). The others hold: "none" leaves them alone. InvalidArgument as
// parse_rules(), and for another rule that is named.
Result<Rules> parse_pool_rules(std::string_view text);
// The shortest text that parses to `rules`: "all,-h3".
std::string rules_text(Rules rules);
// "h3"
std::string rule_name(Rule rule);
// Half a line for people: "DDIO off".
std::string_view rule_summary(Rule rule);

}  // namespace pmstore::persist
