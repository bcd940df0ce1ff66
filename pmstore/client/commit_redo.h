// CommitRedo: the redo record of one commit under lock discipline rnic, and the commit phase that
// follows from it.
//
// The order of one commit: check_limits(), build() while all locks are held, append(), which is the
// commit point, then the commit phase: post_in_place(), or the server applies the entry. The token
// of append() proves that the redo record is durable; nothing unlocks without it.
// Threads: the executor's. Borrows everything that it is given.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/task.h"
#include "persist/memory.h"
#include "pmstore/client/client_session.h"
#include "pmstore/client/item_set.h"
#include "pmstore/client/participant.h"
#include "pmstore/client/redo_ring.h"
#include "pmstore/client/transaction_numbers.h"

namespace pmstore::internal {

class CommitRedo {
 public:
  CommitRedo(TxId id, const ItemSet& items, Participant& participant, TransactionNumbers& numbers)
      : id_(id),
        items_(items),
        storage_(participant.redo),
        session_(*participant.session),
        numbers_(numbers) {}

  // TooLarge: more records than one buffer has words for, or a redo record over half of the ring.
  Status check_limits() const;
  // Full: a record that is written has the highest version that there is. To be called when the
  // versions are locked.
  Status check_versions() const;
  // Builds the redo record and, where the client may write in place, the batch of the commit phase
  // in `buffer`.
  void build(OpBuffer& buffer);
  // Durable on success: the transaction is committed. Waits for room in the ring. CommitUnknown:
  // the record may be durable; the session is dropped. TooLarge, Timeout: nothing was written.
  // CHECK: build() came before.
  base::Task<Result<RedoRing::Appended>> append();

  // The commit phase is one doorbell, which build() has planned in the buffer.
  bool in_place() const { return in_place_; }
  // Writes the records in place and unlocks them. Takes the proof that the redo record is durable.
  // Completes through the buffer's completion. CHECK: in_place().
  base::Task<Status> post_in_place(persist::Persisted logged, OpBuffer& buffer);
  // The server's index changes: a key appears, moves or goes.
  bool changes_index() const;

 private:
  // Plans the WRITE of one record image; false where the batch or the buffer has no room for it.
  bool plan_write(OpBuffer& buffer, const TxItem& item, std::span<const std::byte> image,
                  uint32_t& image_offset);
  void plan_unlocks(OpBuffer& buffer);

  TxId id_;
  const ItemSet& items_;
  std::vector<std::byte>& storage_;
  ClientSession& session_;
  TransactionNumbers& numbers_;
  std::span<const std::byte> payload_;  // empty before build()
  bool in_place_ = false;
};

}  // namespace pmstore::internal
