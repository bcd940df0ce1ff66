// RpcSpace: hands out pieces of a ring in first-in, first-out order; frees come in any order.
//
// An RPC client has two: for the request ring in the server's memory and for its own reply arena.
// Pieces are contiguous: a piece that does not fit before the end begins at the start. A piece that
// stays in use delays the reuse of all later pieces. One thread.
//
// Invariants:
//   pieces_ is a ring buffer of the pieces in allocation order; its front is in use
//   used_units_ <= total_units_ counts the taken units, skipped ones included: those from the
//   start of the oldest piece to next_unit_, around the end
//   without pieces next_unit_ is 0, so that a single caller stays in the same cache lines
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "fabric/rpc_layout.h"

namespace pmstore::fabric::internal {

class RpcSpace {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Piece {
    uint32_t index;   // for free(); kNone: no room now
    uint32_t offset;  // bytes
    uint32_t undo_unit;
  };

  // Empties it. At most `max_pieces` are taken at a time. `bytes` is a multiple of kRpcUnit.
  void reset(uint32_t bytes, uint32_t max_pieces);

  // Half of the ring, so that an empty ring always has room.
  uint32_t max_piece_bytes() const { return total_units_ / 2 * kRpcUnit; }

  Piece allocate(uint32_t bytes) {
    const uint32_t units = (bytes + kRpcUnit - 1) / kRpcUnit;
    PMSTORE_CHECK(units <= total_units_ / 2, "a larger piece might never find room");
    if (count_ == pieces_.size()) return {kNone, 0, 0};
    uint32_t start = next_unit_;
    uint32_t skipped = 0;
    if (start + units > total_units_) {
      skipped = total_units_ - start;
      start = 0;
    }
    if (used_units_ + skipped + units > total_units_) return {kNone, 0, 0};
    const Piece piece{wrap(first_ + count_), start * kRpcUnit, next_unit_};
    pieces_[piece.index] = {skipped + units, false};
    ++count_;
    used_units_ += skipped + units;
    next_unit_ = start + units;
    return piece;
  }

  // Takes back the allocation just made.
  void undo(const Piece& piece) {
    PMSTORE_CHECK(count_ > 0 && piece.index == wrap(first_ + count_ - 1),
                  "only the last is undone");
    used_units_ -= pieces_[piece.index].units;
    next_unit_ = piece.undo_unit;
    --count_;
  }

  void free(uint32_t index) {
    PMSTORE_CHECK(count_ > 0 && !pieces_[index].freed, "a piece is freed once");
    pieces_[index].freed = true;
    while (count_ > 0 && pieces_[first_].freed) {
      PMSTORE_CHECK(used_units_ >= pieces_[first_].units, "the units of a piece are taken");
      used_units_ -= pieces_[first_].units;
      first_ = wrap(first_ + 1);
      --count_;
    }
    if (count_ > 0) return;
    PMSTORE_CHECK(used_units_ == 0, "only pieces take units");
    next_unit_ = 0;
  }

  uint32_t used_bytes() const { return used_units_ * kRpcUnit; }

 private:
  struct Taken {
    uint32_t units;  // with what was skipped before it
    bool freed;
  };
  uint32_t wrap(size_t index) const { return static_cast<uint32_t>(index & (pieces_.size() - 1)); }

  uint32_t total_units_ = 0;
  uint32_t next_unit_ = 0;
  uint32_t used_units_ = 0;
  size_t first_ = 0;
  size_t count_ = 0;
  std::vector<Taken> pieces_;  // a power of two
};

}  // namespace pmstore::fabric::internal
