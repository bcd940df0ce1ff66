// OwnedPoolFile: a file or DAX device opened to be used: a descriptor and a shared mapping that can
// be written, and an exclusive lock. PoolFile is the one that only looks; each keeps the other out.
//
// The mapping begins at a multiple of 2 MiB, so that the kernel can use large pages, and is made
// with MAP_SYNC where the medium has it: then no store waits for metadata of a file system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/file_descriptor.h"
#include "base/result.h"
#include "persist/internal/mapped_pool.h"
#include "persist/internal/pool_file.h"

namespace pmstore::persist::internal {

class OwnedPoolFile {
 public:
  OwnedPoolFile() = default;
  // `file` is what it can be opened by now, `path` what it is called. Io (does not exist, no
  // permission), Busy, BadPool (empty, or not a file or DAX device).
  static Result<OwnedPoolFile> open(const std::string& file, const std::string& path);
  OwnedPoolFile(OwnedPoolFile&& other) noexcept;
  OwnedPoolFile& operator=(OwnedPoolFile&& other) noexcept;
  ~OwnedPoolFile();

  std::span<std::byte> bytes() const { return mapping_; }
  const MediumFacts& facts() const { return facts_; }
  int descriptor() const { return fd_.get(); }
  // The pages between the two places are no memory of this process until they are next touched;
  // what is in them stays.
  void forget_pages(uint64_t begin, uint64_t end) const;
  // The lock stays until the process ends.
  void keep_locked() { static_cast<void>(fd_.release()); }

 private:
  FileDescriptor fd_;
  MediumFacts facts_{};
  std::span<std::byte> mapping_;
  MappedPool mapped_;
};

}  // namespace pmstore::persist::internal
