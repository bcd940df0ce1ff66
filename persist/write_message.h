// The request of kPersistWriteMethod: what a client asks a server's CPU to store. docs/persist.md
// explains it. Little endian, no padding:
//
//   PersistWriteHeader | PersistWritePiece[pieces] | the bytes of each piece, one after the other
//
// A reply without payload says that all of it is durable.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pmstore::persist {

// The last byte is the version of this layout.
inline constexpr uint32_t kPersistWriteMagic = 0x57534d01;  // "MSW", 1
inline constexpr size_t kMaxPersistPieces = 16;

struct PersistWriteHeader {
  uint32_t magic;
  uint32_t pieces;  // 1 to kMaxPersistPieces
};
static_assert(sizeof(PersistWriteHeader) == 8);

struct PersistWritePiece {
  uint64_t offset;    // in the region that the client was granted
  uint32_t bytes;     // at least 1
  uint32_t reserved;  // 0
};
static_assert(sizeof(PersistWritePiece) == 16);
static_assert(offsetof(PersistWritePiece, bytes) == 8);

inline constexpr size_t kMaxPersistTableBytes =
    sizeof(PersistWriteHeader) + kMaxPersistPieces * sizeof(PersistWritePiece);

}  // namespace pmstore::persist
