#include "fs/internal/file_locks.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pmstore::fs::internal {
namespace {

// Who waits looks at its time so often.
constexpr uint64_t kTickNs = 100'000'000;

bool overlap(const FileLock& one, uint64_t start, uint64_t end) {
  return one.start <= end && start <= one.end;
}

}  // namespace

class FileLocks::Waiting {
 public:
  Waiting(FileLocks& locks, const Wanted& wanted) : locks_(locks), wanted_(wanted) {
    locks_.waiting_.insert(&wanted_);
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  ~Waiting() { locks_.waiting_.erase(&wanted_); }

 private:
  FileLocks& locks_;
  const Wanted& wanted_;
};

bool FileLocks::conflict(const Holder& one, const FileLock& lock, const Holder& other,
                         const FileLock& held) {
  if (one == other || one.kind != other.kind) return false;
  if (lock.type == LockType::kUnlock || !overlap(held, lock.start, lock.end)) return false;
  return lock.type == LockType::kWrite || held.type == LockType::kWrite;
}

std::optional<FileLock> FileLocks::in_the_way(OpenOwner client, Ino ino,
                                              const FileLock& lock) const {
  const auto found = files_.find(ino);
  if (found == files_.end()) return std::nullopt;
  for (const auto& [holder, held] : found->second) {
    if (conflict(holder_of(client, lock), lock, holder, held)) return held;
  }
  return std::nullopt;
}

std::vector<FileLocks::Holder> FileLocks::holders_in_the_way(const Wanted& wanted) const {
  std::vector<Holder> holders;
  const auto found = files_.find(wanted.ino);
  if (found == files_.end()) return holders;
  for (const auto& [holder, held] : found->second) {
    if (conflict(wanted.holder, wanted.lock, holder, held)) holders.push_back(holder);
  }
  return holders;
}

bool FileLocks::deadlocks(const Wanted& wanted) const {
  std::set<Holder> seen;
  std::vector<Holder> next = holders_in_the_way(wanted);
  while (!next.empty()) {
    const Holder holder = next.back();
    next.pop_back();
    if (holder == wanted.holder) return true;
    if (!seen.insert(holder).second) continue;
    for (const Wanted* other : waiting_) {
      if (other->holder != holder) continue;
      const std::vector<Holder> behind = holders_in_the_way(*other);
      next.insert(next.end(), behind.begin(), behind.end());
    }
  }
  return false;
}

void FileLocks::add(OfFile& of, const Holder& holder, const FileLock& lock) {
  of.emplace(holder, lock);
  ++size_;
  ++of_client_[holder.client];
}

// What of the holder's locks lies before and behind the range stays.
void FileLocks::erase_range(OfFile& of, const Holder& holder, uint64_t start, uint64_t end) {
  std::vector<FileLock> rest;
  auto [at, last] = of.equal_range(holder);
  while (at != last) {
    const FileLock held = at->second;
    if (!overlap(held, start, end)) {
      ++at;
      continue;
    }
    at = of.erase(at);
    --size_;
    --of_client_[holder.client];
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

bool FileLocks::set(OpenOwner client, Ino ino, const FileLock& lock) {
  PMSTORE_CHECK(lock.start <= lock.end, "a lock has a range");
  const Holder holder = holder_of(client, lock);
  const auto count = of_client_.find(client);
  if (lock.type != LockType::kUnlock && count != of_client_.end() &&
      count->second + 2 > kMaxLocks) {
    return false;
  }
  OfFile& of = files_[ino];
  erase_range(of, holder, lock.start, lock.end);
  FileLock merged = lock;
  if (lock.type != LockType::kUnlock) {
    // Neighbours of the same type become one with it.
    auto [at, last] = of.equal_range(holder);
    while (at != last) {
      const FileLock& held = at->second;
      const bool before = merged.start != 0 && held.end == merged.start - 1;
      const bool behind = merged.end != UINT64_MAX && held.start == merged.end + 1;
      if (held.type != merged.type || held.pid != merged.pid || (!before && !behind)) {
        ++at;
        continue;
      }
      merged.start = std::min(merged.start, held.start);
      merged.end = std::max(merged.end, held.end);
      at = of.erase(at);
      --size_;
      --of_client_[client];
    }
    add(of, holder, merged);
  }
  if (of.empty()) files_.erase(ino);
  if (const auto now = of_client_.find(client); now != of_client_.end() && now->second == 0) {
    of_client_.erase(now);
  }
  changed_.notify_all();
  return true;
}

base::Task<FileLocks::Outcome> FileLocks::lock(OpenOwner client, Ino ino, FileLock lock,
                                               uint64_t wait_ns) {
  const uint64_t until_ns = executor_.now_ns() + wait_ns;
  const Wanted wanted{holder_of(client, lock), ino, lock};
  while (in_the_way(client, ino, lock)) {
    if (wait_ns == 0 || executor_.now_ns() >= until_ns) co_return Outcome::kBusy;
    if (lock.kind == LockKind::kRange && deadlocks(wanted)) co_return Outcome::kDeadlock;
    const Waiting waiting(*this, wanted);
    if (!std::exchange(ticking_, true)) {
      ticks_ = tick();
      ticks_.start();
    }
    co_await changed_.wait();
  }
  co_return set(client, ino, lock) ? Outcome::kDone : Outcome::kTooMany;
}

base::Task<void> FileLocks::tick() {
  while (!waiting_.empty()) {
    co_await executor_.sleep_for(kTickNs);
    changed_.notify_all();
  }
  ticking_ = false;
}

void FileLocks::drop(OpenOwner client) {
  for (auto file = files_.begin(); file != files_.end();) {
    size_ -=
        std::erase_if(file->second, [&](const auto& each) { return each.first.client == client; });
    file = file->second.empty() ? files_.erase(file) : std::next(file);
  }
  of_client_.erase(client);
  changed_.notify_all();
}

bool FileLocks::holds(OpenOwner client, Ino ino, LockKind kind, uint64_t owner) const {
  const auto found = files_.find(ino);
  return found != files_.end() && found->second.contains(Holder{client, kind, owner});
}

std::vector<FileLocks::Held> FileLocks::held_by(OpenOwner client) const {
  std::vector<Held> all;
  for (const auto& [ino, of] : files_) {
    for (const auto& [holder, lock] : of) {
      if (holder.client == client) all.push_back({ino, lock});
    }
  }
  return all;
}

}  // namespace pmstore::fs::internal
