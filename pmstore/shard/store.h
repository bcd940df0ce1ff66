// Store: the server's state machine for one pool: records, index, lock words, redo rings.
//
// Knows nothing of connections. Under LockDiscipline::kCpu a whole transaction is one call,
// commit(), that never suspends, so no other change can come between its checks and its writes;
// what it must still protect against is clients that READ one-sided at any moment
// (docs/transactions.md). Under kRnic the one-sided phases are the clients'; reserve(), release()
// and apply() are the server's part, and every change of a lock word goes through a WordChanger.
// Invariants: a live record's slot is in the index exactly once; lock word version == record
// version while unlocked; a redo record is durable before the first byte of its writes goes in
// place. Threads: one. What is durable: said at each call.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/task.h"
#include "log/ring.h"
#include "persist/pool.h"
#include "pmstore/layout/protocol.h"
#include "pmstore/layout/redo.h"
#include "pmstore/server.h"
#include "pmstore/shard/index.h"
#include "pmstore/shard/lock_table.h"
#include "pmstore/shard/outcome_book.h"
#include "pmstore/shard/slab_arena.h"
#include "pmstore/shard/table_catalog.h"

namespace pmstore::internal {

// Changes lock words by RNIC atomics (LockDiscipline::kRnic).
class WordChanger {
 public:
  virtual ~WordChanger() = default;
  // True when the word was `expected` and is `desired` now.
  virtual base::Task<Result<bool>> compare_swap(SlotOffset slot, LockWord expected,
                                                LockWord desired) = 0;
  // Lets everything else of the executor run.
  virtual base::Task<void> pause() = 0;
};

// A decoded kCommit request; the spans lie in the message.
struct CommitView {
  uint64_t client;
  uint64_t sequence;
  std::span<const std::byte> reads;     // ReadCheck...
  std::span<const std::byte> absences;  // AbsenceCheck...
  std::span<const std::byte> writes;    // WriteOp, key, value, padding...
  uint32_t write_count;
};
// nullopt when the request is malformed.
std::optional<CommitView> decode_commit(uint64_t client, std::span<const std::byte> request);

// "May be this key's, start the server again".
Error damaged_key(SlotOffset slot);

struct Found {
  SlotOffset slot;
  uint8_t size_class;
};

class Store {
 public:
  // Recovers: replays the rings, then rebuilds index and lock words. Durable on return.
  static Result<std::unique_ptr<Store>> open(persist::Pool& pool);
  ~Store();

  TableCatalog& catalog() { return catalog_; }
  const TableCatalog& catalog() const { return catalog_; }
  const Index& index() const { return index_; }
  const SlabArena& arena() const { return arena_; }
  persist::Memory& memory() { return pool_.memory(); }
  const RecoveryReport& recovery() const { return recovery_; }
  void set_recovery_duration(uint64_t us) { recovery_.duration_us = us; }
  std::span<std::byte> records_bytes() {
    return memory().mapping().subspan(arena_.offset(), arena_.bytes());
  }
  LockTable& words() { return words_; }
  Index& index() { return index_; }
  SlabArena& arena() { return arena_; }
  std::vector<log::Ring>& rings() { return rings_; }

  // ---- reading; any discipline ----
  // `damaged`: set to a slot that may hold this key's record, which the medium has changed. Then
  // nothing found does not mean that the key is absent.
  std::optional<Found> find(TableId table, std::string_view key, KeyHash hash,
                            std::optional<SlotOffset>& damaged) const;
  // Fills a GetReply and value into `room`; gives its size. TooLarge, UnknownTable; Conflict while
  // the record is locked by a client (kRnic only).
  Result<size_t> get(TableId table, std::string_view key, std::span<std::byte> room) const;
  Result<size_t> scan(const ScanRequest& request, std::span<std::byte> room) const;
  // Of a transaction that is not in flight. `own`: its client asks, and says that it has ended;
  // then what has landed in the ring counts, whether or not its place there was told.
  // OutcomeExpired when neither its ring nor the book knows any more; InvalidArgument for a number
  // that no session has been given yet, and that may still commit.
  Result<Outcome> outcome(TxId id, bool own, uint64_t now_ns);

  // ---- tables; any discipline (store_tables.cc) ----
  // From `cursor` on; some slots a call. UnknownTable.
  Result<TableUsageReply> table_usage(TableId table, uint64_t cursor) const;
  // Durable on return: the table does not exist any more, and its records never come back. Their
  // slots are still to be freed: see free_dropped(). Io, and the table is back after a crash or
  // not, when that could not be made durable.
  Status drop_table(TableId table);
  // Frees slots of a dropped table, some a call, with the lock words changed by `changer`
  // (nullptr: by this CPU). Nothing of it is durable, nor needs to be: a start does the same. After
  // an error, the same call again.
  struct FreeingCursor {
    uint64_t position = 0;
    bool met_lock = false;  // of a client, in this round
    bool done = false;      // nobody can read or change a record of the table any more
  };
  base::Task<Status> free_dropped(WordChanger* changer, TableId table, FreeingCursor& cursor);

  // ---- whose ring it is ----
  // Ring `index` is `client`'s from here on (0: nobody's), in a new incarnation, whose transactions
  // are numbered from session_sequence() on; durable on return. What the client before has left in
  // it is durable in place first, when it is another, and its outcomes are kept until
  // `outcomes_until_ns`; 0: nobody asks for them. Full: the pool has had all its incarnations.
  Status take_ring(uint32_t index, uint64_t client, uint64_t outcomes_until_ns, uint64_t now_ns);
  uint64_t session_sequence(uint32_t index) const;

  // ---- discipline kCpu ----
  // All or nothing; durable and visible on success. Errors as Client::commit; CommitUnknown when
  // the operating system could not make the log durable (then nothing can be committed any more).
  Status commit(log::Ring& ring, const CommitView& request);

  // ---- discipline kRnic ----
  // A slot for a new record of `key`, its word locked by `owner`, shown by the index (not for
  // `move`). AlreadyExists when the key is there; Conflict when somebody else reserves it.
  base::Task<Result<ReserveReply>> reserve(WordChanger& changer, uint16_t owner, TableId table,
                                           std::string_view key, uint32_t value_bytes, bool move);
  // Undoes a reservation of `owner`; InvalidArgument when it has none there.
  base::Task<Status> release(WordChanger& changer, uint16_t owner, SlotOffset slot);
  // Puts the writes of one redo record in place where they are newer, changes the index, unlocks
  // what `owner` holds. Visible on return; durable by the redo record. Repeating it finishes what
  // an earlier call has begun and could not unlock, and else changes nothing.
  base::Task<Status> apply(WordChanger& changer, uint16_t owner, std::span<const std::byte> redo);
  // A client is gone and can reach nothing any more: applies what its ring holds, undoes the rest.
  // `announced`: where the client may have locked words for what it has not logged; anything else
  // in it does no harm. The cost follows these and the ring, not the size of the store.
  base::Task<Status> resolve(WordChanger& changer, uint16_t owner, log::Ring& ring,
                             std::span<const SlotOffset> announced);
  // Makes durable in place what the entries below `through_lsn` say, then truncates there.
  Status truncate_through(log::Ring& ring, uint64_t through_lsn);

  // Everything in place is durable, and the catalog says that there is nothing to replay.
  Status close();
  // Set once the operating system has failed to make something durable.
  bool failed() const { return failed_; }

  uint64_t live_records() const { return index_.size() - pending_.size(); }
  uint64_t transactions() const { return transactions_; }

 private:
  struct Planned {
    WriteKind kind;
    TableId table;
    std::string_view key;
    std::string_view value;
    KeyHash hash;
    bool exists;
    SlotOffset old_slot;  // where the record is now, if it exists
    uint64_t old_version;
    uint8_t size_class;
    bool fresh;       // `slot` was allocated for this write
    SlotOffset slot;  // where it will be (the tombstone's place for an erase)
    std::span<const std::byte> image;
    std::span<const std::byte> old_image;  // tombstone of a move
  };
  struct Reservation {
    uint16_t owner;
    bool indexed;
    TableId table;
    std::string key;
    uint64_t number = 0;  // no other one had it
  };
  // A tombstone that apply() has put in place, and whose index entry it has taken out. The slot is
  // still locked by `owner`; unlocked, it shows `version`.
  struct Tombstone {
    uint16_t owner;
    uint64_t version;
  };

  Store(persist::Pool& pool, TableCatalog catalog, SlabArena arena, LockTable words, Index index);
  // recovery.cc
  Status replay_rings();
  Status replay_entry(const log::EntryView& entry);
  Status rebuild_index();
  // commit.cc
  Status check_reads(const CommitView& request) const;
  Status plan_writes(const CommitView& request);
  Status plan_write(Planned& write, uint64_t expected_slot, uint64_t expected_version);
  Status log_writes(log::Ring& ring, const CommitView& request);
  void apply_writes();
  void give_up_plan();
  Status make_room(log::Ring& ring, uint64_t payload_bytes);
  // store.cc
  uint64_t version_of(SlotOffset slot) const;
  void write_record(SlotOffset slot, std::span<const std::byte> image);
  bool record_matches(SlotOffset slot, TableId table, std::string_view key) const;
  bool is_damaged(BucketEntry entry) const;
  // What a scan of `table` sees in a slot; a record of it lies in `image`.
  enum class Seen : uint8_t { kNone, kRecord, kLocked, kDamaged };
  Seen look_at(const SlabArena::Slab& slab, SlotOffset slot, TableId table,
               std::vector<std::byte>& image, std::optional<RecordView>& record) const;
  // A copy of the live record of `word`, in record_; nothing if it is not whole.
  std::optional<RecordView> checked_copy(SlotOffset slot, uint8_t size_class, LockWord word) const;
  const Reservation* reservation(SlotOffset slot) const;
  size_t index_of(const log::Ring& ring) const {
    return static_cast<size_t>(&ring - rings_.data());
  }
  // Takes it out of the index and the list; false when there was none.
  bool forget_reservation(SlotOffset slot);
  Status flush_entries(log::Ring& ring, uint64_t through_lsn);
  // store_rnic.cc
  bool begun_tombstone(SlotOffset slot, uint16_t owner, uint64_t version) const;
  void free_tombstone(SlotOffset slot);
  base::Task<Status> release_all(WordChanger& changer, uint16_t owner);
  base::Task<Status> free_locks(WordChanger& changer, uint16_t owner,
                                std::span<const SlotOffset> announced);
  // store_tables.cc
  bool is_reserved_in(TableId table) const;
  template <typename Visit>
  uint64_t visit_slots(uint64_t position, Visit visit) const;
  std::optional<KeyHash> hash_of_indexed(SlotOffset slot, TableId table) const;
  void unindex_freed(SlotOffset slot, KeyHash hash);
  base::Task<Status> free_record(WordChanger& changer, SlotOffset slot, TableId table,
                                 FreeingCursor& cursor);
  // store_rings.cc; the youngest session's.
  uint32_t last_incarnation() const;

  persist::Pool& pool_;
  TableCatalog catalog_;
  SlabArena arena_;
  LockTable words_;
  Index index_;
  std::vector<log::Ring> rings_;
  std::optional<OutcomeBook> outcomes_;  // once the rings are known
  RecoveryReport recovery_;
  std::vector<Planned> plan_;
  std::unique_ptr<std::byte[]> redo_memory_;
  std::span<std::byte>
      redo_room_;  // one entry: header, largest payload, padding; aligned to a line
  std::unordered_map<uint64_t, Reservation> pending_;  // by slot
  uint64_t last_reservation_ = 0;
  std::unordered_map<uint64_t, Tombstone> tombstones_;  // by slot; not yet unlocked and freed
  std::unordered_set<uint64_t> given_up_;  // slots whose records were damaged at the start; unused
  std::vector<std::byte> entry_;           // a copy of one redo record that its client may change
  mutable std::vector<std::byte> record_;  // a copy of one record that is checked
  bool failed_ = false;
  uint64_t transactions_ = 0;
};

}  // namespace pmstore::internal
