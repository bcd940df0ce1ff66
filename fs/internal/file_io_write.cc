// Of FileIo: writes: over what is there, at the end of a file, and by calls.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "fs/internal/file_io.h"

namespace pmstore::fs::internal {
namespace {

constexpr uint16_t kSetIdBits = 06000;
// Smaller writes at the end of a file are calls, which cost one message; larger ones are cut.
constexpr uint64_t kLeastExtension = 128 * 1024;
constexpr uint64_t kMostExtension = 4 * kMaxMessageData;

}  // namespace

base::Task<PosixResult<Namespace::Written>> FileIo::write(Attributes known,
                                                          std::optional<uint64_t> offset,
                                                          WriteBuffers from, Way way) {
  if (way.atomic && from.bytes() > kMaxMessageData) {
    co_return PosixError(EINVAL, "at most 1 MiB is written as a whole: write it in parts");
  }
  Namespace::Written all{known, offset.value_or(0)};
  uint64_t done = 0;
  unsigned stale = 0;
  bool extends = true;
  while (done < from.bytes()) {
    const uint64_t at = offset.value_or(0) + done;
    Range part{done, from.bytes() - done};
    PMSTORE_CO_TRY_STATUS(co_await check_known());
    CachedMapRef map;
    // A write takes the set-id bits away, which only the server can do with it.
    if (offset && !way.atomic && stale < kMaxTries && (known.mode & kSetIdBits) == 0) {
      PMSTORE_CO_TRY(map, co_await map_at(known, at));
    }
    uint64_t mapped = 0;
    if (map != nullptr && (map->attributes.mode & kSetIdBits) != 0) map.reset();
    if (map != nullptr && at < map->attributes.size) {
      const uint64_t below_size = std::min<uint64_t>(part.bytes, map->attributes.size - at);
      mapped = map->allocated_from(at, below_size);
    }
    // A short beginning goes with the rest.
    if (mapped == part.bytes || mapped >= kMaxMessageData) {
      part.bytes = mapped;
      PMSTORE_CO_TRY(const Step step,
                     co_await write_mapped(known.ino, map, at, from, part, way.sync));
      if (step == Step::kDone) {
        done += mapped;
      } else if (++stale == kMaxTries) {
        PMSTORE_CO_TRY_STATUS(co_await renew_sessions(map));
      }
      continue;
    }
    if (offset && !way.atomic && extends && stale < kMaxTries &&
        may_extend(all.attributes, at, part.bytes)) {
      const Range room{part.offset, std::min(part.bytes, kMostExtension)};
      PMSTORE_CO_TRY(const Step step, co_await extend(all.attributes, at, from, room));
      if (step == Step::kDone) {
        done += room.bytes;
        continue;
      }
      extends = false;  // the rest by calls
      map.reset();
      maps_.forget(known.ino);  // a call gives it extents that a map does not know
    }
    part.bytes = std::min<uint64_t>(part.bytes, kMaxMessageData);
    std::optional<uint64_t> where;
    if (offset) where = at;
    PMSTORE_CO_TRY(const auto written,
                   co_await write_by_call(known.ino, where, from, part, way.atomic));
    // It has extents now that the map does not know.
    if (map != nullptr && at < map->to && part.bytes > mapped) maps_.forget(known.ino);
    if (way.atomic) maps_.forget(known.ino);
    if (!offset && done == 0) all.offset = written.offset;
    all.attributes = written.attributes;
    done += part.bytes;
    stale = 0;  // behind some progress the rest is tried without the server again
  }
  co_return all;
}

// A server that has forgotten this client gives its locks to others, after a while.
base::Task<PosixStatus> FileIo::check_known() {
  if (link_.is_known()) co_return PosixStatus{};
  co_return co_await link_.ask_whether_known();
}

base::Task<PosixResult<FileIo::Step>> FileIo::write_mapped(Ino ino, CachedMapRef map,
                                                           uint64_t offset, WriteBuffers from,
                                                           Range part, DataSync sync) {
  std::vector<WritePiece> pieces;
  std::vector<MapExtent> written;
  for (auto at = map->extent_at(offset); part.bytes > 0; ++at) {
    PMSTORE_CHECK(at != map->extents.end(), "the range is allocated");
    uint64_t in_extent = offset - at->file_offset;
    const auto bytes = std::min(part.bytes, at->place.bytes - in_extent);
    written.push_back({offset, {at->place.server, at->place.offset + in_extent, bytes}, 0});
    from.each(part.offset, bytes, [&](std::span<const std::byte> piece) {
      pieces.push_back({*at, in_extent, piece});
      in_extent += piece.size();
    });
    part = {part.offset + bytes, part.bytes - bytes};
    offset += bytes;
  }
  touch_later(ino);  // a part of it may be written even if this task is destroyed
  const auto outcome = co_await data_.write(map->sessions, ino, std::move(pieces), sync);
  touch_later(ino);
  const bool is_visible_only = outcome == DataOutcome::kDone && sync == DataSync::kFsync;
  if (is_visible_only && unsynced_.add(ino, map->sessions, written)) {
    PMSTORE_CO_TRY_STATUS(co_await unsynced_.persist(ino));
  }
  const bool lost = !outcome && lost_session(outcome.error());
  auto step = step_after(ino, outcome);
  if (!step) co_return PosixError(step.error());
  if (lost) {
    if (options_.reconnect_timeout_ns == 0) co_return PosixError(outcome.error());
    co_await executor_.sleep_for(kTryAgainNs);
  }
  co_return *step;
}

bool FileIo::may_extend(const Attributes& known, uint64_t offset, uint64_t bytes) const {
  const bool has_inline_data = known.is_inline && known.size > 0;
  return !no_data_ && bytes >= kLeastExtension && offset <= known.size &&
         offset + bytes > known.size && !has_inline_data && (known.mode & kSetIdBits) == 0;
}

base::Task<PosixResult<FileIo::Step>> FileIo::extend(Attributes& known, uint64_t offset,
                                                     WriteBuffers from, Range part) {
  const Ino ino = known.ino;
  uint64_t reservation = 0;
  auto found = co_await ask_for({FilesMethod::kReserve, ino, offset, part.bytes}, &reservation);
  // It has another size by now, or there is room for smaller parts.
  const bool by_calls = !found && (found.number() == EINVAL || found.number() == ENOSPC);
  if (by_calls) co_return Step::kAgain;
  if (!found) co_return PosixError(found.error());
  CachedMapRef map = std::move(*found);
  if (map == nullptr || map->allocated_from(offset, part.bytes) < part.bytes) {
    co_return Step::kAgain;
  }
  for (const MapExtent& extent : map->extents) {
    if (!data_.was_opened(extent.place.server)) co_return Step::kAgain;
  }
  const bool all_was_told = untold(ino) == 0;
  // It is durable before the size is.
  PMSTORE_CO_TRY(const Step written,
                 co_await write_mapped(ino, map, offset, from, part, DataSync::kAlways));
  if (written == Step::kAgain) {
    PMSTORE_CO_TRY_STATUS(co_await renew_sessions(map));
    co_return Step::kAgain;
  }
  const uint64_t number = untold(ino);
  const auto published = co_await publish(ino, reservation, offset + part.bytes);
  if (!published && published.number() == EAGAIN) {
    maps_.forget(ino);
    co_return Step::kAgain;
  }
  if (!published) co_return PosixError(published.error());
  // The times are those of this write.
  if (all_was_told && untold(ino) == number) written_.erase(ino);
  known = *published;
  co_return Step::kDone;
}

// A server ends the session before when it lets the next one in. Calls do not look at words: what
// arrives behind a call would take the place of bytes that were acknowledged.
base::Task<PosixStatus> FileIo::renew_sessions(CachedMapRef map) {
  std::set<uint16_t> servers;
  for (const MapExtent& extent : map->extents) servers.insert(extent.place.server);
  for (const uint16_t server : servers) {
    const Status opened = co_await data_.open(server);
    if (!opened) co_return PosixError(opened.error());
  }
  co_return PosixStatus{};
}

base::Task<PosixResult<Attributes>> FileIo::publish(Ino ino, uint64_t reservation, uint64_t size) {
  FilesCall request(FilesMethod::kPublish, true, sizeof(WireAttributes));
  request.put(PublishRequest{raw(ino), reservation, size});
  const auto answered = co_await link_.call(request);
  if (!answered) co_return PosixError(answered.error());
  fabric::MessageReader reader = answered->reader();
  const auto attributes = decode_attributes(reader);
  if (!attributes || !reader.complete()) co_return link_.malformed("a write");
  maps_.note(*attributes);
  co_return *attributes;
}

// ---- by calls ----

base::Task<PosixResult<Namespace::Written>> FileIo::write_by_call(Ino ino,
                                                                  std::optional<uint64_t> offset,
                                                                  WriteBuffers from, Range part,
                                                                  bool atomic) {
  // A message has its data in one piece.
  std::span<const std::byte> bytes;
  std::vector<std::byte> joined;
  from.each(part.offset, part.bytes, [&](std::span<const std::byte> piece) {
    if (piece.size() == part.bytes) bytes = piece;
    if (piece.size() < part.bytes) joined.insert(joined.end(), piece.begin(), piece.end());
  });
  if (!joined.empty()) bytes = joined;
  FilesCall request(FilesMethod::kWrite, true, sizeof(WireAttributes) + sizeof(WriteReply));
  WriteRequest asked;
  asked.ino = raw(ino);
  asked.offset = offset.value_or(0);
  asked.bytes = static_cast<uint32_t>(bytes.size());
  asked.append = offset ? 0 : 1;
  asked.atomic = atomic ? 1 : 0;
  request.put(asked);
  request.data = bytes;
  request.may_be_repeated_in_doubt = offset.has_value();
  const auto answered = co_await link_.call(request);
  if (!answered) co_return PosixError(answered.error());
  fabric::MessageReader reader = answered->reader();
  const auto attributes = decode_attributes(reader);
  const auto where = reader.get<WriteReply>();
  if (!attributes || !reader.complete()) co_return link_.malformed("a write");
  maps_.note(*attributes);
  co_return Namespace::Written{*attributes, where.offset};
}

}  // namespace pmstore::fs::internal
