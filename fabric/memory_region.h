// MemoryRegion: memory that a device may access, and the name by which a peer reaches it.
//
// The caller of Device::register_memory() owns the region. The memory is borrowed and outlives the
// region. Register few and large regions: each one is an entry in the RNIC's cache. Destroying a
// region withdraws the rights; requests that are under way end for certain only when the
// connections that could use the region are destroyed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace pmstore::fabric {

// The rights of peers. Local access is always allowed.
enum class Access : uint32_t {
  kLocal = 0,
  kRemoteRead = 1,
  kRemoteWrite = 2,
  kRemoteAtomic = 4,
};
constexpr Access operator|(Access a, Access b) {
  return static_cast<Access>(static_cast<uint32_t>(a) | static_cast<uint32_t>(b));
}
constexpr bool has(Access set, Access right) {
  return (static_cast<uint32_t>(set) & static_cast<uint32_t>(right)) != 0;
}

struct RemoteAddress {
  uint64_t address;
  uint64_t key;
};

// A region as the peer knows it; sent in handshakes. 24 bytes, little endian.
struct RemoteRegion {
  uint64_t address = 0;  // of the first byte, as peers name it
  uint64_t bytes = 0;
  uint64_t key = 0;

  RemoteAddress at(uint64_t offset) const { return {address + offset, key}; }
};
static_assert(sizeof(RemoteRegion) == 24);

class MemoryRegion {
 public:
  virtual ~MemoryRegion() = default;
  std::span<std::byte> bytes() const { return memory_; }
  const RemoteRegion& remote() const { return remote_; }
  Access access() const { return access_; }

 protected:
  MemoryRegion(std::span<std::byte> memory, Access access) : memory_(memory), access_(access) {}
  std::span<std::byte> memory_;
  Access access_;
  RemoteRegion remote_;
};

// A piece of a registered region, as source or destination of a work request.
struct LocalBuffer {
  std::byte* data;
  uint32_t bytes;
  const MemoryRegion* region;
};

}  // namespace pmstore::fabric
