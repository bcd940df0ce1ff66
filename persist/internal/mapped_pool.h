// MappedPool: notes where a pool is mapped, for the handler of SIGBUS (persist/bus_errors.h).
//
// Threads: any; the handler may run at any moment. Beyond kMostMapped at a time a pool is not
// noted, and the handler does not name it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace pmstore::persist::internal {

class MappedPool {
 public:
  static constexpr size_t kMostMapped = 64;

  MappedPool() = default;
  MappedPool(std::span<const std::byte> mapping, const std::string& path);
  MappedPool(MappedPool&& other) noexcept;
  MappedPool& operator=(MappedPool&& other) noexcept;
  ~MappedPool();

  struct Found {
    const char* path;  // its beginning, when it is long
    uint64_t offset;
  };
  // Of the byte at `address`; a null path when it is no pool's. For signal handlers.
  static Found find(const void* address);

 private:
  static constexpr size_t kNone = SIZE_MAX;
  size_t place_ = kNone;
};

}  // namespace pmstore::persist::internal
