// What the server does beside its answers when records have taken space, or need less: regions for
// new frames, and extents of empty ones that go back to the pool. See
// pmstore/server/server_state.h.

#include "pmstore/server/server_state.h"

namespace pmstore::internal {
namespace {

// A hole of so many bytes takes some 0.2 ms of processor time on tmpfs.
constexpr uint64_t kReleasedAtATime = 1 << 20;

}  // namespace

bool ServerCore::register_one_frame() {
  for (const auto& endpoint : host.endpoints()) {
    if (regions_at(*endpoint).records->register_one()) return true;
  }
  return false;
}

// A client that was told of the region may have a READ under way, or a location in its cache.
bool ServerCore::is_known(uint32_t frame) const {
  return std::any_of(places.begin(), places.end(), [&](const Place& place) {
    return place.session && (place.session->known_frames >> frame & 1) != 0;
  });
}

void ServerCore::give_frames_back() {
  uint64_t kept = 0;
  while (!store->failed()) {
    const auto frame = store->arena().empty_frame(kept);
    if (!frame) return;
    kept |= uint64_t{1} << *frame;
    if (is_known(*frame)) continue;
    const auto withdraw = [&] {
      for (const auto& endpoint : host.endpoints()) regions_at(*endpoint).records->withdraw(*frame);
    };
    if (!store->give_back_frame(*frame, withdraw)) return look_for_failure();
  }
}

base::Task<void> ServerCore::work_on_frames() {
  following_frames_ = true;
  while (frames_seen_ != store->arena().changes()) {
    frames_seen_ = store->arena().changes();
    co_await executor.yield();  // answers go first
    while (register_one_frame()) co_await executor.yield();
    give_frames_back();
    while (pool.release_blocks(kReleasedAtATime)) co_await executor.yield();
  }
  following_frames_ = false;
}

}  // namespace pmstore::internal
