// StoreCalls: what a client has the CPU of its server do in transactions and reads.
//
// A session of a client sends a message for each (client/rpc_calls.h), or, where the server is in
// the client's process, calls the server (server/direct_calls.h). Errors are the server's; after
// Disconnected and Timeout it is not known whether the server has acted.
// Threads: the executor's. Lifetimes: what a call borrows is borrowed until its answer is there;
// a CommitView and what it names only until the call's first suspension.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/answer.h"
#include "base/result.h"
#include "pmstore/client.h"
#include "pmstore/layout/protocol.h"
#include "pmstore/record_page.h"
#include "pmstore/server/value_room.h"
#include "pmstore/shard/commit_view.h"
#include "pmstore/types.h"

namespace pmstore::internal {

// Records of an ordered table, and what a transaction must validate so that they are the same at
// its commit.
struct RangePage {
  std::vector<LeafSeen> leaves;
  std::vector<ReadCheck> checks;  // of the records
  RecordPage records;
  bool more = false;  // the range goes on behind the last record
};

class StoreCalls {
 public:
  virtual ~StoreCalls() = default;

  // False: the session is over, and every call is Disconnected.
  virtual bool connected() const = 0;

  // Commits a transaction of lock discipline cpu; only validates its reads when it writes nothing.
  // Durable on success. CommitUnknown: it may have committed.
  virtual base::Answer<Status> commit(const CommitView& request) = 0;

  // Finds the record of a key, and gives its value to `value`. FoundRecord::kNo: the key is absent.
  // kPlaceOnly, with the size of the value: it has more than `room` bytes, and was not given.
  // Conflict: the record is locked.
  virtual base::Answer<Result<GetReply>> get(TableId table, std::string_view key, uint32_t room,
                                             ValueRoom value) = 0;

  // The next calls of get() will ask for these keys.
  virtual void prefetch(TableId /*table*/, std::span<const std::string_view> /*keys*/) {}

  // A page of a table's records; `reply_bytes` bounds it like ScanRequest::max_bytes, and also its
  // first record. Errors as TableScan::page().
  virtual base::Answer<Result<ScanPage>> scan(const ScanRequest& request, uint32_t reply_bytes) = 0;

  // So many bytes of records are a page of an ordered table.
  virtual uint32_t range_page_bytes() const = 0;

  // A page of an ordered table's records; `reply_bytes` bounds it, also its first record. The
  // lengths of the bounds need not be in the request. Errors as RangeScan::page().
  virtual base::Answer<Result<RangePage>> range_scan(const RangeScanRequest& request,
                                                     const KeyRange& range,
                                                     uint32_t reply_bytes) = 0;
};

}  // namespace pmstore::internal
