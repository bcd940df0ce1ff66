#include "fs/internal/file_locks.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pmstore::fs::internal {
namespace {

// Who waits looks at its time so often.
constexpr uint64_t kTickNs = 100'000'000;

}  // namespace

class FileLocks::Waiting {
 public:
  Waiting(FileLocks& locks, const Wanted& what)
      : wanted(what),
        changed(locks.executor_),
        locks_(locks),
        in_file_(locks.waiting_.emplace(wanted.ino, this)),
        of_holder_(locks.waits_of_.emplace(wanted.holder, this)) {}
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting() {
    locks_.waiting_.erase(in_file_);
    locks_.waits_of_.erase(of_holder_);
  }
  const Wanted& wanted;
  base::WaitList changed;
  bool ends = false;

 private:
  FileLocks& locks_;
  const std::multimap<Ino, Waiting*>::iterator in_file_;
  const std::multimap<Holder, Waiting*>::iterator of_holder_;
};

// ---- what is in the way ----

std::optional<FileLock> FileLocks::in_the_way(OpenOwner client, Ino ino,
                                              const FileLock& lock) const {
  const auto found = files_.find(ino);
  if (found == files_.end() || lock.type == LockType::kUnlock) return std::nullopt;
  const Holder holder = holder_of(client, lock);
  const OfKind& of = found->second.of(lock.kind);
  auto first = of.writes.find_beside(holder, lock.start, lock.end);
  if (!first && lock.type == LockType::kWrite) {
    first = of.reads.find_beside(holder, lock.start, lock.end);
  }
  if (!first) return std::nullopt;
  PMSTORE_CHECK(first->holder != holder && first->holder.kind == holder.kind,
                "a holder is not in its own way, nor are locks of another kind");
  return found->second.holders.at(first->holder).at(first->start);
}

std::set<FileLocks::Holder> FileLocks::holders_in_the_way(const Wanted& wanted) const {
  std::set<Holder> holders;
  const auto found = files_.find(wanted.ino);
  if (found == files_.end()) return holders;
  const OfKind& of = found->second.of(wanted.lock.kind);
  const auto note = [&holders](const LockRanges::Range& each) { holders.insert(each.holder); };
  of.writes.for_each_beside(wanted.holder, wanted.lock.start, wanted.lock.end, note);
  if (wanted.lock.type == LockType::kWrite) {
    of.reads.for_each_beside(wanted.holder, wanted.lock.start, wanted.lock.end, note);
  }
  return holders;
}

bool FileLocks::deadlocks(const Wanted& wanted) const {
  std::set<Holder> seen = holders_in_the_way(wanted);
  std::vector<Holder> next(seen.begin(), seen.end());
  while (!next.empty()) {
    const Holder holder = next.back();
    next.pop_back();
    if (holder == wanted.holder) return true;
    const auto [first, last] = waits_of_.equal_range(holder);
    for (auto other = first; other != last; ++other) {
      for (const Holder& behind : holders_in_the_way(other->second->wanted)) {
        if (seen.insert(behind).second) next.push_back(behind);
      }
    }
  }
  return false;
}

// ---- what is held ----

void FileLocks::add(OfFile& of, const Holder& holder, const FileLock& lock) {
  const bool is_new = of.holders[holder].emplace(lock.start, lock).second;
  PMSTORE_CHECK(is_new, "locks of one holder do not overlap");
  of.of(holder.kind, lock.type).add({lock.start, lock.end, holder});
  ++size_;
  ++clients_[holder.client].locks;
}

FileLocks::Own::iterator FileLocks::remove(OfFile& of, const Holder& holder, Own& own,
                                           Own::iterator at) {
  of.of(holder.kind, at->second.type).remove(at->second.start, holder);
  OfClient& client = clients_.at(holder.client);
  PMSTORE_CHECK(size_ > 0 && client.locks > 0, "each lock is counted once");
  --size_;
  --client.locks;
  ++steps_;
  return own.erase(at);
}

// What of the holder's locks lies before and behind the range stays.
void FileLocks::erase_range(OfFile& of, const Holder& holder, uint64_t start, uint64_t end) {
  const auto found = of.holders.find(holder);
  if (found == of.holders.end()) return;
  Own& own = found->second;
  std::vector<FileLock> rest;
  auto at = own.lower_bound(start);
  if (at != own.begin() && std::prev(at)->second.end >= start) --at;
  while (at != own.end() && at->second.start <= end) {
    const FileLock held = at->second;
    at = remove(of, holder, own, at);
    if (held.start < start) {
      rest.push_back(held);
      rest.back().end = start - 1;
    }
    if (held.end > end) {
      rest.push_back(held);
      rest.back().start = end + 1;
    }
  }
  for (const FileLock& each : rest) add(of, holder, each);
}

// Neighbours of the same type become one with it. Nothing of the holder lies in its range.
FileLock FileLocks::join_neighbours(OfFile& of, const Holder& holder, FileLock lock) {
  const auto found = of.holders.find(holder);
  if (found == of.holders.end()) return lock;
  Own& own = found->second;
  const auto joins = [&](const FileLock& held) {
    return held.type == lock.type && held.pid == lock.pid;
  };
  auto at = own.lower_bound(lock.start);
  if (at != own.begin()) {
    const auto before = std::prev(at);
    if (before->second.end + 1 == lock.start && joins(before->second)) {
      lock.start = before->second.start;
      at = remove(of, holder, own, before);
    }
  }
  const bool touches = at != own.end() && lock.end != UINT64_MAX && at->first == lock.end + 1;
  if (touches && joins(at->second)) {
    lock.end = at->second.end;
    remove(of, holder, own, at);
  }
  return lock;
}

void FileLocks::forget_if_empty(Ino ino, OfFile& of, const Holder& holder) {
  const auto found = of.holders.find(holder);
  if (found == of.holders.end() || !found->second.empty()) return;
  of.holders.erase(found);
  const auto client = clients_.find(holder.client);
  PMSTORE_CHECK(client != clients_.end(), "who has held something is known");
  client->second.holders.erase({ino, holder});
  if (client->second.holders.empty()) clients_.erase(client);
  if (of.holders.empty()) files_.erase(ino);
}

bool FileLocks::set(OpenOwner client, Ino ino, const FileLock& lock) {
  PMSTORE_CHECK(lock.start <= lock.end, "a lock has a range");
  const Holder holder = holder_of(client, lock);
  const bool takes = lock.type != LockType::kUnlock;
  const auto count = clients_.find(client);
  if (takes && count != clients_.end() && count->second.locks + 2 > kMaxLocks) return false;
  if (!takes && !holds(client, ino, lock.kind, lock.owner)) return true;
  auto at = files_.find(ino);
  if (at == files_.end()) {
    at = files_.try_emplace(ino, steps_, executor_.random().next()).first;
  }
  OfFile& of = at->second;
  erase_range(of, holder, lock.start, lock.end);
  if (takes) {
    add(of, holder, join_neighbours(of, holder, lock));
    clients_.at(client).holders.insert({ino, holder});
  }
  forget_if_empty(ino, of, holder);
  wake(ino);
  return true;
}

FileLocks::Outcome FileLocks::lock(OpenOwner client, Ino ino, const FileLock& lock) {
  if (in_the_way(client, ino, lock)) return Outcome::kBusy;
  return set(client, ino, lock) ? Outcome::kDone : Outcome::kTooMany;
}

void FileLocks::drop(OpenOwner client) {
  while (true) {
    const auto of_client = clients_.find(client);
    if (of_client == clients_.end() || of_client->second.holders.empty()) break;
    const auto [ino, holder] = *of_client->second.holders.begin();
    OfFile& of = files_.at(ino);
    erase_range(of, holder, 0, UINT64_MAX);
    forget_if_empty(ino, of, holder);
    wake(ino);
  }
}

bool FileLocks::holds(OpenOwner client, Ino ino, LockKind kind, uint64_t owner) const {
  const auto found = files_.find(ino);
  return found != files_.end() && found->second.holders.contains(Holder{client, kind, owner});
}

std::vector<FileLocks::Held> FileLocks::held_by(OpenOwner client) const {
  std::vector<Held> all;
  const auto of_client = clients_.find(client);
  if (of_client == clients_.end()) return all;
  for (const auto& [ino, holder] : of_client->second.holders) {
    for (const auto& [start, lock] : files_.at(ino).holders.at(holder)) {
      ++steps_;
      all.push_back({ino, lock});
    }
  }
  return all;
}

// ---- waits ----

base::Task<FileLocks::Outcome> FileLocks::wait(OpenOwner client, Ino ino, FileLock lock,
                                               uint64_t wait_ns) {
  const uint64_t until_ns = executor_.now_ns() + wait_ns;
  const Wanted wanted{holder_of(client, lock), ino, lock};
  std::set<Holder> looked_at;
  while (in_the_way(client, ino, lock)) {
    if (executor_.now_ns() >= until_ns) co_return Outcome::kBusy;
    // The wait that closes a circle begins last, or waits for another holder now.
    const std::set<Holder> holders = holders_in_the_way(wanted);
    const bool are_others = std::exchange(looked_at, holders) != holders;
    if (lock.kind == LockKind::kRange && are_others && deadlocks(wanted)) {
      co_return Outcome::kDeadlock;
    }
    Waiting waiting(*this, wanted);
    if (!std::exchange(ticking_, true)) {
      ticks_ = tick();
      ticks_.start();
    }
    co_await waiting.changed.wait();
    if (waiting.ends && in_the_way(client, ino, lock)) co_return Outcome::kBusy;
  }
  co_return Outcome::kDone;
}

void FileLocks::end_waits(OpenOwner client) {
  const Holder first{client, LockKind::kRange, 0};
  for (auto each = waits_of_.lower_bound(first); each != waits_of_.end(); ++each) {
    if (each->first.client != client) break;
    each->second->ends = true;
    each->second->changed.notify_all();
  }
}

void FileLocks::wake(Ino ino) {
  const auto [first, last] = waiting_.equal_range(ino);
  for (auto each = first; each != last; ++each) each->second->changed.notify_all();
}

base::Task<void> FileLocks::tick() {
  while (!waiting_.empty()) {
    co_await executor_.sleep_for(kTickNs);
    for (const auto& [ino, waiting] : waiting_) waiting->changed.notify_all();
  }
  ticking_ = false;
}

}  // namespace pmstore::fs::internal
