// OfiRegion: a region registered with libfabric, and the keys by which peers name it.
//
// In requests, libfabric's remote address is an offset into the region; this provider adds
// address_base(). A key contains the rights that it grants, because libfabric's shm target drops a
// forbidden request silently: the initiator checks the key itself, so that a mistake breaks its
// connection inline; the target checks all the same. Keys need not be secret: peers run as the same
// user and map each other's memory.
#pragma once

#include <rdma/fi_domain.h>

#include "base/result.h"
#include "fabric/internal/region_key.h"
#include "fabric/memory_region.h"
#include "fabric/ofi/internal/provider.h"

namespace pmstore::fabric::ofi {

using internal::address_base;

class OfiRegion final : public MemoryRegion {
 public:
  // InvalidArgument when the memory is empty or too large, Io when libfabric refuses.
  // Access::kRemoteAtomic is accepted without effect: Capabilities::atomics is kNone.
  static Result<std::unique_ptr<MemoryRegion>> create(const Provider& provider,
                                                      std::span<std::byte> memory, Access access);

 private:
  OfiRegion(std::span<std::byte> memory, Access access) : MemoryRegion(memory, access) {}
  FidPtr<fid_mr> mr_;
};

// A key: bits 63-62 the rights (kRemoteRead, kRemoteWrite), 61-16 the size in bytes, 15-0 a
// number that tells regions of equal size and rights apart.
inline constexpr uint64_t kGrantMaxBytes = (uint64_t{1} << 46) - 1;

constexpr uint64_t make_grant(Access access, uint64_t bytes, uint16_t number) {
  return uint64_t{static_cast<uint32_t>(access) & 3u} << 62 | bytes << 16 | number;
}
constexpr bool grant_permits(uint64_t grant, uint64_t offset, uint64_t bytes, Access right) {
  const uint64_t size = grant >> 16 & kGrantMaxBytes;
  return has(static_cast<Access>(grant >> 62), right) && offset <= size && bytes <= size - offset;
}

}  // namespace pmstore::fabric::ofi
