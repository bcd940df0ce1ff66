// CheckpointWriter: writes the sections of a checkpoint (pmstore/layout/checkpoint_layout.h).
//
// The parts of a store put what they know into sections of their own; the writer knows nothing of
// them but name and bytes. It runs twice: first without an extent, to learn how large the
// checkpoint is, then into the extent, with the same sections.
// Invariants: a block that is written is full, or the last one of its section; nothing is written
// behind `bytes()`. Threads: one. The memory is borrowed.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "persist/memory.h"
#include "persist/persisted.h"
#include "pmstore/layout/checkpoint_layout.h"

namespace pmstore::internal {

class CheckpointWriter {
 public:
  // Of which state of the catalog the checkpoint is.
  struct Identity {
    uint64_t pool;
    uint64_t epoch;
    uint64_t generation;
  };

  // Stores nothing: for bytes().
  explicit CheckpointWriter(const Identity& identity) : CheckpointWriter(nullptr, 0, identity) {}
  // Stores to `memory` from `offset` on, where there is room for bytes().
  CheckpointWriter(persist::Memory& memory, uint64_t offset, const Identity& identity)
      : CheckpointWriter(&memory, offset, identity) {}

  // What is put from here on belongs to this section. CHECK: the name is short enough.
  void begin_section(std::string_view name, uint32_t part = 0);
  void put(const void* from, size_t bytes) {
    if (bytes == 0) return;  // an empty list may have no address
    if (bytes <= kCheckpointBlockBytes - filled_) [[likely]] {
      std::memcpy(block_.data() + filled_, from, bytes);
      filled_ += bytes;
      return;
    }
    put_over_blocks(static_cast<const std::byte*>(from), bytes);
  }
  template <typename T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    put(&value, sizeof(value));
  }

  // Ends the last section and writes the directory, then, when all of that is durable, the header.
  // Durable on return; without an extent nothing is. Io.
  Status finish();
  // After finish(): of the whole checkpoint.
  uint64_t bytes() const { return position_; }

 private:
  CheckpointWriter(persist::Memory* memory, uint64_t offset, const Identity& identity);
  void put_over_blocks(const std::byte* from, size_t bytes);
  void end_block();
  void end_section();
  std::vector<std::byte> directory() const;
  // `content` proves that all but the header is durable.
  Status write_header(persist::Persisted content, CheckpointHeader header);

  persist::Memory* memory_;  // nullptr: only counts
  uint64_t offset_;          // of the extent
  Identity identity_;
  std::vector<std::byte> block_;
  size_t filled_ = 0;                             // of block_
  uint64_t position_ = sizeof(CheckpointHeader);  // in the extent, of the present block
  std::vector<CheckpointSection> sections_;
  std::vector<uint64_t> sums_;
};

}  // namespace pmstore::internal
