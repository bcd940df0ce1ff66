// Of FileData: accesses, cut into parts that workers execute.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "fabric/message.h"
#include "fs/internal/file_data_state.h"

namespace pmstore::fs {
namespace {

using internal::TransferBuffer;
using internal::TransferBuffers;

// The words of a part: of each extent in it, once where its pieces follow each other.
template <typename Piece>
struct PartWords {
  explicit PartWords(std::span<const Piece> pieces) {
    for (const Piece& piece : pieces) {
      if (count > 0 && of[count - 1]->extent == piece.extent &&
          of[count - 1]->generation == piece.generation) {
        continue;
      }
      of[count++] = &piece;
    }
  }
  static fabric::RemoteAddress at(const fabric::RemoteRegion& words, const Piece& piece) {
    return words.at(piece.extent / kUnitBytes * sizeof(uint64_t));
  }
  bool are_stale(const TransferBuffer& buffer) const {
    for (size_t i = 0; i < count; ++i) {
      if (buffer.words[i] != of[i]->generation) return true;
    }
    return false;
  }
  std::array<const Piece*, internal::kMaxWords> of;
  size_t count = 0;
};

}  // namespace

// ---- parts ----

const fabric::MemoryRegion* FileData::State::region_of(const std::byte* memory,
                                                       size_t bytes) const {
  auto behind = registered.upper_bound(memory);
  if (behind == registered.begin()) return nullptr;
  const fabric::MemoryRegion* const region = std::prev(behind)->second.get();
  const std::span<std::byte> all = region->bytes();
  const auto offset = static_cast<size_t>(memory - all.data());
  return offset <= all.size() && bytes <= all.size() - offset ? region : nullptr;
}

bool FileData::State::add(Access& access, const MapExtent& extent, uint64_t offset,
                          std::byte* memory, size_t bytes) const {
  const AreaRange& place = extent.place;
  const SectionRef section = session->section_of(place.offset, place.bytes);
  if (place.offset % kUnitBytes != 0 || section == nullptr || offset > place.bytes ||
      bytes > place.bytes - offset) {
    return false;
  }
  const fabric::MemoryRegion* const region = bytes == 0 ? nullptr : region_of(memory, bytes);
  while (bytes > 0) {
    if (access.parts.empty() || access.parts.back().count == kMaxDataPieces ||
        access.parts.back().bytes == session->part_bytes ||
        access.parts.back().section != section) {
      access.parts.emplace_back().section = section;
    }
    Part& part = access.parts.back();
    const size_t count = std::min(bytes, session->part_bytes - part.bytes);
    part.table[part.count++] = {
        place.offset + offset,        place.offset, extent.generation, memory,
        static_cast<uint32_t>(count), region};
    part.bytes += count;
    if (region == nullptr) part.copied_bytes += count;
    PMSTORE_CHECK(part.bytes <= session->part_bytes, "a part fits in a buffer and in a message");
    offset += count;
    memory += count;
    bytes -= count;
  }
  return true;
}

namespace {

Error outside_of_extent() {
  return make_error(ErrorCode::kInvalidArgument,
                    "an access to file data is outside of its extent, or of the data server");
}

template <typename Piece>
std::vector<AreaRange> places_of(const std::vector<Piece>& pieces) {
  std::vector<AreaRange> places;
  places.reserve(pieces.size());
  for (const Piece& piece : pieces) places.push_back(piece.extent.place);
  return places;
}

}  // namespace

base::Task<Result<DataOutcome>> FileData::read(uint64_t session, std::vector<ReadPiece> pieces) {
  State& state = *state_;
  if (!state.ready()) {
    PMSTORE_CO_TRY_STATUS(co_await state.reconnector.connected());
  }
  if (!state.knows(pieces)) {
    PMSTORE_CO_TRY(const DataOutcome found, co_await state.find_places(places_of(pieces)));
    if (found == DataOutcome::kStaleMap) co_return found;
  }
  if (session != state.generation) co_return DataOutcome::kStaleMap;
  auto access = std::make_shared<State::Access>(state.executor, State::Kind::kRead);
  for (const ReadPiece& piece : pieces) {
    const bool inside =
        state.add(*access, piece.extent, piece.offset, piece.into.data(), piece.into.size());
    if (!inside) co_return outside_of_extent();
  }
  co_return co_await state.execute(std::move(access));
}

base::Task<Result<DataOutcome>> FileData::write(uint64_t session, std::vector<WritePiece> pieces,
                                                DataSync sync) {
  State& state = *state_;
  if (!state.ready()) {
    PMSTORE_CO_TRY_STATUS(co_await state.reconnector.connected());
  }
  if (!state.knows(pieces)) {
    PMSTORE_CO_TRY(const DataOutcome found, co_await state.find_places(places_of(pieces)));
    if (found == DataOutcome::kStaleMap) co_return found;
  }
  if (session != state.generation) co_return DataOutcome::kStaleMap;
  const auto kind = sync == DataSync::kFsync ? State::Kind::kWriteVisible : State::Kind::kWrite;
  auto access = std::make_shared<State::Access>(state.executor, kind);
  for (const WritePiece& piece : pieces) {
    // It is only read; a LocalBuffer is the source or the destination of a request.
    auto* const from = const_cast<std::byte*>(piece.from.data());
    const bool inside = state.add(*access, piece.extent, piece.offset, from, piece.from.size());
    if (!inside) co_return outside_of_extent();
  }
  co_return co_await state.execute(std::move(access));
}

// ---- execution ----

base::Task<Result<DataOutcome>> FileData::State::execute(AccessRef access) {
  // Of a caller that is destroyed while it waits.
  struct Waiting {
    ~Waiting() { of.abandoned = true; }
    Access& of;
  };
  if (access->parts.empty()) co_return DataOutcome::kDone;
  // Only workers hold the session: they go with this object, its callers may not.
  const uint64_t in_session = generation;
  access->number = ++last_access;
  under_way.insert(access->number);
  access->workers = std::min(kWorkers, access->parts.size());
  const Waiting caller{*access};
  for (size_t i = access->workers; i > 0; --i) workers.run(work(access, session));
  if (access->workers == 0 && ++accesses_at_once % kAccessesPerTurn == 0) {
    co_await executor.yield();
  }
  while (access->workers > 0) co_await access->ended.wait();
  if (access->failure) {
    Error why = std::move(*access->failure);
    if (!is_lost(why.code, in_session)) co_return why;
    // The server ends this session before it lets the next one in. So what the caller repeats is
    // not overwritten by what is still under way here.
    if (session != nullptr && generation == in_session) session->link->drop();
    const Status again = co_await reconnector.connected();
    if (!again) co_return why;
    co_return DataOutcome::kStaleMap;
  }
  co_return access->stale ? DataOutcome::kStaleMap : DataOutcome::kDone;
}

base::Task<void> FileData::State::work(AccessRef access, SessionRef with) {
  const base::RunningTasks::Position here = workers.started_last();
  while (access->goes_on()) {
    const Part& part = access->parts[access->next++];
    Status done;
    if (access->kind == Kind::kRead) {
      done = co_await read_part(access, with, part);
    } else if (access->kind == Kind::kWriteVisible || !with->by_message ||
               part.bytes >= with->one_sided_bytes) {
      done = co_await write_part(access, with, part);
    } else {
      done = co_await send_part(access, with, part);
    }
    if (!done && access->kind != Kind::kRead && with->number == generation) may_land = true;
    if (!done && !access->failure) access->failure = std::move(done.error());
  }
  PMSTORE_CHECK(access->workers > 0, "each worker ends once");
  if (--access->workers == 0) {
    const size_t erased = under_way.erase(access->number);
    PMSTORE_CHECK(erased == 1, "an access ends once");
    access->ended.notify_all();
    access_ended.notify_all();
  }
  workers.ended(here);
}

base::Task<Status> FileData::State::read_part(AccessRef access, SessionRef with, const Part& part) {
  const TransferBuffers::Lease buffer = co_await buffers->take(part.copied_bytes);
  fabric::Batch& batch = buffer->batch;
  batch.clear();
  size_t copied = 0;
  for (const Piece& piece : part.pieces()) {
    fabric::LocalBuffer into{piece.memory, piece.bytes, piece.region};
    if (piece.region == nullptr) {
      into = buffer->at(copied, piece.bytes);
      copied += piece.bytes;
    }
    batch.read(into, part.section->units.at(piece.offset));
  }
  // Behind the data: while a word is the map's, the data before it was, too.
  const PartWords<Piece> words(part.pieces());
  for (size_t i = 0; i < words.count; ++i) {
    batch.read(buffer->word(i), words.at(part.section->words, *words.of[i]));
  }
  fabric::Connection& connection = with->link->connection();
  const fabric::PendingCompletion completion(connection.completions());
  PMSTORE_CO_TRY_STATUS(co_await connection.post_when_room(batch, &*completion,
                                                           persist::RemoteWriter::kRoomTimeoutNs));
  fabric::CompletionAwaiter completed(*completion);
  const bool landed = co_await completed;
  ++connection.mutable_counters().round_trips;
  if (!landed) co_return connection.why_broken();
  if (words.are_stale(*buffer)) {
    access->stale = true;
    co_return Status{};
  }
  copied = 0;
  for (const Piece& piece : part.pieces()) {
    if (piece.region != nullptr || access->abandoned) continue;
    std::memcpy(piece.memory, buffer->data + copied, piece.bytes);
    copied += piece.bytes;
  }
  co_return Status{};
}

base::Task<Status> FileData::State::write_part(AccessRef access, SessionRef with,
                                               const Part& part) {
  const TransferBuffers::Lease buffer = co_await buffers->take(part.copied_bytes);
  PMSTORE_CHECK(with != nullptr && part.section != nullptr, "a worker holds its session");
  if (access->abandoned) co_return Status{};  // its memory is gone
  std::array<persist::RemotePiece, kMaxDataPieces> pieces;
  size_t copied = 0;
  for (size_t i = 0; i < part.count; ++i) {
    const Piece& piece = part.table[i];
    fabric::LocalBuffer from{piece.memory, piece.bytes, piece.region};
    if (piece.region == nullptr) {
      from = buffer->at(copied, piece.bytes);
      std::memcpy(from.data, piece.memory, piece.bytes);
      copied += piece.bytes;
    }
    pieces[i] = {from, piece.offset};
  }
  const PartWords<Piece> words(part.pieces());
  std::array<persist::RemoteLook, internal::kMaxWords> looks;
  for (size_t i = 0; i < words.count; ++i) {
    looks[i] = {buffer->word(i), words.at(part.section->words, *words.of[i])};
  }
  const std::span<const persist::RemotePiece> written(pieces.data(), part.count);
  const std::span<const persist::RemoteLook> looked(looks.data(), words.count);
  if (access->kind == Kind::kWriteVisible) {
    PMSTORE_CO_TRY_STATUS(co_await part.section->writer->write_visible(written, looked));
  } else if (with->by_message) {
    PMSTORE_CHECK(part.bytes >= with->one_sided_bytes, "smaller parts are sent as messages");
    PMSTORE_CO_TRY([[maybe_unused]] const persist::Persisted durable,
                   co_await part.section->writer->write_then_persist(written, looked));
  } else {
    PMSTORE_CO_TRY_STATUS(co_await part.section->writer->write(written, looked));
  }
  access->stale |= words.are_stale(*buffer);
  co_return Status{};
}

// ---- later durability ----

namespace {

Error sessions_go_on_ending() {
  return make_error(ErrorCode::kDisconnected, "the sessions with the data server go on ending");
}

}  // namespace

base::Task<Result<PersistOutcome>> FileData::persist(uint64_t start,
                                                     std::vector<persist::RemoteRange> ranges) {
  State& state = *state_;
  if (ranges.empty()) co_return PersistOutcome::kDurable;
  const auto persisting = std::make_shared<State::Persisting>(state.executor, std::move(ranges));
  constexpr unsigned kMostSessions = 16;
  for (unsigned i = 0; i < kMostSessions; ++i) {
    if (!state.ready()) {
      PMSTORE_CO_TRY_STATUS(co_await state.reconnector.connected());
    }
    if (start_of(state.generation) != start) co_return PersistOutcome::kLost;
    PMSTORE_CO_TRY(const DataOutcome found, co_await state.find_ranges(persisting->ranges));
    if (found == DataOutcome::kStaleMap) continue;
    const uint64_t in_session = state.generation;
    persisting->done.reset();
    state.workers.run(state.persist_in(persisting, state.session));
    while (!persisting->done) co_await persisting->ended.wait();
    if (*persisting->done) co_return PersistOutcome::kDurable;
    const ErrorCode why = persisting->done->code();
    // A section that the server has given back cannot be reached any more: the next session knows.
    const bool ends =
        why == ErrorCode::kDisconnected || why == ErrorCode::kTimeout || why == ErrorCode::kAccess;
    if (!ends) break;
    if (state.session != nullptr && state.generation == in_session) state.session->link->drop();
  }
  if (!persisting->done) co_return sessions_go_on_ending();
  co_return persisting->done->error();
}

base::Task<void> FileData::State::persist_in(PersistingRef persisting, SessionRef with) {
  const base::RunningTasks::Position here = workers.started_last();
  Status done;
  // Sections that are learned meanwhile have nothing of these ranges.
  const std::vector<SectionRef> sections = with->sections;
  for (size_t i = 0; i < sections.size() && done; ++i) {
    std::vector<persist::RemoteRange> some;
    for (const persist::RemoteRange& range : persisting->ranges) {
      if (sections[i]->has(range.offset, range.bytes)) some.push_back(range);
    }
    if (some.empty()) continue;
    const auto durable = co_await sections[i]->writer->persist(some);
    if (!durable) done = durable.error();
  }
  persisting->done = std::move(done);
  persisting->ended.notify_all();
  workers.ended(here);
}

// ---- by message ----

size_t FileData::State::lay_out(const service::Link& link, const Part& part) {
  const size_t most = kMaxDataWriteHead + kMaxMessageData;
  fabric::MessageWriter writer({message.get(), most});
  writer.put(link.prefix());
  writer.put(DataWriteRequest{.pieces = static_cast<uint32_t>(part.count)});
  for (const Piece& piece : part.pieces()) {
    writer.put(DataWritePiece{piece.offset, piece.extent, piece.generation, piece.bytes, 0});
  }
  for (const Piece& piece : part.pieces()) {
    writer.put_bytes({reinterpret_cast<const char*>(piece.memory), piece.bytes});
  }
  PMSTORE_CHECK(!writer.overflowed(), "a part fits in a message");
  return writer.bytes();
}

base::Task<Status> FileData::State::send_part(AccessRef access, SessionRef with, const Part& part) {
  service::Link& link = *with->link;
  const std::span<const std::byte> request(message.get(), lay_out(link, part));
  PMSTORE_CO_TRY(const fabric::RpcReply reply,
                 co_await link.rpc().call(kDataWriteMethod, request, sizeof(DataWriteReply)));
  DataWriteReply said;
  if (reply.bytes().size() != sizeof said) {
    link.drop();
    co_return make_error(ErrorCode::kProtocol,
                         "the data server's answer is malformed; the session was given up");
  }
  std::memcpy(&said, reply.bytes().data(), sizeof said);
  access->stale |= said.stale != 0;
  co_return Status{};
}

}  // namespace pmstore::fs
