// CommitPlan: the writes of one transaction of lock discipline cpu, from the moment they are locked
// until they are applied or given up, with the redo record that describes them.
//
// Plain data: CpuCommit fills it and acts on it. The object keeps its buffers when it is reused, so
// that a commit allocates nothing. The redo record is built when the plan is prepared; from then on
// keys and images lie in it, and the request that the plan was made from is no longer needed.
// Lifetimes: a plan outlives its images. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/check.h"
#include "pmstore/layout/protocol.h"
#include "pmstore/shard/key_index.h"

namespace pmstore::internal {

struct PlannedWrite {
  WriteKind kind = WriteKind::kPut;
  uint8_t size_class = 0;      // of `slot`
  bool exists = false;         // the key had a record before this write
  bool fresh = false;          // `slot` was allocated for this write
  bool index_changes = false;  // begin_change() was called for `key`
  bool entry_changes = false;  // so it was, for this write or for one that it builds on
  // An earlier transaction of the group puts the record in place that this write changes: its word
  // is locked already, and its write is not to unlock it. nullptr: the record is in place. Not used
  // once the transactions of the group are being applied.
  PlannedWrite* builds_on = nullptr;
  bool built_on = false;  // a later write builds on this one
  IndexKey key{};
  std::string_view value;  // in the request; not used once the plan is prepared
  SlotOffset old_slot{};   // holds the record before this write, if it exists
  uint64_t old_version = 0;
  SlotOffset slot{};                     // will hold the record, or the tombstone of an erase
  std::span<const std::byte> image;      // for `slot`
  std::span<const std::byte> old_image;  // tombstone for old_slot, when the record moves; or empty
};

class CommitPlan {
 public:
  enum class State : uint8_t {
    kFree,      // no writes
    kPlanning,  // its writes are locked one by one
    kPrepared,  // all writes are locked, and the redo record is complete
    kLogged,    // the redo record is in the log; nobody knows that it is durable
  };

  // More room than this is given back when the plan is free, unless it was there from the start.
  static constexpr uint64_t kKeptBytes = 16 << 10;

  // `entry_room_bytes`: of the largest redo entry that needs no memory, with header and padding.
  explicit CommitPlan(uint64_t entry_room_bytes);
  CommitPlan(const CommitPlan&) = delete;
  CommitPlan& operator=(const CommitPlan&) = delete;

  State state() const { return state_; }
  bool is_free() const { return state_ == State::kFree; }
  bool is_locked() const { return state_ == State::kPrepared || state_ == State::kLogged; }
  // kFree -> kPlanning -> kPrepared -> kLogged; CHECKed. clear() leads back to kFree from each.
  void begin(ClientId client, uint64_t sequence) {
    PMSTORE_CHECK(state_ == State::kFree && writes_.empty(), "one transaction at a time");
    state_ = State::kPlanning;
    client_ = client;
    sequence_ = sequence;
  }
  void prepared(uint64_t payload_bytes) {
    PMSTORE_CHECK(state_ == State::kPlanning && !writes_.empty(), "a plan is prepared once");
    state_ = State::kPrepared;
    payload_bytes_ = payload_bytes;
  }
  // `end_lsn`: behind the redo record.
  void logged(uint64_t end_lsn) {
    PMSTORE_CHECK(state_ == State::kPrepared, "only a whole redo record is logged, once");
    state_ = State::kLogged;
    end_lsn_ = end_lsn;
  }
  void clear() {
    PMSTORE_CHECK(state_ != State::kFree, "a plan is applied or given up once");
    PMSTORE_CHECK(guarded_.empty(), "a guard ends before its plan");
    writes_.clear();
    state_ = State::kFree;
    if (entry_room_.size() > kept_bytes_) [[unlikely]]
      allocate(kept_bytes_);
  }

  TxId id() const { return {client_, sequence_}; }
  uint64_t end_lsn() const { return end_lsn_; }
  uint64_t payload_bytes() const { return payload_bytes_; }
  std::vector<PlannedWrite>& writes() { return writes_; }
  const std::vector<PlannedWrite>& writes() const { return writes_; }
  // Units of the index, with what their version was before this plan changed them; nobody else may
  // change them. Of a transaction of several servers that is not validated yet.
  std::vector<AbsenceCheck>& guarded() { return guarded_; }
  const std::vector<AbsenceCheck>& guarded() const { return guarded_; }
  // For one log entry: log::EntryHeader, payload, padding. Begins at a line.
  std::span<std::byte> entry_room() const { return entry_room_; }
  // At least so much; what was in it is lost.
  void make_entry_room(uint64_t bytes) {
    PMSTORE_CHECK(state_ == State::kPlanning, "a redo record is built once, and stays where it is");
    if (bytes > entry_room_.size()) [[unlikely]]
      allocate(bytes);
  }

 private:
  void allocate(uint64_t bytes);

  const uint64_t kept_bytes_;
  std::unique_ptr<std::byte[]> memory_;
  std::span<std::byte> entry_room_;
  std::vector<PlannedWrite> writes_;
  std::vector<AbsenceCheck> guarded_;
  State state_ = State::kFree;
  ClientId client_;
  uint64_t sequence_ = 0;
  uint64_t payload_bytes_ = 0;
  uint64_t end_lsn_ = 0;
};

}  // namespace pmstore::internal
