// SlabHeaderReads: both copies of the headers of slabs, one header at a time, for a start.
//
// Of a pool in a file they are read from the file. That costs less than a page of each slab in the
// mapping, and than the question where the file has holes, and an error of the medium is an error
// here. Threads: one. Memory and pool are borrowed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "persist/file_reads.h"
#include "persist/memory.h"
#include "persist/padding.h"
#include "persist/pool.h"
#include "persist/two_copies.h"
#include "pmstore/layout/slab_layout.h"

namespace pmstore::internal {

class SlabHeaderReads {
 public:
  // `memory` is that of `pool`.
  SlabHeaderReads(persist::Memory& memory, const persist::Pool& pool)
      : memory_(memory), file_(persist::FileReads::of(pool)) {}

  // Reading the header of a slab that was never used makes no page of a hole.
  bool leaves_holes() const { return file_ != nullptr; }
  // Of slab `chunk`, whose header lies at `offset` of the pool; good until the next call. Io.
  Result<persist::TwoCopies<SlabHeader>> at(uint32_t chunk, uint64_t offset) {
    if (file_ == nullptr) return persist::TwoCopies<SlabHeader>(memory_, offset, kSlabCopyBytes);
    const Status read = file_->read(offset, bytes_);
    if (!read) {
      return make_error(read.code(), "the headers of slab " + std::to_string(chunk) +
                                         " cannot be read: " + read.error().message +
                                         "; restore the pool from a backup if that stays so");
    }
    return persist::TwoCopies<SlabHeader>(copies_, 0, kSlabCopyBytes);
  }

 private:
  persist::Memory& memory_;
  const persist::FileReads* file_;
  alignas(persist::kLineBytes) std::array<std::byte, 2 * kSlabCopyBytes> bytes_{};
  persist::Memory copies_{bytes_, {.domain = persist::Domain::kCpuCache}};
};

}  // namespace pmstore::internal
