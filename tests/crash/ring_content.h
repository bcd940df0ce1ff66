// The content of a ring, as the oracles of the ring runs compare it; and a process that starts on a
// ring.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "log/ring.h"
#include "persist/memory.h"
#include "tests/crash/recorded_run.h"

namespace pmstore::crash {

inline constexpr uint64_t kRingBytes = log::kMinRingBytes;
inline constexpr uint32_t kRingSalt = 99;
inline constexpr size_t kRingWorkBytes = 100;  // payload of what RestartedRing::work() appends

struct RingContent {
  struct Entry {
    uint64_t sequence;
    uint64_t checksum;  // of the payload
    uint64_t bytes;
  };
  bool ring = false;     // false: there is none
  bool damaged = false;  // a walk says so
  uint64_t owner = 0;
  uint64_t expired_below_sequence = 0;
  std::vector<Entry> entries;

  void append(uint64_t sequence, std::span<const std::byte> payload);
  // Keeps the last ones.
  void truncate(size_t kept) {
    entries.erase(entries.begin(), entries.end() - static_cast<ptrdiff_t>(kept));
  }
  uint64_t digest() const;
  std::string text() const;
};

// Different for each sequence.
std::vector<std::byte> ring_payload(uint64_t sequence, size_t bytes);

// Opens and walks. No ring, or a damaged one: then there is a content that says so; without a ring
// `ring` stays empty.
Result<RingContent> read_ring(persist::Memory& memory, std::optional<log::Ring>& ring);

// Recovery: what the walk has found is made durable. Work: takes the ring over for its owner and
// appends an entry; where there is no ring, formats one first. With a damaged ring nothing is done.
class RestartedRing final : public Restarted {
 public:
  RestartedRing(std::span<std::byte> memory, persist::Domain domain)
      : memory_(memory, {.domain = domain}) {}
  std::vector<persist::Memory*> memories() override { return {&memory_}; }
  Result<uint64_t> recover() override;
  Result<uint64_t> work() override;

 private:
  persist::Memory memory_;
  std::optional<log::Ring> ring_;
  RingContent content_;
};

}  // namespace pmstore::crash
