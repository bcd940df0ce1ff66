// Transaction::State: one transaction: what it has read, what it wants to write, and its commit.
//
// Invariants: in each shard it works on one session, that of its first access there; once `over`,
// no item is added. Its memory is used again by later transactions of the client. Threads: the
// executor's.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/executor.h"
#include "pmstore/client.h"
#include "pmstore/client/client_session.h"
#include "pmstore/client/client_state.h"
#include "pmstore/client/commit_room.h"
#include "pmstore/client/item_set.h"
#include "pmstore/client/located.h"
#include "pmstore/client/participant.h"
#include "pmstore/client/scan_reads.h"
#include "pmstore/server/commit_end.h"
#include "pmstore/server/held_views.h"

namespace pmstore {

struct Transaction::State {
  using Item = internal::TxItem;
  using Ref = Transaction::Ref;

  explicit State(Client::State& client_state) : client(client_state) {}

  // Makes it empty, for the next transaction; keeps its memory. CHECK: nobody waits for its commit.
  void reset();
  bool unused() const {
    return participants.empty() && items.empty() && scanned.empty() && !over && holders == 0;
  }

  // Keeps this alive: the Transaction does, and each coroutine that works on it. After the last
  // holder it is the client's again.
  Ref hold() {
    ++holders;
    return Ref(this);
  }

  // Records a put, insert or erase. An error is kept for commit().
  void write(Item::Need need, Item::Leave leave, TableId table, std::string_view key,
             std::string_view value);
  // `Wanted`: GivesString, FillsBuffer or GivesView.
  template <typename Wanted>
  Task<Result<typename Wanted::Value>> get(TableId table, std::string_view key, Wanted wanted);

  // Look-ups of so many keys overlap.
  static constexpr size_t kKeysTogether = 16;
  // See Transaction::get_many().
  Task<Result<Values>> get_many(TableId table, std::span<const std::string_view> keys);
  // See Transaction::view().
  Task<Result<std::string_view>> view(TableId table, std::string_view key);

  // See Transaction::commit(). Holds `self`.
  static Task<Status> commit(Ref self) {
    State& state = *self;
    return state.commit_held(std::move(self));
  }

  // See Transaction::erase_range().
  static Task<Result<ErasedRange>> erase_range(Ref self, TransactionScan scan, TableId table,
                                               KeyRange range, uint32_t limit);

  // Latches the first failure: commit() returns it.
  void fail(Error why) {
    if (!failure) failure = std::move(why);
  }

  Client::State& client;
  unsigned holders = 0;
  internal::Participants participants;  // empty before the first access
  internal::ItemSet items;
  internal::ScanReads scanned;
  internal::HeldViews views;  // they end when the commit begins
  uint64_t viewing_since_ns = 0;
  std::optional<Error> failure;
  bool over = false;
  TxId id;
  internal::CommitEnd* awaited = nullptr;  // discipline rnic: of the coroutine that awaits commit()

  // The participant that holds a key: the first access there makes it one. Conflict when its
  // session is over.
  Task<Result<internal::Participant*>> bind();
  // The same where nothing must be waited for. nullptr: bind() does it, or has the error.
  internal::Participant* bind_at_once() {
    if (participants.empty()) {
      if (!client.connector.may_begin()) return nullptr;
      const internal::SessionRef& now = client.connector.session();
      return &participants.add(now->shard(), now);
    }
    internal::Participant& one = participants.only();
    return one.session->usable() && !one.session->may_have_ended() ? &one : nullptr;
  }
  // Error: this transaction gets no further view.
  Status may_view();
  static Error over_error();
  static Error stale_error();

  // ---- the steps of commit() ----

  // Has it a session, and all that its writes depend on? Else get_ready() waits for it.
  bool is_ready();
  Task<Status> get_ready();
  // Once it is ready: leaves out erases of what is not there.
  void drop_empty_erases();
  // What the reads say of the writes: AlreadyExists or NotFound, if they are still true.
  std::optional<ErrorCode> what_cannot_be() const;
  // Success: nothing has changed since it was read. Of the transaction alone a single read was
  // valid at one moment, and that moment is when the transaction happened.
  Task<Status> validate(bool alone = true);

 private:
  // What a commit of the present reads and writes would take, at most.
  internal::CommitRoom room_in_use() const;
  bool has_room(const internal::CommitRoom& room) const;
  // Remembers what was read. Conflict: the transaction has read something else there before.
  Status remember(TableId table, std::string_view key, KeyHash hash,
                  const internal::Located& located);

  Task<Status> commit_held(Ref self);
  bool needs_read(const Item& item) const;
  // Reads what the writes depend on and was not read yet.
  Task<Status> read_what_writes_need();
  using ManyKeys = std::span<const std::string_view>;
  // Each reads the keys of one part of get_many().
  Task<Status> get_in_turn(TableId table, ManyKeys keys, Values& values);
  Task<Status> get_together(TableId table, ManyKeys keys, Values& values);
  Task<void> get_one(TableId table, std::string_view key, std::optional<std::string>& value,
                     Status& done, base::WaitList& ended);
  // Waits for the end of the commit, which does not depend on this coroutine.
  Task<Status> commit_rnic();
  Task<void> run_rnic(Ref self);
};

}  // namespace pmstore
