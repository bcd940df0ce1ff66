#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "persist/internal/remote_writer_state.h"

namespace pmstore::persist {
namespace {

// What a READ of the last written bytes brings back: enough to be one.
constexpr uint32_t kReadBytes = 8;

}  // namespace

Status RemoteWriter::State::check(const Request& request) const {
  const auto pieces = request.pieces;
  bool good = !pieces.empty() && pieces.size() <= max_pieces;
  for (const RemotePiece& piece : pieces) {
    good &= piece.from.bytes > 0 && piece.offset <= region.bytes &&
            piece.from.bytes <= region.bytes - piece.offset;
  }
  const bool looks_fit =
      request.looks.empty() ||
      (pieces.size() + request.looks.size() <= max_pieces && !goes_two_sided(pieces));
  if (!looks_fit) {
    return make_error(ErrorCode::kInvalidArgument,
                      "looks behind a durable write go one-sided, and count as pieces: use fewer "
                      "pieces, or READ by yourself after a two-sided write");
  }
  if (good) [[likely]]
    return {};
  return make_error(
      ErrorCode::kInvalidArgument,
      "a durable write is 1 to 16 pieces (15 with a rider), none empty, all inside the "
      "granted region");
}

bool RemoteWriter::State::goes_two_sided(std::span<const RemotePiece> pieces) const {
  if (strategy == WriteStrategy::kTwoSided) return true;
  if (two_sided_bytes == 0) return false;
  uint64_t bytes = 0;
  for (const RemotePiece& piece : pieces) bytes += piece.from.bytes;
  return bytes >= two_sided_bytes;
}

bool RemoteWriter::State::board() {
  const auto ride = rider->board();
  if (ride) batch.write(ride->from, ride->to);
  return ride.has_value();
}

void RemoteWriter::State::send_rider_ahead() {
  batch.clear();
  // Not posted: what follows fails as well, or it rides with the next one.
  if (board() && connection.post(batch, nullptr)) rider->departed();
}

Status RemoteWriter::State::try_post(Chain chain, const Request& request,
                                     fabric::Completion& completion) {
  const auto pieces = request.pieces;
  batch.clear();
  const bool rides = rider != nullptr && chain != Chain::kRead && board();
  if (chain != Chain::kRead) {
    for (const RemotePiece& piece : pieces) batch.write(piece.from, region.at(piece.offset));
  }
  if (chain == Chain::kWritesAndFlushes) {
    for (const RemotePiece& piece : pieces) batch.flush(piece.from.bytes, region.at(piece.offset));
  } else if (chain != Chain::kWrites && chain != Chain::kWritesAndLooks) {
    // PCIe does not let a read pass the writes before it, and a queue pair executes in order: when
    // the READ has been answered, every WRITE before it has left the RNIC and the PCIe buffers.
    const RemotePiece& last = pieces.back();
    const uint32_t bytes = std::min(last.from.bytes, kReadBytes);
    PMSTORE_CHECK(landing_region != nullptr, "the READ would land nowhere");
    LandingLine& line = landing[next_landing];
    next_landing = (next_landing + 1) % kLandingLines;
    batch.read({line.bytes.data(), bytes, landing_region.get()},
               region.at(last.offset + last.from.bytes - bytes));
  }
  if (chain != Chain::kWrites) {
    for (const RemoteLook& look : request.looks) batch.read(look.into, look.from);
  }
  if (!rides) return connection.post(batch, &completion);
  Status posted = connection.post(batch, &completion);
  if (posted) rider->departed();
  return posted;
}

size_t RemoteWriter::State::encode(std::span<const RemotePiece> pieces, Cursor& cursor) {
  size_t room = message_bytes - kMaxPersistTableBytes;
  const Cursor cursor_before = cursor;
  Cursor at = cursor;
  PersistWriteHeader header{kPersistWriteMagic, 0};
  std::byte* table = message.get() + sizeof header;
  // The table first, since its size is not known before.
  while (at.piece < pieces.size() && room > 0) {
    const RemotePiece& piece = pieces[at.piece];
    const auto bytes =
        static_cast<uint32_t>(std::min<size_t>(piece.from.bytes - at.done_bytes, room));
    const PersistWritePiece entry{piece.offset + at.done_bytes, bytes, 0};
    std::memcpy(table, &entry, sizeof entry);
    table += sizeof entry;
    ++header.pieces;
    room -= bytes;
    at.done_bytes += bytes;
    if (at.done_bytes == piece.from.bytes) at = {at.piece + 1, 0};
  }
  std::memcpy(message.get(), &header, sizeof header);
  std::byte* data = table;
  for (uint32_t i = 0; i < header.pieces; ++i) {
    PersistWritePiece entry;
    std::memcpy(&entry, message.get() + sizeof header + i * sizeof entry, sizeof entry);
    std::memcpy(data, pieces[cursor.piece].from.data + cursor.done_bytes, entry.bytes);
    data += entry.bytes;
    cursor = {cursor.piece + 1, 0};
  }
  PMSTORE_CHECK(at.piece > cursor_before.piece || at.done_bytes > cursor_before.done_bytes,
                "the same message would be sent for ever");
  cursor = at;
  PMSTORE_CHECK(static_cast<size_t>(data - message.get()) <= message_bytes,
                "the message would leave its buffer");
  return static_cast<size_t>(data - message.get());
}

base::Task<Status> RemoteWriter::State::execute(Chain chain, Request request) {
  const fabric::PendingCompletion completion(connection.completions());
  Status posted = co_await post_when_room(chain, request, *completion);
  if (!posted) co_return posted;
  fabric::CompletionAwaiter completed(*completion);
  const bool landed = co_await completed;
  ++connection.mutable_counters().round_trips;
  if (!landed) co_return connection.why_broken();
  co_return Status{};
}

base::Task<Status> RemoteWriter::State::write_outstanding(Request request) {
  const fabric::PendingCompletion written(connection.completions());
  Status posted = co_await post_when_room(Chain::kWrites, request, *written);
  if (!posted) co_return posted;
  const fabric::PendingCompletion read(connection.completions());
  posted = co_await post_when_room(Chain::kRead, request, *read);
  // Also when the READ was not posted: the source of the WRITEs is borrowed until they are over.
  fabric::Completion* both[] = {&*written, &*read};
  const std::span<fabric::Completion* const> waited(both, posted ? 2 : 1);
  Status done = co_await connection.wait(waited);
  co_return posted ? done : posted;
}

base::Task<Status> RemoteWriter::State::write_two_sided(std::span<const RemotePiece> pieces) {
  PMSTORE_CHECK(message != nullptr && rpc != nullptr, "a two-sided write is a message");
  Cursor cursor;
  while (cursor.piece < pieces.size()) {
    const std::span<const std::byte> request(message.get(), encode(pieces, cursor));
    Result<fabric::RpcReply> reply = co_await rpc->call(rpc_method, request, 0);
    if (!reply) co_return std::move(reply.error());
  }
  co_return Status{};
}

base::Task<Result<Persisted>> RemoteWriter::write(std::span<const RemotePiece> pieces,
                                                  std::span<const RemoteLook> looks) {
  using Chain = State::Chain;
  State& state = *state_;
  const State::Request request{pieces, looks};
  Status done = state.check(request);
  if (!done) co_return std::move(done.error());
  if (state.goes_two_sided(pieces)) {
    if (state.rider != nullptr) state.send_rider_ahead();
    done = co_await state.write_two_sided(pieces);
  } else if (state.strategy == WriteStrategy::kNaive) {
    done = co_await state.execute(Chain::kWrites, request);
    if (done) done = co_await state.execute(Chain::kRead, request);
  } else if (state.strategy == WriteStrategy::kOutstanding) {
    done = co_await state.write_outstanding(request);
  } else {
    const bool flush = state.strategy == WriteStrategy::kFlush;
    done =
        co_await state.execute(flush ? Chain::kWritesAndFlushes : Chain::kWritesAndRead, request);
  }
  if (!done) co_return std::move(done.error());
  co_return Persisted();
}

}  // namespace pmstore::persist
