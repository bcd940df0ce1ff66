// InodeLocks: locks of single inodes in the memory of the namespace server, exclusive or shared.
//
// They keep calls apart that transactions alone do not: of data, whose bytes are no records; and of
// the entries of one directory, where transactions would only lose against each other. The order of
// those who wait is kept, so nobody waits for ever. A lock is held as long as its Guard lives.
// Invariant: an inode is in the table while it is locked or somebody waits for it; the first who
// waits cannot be let in.
// Threads: one executor's. Lifetimes: outlives guards and awaiters; an awaiter may be destroyed at
// any moment.
#pragma once

#include <coroutine>
#include <cstdint>
#include <list>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/executor.h"
#include "fs/types.h"

namespace pmstore::fs::internal {

class InodeLocks {
 public:
  enum class Mode : uint8_t { kShared, kExclusive };

  class [[nodiscard]] Guard {
   public:
    Guard() = default;
    Guard(Guard&& other) noexcept
        : locks_(std::exchange(other.locks_, nullptr)), ino_(other.ino_), mode_(other.mode_) {}
    Guard& operator=(Guard&& other) noexcept {
      if (this != &other) {
        release();
        locks_ = std::exchange(other.locks_, nullptr);
        ino_ = other.ino_;
        mode_ = other.mode_;
      }
      return *this;
    }
    ~Guard() { release(); }
    bool holds() const { return locks_ != nullptr; }
    void release() {
      if (locks_ != nullptr) std::exchange(locks_, nullptr)->unlock(ino_, mode_);
    }

   private:
    friend class InodeLocks;
    Guard(InodeLocks* locks, Ino ino, Mode mode) : locks_(locks), ino_(ino), mode_(mode) {}
    InodeLocks* locks_ = nullptr;
    Ino ino_{};
    Mode mode_{};
  };

  class Awaiter {
   public:
    Awaiter(InodeLocks& locks, Ino ino, Mode mode) : locks_(locks), ino_(ino), mode_(mode) {}
    Awaiter(const Awaiter&) = delete;
    Awaiter& operator=(const Awaiter&) = delete;
    ~Awaiter();
    bool await_ready() { return granted_ = locks_.try_lock(ino_, mode_); }
    void await_suspend(std::coroutine_handle<> frame);
    Guard await_resume();

   private:
    friend class InodeLocks;
    InodeLocks& locks_;
    const Ino ino_;
    const Mode mode_;
    bool granted_ = false;
    std::coroutine_handle<> frame_;  // set while suspended
  };

  explicit InodeLocks(Executor& executor) : executor_(executor) {}
  ~InodeLocks() { PMSTORE_CHECK(entries_.empty(), "locks outlive those who hold them"); }
  InodeLocks(const InodeLocks&) = delete;
  InodeLocks& operator=(const InodeLocks&) = delete;

  // Give a Guard.
  Awaiter exclusive(Ino ino) { return {*this, ino, Mode::kExclusive}; }
  Awaiter shared(Ino ino) { return {*this, ino, Mode::kShared}; }

 private:
  struct Entry {
    uint32_t sharing = 0;
    bool is_exclusive = false;
    std::list<Awaiter*> waiting;
  };

  static bool fits(const Entry& entry, Mode mode) {
    return !entry.is_exclusive && (mode == Mode::kShared || entry.sharing == 0);
  }
  static void take(Entry& entry, Mode mode);
  bool try_lock(Ino ino, Mode mode);
  void unlock(Ino ino, Mode mode);
  // Lets in those at the front; forgets the inode when nobody is there.
  void settle(Ino ino);

  Executor& executor_;
  std::unordered_map<Ino, Entry> entries_;
};

}  // namespace pmstore::fs::internal
