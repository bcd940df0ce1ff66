// Line: the name of one cache line of 64 bytes of a modelled host: its model address, its medium
// and its socket. Plain value.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "model/placement.h"

namespace pmstore::model {

inline constexpr uint64_t kCacheLineBytes = 64;

class Line {
 public:
  static constexpr unsigned kBits = 46;  // of name()

  Line() = default;
  // The line that holds `address`, an address of `medium` and `socket`.
  Line(Medium medium, uint32_t socket, uint64_t address) {
    PMSTORE_CHECK(address >> 47 == 0 && socket < 16, "a line's name has 46 bits");
    name_ =
        address / kCacheLineBytes | uint64_t{medium == Medium::kNvm} << 41 | uint64_t{socket} << 42;
  }
  static Line from_name(uint64_t name) {
    Line line;
    line.name_ = name;
    return line;
  }

  uint64_t name() const { return name_; }
  uint64_t address() const { return (name_ & ((uint64_t{1} << 41) - 1)) * kCacheLineBytes; }
  Medium medium() const { return name_ >> 41 & 1 ? Medium::kNvm : Medium::kDram; }
  uint32_t socket() const { return static_cast<uint32_t>(name_ >> 42); }
  Line next() const { return from_name(name_ + 1); }

  bool operator==(const Line&) const = default;

 private:
  uint64_t name_ = 0;
};

}  // namespace pmstore::model
