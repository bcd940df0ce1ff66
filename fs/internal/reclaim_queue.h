// ReclaimQueue: what is left to be given back: unlinked files that nobody has open, truncations
// that a crash has cut short, ranges in quarantine.
//
// The tables .fs.orphans and .fs.freed have all of it, durably; the queue says in memory what to
// look at next. When it is full, the tables are scanned instead.
// Invariant: what is queued or being worked on is in the busy set once, and is not queued again. A
// scan may still queue what was done behind its look at the table: who works on it looks again.
// Threads: one executor's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/executor.h"
#include "fs/types.h"

namespace pmstore::fs::internal {

class ReclaimQueue {
 public:
  enum class Kind : uint8_t { kInode, kFreed, kScan };
  struct Work {
    Kind kind;
    uint64_t id = 0;  // ino, or of a freed range
    AreaRange range;  // a freed range
    // An attempt may have erased the record: that nobody knew its end.
    bool erase_in_doubt = false;
    unsigned failures = 0;
    // Clean ranges of an inode that goes, whose records an attempt may have erased.
    std::vector<AreaRange> places_in_doubt = {};
  };

  // Freed ranges that a transaction is about to record: no scan queues them before its maker has
  // done what belongs to it. Lifetimes: the queue outlives it.
  class Held {
   public:
    explicit Held(ReclaimQueue& queue) : queue_(queue) {}
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    ~Held() { drop(); }
    void hold(uint64_t id) {
      queue_.mark({Kind::kFreed, id, {}}, true);
      ids_.push_back(id);
    }
    // What became of them is not known before the next start: they are never queued.
    void keep() {
      for (const uint64_t id : ids_) {
        queue_.kept_.insert(id);
        queue_.mark({Kind::kFreed, id, {}}, false);
      }
      ids_.clear();
      queue_.tell_if_idle();
    }
    void drop() {
      for (const uint64_t id : ids_) queue_.mark({Kind::kFreed, id, {}}, false);
      ids_.clear();
      queue_.tell_if_idle();
    }

   private:
    ReclaimQueue& queue_;
    std::vector<uint64_t> ids_;
  };

  explicit ReclaimQueue(Executor& executor) : arrived_(executor), settled_(executor) {}

  // False: it is queued or worked on already, or left to a scan.
  bool add(Work work) {
    if (is_busy(work)) return false;
    if (queue_.size() >= kMost) {
      scan_ = true;
      return false;
    }
    mark(work, true);
    queue_.push_back(std::move(work));
    arrived_.notify_one();
    return true;
  }
  // What next() gave, once more: it is still to be done.
  void again(Work work) {
    queue_.push_back(std::move(work));
    arrived_.notify_one();
  }
  // The tables have work that is not queued.
  void ask_for_scan() {
    scan_ = true;
    arrived_.notify_one();
  }
  bool is_full() const { return queue_.size() >= kMost; }
  // Something will be free, or may be.
  bool has_work() const { return !inodes_.empty() || !freed_.empty() || scan_ || is_scanning_; }
  static constexpr size_t kMost = 4096;

  // What comes next; done() when it was done.
  base::Task<Work> next() {
    while (queue_.empty() && (!scan_ || is_scanning_)) co_await arrived_.wait();
    if (!queue_.empty()) {
      Work work = std::move(queue_.front());
      queue_.pop_front();
      co_return std::move(work);
    }
    scan_ = false;
    is_scanning_ = true;
    co_return Work{Kind::kScan, 0, {}};
  }
  void done(const Work& work) {
    if (work.kind == Kind::kScan) {
      PMSTORE_CHECK(is_scanning_, "a scan that ends has begun");
      is_scanning_ = false;
      if (scan_) arrived_.notify_one();
    } else {
      mark(work, false);
    }
    tell_if_idle();
  }
  // What a worker has tries again after a pause.
  void failed() {
    ++failures_;
    settled_.notify_all();
  }

  // Nothing is left, or something has failed meanwhile.
  base::Task<void> settled() {
    const uint64_t failures = failures_;
    while (!is_idle() && failures_ == failures) co_await settled_.wait();
  }

 private:
  std::set<uint64_t>& busy(Kind kind) { return kind == Kind::kInode ? inodes_ : freed_; }
  bool is_busy(const Work& work) {
    if (work.kind == Kind::kFreed && kept_.contains(work.id)) return true;
    return busy(work.kind).contains(work.id);
  }
  void mark(const Work& work, bool is_now_busy) {
    std::set<uint64_t>& set = busy(work.kind);
    const bool changed = is_now_busy ? set.insert(work.id).second : set.erase(work.id) == 1;
    PMSTORE_CHECK(changed, "what is reclaimed is queued once");
  }

  void tell_if_idle() {
    if (is_idle()) settled_.notify_all();
  }
  bool is_idle() const {
    return queue_.empty() && inodes_.empty() && freed_.empty() && !scan_ && !is_scanning_;
  }

  base::WaitList arrived_;
  base::WaitList settled_;
  uint64_t failures_ = 0;
  std::deque<Work> queue_;
  std::set<uint64_t> inodes_;
  std::set<uint64_t> freed_;
  std::set<uint64_t> kept_;  // freed ranges that a store that has failed may have recorded
  bool scan_ = false;
  bool is_scanning_ = false;
};

}  // namespace pmstore::fs::internal
