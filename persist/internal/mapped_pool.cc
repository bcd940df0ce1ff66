#include "persist/internal/mapped_pool.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <utility>

namespace pmstore::persist::internal {
namespace {

constexpr size_t kPathBytes = 512;

struct Place {
  std::atomic<bool> taken{false};
  std::atomic<uintptr_t> begin{0};  // 0: what is here is not to be read
  std::atomic<uintptr_t> end{0};
  char path[kPathBytes] = {};
};

std::array<Place, MappedPool::kMostMapped>& places() {
  static std::array<Place, MappedPool::kMostMapped> all;
  return all;
}

}  // namespace

MappedPool::MappedPool(std::span<const std::byte> mapping, const std::string& path) {
  for (size_t i = 0; i < kMostMapped; ++i) {
    Place& place = places()[i];
    if (place.taken.exchange(true)) continue;
    const size_t length = std::min(path.size(), kPathBytes - 1);
    std::memcpy(place.path, path.data(), length);
    place.path[length] = '\0';
    const auto begin = reinterpret_cast<uintptr_t>(mapping.data());
    place.end.store(begin + mapping.size());
    place.begin.store(begin);
    place_ = i;
    return;
  }
}

MappedPool::MappedPool(MappedPool&& other) noexcept : place_(std::exchange(other.place_, kNone)) {}

MappedPool& MappedPool::operator=(MappedPool&& other) noexcept {
  std::swap(place_, other.place_);
  return *this;
}

MappedPool::~MappedPool() {
  if (place_ == kNone) return;
  Place& place = places()[place_];
  place.begin.store(0);
  place.taken.store(false);
}

MappedPool::Found MappedPool::find(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (const Place& place : places()) {
    const uintptr_t begin = place.begin.load();
    if (begin != 0 && at >= begin && at < place.end.load()) return {place.path, at - begin};
  }
  return {nullptr, 0};
}

}  // namespace pmstore::persist::internal
