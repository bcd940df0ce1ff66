// RangeScan: pages of an ordered table's records, in the order of their keys.
//
// A page tells which leaves it has seen, with their versions, and the slot and version of each
// record. If they are the same at a later moment, then so is the page: no key of its range has
// appeared, vanished or changed. A page is of one moment.
// Threads: the server's; the records borrowed must outlive it.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "pmstore/layout/protocol.h"
#include "pmstore/shard/ordered_index.h"
#include "pmstore/shard/record_store.h"

namespace pmstore::internal {

class RangeScan {
 public:
  explicit RangeScan(const RecordStore& records) : records_(records) {}

  // Where the records of a page go.
  class Page {
   public:
    virtual ~Page() = default;
    // The views end with the call.
    virtual void add(const RangeItem& item, std::string_view key, std::string_view value) = 0;
  };
  // What a page says beside its records.
  struct Head {
    std::vector<LeafSeen> leaves;
    uint32_t records = 0;
    bool more = false;  // the range goes on behind the last record
  };
  // The first records of the range, at most RangeScanRequest::most_records, and max_bytes as a
  // reply would have them. The first one may take more, up to `most_bytes`: else a large record
  // would end every scan. Errors: UnknownTable; InvalidArgument: the table is not ordered, or no
  // record is asked for; Conflict: a transaction changes a leaf or a record of the page; Damaged;
  // TooLarge: not even one record has room. The page is of no use then.
  Result<Head> page(const RangeScanRequest& request, OrderedIndex::Range range, uint64_t most_bytes,
                    Page& page) const;
  // The same as a reply, which fills `room`; gives its size.
  Result<size_t> page(const RangeScanRequest& request, OrderedIndex::Range range,
                      std::span<std::byte> room) const;

 private:
  const RecordStore& records_;
};

}  // namespace pmstore::internal
