// Placement: the medium and socket of each address of a modelled host.
//
// Addresses of the process differ from run to run, so the model computes with model addresses: each
// range that is placed gets the next free model address of its host (aligned to 1 MiB), and an
// address inside it keeps its offset. An address outside all ranges is DRAM of socket 0. Threads:
// one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

namespace pmstore::model {

enum class Medium : uint8_t { kDram, kNvm };

// The answer for one address.
struct Location {
  uint64_t address = 0;  // model address
  Medium medium = Medium::kDram;
  uint32_t socket = 0;
};

class Placement {
 public:
  // Places `range`. Ranges do not overlap (CHECK); placing exactly the same range again changes its
  // medium and socket.
  void place(std::span<const std::byte> range, Medium medium, uint32_t socket);
  void remove(std::span<const std::byte> range);
  // Whether any byte of `range` is placed.
  bool overlaps(std::span<const std::byte> range) const;
  // The location of any byte of a placed range.
  Location find(const void* address) const;

 private:
  struct Range {
    uint64_t bytes;
    Location first;
  };
  std::map<uintptr_t, Range> ranges_;  // by address in the process
  uint64_t next_ = 1u << 20;
};

}  // namespace pmstore::model
