// Transaction::State: what a transaction has read and wants to write, and how it commits.
//
// One item per key that was touched. An item's writes are kept as what they demand of the record
// (`need`) and what they leave behind (`leave`), so any sequence of put, insert and erase of one
// key is one write at commit. Control: transaction.cc. Commit: commit.cc, commit_cpu.cc,
// commit_rnic.cc. Threads: the executor's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pmstore/client.h"
#include "pmstore/client/client_session.h"
#include "pmstore/client/client_state.h"
#include "pmstore/layout/bucket_layout.h"

namespace pmstore::internal {

struct TxItem {
  enum class Seen : uint8_t {
    kNo,
    kFound,    // read at `slot`, `version`
    kAbsent,   // read as not there, by `bucket`, `bucket_version`
    kLocated,  // found for the commit's own use: nothing that was read depends on it
  };
  enum class Need : uint8_t { kAnything, kPresent, kAbsent };
  enum class Leave : uint8_t { kAsItIs, kValue, kNothing };

  KeyHash hash;
  uint32_t key_at;
  uint32_t value_at;
  uint32_t value_bytes;
  TableId table;
  uint8_t key_bytes;
  Seen seen = Seen::kNo;
  Need need = Need::kAnything;
  Leave leave = Leave::kAsItIs;
  uint8_t size_class = 0;
  bool reserved = false;  // discipline rnic: `slot` was reserved for this write
  SlotOffset slot{};
  uint64_t version = 0;
  uint64_t bucket = 0;
  uint64_t bucket_version = 0;
  // Discipline rnic, a move: where the record was, and its version there.
  SlotOffset old_slot{};
  uint64_t old_version = 0;
  bool moved = false;

  bool writes() const { return leave != Leave::kAsItIs; }
  bool was_read() const { return seen == Seen::kFound || seen == Seen::kAbsent; }
  // When it was found: where, and what was there.
  SlotOffset read_slot() const { return moved ? old_slot : slot; }
  uint64_t read_version() const { return moved ? old_version : version; }
};

}  // namespace pmstore::internal

namespace pmstore {

struct Transaction::State {
  using Item = internal::TxItem;

  using Ref = Transaction::Ref;

  explicit State(Client::State& of) : client(of) {}

  // Empty again, for the next transaction; keeps its memory.
  void reset();

  // Keeps this alive: the Transaction does, and each coroutine that works on it. After the last it
  // is the client's again.
  Ref hold() {
    ++holders;
    return Ref(this);
  }
  unsigned holders = 0;

  std::string_view key(const Item& item) const {
    return std::string_view(bytes).substr(item.key_at, item.key_bytes);
  }
  std::string_view value(const Item& item) const {
    return std::string_view(bytes).substr(item.value_at, item.value_bytes);
  }
  Item* find(TableId table, std::string_view with_key, KeyHash hash);
  Item& find_or_add(TableId table, std::string_view with_key, KeyHash hash);
  void set_value(Item& item, std::string_view to);
  void fail(Error why) {
    if (!failure) failure = std::move(why);
  }

  void write(internal::TxItem::Need need, internal::TxItem::Leave leave, TableId table,
             std::string_view with_key, std::string_view with_value);
  Task<Result<std::string>> get(TableId table, std::string_view with_key);
  // Remembers what was read. Conflict when it is not what the transaction has read before.
  Status remember(TableId table, std::string_view with_key, KeyHash hash,
                  const internal::Located& seen);

  // The session that this transaction works on: the one of its first access. Conflict when that is
  // over.
  Task<Result<internal::SessionRef>> bind();
  static Error stale_error();

  // Holds `self`.
  static Task<Status> commit(Ref self);
  Task<Status> commit_held();
  // Reads what the writes depend on and nobody has read yet.
  Task<Status> read_what_writes_need();
  // Nothing has changed since it was read.
  Task<Status> validate();
  Task<Status> validate_one_sided();
  // One kCommit request; without the writes it only validates.
  Task<Status> commit_cpu(bool with_writes);
  // Its end is waited for, but does not depend on that.
  Task<Status> commit_rnic();
  class RnicCommit;
  class CommitEnd;
  Task<void> run_rnic(Ref self);

  bool has_writes() const {
    for (const Item& item : items) {
      if (item.writes()) return true;
    }
    return false;
  }

  Client::State& client;
  internal::SessionRef session;  // none before the first access
  std::vector<Item> items;
  std::string bytes;  // keys and values of the items
  std::optional<Error> failure;
  bool over = false;
  TxId id;
  std::vector<std::byte> redo;   // discipline rnic
  CommitEnd* awaited = nullptr;  // discipline rnic: who waits for the commit
};

}  // namespace pmstore
