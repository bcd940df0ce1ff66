// Padding and alignment plans (rules H5, H6, H7): how many bytes a write should occupy, and where.
//
// CPU and PCIe move 64 B, 3D XPoint media moves 256 B. A write of less than, or not aligned to, the
// mover's unit becomes a read-modify-write.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pmstore::persist {

inline constexpr size_t kLineBytes = 64;     // CPU cache line, PCIe and iMC unit
inline constexpr size_t kXpLineBytes = 256;  // media unit

constexpr uint64_t round_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}
constexpr uint64_t round_down(uint64_t value, uint64_t unit) { return value / unit * unit; }

// As round_up() for powers of two, without a division, which takes longer than all else that places
// an entry.
constexpr uint64_t round_up_to_power(uint64_t value, uint64_t power) {
  return (value + power - 1) & ~(power - 1);
}

// Each rule can be switched off alone, so that its effect can be measured. A pool records which of
// them its writers follow (PoolOpenOptions::padding).
struct PaddingRules {
  bool xp_line = true;         // H5: at least 256 B -> 256 B units
  bool one_sided_line = true;  // H6: one-sided, below 256 B -> 64 B units
  bool two_sided_line = true;  // H7: two-sided, below 256 B -> 64 B units

  // The form in pool headers and handshakes: one bit for each rule that is off, 1 for H5, 2 for H6,
  // 4 for H7. So 0 means all rules; pools and servers that do not know of the field have 0 there.
  static constexpr uint32_t kOffBits = 7;
  constexpr uint8_t off_bits() const {
    return static_cast<uint8_t>((xp_line ? 0 : 1) | (one_sided_line ? 0 : 2) |
                                (two_sided_line ? 0 : 4));
  }
  // Bits that mean no rule are ignored; whoever reads the bits has to refuse them.
  static constexpr PaddingRules from_off_bits(uint32_t bits) {
    return {(bits & 1) == 0, (bits & 2) == 0, (bits & 4) == 0};
  }
  constexpr bool operator==(const PaddingRules&) const = default;
};

// The unit that a write of `bytes` is aligned and padded to; 8 when the rule for it is off.
// A power of two.
constexpr size_t padding_unit(size_t bytes, bool one_sided, const PaddingRules& rules = {}) {
  if (bytes >= kXpLineBytes) return rules.xp_line ? kXpLineBytes : 8;
  return (one_sided ? rules.one_sided_line : rules.two_sided_line) ? kLineBytes : 8;
}

constexpr size_t padded_bytes(size_t bytes, bool one_sided, const PaddingRules& rules = {}) {
  return round_up_to_power(bytes == 0 ? 1 : bytes, padding_unit(bytes, one_sided, rules));
}

}  // namespace pmstore::persist
