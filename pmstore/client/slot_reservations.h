// SlotReservations: the slots that one commit under lock discipline rnic has reserved.
//
// A write that creates a record, or that no longer fits the record's slot, needs a new slot. The
// server's CPU reserves it: the slot is locked for this session until the commit is applied or
// release() gives the slot back. Threads: the executor's. Borrows items and session.
#pragma once

#include "base/result.h"
#include "base/task.h"
#include "pmstore/client/client_session.h"
#include "pmstore/client/item_set.h"
#include "pmstore/client/scan_reads.h"

namespace pmstore::internal {

class SlotReservations {
 public:
  SlotReservations(TxId id, ItemSet& items, const ScanReads& scanned, ClientSession& session)
      : id_(id), items_(items), scanned_(scanned), session_(session) {}

  // Reserves a slot for each write that needs one, and records it in the item. Conflict: another
  // transaction changed the key. AlreadyExists: an insert's key is there. Full, UnknownTable, and
  // errors of the connection. After an error some slots may be reserved: call release().
  base::Task<Status> reserve();
  // Gives all reserved slots back. Drops the session when the server does not answer: its end
  // releases them. CHECK: any().
  base::Task<void> release();
  bool any() const;

 private:
  base::Task<Status> reserve_one(TxItem& item);

  const TxId id_;
  ItemSet& items_;
  const ScanReads& scanned_;
  ClientSession& session_;
};

}  // namespace pmstore::internal
