// FileReads: a pool in a file whose bytes can be read with none of its pages becoming resident.
//
// To look at much of a pool once, through its mapping, costs an entry in the page table for each
// page. Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "persist/pool.h"

namespace pmstore::persist {

class FileReads {
 public:
  virtual ~FileReads() = default;
  // nullptr: `pool` is a device or memory of the process itself; its mapping shows the bytes.
  static const FileReads* of(const Pool& pool) {
    const auto* const file = dynamic_cast<const FileReads*>(&pool);
    return file != nullptr && file->is_file() ? file : nullptr;
  }

  // Copies what the mapping shows from `offset` on, as far as `to` is long. Io: the file ends
  // before, or the medium has an error there, which ends a process that uses the mapping.
  virtual Status read(uint64_t offset, std::span<std::byte> to) const = 0;

 protected:
  virtual bool is_file() const = 0;
};

}  // namespace pmstore::persist
