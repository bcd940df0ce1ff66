#include "fs/internal/file_io.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace pmstore::fs::internal {
namespace {

constexpr uint32_t kMapReplyBytes = 64 * 1024;
// So much of a map is asked for at a time, from the offset that is needed on.
constexpr uint64_t kMapWindow = uint64_t{4} << 30;
// After so many accesses to a hole by calls, its file's map is asked for again.
constexpr unsigned kHolesPerMap = 16;
// So long news wait for the end of accesses by the maps that they make stale.
constexpr uint64_t kMostLandingNs = 200'000'000;
// In the background so many files are flushed at a time, beside those that take longer than this.
constexpr size_t kFlushesAtOnce = 16;
constexpr uint64_t kLongFlushNs = 200'000'000;
constexpr uint64_t kFlushLookNs = 100'000;

}  // namespace

bool FileIo::lost_session(const Error& why) {
  return why.code == ErrorCode::kDisconnected || why.code == ErrorCode::kTimeout;
}

FileIo::FileIo(base::Executor& executor, fabric::Device& device, fabric::Uri uri, FilesLink& link,
               const FileSystemOptions& options)
    : executor_(executor),
      link_(link),
      options_(options),
      maps_(options.cached_maps),
      data_(executor, device, std::move(uri), link, options),
      unsynced_(executor, data_),
      no_data_(!options.one_sided_data || options.cached_maps == 0) {
  unsynced_.on_loss = [this](Ino ino) {
    if (on_loss) on_loss(ino);
  };
}

FileIo::~FileIo() {
  touches_ = {};
  flushes_ = {};
}

fabric::Counters FileIo::counters() const { return data_.counters(); }

base::Task<UnlandedWrites> FileIo::drop_maps(uint64_t through, bool all, std::vector<Ino> changed) {
  maps_.drop(through, all, changed);
  // One data server that does not answer holds up what it has, and nothing else.
  return data_.unlanded(executor_.now_ns() + kMostLandingNs);
}

base::Task<void> FileIo::close() {
  touches_ = {};
  touching_ = false;
  co_await start_flushes();
  uint64_t until_ns = executor_.now_ns() + options_.call_timeout_ns;
  for (size_t left = flushing_.size(); left > 0 && executor_.now_ns() < until_ns;) {
    co_await executor_.sleep_for(kFlushLookNs);
    if (flushing_.size() < left) until_ns = executor_.now_ns() + options_.call_timeout_ns;
    left = flushing_.size();
  }
  // A server that is away does not hear of it: what it has is not durable, and mtime stays.
  flushes_ = {};
  flushing_.clear();
  co_await data_.close();
}

// ---- maps ----

// False: the map is to be asked for again, since a session was made for it. What lies at a server
// that is away is not: an access to it says why.
base::Task<bool> FileIo::open_servers(const CachedMap& map, const DataSessions& known) {
  std::set<uint16_t> missing;
  for (const MapExtent& extent : map.extents) {
    const uint16_t server = extent.place.server;
    if (server >= known.size() || known[server] == 0) missing.insert(server);
  }
  bool opened_one = false;
  for (const uint16_t server : missing) {
    const Status opened = co_await data_.open(server);
    no_data_ |= !opened && opened.code() == ErrorCode::kUnsupported &&
                options_.write_strategy == persist::WriteStrategy::kAuto;
    opened_one |= opened.has_value();
  }
  co_return !opened_one && !no_data_;
}

base::Task<PosixResult<CachedMapRef>> FileIo::map_at(const Attributes& known, uint64_t offset) {
  if (no_data_) co_return CachedMapRef();
  // A reservation gives an empty file extents, which are not its data while it is inline.
  if (CachedMapRef cached = maps_.find(known.ino);
      cached != nullptr && !cached->attributes.is_inline &&
      (cached->knows(offset) || offset >= cached->attributes.size)) {
    co_return cached;
  }
  if (known.is_inline || offset >= known.size) co_return CachedMapRef();
  co_return co_await ask_for_map(known.ino, offset);
}

base::Task<PosixResult<FileIo::GivenMap>> FileIo::get_map(Wanted wanted) {
  FilesCall request(wanted.method, false, kMapReplyBytes);
  if (wanted.method == FilesMethod::kMap) {
    request.put(MapRequest{raw(wanted.ino), wanted.offset, wanted.bytes, 0, {}});
  } else {
    request.put(RangeRequest{raw(wanted.ino), wanted.offset, wanted.bytes});
  }
  const auto answered = co_await link_.call(request);
  if (!answered) co_return PosixError(answered.error());
  fabric::MessageReader reader = answered->reader();
  const auto attributes = decode_attributes(reader);
  const auto head = reader.get<MapReply>();
  GivenMap given;
  FileMap& map = given.mapped.map;
  for (uint32_t i = 0; i < head.count && !reader.failed(); ++i) {
    map.extents.push_back(get_extent(reader));
  }
  if (!attributes || !reader.complete()) co_return link_.malformed("a map");
  given.mapped.attributes = *attributes;
  map.from = head.from;
  map.to = head.to;
  given.news_before = head.news_before;
  given.reservation = head.reservation;
  co_return given;
}

base::Task<PosixResult<CachedMapRef>> FileIo::ask_for_map(Ino ino, uint64_t offset) {
  return ask_for({FilesMethod::kMap, ino, offset, kMapWindow}, nullptr);
}

base::Task<PosixResult<CachedMapRef>> FileIo::ask_for(Wanted wanted, uint64_t* reservation) {
  for (unsigned i = 0; i < kMaxTries && !no_data_; ++i) {
    const Status opened = co_await data_.open(0);
    if (!opened && opened.code() == ErrorCode::kUnsupported &&
        options_.write_strategy == persist::WriteStrategy::kAuto) {
      no_data_ = true;
      co_return CachedMapRef();
    }
    // A client that has never had a session extends files by calls.
    if (!opened && reservation != nullptr && !data_.was_opened(0)) co_return CachedMapRef();
    if (!opened) co_return PosixError(opened.error());
    if (reservation != nullptr && !data_.is_one_sided(0)) co_return CachedMapRef();
    DataSessions sessions = data_.sessions();
    // The answer's room in the session is free before a data server is waited for.
    auto got = co_await get_map(wanted);
    if (!got) co_return PosixError(got.error());
    if (got->mapped.attributes.is_inline && reservation == nullptr) co_return CachedMapRef();
    auto map = std::make_shared<CachedMap>();
    map->attributes = got->mapped.attributes;
    map->from = got->mapped.map.from;
    map->to = got->mapped.map.to;
    map->extents = std::move(got->mapped.map.extents);
    map->sessions = std::move(sessions);
    const bool is_usable = co_await open_servers(*map, map->sessions);
    if (!is_usable) continue;
    if (reservation != nullptr) *reservation = got->reservation;
    if (maps_.put(wanted.ino, map, got->news_before)) co_return map;
  }
  co_return CachedMapRef();
}

base::Task<PosixResult<Namespace::Mapped>> FileIo::fetch_map(Ino ino, uint64_t offset,
                                                             uint64_t bytes) {
  auto got = co_await get_map({FilesMethod::kMap, ino, offset, bytes});
  if (!got) co_return PosixError(got.error());
  co_return std::move(got->mapped);
}

// ---- by calls ----

base::Task<PosixResult<uint64_t>> FileIo::read_by_call(Ino ino, uint64_t offset, ReadBuffers into,
                                                       Range part) {
  FilesCall request(FilesMethod::kRead, false, static_cast<uint32_t>(part.bytes));
  request.put(RangeRequest{raw(ino), offset, part.bytes});
  const auto answered = co_await link_.call(request);
  if (!answered) co_return PosixError(answered.error());
  std::span<const std::byte> bytes = answered->body;
  const uint64_t got = bytes.size();
  if (got > part.bytes) co_return link_.malformed("a read");
  into.each(part.offset, got, [&](std::span<std::byte> piece) {
    std::memcpy(piece.data(), bytes.data(), piece.size());
    bytes = bytes.subspan(piece.size());
  });
  co_return got;
}

// ---- reads ----

base::Task<PosixResult<uint64_t>> FileIo::read(Attributes known, uint64_t offset,
                                               ReadBuffers into) {
  uint64_t done = 0;
  unsigned stale = 0;
  while (done < into.bytes()) {
    const uint64_t at = offset + done;
    Range part{done, into.bytes() - done};
    CachedMapRef map;
    if (stale < kMaxTries) {
      auto found = co_await map_at(known, at);
      if (!found) co_return PosixError(found.error());
      map = std::move(*found);
    }
    uint64_t mapped = 0;
    if (map != nullptr && at < map->attributes.size) {
      const uint64_t below_size = std::min<uint64_t>(part.bytes, map->attributes.size - at);
      mapped = map->allocated_from(at, below_size);
    }
    if (mapped > 0) {
      part.bytes = mapped;
      auto step = co_await read_mapped(known.ino, std::move(map), at, into, part);
      if (!step) co_return PosixError(step.error());
      if (*step == Step::kDone) {
        done += mapped;
      } else {
        ++stale;
      }
      continue;
    }
    part.bytes = std::min<uint64_t>(part.bytes, kMaxMessageData);
    if (map != nullptr && map->knows(at)) {
      // Up to the next extent, which is read one-sided.
      const auto next = std::find_if(map->extents.begin(), map->extents.end(),
                                     [at](const MapExtent& each) { return each.file_offset > at; });
      if (next != map->extents.end()) part.bytes = std::min(part.bytes, next->file_offset - at);
      if (at < map->attributes.size && ++map->holes_hit >= kHolesPerMap) maps_.forget(known.ino);
    }
    const auto got = co_await read_by_call(known.ino, at, into, part);
    if (!got) co_return PosixError(got.error());
    done += *got;
    stale = 0;
    // The file has grown.
    if (map != nullptr && *got > 0 && at >= map->attributes.size) maps_.forget(known.ino);
    if (*got < part.bytes) break;
  }
  co_return done;
}

// What an access by a map leads to. An error is one that no repetition mends.
Result<FileIo::Step> FileIo::step_after(Ino ino, const Result<DataOutcome>& outcome) {
  if (outcome && *outcome == DataOutcome::kDone) return Step::kDone;
  maps_.forget(ino);
  if (outcome || lost_session(outcome.error())) return Step::kAgain;
  return Error(outcome.error());
}

base::Task<PosixResult<FileIo::Step>> FileIo::read_mapped(Ino ino, CachedMapRef map,
                                                          uint64_t offset, ReadBuffers into,
                                                          Range part) {
  std::vector<ReadPiece> pieces;
  for (auto at = map->extent_at(offset); part.bytes > 0; ++at) {
    PMSTORE_CHECK(at != map->extents.end(), "the range is allocated");
    uint64_t in_extent = offset - at->file_offset;
    const auto bytes = std::min(part.bytes, at->place.bytes - in_extent);
    into.each(part.offset, bytes, [&](std::span<std::byte> piece) {
      pieces.push_back({*at, in_extent, piece});
      in_extent += piece.size();
    });
    part = {part.offset + bytes, part.bytes - bytes};
    offset += bytes;
  }
  const auto outcome = co_await data_.read(map->sessions, std::move(pieces));
  const bool lost = !outcome && lost_session(outcome.error());
  auto step = step_after(ino, outcome);
  if (!step) co_return PosixError(step.error());
  if (lost) {
    if (options_.reconnect_timeout_ns == 0) co_return PosixError(outcome.error());
    co_await executor_.sleep_for(kTryAgainNs);
  }
  co_return *step;
}

// ---- mtime ----

void FileIo::touch_later(Ino ino) {
  written_[ino] = ++last_write_;
  start_touching();
}

void FileIo::read_later(Ino ino) {
  // The one that is the latest when the server hears of it.
  read_[ino] = executor_.now_ns();
  start_touching();
}

void FileIo::start_touching() {
  if (std::exchange(touching_, true)) return;
  touches_ = touch_all();
  touches_.start();
}

bool FileIo::has_to_flush() const { return !written_.empty() || !read_.empty() || unsynced_.any(); }

base::Task<void> FileIo::touch_all() {
  while (has_to_flush()) {
    co_await executor_.sleep_for(kTouchNs);
    co_await start_flushes();
  }
  touching_ = false;
}

size_t FileIo::begun_lately() const {
  const auto is_late = [this](const auto& each) {
    return executor_.now_ns() - each.second < kLongFlushNs;
  };
  return static_cast<size_t>(std::count_if(flushing_.begin(), flushing_.end(), is_late));
}

base::Task<void> FileIo::start_flushes() {
  std::set<Ino> files = unsynced_.files();
  for (const auto& [ino, number] : written_) files.insert(ino);
  for (const auto& [ino, when] : read_) files.insert(ino);
  for (const Ino ino : files) {
    if (!flushing_.try_emplace(ino, executor_.now_ns()).second) continue;
    flushes_.run(flush_in_background(ino));
    while (begun_lately() >= kFlushesAtOnce) co_await executor_.sleep_for(kFlushLookNs);
  }
}

base::Task<void> FileIo::flush_in_background(Ino ino) {
  const base::RunningTasks::Position here = flushes_.started_last();
  // A server that is away is told at the next time, or at fsync.
  [[maybe_unused]] const PosixStatus told = co_await flush(ino, true);
  flushing_.erase(ino);
  flushes_.ended(here);
}

uint64_t FileIo::untold(Ino ino) const {
  const auto found = written_.find(ino);
  return found == written_.end() ? 0 : found->second;
}

base::Task<PosixStatus> FileIo::flush(Ino ino, bool reads) {
  // A write that ends meanwhile is untold still, and may not be durable.
  const uint64_t number = untold(ino);
  // Before the new mtime, so that it is not durable without the data.
  PMSTORE_CO_TRY_STATUS(co_await unsynced_.persist(ino));
  co_return co_await tell(ino, number, reads);
}

base::Task<PosixStatus> FileIo::tell(Ino ino, uint64_t number, bool reads) {
  const bool written = number != 0;
  TouchRequest asked;
  asked.ino = raw(ino);
  asked.written = written ? 1 : 0;
  if (const auto read = read_.find(ino); read != read_.end() && (reads || written)) {
    asked.read = 1;
    asked.read_age_ns = executor_.now_ns() - read->second;
    read_.erase(read);
  }
  if (asked.written == 0 && asked.read == 0) co_return PosixStatus{};
  FilesCall request(FilesMethod::kTouch, true, 0);
  request.put(asked);
  const auto told = co_await link_.call(request);
  // The file may be gone; then nobody asks for its times.
  const bool is_known = told || told.number() == ESTALE || told.number() == ENOENT;
  if (is_known && untold(ino) == number) written_.erase(ino);
  if (is_known || !written) co_return PosixStatus{};  // a time of access may be lost
  co_return PosixError(told.error());
}

}  // namespace pmstore::fs::internal
