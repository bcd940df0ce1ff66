// TwoCopies<T>: a header that persistent memory holds twice, so that no crash loses it.
//
// Copy `generation % 2` of the header lies at `offset + generation % 2 * stride`. Each write raises
// the generation by one and so goes to the older copy: a write that a crash tears leaves the header
// before it. The valid copy with the higher generation is the header.
// T is a durable struct with the fields `uint64_t generation`, above 0 in a header that was
// written, and `uint32_t crc`. The caller computes the checksum; it covers the generation.
//
// Invariants: a valid copy lies where its generation says. Before a copy is overwritten the other
// copy is durable, which the caller proves with a Persisted.
// Threads: one writer. A read sees a torn copy at worst, which its checksum shows. The memory is
// borrowed; an object has no state of its own and may be made for a single call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "base/result.h"
#include "persist/memory.h"

namespace pmstore::persist {

namespace internal {

// The part of TwoCopies that does not depend on T.
class CopyPair {
 public:
  CopyPair(Memory& memory, uint64_t offset, uint64_t stride, size_t header_bytes);
  void load(size_t copy, void* header) const;
  bool is_blank(size_t copy) const;
  Result<Persisted> write(uint64_t generation, const void* header) const;
  static bool is_newer(uint64_t generation, uint64_t than);

 private:
  std::byte* copy_at(size_t copy) const { return memory_->at(offset_ + copy * stride_); }

  Memory* memory_;
  uint64_t offset_;
  uint64_t stride_;
  size_t header_bytes_;
};

}  // namespace internal

template <typename T>
class TwoCopies {
 public:
  static constexpr size_t kCopies = 2;
  // A copy with a higher generation is not valid: only a forger writes one, and no writer could go
  // on behind it.
  static constexpr uint64_t kMaxReadGeneration = UINT64_MAX - (uint64_t{1} << 32);

  // `offset` in `memory`; both it and `stride` are multiples of a cache line, so that the copies
  // share none.
  TwoCopies(Memory& memory, uint64_t offset, uint64_t stride)
      : pair_(memory, offset, stride, sizeof(T)) {}

  struct Found {
    T header;
    size_t copy;  // where it lies
    bool both_valid;
    bool copies_agree;  // both are valid and differ in nothing but generation and checksum
  };
  // The header; nullopt when neither copy is valid. `is_valid(header)` checks everything but the
  // generation, above all the checksum; it gives a bool, or an error that ends the reading, as for
  // a format that this program does not know.
  // What was read may be in the CPU's caches only, if the process that wrote it has died: before
  // the first write() the caller makes it durable.
  template <typename IsValid>
  Result<std::optional<Found>> read(IsValid is_valid) const {
    std::optional<Found> found;
    for (size_t copy = 0; copy < kCopies; ++copy) {
      T header;
      pair_.load(copy, &header);
      PMSTORE_TRY(const bool valid, Result<bool>(is_valid(header)));
      const bool possible = header.generation > 0 && header.generation <= kMaxReadGeneration;
      if (!valid || !possible || header.generation % kCopies != copy) continue;
      if (!found) {
        found = Found{header, copy, false, false};
        continue;
      }
      found->both_valid = true;
      found->copies_agree = same_content(header, found->header);
      if (!internal::CopyPair::is_newer(header.generation, found->header.generation)) continue;
      found->header = header;
      found->copy = copy;
    }
    return found;
  }

  // Are all bytes of this copy zero? So they are in a copy that was never written.
  bool is_blank(size_t copy) const { return pair_.is_blank(copy); }

  // Writes `header` as the next generation over the older copy; durable on return. On entry
  // `header.generation` is that of the newest copy; generation and crc, which is
  // `checksum(header)`, are set here; it may set other fields of a header that has more than one
  // checksum. `newest` proves that the newest copy, and everything that
  // `header` refers to, is durable. Io: drain(); then either header may be found later, and
  // `header` is as it was, so that it does not run ahead of what is durable.
  template <typename Checksum>
  Result<Persisted> write(Persisted /*newest*/, T& header, Checksum checksum) const {
    PMSTORE_CHECK(header.generation < UINT64_MAX, "the generation would start anew");
    return write_next(header, checksum);
  }
  // The same for a header that there is no valid copy of yet.
  template <typename Checksum>
  Result<Persisted> write_first(T& header, Checksum checksum) const {
    PMSTORE_CHECK(header.generation == 0,
                  "a later header would overwrite one that may not be lost");
    return write_next(header, checksum);
  }
  // Writes `header` into both copies, one after the other: then the loss of either loses nothing.
  template <typename Checksum>
  Result<Persisted> write_both(Persisted newest, T& header, Checksum checksum) const {
    PMSTORE_TRY(const Persisted first, write(newest, header, checksum));
    return write(first, header, checksum);
  }

 private:
  template <typename Checksum>
  Result<Persisted> write_next(T& header, Checksum checksum) const {
    T next = header;
    ++next.generation;
    next.crc = checksum(next);
    PMSTORE_TRY(const Persisted durable, pair_.write(next.generation, &next));
    header = next;
    return durable;
  }
  static bool same_content(const T& one, T other) {
    other.generation = one.generation;
    other.crc = one.crc;
    return std::memcmp(&one, &other, sizeof one) == 0;
  }

  internal::CopyPair pair_;
};

}  // namespace pmstore::persist
