// What the server does beside its answers when records have taken space, or need less: regions for
// new frames, and extents of empty ones that go back to the pool; and after a start from a
// checkpoint, a look at what it has not read. See pmstore/server/server_state.h.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "persist/sparse_blocks.h"
#include "pmstore/server/pinned_memory.h"
#include "pmstore/server/server_state.h"

namespace pmstore::internal {
namespace {

// A hole of so many bytes takes some 0.2 ms of processor time on tmpfs. The pool punches smaller
// ones where a disk is behind them.
constexpr uint64_t kReleasedAtATime = 1 << 20;
// A client that has neither confirmed a list of frames for so many leases nor sent anything is
// ended; and one that sends and does not confirm, after twice that.
constexpr uint64_t kLeasesToConfirm = 2;
// Of one turn: at most 16,384 slots of 64 bytes.
constexpr uint32_t kChunksPerTurn = 16;
// The same where a header is written for each, which is not urgent.
constexpr uint32_t kIdleChunksPerTurn = 4;
// Each is a page that is read.
constexpr uint32_t kHeadersPerTurn = 32;
// Each is a hole of its own, of 60 KiB.
constexpr uint32_t kHolesPerTurn = 2;

// Records move when fewer than a 256th of them was erased, beyond what was inserted, in so much
// time.
constexpr uint64_t kQuietNs = 500'000'000;
constexpr uint64_t kSmallShare = 256;
// A scan is over when no page of it was asked for in so much time.
constexpr uint64_t kScanPauseNs = 10'000'000'000;
// Each attempt to move in a log that is held writes anew what holds it. So the pauses grow, and the
// release of as much as the last attempt lacked ends one.
constexpr unsigned kMostHeldDoublings = 7;  // to 64 s

// A page that is read, or a drain, may take as long as the disk.
bool waits_for_a_disk(const persist::Pool& pool) {
  return pool.info().domain == persist::Domain::kNone;
}

}  // namespace

bool ServerCore::register_one_frame() {
  for (const auto& endpoint : host.endpoints()) {
    if (regions_at(*endpoint).records->register_one()) return true;
  }
  return false;
}

// A client that was told of the region may have a READ under way.
bool ServerCore::is_known(uint32_t frame) const {
  return std::any_of(places.begin(), places.end(), [&](const Place& place) {
    return place.session && (place.session->known_frames >> frame & 1) != 0;
  });
}

// No slot of it is handed out any more, and lists of regions do not name it. Those which know its
// region are told that there is another list.
bool ServerCore::set_frame_aside() {
  SlabArena& arena = store->arena();
  const auto frame = store->failed() ? std::nullopt : arena.empty_frame(0);
  if (!frame) return false;
  arena.set_aside(*frame);
  leaving_[*frame] = {++region_list, executor.now_ns() + kLeasesToConfirm * lease_ns(options)};
  for (const Place& place : places) {
    if (!place.session || (place.session->known_frames >> *frame & 1) == 0) continue;
    tell_of_list(*place.session);
    if (!watching_leaving_) run(watch_leaving());
  }
  return true;
}

// Counted by session: the client sees another notice than it has seen last, however many lists it
// was not told of. 0 is what replies show before the first one.
void ServerCore::tell_of_list(Session& session) {
  if (++session.notice == 0) ++session.notice;
  session.peer->set_notice(session.notice);
  note_heard(session);
}

void ServerCore::note_heard(Session& session) {
  if (std::exchange(session.heard_calls, session.work.calls) == session.work.calls) return;
  session.heard_ns = executor.now_ns();
}

// The client accesses nothing any more that the list of that number has not.
void ServerCore::confirm_list(Session& session, uint64_t list) {
  for (uint64_t left = session.known_frames & store->arena().aside(); left != 0; left &= left - 1) {
    const auto frame = static_cast<unsigned>(std::countr_zero(left));
    if (leaving_[frame].list > list) continue;
    session.known_frames &= ~(uint64_t{1} << frame);
    look_at_frames_again();
  }
  follow_frames();
}

base::Task<void> ServerCore::watch_leaving() {
  watching_leaving_ = true;
  while (store->arena().aside() != 0 && !store->failed()) {
    co_await executor.sleep_for(lease_ns(options) / kLooksPerLease);
    for (size_t i = 0; i < places.size(); ++i) {
      const std::shared_ptr<Session> session = places[i].session;
      if (!session) continue;
      note_heard(*session);
      if (!is_late_to_confirm(*session)) continue;
      ++totals.frames_deaf;
      host.end(*session, SessionEnd::kSilent);
    }
  }
  watching_leaving_ = false;
}

// What a client has sent within a lease cannot be lost: it relies on that and asks nothing before
// its next operation. So the two leases begin with the last request that has come.
bool ServerCore::is_late_to_confirm(const Session& session) const {
  const uint64_t time_ns = kLeasesToConfirm * lease_ns(options);
  for (uint64_t left = session.known_frames & store->arena().aside(); left != 0; left &= left - 1) {
    const auto frame = static_cast<unsigned>(std::countr_zero(left));
    const uint64_t until_ns = leaving_[frame].until_ns;
    const uint64_t late_ns = std::clamp(session.heard_ns + time_ns, until_ns, until_ns + time_ns);
    if (late_ns <= executor.now_ns()) return true;
  }
  return false;
}

// One that was set aside and that no session knows.
std::optional<uint32_t> ServerCore::frame_to_free() const {
  for (uint64_t left = store->arena().aside(); left != 0; left &= left - 1) {
    const auto frame = static_cast<uint32_t>(std::countr_zero(left));
    if (!is_known(frame)) return frame;
  }
  return std::nullopt;
}

void ServerCore::free_frame(uint32_t frame) {
  const auto withdraw = [&] {
    for (const auto& endpoint : host.endpoints()) regions_at(*endpoint).records->withdraw(frame);
  };
  const auto freed = store->give_back_frame(frame, withdraw);
  if (!freed) return look_for_failure();
  if (!*freed) return store->arena().take_in_again(frame);
  ++totals.frames_freed;
}

// Only where it saves blocks: a slab that stays needs no new header for the next record.
bool ServerCore::give_back_idle_slabs() {
  SlabArena& arena = store->arena();
  if (idle_seen_ == arena.changes() || store->failed()) return false;
  if (persist::SparseBlocks::of(pool) == nullptr) return false;
  const auto all = store->give_back_idle_slabs(waits_for_a_disk(pool) ? 1 : kIdleChunksPerTurn,
                                               SlabArena::kKeptChunks);
  if (!all) {
    look_for_failure();
    return false;
  }
  if (*all) idle_seen_ = arena.changes();
  return true;
}

// As release_some_blocks() of what idle slabs have left in the extents.
bool ServerCore::release_leftovers() {
  SlabArena& arena = store->arena();
  persist::SparseBlocks* const blocks = persist::SparseBlocks::of(pool);
  if (leftovers_seen_ == arena.changes() || blocks == nullptr || store->failed()) return false;
  const bool all = arena.take_leftovers(kHolesPerTurn, [&](uint64_t offset, uint64_t bytes) {
    const auto& endpoints = host.endpoints();
    PMSTORE_CHECK(std::none_of(endpoints.begin(), endpoints.end(),
                               [](const auto& each) { return pins_memory(*each); }),
                  "no device has pinned what goes back to the file system");
    const auto released = blocks->give_back(offset, bytes);
    if (!released) ++totals.holes_failed;
    return released.value_or(false);
  });
  if (all) leftovers_seen_ = arena.changes();
  return true;
}

// Each step is a turn of the executor. Blocks go back when nothing else is to do. Frames that have
// become empty meanwhile go as a whole.
base::Task<void> ServerCore::work_on_frames() {
  following_frames_ = true;
  for (;;) {
    co_await executor.yield();  // answers go first
    if (frames_seen_ != store->arena().changes()) {
      co_await work_on_changes();
    } else if (!release_some_blocks() && !give_back_idle_slabs() && !release_leftovers()) {
      break;
    }
  }
  following_frames_ = false;
}

base::Task<void> ServerCore::work_on_changes() {
  SlabArena& arena = store->arena();
  frames_seen_ = arena.changes();
  while (register_one_frame()) co_await executor.yield();
  while (set_frame_aside()) co_await executor.yield();
  while (const auto frame = store->failed() ? std::nullopt : frame_to_free()) {
    if (arena.look_at_versions(*frame, kChunksPerTurn)) free_frame(*frame);
    co_await executor.yield();
  }
}

// Under lock discipline rnic clients lock the words of records, and records stay where they are.
void ServerCore::follow_sparse_slabs() {
  if (discipline == LockDiscipline::kCpu && discipline_decided) run(move_records());
}

// What is erased in the next moment need not be moved before.
base::Task<void> ServerCore::wait_for_fewer_erases() {
  const SlabArena& arena = store->arena();
  uint64_t used = 0;
  do {
    used = arena.used_slots();
    co_await executor.sleep_for(kQuietNs);
  } while (arena.used_slots() + used / kSmallShare < used);
}

base::Task<void> ServerCore::move_records() {
  const SlabArena& arena = store->arena();
  moving_records_ = true;
  scan_patience_ = {};
  while (!store->failed() && (arena.looks_sparse() || arena.is_emptying())) {
    co_await wait_for_fewer_erases();
    co_await move_while_quiet();
    follow_frames();
  }
  moving_records_ = false;
}

// Until there is no scan that would have to begin again; but scans do not hold moves up for ever.
base::Task<void> ServerCore::wait_for_scans() {
  const ScanCursors& scans = store->scan_cursors();
  uint64_t pages = scans.pages();
  uint64_t quiet_ns = 0;
  while (scans.any_open() && pages != scans_over_at_ && scan_patience_.has(executor.now_ns())) {
    co_await executor.sleep_for(kQuietNs);
    scan_patience_.waited(kQuietNs, executor.now_ns());
    quiet_ns = scans.pages() == pages ? quiet_ns + kQuietNs : 0;
    pages = scans.pages();
    if (quiet_ns >= kScanPauseNs) scans_over_at_ = pages;
  }
}

base::Task<void> ServerCore::pause_after_move(uint64_t took_ns) {
  const unsigned waits = store->moving_waits();
  if (waits > 0) {
    move_at_ns_ = executor.now_ns() + (kQuietNs << std::min(waits - 1, kMostHeldDoublings));
    co_await executor.sleep_for(kQuietNs);
    co_await pause_while_held();
  } else if (took_ns > 0) {
    co_await executor.sleep_for(took_ns);
  }
}

bool ServerCore::moving_is_too_early() const {
  return store->moving_is_held() && executor.now_ns() < move_at_ns_;
}

// A release of the log ends it, unless others have taken again what was released.
base::Task<void> ServerCore::pause_while_held() {
  while (moving_is_too_early()) {
    base::Task<void> end = end_pause_in(move_at_ns_ - executor.now_ns());
    end.start();
    co_await move_again_.wait();
  }
}

base::Task<void> ServerCore::end_pause_in(uint64_t ns) {
  co_await executor.sleep_for(ns);
  move_again_.notify_all();
}

// Each step is a turn of the executor. It may keep others waiting, and a disk busy: so the steps
// take half of the time at most.
base::Task<void> ServerCore::move_while_quiet() {
  SlabArena& arena = store->arena();
  const bool disk = waits_for_a_disk(pool);
  const size_t most = disk ? RecordMover::kMostRecordsToDisk : RecordMover::kMostRecords;
  uint64_t used = arena.used_slots();
  uint64_t since_ns = executor.now_ns();
  while (!store->failed()) {
    co_await wait_for_scans();
    co_await executor.yield();  // answers go first
    group.finish();
    if (moving_is_too_early()) {
      co_await pause_while_held();
      continue;
    }
    const uint64_t begun_ns = executor.now_ns();
    const auto more = store->move_some_records(most);
    const uint64_t ended_ns = executor.now_ns();
    if (!more) look_for_failure();
    if (!more || !*more) co_return;
    follow_frames();
    co_await pause_after_move(ended_ns - begun_ns);
    if (arena.used_slots() + used / kSmallShare < used) co_return;
    if (ended_ns - since_ns < kQuietNs) continue;
    used = arena.used_slots();
    since_ns = ended_ns;
  }
}

// Each look is a turn of the executor.
base::Task<void> ServerCore::look_at_headers() {
  const SlabArena::HeaderLook& look = store->arena().header_look();
  while (!look.over) {
    co_await executor.yield();  // answers go first
    if (!store->look_at_headers(waits_for_a_disk(pool) ? 1 : kHeadersPerTurn)) {
      look_for_failure();
      co_return;
    }
  }
  if (look.mended == 0 || options.observer == nullptr) co_return;
  options.observer->on_mended(fmt::format(
      "{} headers of slabs had a damaged copy, by a crash or by the medium, and were written anew; "
      "{} had lost the newest one, which only a medium does that loses data: see pmstore pool "
      "check",
      look.mended, look.lost));
}

// What the file system did not take stays, and is tried again when the next extent was freed.
bool ServerCore::release_some_blocks() {
  const auto released = pool.release_blocks(kReleasedAtATime);
  if (!released) ++totals.holes_failed;
  return released.value_or(false);
}

// What a client asks for, and what it confirms: see RegionsRequest.
base::Task<void> ServerCore::serve_frames(std::shared_ptr<Session> session, fabric::RpcCall call) {
  while (register_one_frame()) co_await executor.yield();
  RegionsReply reply{0, 0, region_list};
  MessageWriter writer(call.reply_room());
  writer.put(reply);
  if (session->reads_frames && !session->ended) {
    const auto frames = regions_at(*session->endpoint).records->list(session->known_frames);
    for (uint32_t frame = 0; frame < frames.size(); ++frame) {
      if (frames[frame].bytes == 0) continue;
      writer.put(NumberedRegion{frame, 0, frames[frame]});
      ++reply.count;
    }
  }
  if (writer.overflowed()) {
    call.reply_error(make_error(ErrorCode::kTooLarge, "the frames do not fit in the reply"));
    co_return;
  }
  std::memcpy(call.reply_room().data(), &reply, sizeof(reply));
  call.reply_filled(writer.bytes());
}

}  // namespace pmstore::internal
