// Participant: one shard in which a transaction reads or writes, and what the transaction has
// there: the client's session, and while it commits under lock discipline rnic the buffer of its
// locks and its redo record.
//
// Participants are those of one transaction, in the order of its first accesses; items name them by
// number. Nearly every transaction has one, for which there is room inline. Invariants: a shard is
// there once; a reference to a participant holds until clear(). Threads: the executor's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "pmstore/client/buffer_pool.h"
#include "pmstore/client/client_session.h"
#include "pmstore/client/redo_ring.h"
#include "pmstore/client/shard_id.h"

namespace pmstore::internal {

struct Participant {
  uint16_t number = 0;  // in its transaction
  ShardId shard;
  SessionRef session;
  // Lock discipline rnic, during the commit.
  BufferLease locks;             // its words show the locks; see CommitLocks
  bool locks_attempted = false;  // compare-and-swaps may have been posted
  std::vector<std::byte> redo;   // memory for the redo record
  std::optional<RedoRing::Appended> logged;

  // Forgets the transaction, and keeps the memory.
  void clear() {
    PMSTORE_CHECK(!locks, "a commit gives its buffer back before its transaction is forgotten");
    session = {};
    locks_attempted = false;
    logged.reset();
  }
};

class Participants {
 public:
  size_t size() const { return used_ ? 1 + more_.size() : 0; }
  bool empty() const { return !used_; }
  Participant& operator[](size_t number) {
    PMSTORE_CHECK(number < size(), "an item names a participant of its transaction");
    return number == 0 ? first_ : *more_[number - 1];
  }
  // Of a transaction that commits by itself. Several shards would need a decision that all know.
  Participant& only() {
    PMSTORE_CHECK(size() == 1, "one shard decides alone only what concerns no other");
    return first_;
  }
  // nullptr: the transaction has not worked there.
  Participant* find(ShardId shard) {
    for (size_t i = 0; i < size(); ++i) {
      if ((*this)[i].shard == shard) return &(*this)[i];
    }
    return nullptr;
  }
  // The transaction's first access there. CHECK: the shard is not there yet.
  Participant& add(ShardId shard, SessionRef session) {
    PMSTORE_CHECK(find(shard) == nullptr && size() < UINT16_MAX, "a shard is there once");
    Participant& added = used_ ? *more_.emplace_back(std::make_unique<Participant>()) : first_;
    used_ = true;
    added.number = static_cast<uint16_t>(size() - 1);
    added.shard = shard;
    added.session = std::move(session);
    return added;
  }
  void clear() {
    if (used_) first_.clear();
    for (const auto& each : more_) each->clear();
    more_.clear();
    used_ = false;
  }
  // Of the redo records.
  size_t capacity_bytes() const { return first_.redo.capacity(); }

 private:
  Participant first_;
  bool used_ = false;  // there is a first one
  std::vector<std::unique_ptr<Participant>> more_;
};

}  // namespace pmstore::internal
