// AliasedMemory: a large range of addresses with little memory behind it, the same pages again and
// again: a target whose contents do not matter, far larger than a modelled cache, that costs the
// real machine neither memory nor cache misses. Threads: as plain memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/result.h"

namespace pmstore::tools {

class AliasedMemory {
 public:
  static constexpr size_t kPieceBytes = size_t{4} << 20;

  // Io when the system has not that many addresses or mappings.
  static Result<std::unique_ptr<AliasedMemory>> create(size_t bytes);
  ~AliasedMemory();
  AliasedMemory(const AliasedMemory&) = delete;
  AliasedMemory& operator=(const AliasedMemory&) = delete;

  // Aligned to a page; at least the bytes asked for.
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  explicit AliasedMemory(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes_;
};

}  // namespace pmstore::tools
