// Placement: which memory of a modelled host an address is in.
//
// Addresses of the process differ from run to run, so the model reckons with model addresses: each
// range that is placed gets the next free model address of its host (aligned to 1 MiB), and an
// address inside it keeps its offset. What was never placed is DRAM of socket 0. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

namespace pmstore::model {

enum class Medium : uint8_t { kDram, kNvm };

struct Place {
  uint64_t address = 0;  // model address
  Medium medium = Medium::kDram;
  uint32_t socket = 0;
};

class Placement {
 public:
  // Ranges do not overlap (CHECK). Placing a range that is placed already, exactly, changes its
  // medium and socket.
  void place(std::span<const std::byte> range, Medium medium, uint32_t socket);
  void remove(std::span<const std::byte> range);
  // Is any byte of `range` placed?
  bool overlaps(std::span<const std::byte> range) const;
  // A part of a placed range may be asked for.
  Place find(const void* address) const;

 private:
  struct Range {
    uint64_t bytes;
    Place first;
  };
  std::map<uintptr_t, Range> ranges_;  // by address in the process
  uint64_t next_ = 1u << 20;
};

}  // namespace pmstore::model
