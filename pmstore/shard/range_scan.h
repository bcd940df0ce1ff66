// RangeScan: pages of an ordered table's records, in the order of their keys.
//
// A page tells which leaves it has seen, with their versions, and the slot and version of each
// record. If they are the same at a later moment, then so is the page: no key of its range has
// appeared, vanished or changed.
// Threads: the server's; the records borrowed must outlive it.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "base/result.h"
#include "pmstore/layout/protocol.h"
#include "pmstore/shard/ordered_index.h"
#include "pmstore/shard/record_store.h"

namespace pmstore::internal {

class RangeScan {
 public:
  explicit RangeScan(const RecordStore& records) : records_(records) {}

  // Fills the answer to a RangeScanRequest into `room`; gives its size. The first record may take
  // more than the request's max_bytes: else a large record would end every scan. Errors:
  // UnknownTable; InvalidArgument: the table is not ordered; Conflict: a transaction changes a
  // leaf or a record of the page; Damaged; TooLarge: not even one record has room.
  Result<size_t> page(const RangeScanRequest& request, OrderedIndex::Range range,
                      std::span<std::byte> room) const;

 private:
  const RecordStore& records_;
};

}  // namespace pmstore::internal
