// Buffers: the memory of one access to a file, in pieces that follow each other in the file.
//
// The list of pieces is borrowed, and so are the pieces. Threads: values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"

namespace pmstore::fs::internal {

template <typename Byte>
class Buffers {
 public:
  explicit Buffers(std::span<const std::span<Byte>> pieces) : pieces_(pieces) {
    for (const std::span<Byte> piece : pieces) bytes_ += piece.size();
  }
  uint64_t bytes() const { return bytes_; }

  // Calls `use` with each contiguous piece of this range, in order. Requires that it is inside.
  template <typename Use>
  void each(uint64_t offset, uint64_t bytes, Use use) const {
    PMSTORE_CHECK(offset <= bytes_ && bytes <= bytes_ - offset, "a part lies in its buffers");
    for (const std::span<Byte> piece : pieces_) {
      if (bytes == 0) return;
      if (offset >= piece.size()) {
        offset -= piece.size();
        continue;
      }
      const uint64_t here = std::min<uint64_t>(bytes, piece.size() - offset);
      use(piece.subspan(offset, here));
      bytes -= here;
      offset = 0;
    }
  }

 private:
  const std::span<const std::span<Byte>> pieces_;
  uint64_t bytes_ = 0;
};

using ReadBuffers = Buffers<std::byte>;
using WriteBuffers = Buffers<const std::byte>;

}  // namespace pmstore::fs::internal
