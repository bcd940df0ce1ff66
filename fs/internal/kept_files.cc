#include "fs/internal/kept_files.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"

namespace pmstore::fs::internal {

// ---- opens ----

KeptFiles::Opened::Opened(KeptFiles& kept, Ino ino, uint64_t now)
    : kept_(kept), ino_(ino), now_(now) {
  kept_.opened_.emplace(ino_, this);
}

KeptFiles::Opened::~Opened() {
  const auto [first, last] = kept_.opened_.equal_range(ino_);
  const auto mine =
      std::find_if(first, last, [this](const auto& each) { return each.second == this; });
  PMSTORE_CHECK(mine != last, "an open is known until it ends");
  kept_.opened_.erase(mine);
}

void KeptFiles::Opened::use() {
  if (std::exchange(may_count_, false)) kept_.note(ino_, now_);
}

// ---- what is right ----

bool KeptFiles::is_doubtful(Ino ino) const { return all_are_doubtful_ || doubtful_.contains(ino); }

bool KeptFiles::is_right(Ino ino, uint64_t changed) const {
  if (is_doubtful(ino)) return false;
  const auto found = files_.find(ino);
  return found != files_.end() && changed <= found->second;
}

void KeptFiles::note(Ino ino, uint64_t now) {
  if (is_doubtful(ino)) return;
  if (files_.size() >= kMost && !files_.contains(ino)) files_.clear();
  uint64_t& known = files_[ino];
  known = std::max(known, now);
  PMSTORE_CHECK(files_.size() <= kMost, "files that are kept are bounded");
}

void KeptFiles::forget(Ino ino) {
  files_.erase(ino);
  const auto [first, last] = opened_.equal_range(ino);
  for (auto each = first; each != last; ++each) each->second->may_count_ = false;
}

void KeptFiles::clear() {
  files_.clear();
  for (const auto& [ino, opened] : opened_) opened->may_count_ = false;
}

// ---- writes that were given up ----

void KeptFiles::doubt(Ino ino) {
  forget(ino);
  ++doubts_;
  if (doubtful_.size() < kMost) {
    doubtful_.insert(ino);
  } else {
    all_are_doubtful_ = true;
  }
  PMSTORE_CHECK(is_doubtful(ino), "a write that may land is in doubt");
  if (on_doubt) on_doubt(ino);
}

void KeptFiles::settle(uint64_t doubts) {
  if (doubts != doubts_) return;
  doubtful_.clear();
  all_are_doubtful_ = false;
}

// ---- changes of this client ----

OwnChange::OwnChange(KeptFiles& kept, Ino ino) : kept_(kept), ino_(ino) { kept_.forget(ino_); }

OwnChange::~OwnChange() { has_ended_ ? kept_.forget(ino_) : kept_.doubt(ino_); }

void OwnChange::ended(int number) {
  has_ended_ = number == 0 || number == ENOSPC || number == EFBIG || number == EINVAL ||
               number == EOPNOTSUPP;
}

}  // namespace pmstore::fs::internal
