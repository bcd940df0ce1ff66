// The messages of the remote-access benchmark: hellos and the requests of its RPC methods. Little
// endian, no pointers. Both ends are of the same revision: a benchmark has no compatibility to
// keep, and the magic numbers change with the layout.
#pragma once

#include <cstddef>
#include <cstdint>

#include "fabric/memory_region.h"

namespace pmstore::tools {

inline constexpr uint32_t kMicroHelloMagic = 0x484d5002;
inline constexpr uint32_t kMicroAnswerMagic = 0x414d5003;
inline constexpr size_t kMostServerThreads = 64;

struct MicroHello {
  uint32_t magic;
  uint8_t medium;        // MicroMedium
  uint8_t two_sided;     // there will be RPCs, and `replies` is where their answers go
  uint8_t non_temporal;  // how the server's CPU stores
  uint8_t single_dimm;   // must be possible
  uint32_t ring_bytes;   // request ring wanted
  uint32_t calls;        // at a time
  uint64_t range_bytes;  // must be there
  fabric::RemoteRegion replies;
};
static_assert(sizeof(MicroHello) == 48);

struct MicroAnswer {
  uint32_t magic;
  uint32_t workers;  // server threads
  uint8_t domain;    // persist::Domain of the granted memory
  uint8_t landing;   // persist::WriteLanding
  uint8_t native_flush;
  uint8_t interleaved;    // which DIMM an address is on is known: 4 KiB stripes over six of them
  uint8_t ordinary_file;  // the granted memory is no persistent memory
  uint8_t reserved[3];
  fabric::RemoteRegion granted;
  fabric::RemoteRegion requests;       // with two_sided
  uint16_t ports[kMostServerThreads];  // of the workers, where the fabric has ports
};
static_assert(sizeof(MicroAnswer) == 192);

// RPC methods, beside persist::kPersistWriteMethod.
inline constexpr uint16_t kMicroStoreMethod = 0x0180;  // MicroRequest, data -> nothing
inline constexpr uint16_t kMicroLoadMethod = 0x0181;   // MicroRequest -> `bytes` bytes
inline constexpr uint16_t kMicroEchoMethod = 0x0182;   // anything -> nothing

struct MicroRequest {
  uint64_t offset;  // in the granted memory
  uint32_t bytes;
  uint32_t reserved;
};
static_assert(sizeof(MicroRequest) == 16);

}  // namespace pmstore::tools
