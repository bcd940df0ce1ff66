// ScanCursors: what a scan of several pages knows of records that the server moves meanwhile.
//
// A scan walks the slots upwards, and its cursor is a slot. It would miss a record that moves to a
// slot that it has passed. So a cursor has a number, too: that of the moves that have been. When
// records move and a cursor of the present number was given out, the number changes, and with it
// every such scan must begin again. Invariant: between the first and the last page of a scan that
// ends, no record was moved by the server.
//     cursor   = number (the upper 32 bits), slot / 64 (the lower ones); 0: begin or end of a scan
// Threads: the server's.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace pmstore::internal {

class ScanCursors {
 public:
  // Starts of one server have different seeds: a cursor from before a start counts no more.
  explicit ScanCursors(uint64_t seed);

  // The slot, divided by 64, at which the scan goes on; 0 of 0. Trimmed: records have moved since
  // the scan began.
  Result<uint64_t> position(uint64_t cursor);
  // The opposite. 0 of 0: the scan has ended.
  uint64_t cursor(uint64_t position);

  // The server moves records now.
  void records_move();

  // A scan would have to begin again if records were moved now.
  bool any_open() const { return open_; }
  // Pages of scans of several pages, so far.
  uint64_t pages() const { return pages_; }

 private:
  uint32_t number_;    // never 0
  bool open_ = false;  // a cursor with number_ was given out
  uint64_t pages_ = 0;
};

}  // namespace pmstore::internal
