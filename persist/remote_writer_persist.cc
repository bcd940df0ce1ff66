// Of RemoteWriter: writes that are made durable later, several by one step.
#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "persist/internal/remote_writer_state.h"

namespace pmstore::persist {
namespace {

constexpr uint64_t kReadBackBytes = 8;
// A work request has 32 bits for its length.
constexpr uint64_t kMostFlushBytes = uint64_t{1} << 30;

std::vector<RemoteRange> cut(std::span<const RemoteRange> ranges) {
  std::vector<RemoteRange> parts;
  for (const RemoteRange& range : ranges) {
    for (uint64_t done = 0; done < range.bytes; done += parts.back().bytes) {
      parts.push_back({range.offset + done, std::min(range.bytes - done, kMostFlushBytes)});
    }
  }
  return parts;
}

}  // namespace

Status RemoteWriter::State::check_visible(const Request& request) const {
  if (!connection.capabilities().read_after_write) {
    return make_error(ErrorCode::kUnsupported,
                      "this fabric does not order a READ behind WRITEs, so nothing says when a "
                      "write is visible: connect by verbs, tcp or shm");
  }
  const size_t count = request.pieces.size() + request.looks.size();
  bool good = !request.pieces.empty() && !request.looks.empty() && count <= max_pieces;
  for (const RemotePiece& piece : request.pieces) {
    good &= piece.from.bytes > 0 && piece.offset <= region.bytes &&
            piece.from.bytes <= region.bytes - piece.offset;
  }
  if (good) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "a visible write is at least one piece and one look, 16 together (15 with "
                    "a rider), no piece empty, all inside the granted region");
}

base::Task<Status> RemoteWriter::write_visible(std::span<const RemotePiece> pieces,
                                               std::span<const RemoteLook> looks) {
  State& state = *state_;
  PMSTORE_CO_TRY_STATUS(state.check_visible({pieces, looks}));
  co_return co_await state.execute(State::Chain::kWritesAndLooks, {pieces, looks});
}

base::Task<Result<Persisted>> RemoteWriter::write_then_persist(std::span<const RemotePiece> pieces,
                                                               std::span<const RemoteLook> looks) {
  State& state = *state_;
  const State::Request request{pieces, looks};
  PMSTORE_CO_TRY_STATUS(state.check_then_persist(request));
  std::array<RemoteRange, kMaxPieces> ranges;
  for (size_t i = 0; i < pieces.size(); ++i) ranges[i] = {pieces[i].offset, pieces[i].from.bytes};
  const std::span<const RemoteRange> written(ranges.data(), pieces.size());
  const fabric::PendingCompletion completion(state.connection.completions());
  PMSTORE_CO_TRY_STATUS(
      co_await state.post_when_room(State::Chain::kWritesAndLooks, request, *completion));
  const Status durable = co_await state.persist_two_sided(written);
  // Its answer is behind that of the WRITEs. Also behind a failure: their source is borrowed.
  fabric::CompletionAwaiter completed(*completion);
  const bool landed = co_await completed;
  if (!landed) co_return state.connection.why_broken();
  if (!durable) co_return durable.error();
  co_return Persisted();
}

base::Task<Result<Persisted>> RemoteWriter::persist(std::span<const RemoteRange> ranges) {
  State& state = *state_;
  Status done = state.check(ranges);
  if (!done) co_return std::move(done.error());
  if (state.strategy == WriteStrategy::kTwoSided) {
    done = co_await state.persist_two_sided(ranges);
  } else if (state.strategy == WriteStrategy::kFlush) {
    const std::vector<RemoteRange> parts = cut(ranges);
    done = co_await state.persist_one_sided(parts);
  } else {
    done = co_await state.persist_one_sided(ranges);
  }
  if (!done) co_return std::move(done.error());
  co_return Persisted();
}

Status RemoteWriter::State::check(std::span<const RemoteRange> ranges) const {
  if (strategy == WriteStrategy::kTwoSided && persist_method == 0) {
    return make_error(ErrorCode::kInvalidArgument,
                      "this server makes no ranges durable by message: write durably instead");
  }
  bool good = !ranges.empty();
  for (const RemoteRange& range : ranges) {
    good &= range.bytes > 0 && range.offset <= region.bytes &&
            range.bytes <= region.bytes - range.offset;
  }
  if (good) return {};
  return make_error(ErrorCode::kInvalidArgument,
                    "what is made durable is at least one range, none empty, all inside the "
                    "granted region");
}

Status RemoteWriter::State::check_then_persist(const Request& request) const {
  PMSTORE_TRY_STATUS(check_visible(request));
  uint64_t bytes = 0;
  for (const RemotePiece& piece : request.pieces) bytes += piece.from.bytes;
  if (strategy != WriteStrategy::kTwoSided || persist_method == 0 || bytes > kMaxPersistBytes) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a message makes at most 1 MiB durable behind its WRITEs, with the two-sided "
                      "strategy, at a server that makes ranges durable: write durably instead");
  }
  if (connection.capabilities().write_after_write) return {};
  return make_error(ErrorCode::kUnsupported,
                    "this fabric does not keep WRITEs in order, so a message may pass what it is "
                    "to make durable: connect by verbs, tcp or shm");
}

// ---- one-sided ----

Status RemoteWriter::State::try_post_persist(std::span<const RemoteRange> ranges,
                                             fabric::Completion& completion) {
  batch.clear();
  if (strategy == WriteStrategy::kFlush) {
    for (const RemoteRange& range : ranges) {
      PMSTORE_CHECK(range.bytes <= kMostFlushBytes, "a long range was cut");
      batch.flush(static_cast<uint32_t>(range.bytes), region.at(range.offset));
    }
  } else {
    // As behind a durable write: no READ passes what the RNIC has written before it.
    const RemoteRange& last = ranges.back();
    const auto bytes = static_cast<uint32_t>(std::min(last.bytes, kReadBackBytes));
    PMSTORE_CHECK(landing_region != nullptr, "the READ would land nowhere");
    LandingLine& line = landing[next_landing];
    next_landing = (next_landing + 1) % kLandingLines;
    batch.read({line.bytes.data(), bytes, landing_region.get()},
               region.at(last.offset + last.bytes - bytes));
  }
  return connection.post(batch, &completion);
}

base::Task<Status> RemoteWriter::State::persist_one_sided(std::span<const RemoteRange> ranges) {
  const size_t at_once = strategy == WriteStrategy::kFlush ? kMaxPieces : ranges.size();
  while (!ranges.empty()) {
    const auto some = ranges.first(std::min(at_once, ranges.size()));
    const fabric::PendingCompletion completion(connection.completions());
    PMSTORE_CO_TRY_STATUS(co_await post_persist_when_room(some, *completion));
    fabric::CompletionAwaiter completed(*completion);
    const bool landed = co_await completed;
    ++connection.mutable_counters().round_trips;
    if (!landed) co_return connection.why_broken();
    ranges = ranges.subspan(some.size());
  }
  co_return Status{};
}

// ---- by message ----

size_t RemoteWriter::State::encode_ranges(std::span<const RemoteRange> ranges, size_t& range,
                                          uint64_t& done_bytes) {
  PersistRangesHeader header;
  const size_t head_bytes = persist_prefix_bytes + sizeof header;
  const size_t most =
      std::min(kMaxPersistRanges, (message_bytes - head_bytes) / sizeof(RemoteRange));
  PMSTORE_CHECK(most > 0, "a message has room for a range");
  std::memcpy(message.get(), persist_prefix.data(), persist_prefix_bytes);
  std::byte* at = message.get() + head_bytes;
  uint64_t room_bytes = kMaxPersistBytes;
  while (range < ranges.size() && header.ranges < most && room_bytes > 0) {
    const RemoteRange& whole = ranges[range];
    const RemoteRange part{whole.offset + done_bytes,
                           std::min(whole.bytes - done_bytes, room_bytes)};
    std::memcpy(at, &part, sizeof part);
    at += sizeof part;
    ++header.ranges;
    room_bytes -= part.bytes;
    done_bytes += part.bytes;
    if (done_bytes < whole.bytes) continue;
    ++range;
    done_bytes = 0;
  }
  std::memcpy(message.get() + persist_prefix_bytes, &header, sizeof header);
  const auto size = static_cast<size_t>(at - message.get());
  PMSTORE_CHECK(header.ranges > 0 && size <= message_bytes, "a message has a range, and fits");
  return size;
}

base::Task<Status> RemoteWriter::State::persist_two_sided(std::span<const RemoteRange> ranges) {
  PMSTORE_CHECK(message != nullptr && rpc != nullptr, "a server's CPU is asked by a message");
  uint64_t done_bytes = 0;
  for (size_t range = 0; range < ranges.size();) {
    const std::span<const std::byte> request(message.get(),
                                             encode_ranges(ranges, range, done_bytes));
    const Result<fabric::RpcReply> reply = co_await rpc->call(persist_method, request, 0);
    if (!reply) co_return reply.error();
  }
  co_return Status{};
}

}  // namespace pmstore::persist
