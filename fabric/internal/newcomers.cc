#include "fabric/internal/newcomers.h"

namespace pmstore::fabric::internal {

Newcomers::~Newcomers() {
  PMSTORE_CHECK(all_.empty() && origins_.empty(), "newcomers leave before their list ends");
}

void Newcomers::add(Newcomer& newcomer, const Origin& origin, uint64_t now_ns) {
  newcomer.origin = origin;
  newcomer.since_ns = now_ns;
  all_.push_back(newcomer);
  origins_[origin].push_back(newcomer);
}

void Newcomers::remove(Newcomer& newcomer) {
  all_.remove(newcomer);
  const auto found = origins_.find(newcomer.origin);
  PMSTORE_CHECK(found != origins_.end(), "a newcomer keeps its origin");
  found->second.remove(newcomer);
  if (found->second.empty()) origins_.erase(found);
}

Newcomer* Newcomers::oldest_of_most() const {
  const OfOrigin* most = nullptr;
  for (const auto& [origin, list] : origins_) {
    if (most == nullptr || list.size() > most->size() ||
        (list.size() == most->size() && list.front()->since_ns < most->front()->since_ns)) {
      most = &list;
    }
  }
  return most == nullptr ? nullptr : most->front();
}

Newcomer* Newcomers::surplus(const Origin& origin, uint64_t now_ns) const {
  const auto own = origins_.find(origin);
  if (own != origins_.end() && own->second.size() >= most_of_origin_ &&
      now_ns - own->second.front()->since_ns >= kGraceNs) {
    return own->second.front();
  }
  return size() >= most_ ? oldest_of_most() : nullptr;
}

}  // namespace pmstore::fabric::internal
