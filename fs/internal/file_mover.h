// FileMover: moves what files have at one data server to the others, one extent after the other,
// while the files are in use.
//
// Threads: one executor's. Lifetimes: core and maps outlive it; its tasks are the core's.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/task.h"
#include "fs/internal/file_maps.h"
#include "fs/internal/namespace_core.h"

namespace pmstore::fs::internal {

class FileMover {
 public:
  FileMover(NamespaceCore& core, FileMaps& maps) : core_(core), maps_(maps) {}

  // Gives how many extents there were. An error of one file does not keep others from being moved;
  // the first one is given.
  base::Task<PosixResult<uint64_t>> move_all(uint16_t server);

 private:
  struct Place {
    Ino ino{};
    uint64_t file_offset = 0;
    uint64_t bytes = 0;
  };
  struct Page {
    std::vector<Place> places;
    std::string next;  // the key to go on with
    bool is_last = false;
  };
  base::Task<PosixResult<Page>> find(uint16_t server, std::string from);
  base::Task<PosixStatus> move(uint16_t server, Place place);

  NamespaceCore& core_;
  FileMaps& maps_;
};

}  // namespace pmstore::fs::internal
