// Invariants: reported <= posted; placing is done in the order of the calls (placed counts them),
// and reporting in the order of the posts. `failed` is set by the first append that is not reported
// as durable after it was posted; from then on nothing is posted and nothing is reported as
// durable.
#include "log/remote_appender.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/executor.h"
#include "log/internal/staging.h"

namespace pmstore::log {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kPieces = 2;  // pad entry, entry; or what is before and behind the area's end
// A gap before an entry is written too, when it is not longer than this: one WRITE, not two. The
// longer ones are at the end of the data area.
constexpr uint64_t kMaxFilledGap = 512;
static_assert(kPieces <= persist::RemoteWriter::kMaxPieces);

struct PageDelete {
  void operator()(std::byte* pages) const {
    ::operator delete[](pages, std::align_val_t{kPageBytes});
  }
};
using Pages = std::unique_ptr<std::byte[], PageDelete>;

}  // namespace

struct RemoteAppender::State {
  State(base::Executor& executor, persist::RemoteWriter& remote, const RingPosition& start,
        uint32_t staging_bytes, const persist::PaddingRules& padding)
      : writer(remote),
        position(start),
        rules(padding),
        memory(
            static_cast<std::byte*>(::operator new[](staging_bytes, std::align_val_t{kPageBytes}))),
        staging(staging_bytes),
        placing(executor),
        reporting(executor) {}

  persist::RemoteWriter& writer;
  RingPosition position;
  persist::PaddingRules rules;
  Pages memory;
  std::unique_ptr<fabric::MemoryRegion> region;  // of `memory`
  internal::Staging staging;

  base::WaitList placing;    // for their turn, then for staging memory
  base::WaitList reporting;  // for those before them
  uint64_t called = 0;
  uint64_t placed = 0;
  uint64_t posted = 0;
  uint64_t reported = 0;
  uint64_t in_progress = 0;
  std::optional<Error> failed;

  void fail(const Error& why) {
    if (!failed) failed = why;
    placing.notify_all();
    reporting.notify_all();
  }

  // The next caller may place its entry.
  void pass_on() {
    PMSTORE_CHECK(placed < called, "a call would place its entry before its turn");
    ++placed;
    placing.notify_all();
  }

  struct Placed {
    PlannedEntry plan;
    internal::Staging::Chunk chunk;
    uint64_t ticket;  // its number among the posted
    std::array<persist::RemotePiece, kPieces> pieces;
    size_t piece_count;
  };
  // Lays it out in staging memory and moves the tail behind it. No value: no room there now.
  Result<std::optional<Placed>> place(uint64_t sequence, std::span<const std::byte> payload);
  Result<std::optional<Placed>> place(Entries* entries);
  // Both ways to append: What is what a place() takes.
  template <typename... What>
  static base::Task<Result<Appended>> append(State& s, What... what);

  struct Measured {
    uint64_t bytes = 0;   // of the ring
    uint64_t staged = 0;  // of these, what is written
  };
  Result<Measured> measure(const Entries& entries) const;
  void lay_out(Entries& entries, Placed& result);
  void add(Placed& result, uint64_t staged, uint64_t lsn, uint64_t bytes) const;
  base::Task<Status> make_room(const Entries& entries);
  Status move_start(uint64_t start_lsn);
  persist::RemotePiece piece(uint64_t staged, uint64_t lsn, uint64_t bytes) const {
    return {{memory.get() + staged, static_cast<uint32_t>(bytes), region.get()},
            lsn % position.data_bytes};
  }
  Error failed_before() const {
    return make_error(failed->code,
                      "an earlier append to this ring failed, so this one does not "
                      "count: take the ring over again; first failure: " +
                          failed->message);
  }
};

namespace {

// Notices when a coroutine is destroyed in the middle of an append: then nobody will ever know
// whether its entry is there.
template <typename State>
struct InProgress {
  explicit InProgress(State& s) : state(s) { ++state.in_progress; }
  ~InProgress() {
    --state.in_progress;
    if (!finished) state.fail(make_error(ErrorCode::kDisconnected, "an append was abandoned"));
  }
  InProgress(const InProgress&) = delete;
  InProgress& operator=(const InProgress&) = delete;
  State& state;
  bool finished = false;
};

uint64_t staged_pad_bytes(const PlannedEntry& plan) {
  return plan.pad_bytes <= kMaxFilledGap ? plan.pad_bytes : kMaxPadWriteBytes;
}

uint64_t bytes_of(std::span<const std::span<const std::byte>> pieces) {
  uint64_t bytes = 0;
  for (const auto& piece : pieces) bytes += piece.size();
  return bytes;
}

}  // namespace

RemoteAppender::RemoteAppender(std::unique_ptr<State> state) : state_(std::move(state)) {}

RemoteAppender::~RemoteAppender() {
  PMSTORE_CHECK(state_->in_progress == 0, "an append would go on in memory that is gone");
}

Result<std::unique_ptr<RemoteAppender>> RemoteAppender::create(fabric::Device& device,
                                                               persist::RemoteWriter& writer,
                                                               const RingPosition& position,
                                                               uint32_t staging_bytes,
                                                               const persist::PaddingRules& rules) {
  if (staging_bytes < kMinStagingBytes) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("{} bytes of staging memory are too few: at least {}",
                                  staging_bytes, kMinStagingBytes));
  }
  const auto rounded =
      static_cast<uint32_t>(persist::round_down(staging_bytes, persist::kLineBytes));
  auto state = std::make_unique<State>(device.executor(), writer, position, rounded, rules);
  PMSTORE_TRY(state->region,
              device.register_memory({state->memory.get(), rounded}, fabric::Access::kLocal));
  return std::unique_ptr<RemoteAppender>(new RemoteAppender(std::move(state)));
}

Result<std::optional<RemoteAppender::State::Placed>> RemoteAppender::State::place(
    uint64_t sequence, std::span<const std::byte> payload) {
  PMSTORE_TRY(const PlannedEntry plan, plan_entry(position, payload.size(), true, rules));
  const uint64_t pad_room = plan.pad_bytes > 0 ? kMaxPadWriteBytes : 0;
  const uint64_t room = persist::round_up(pad_room + plan.bytes, persist::kLineBytes);
  if (room > staging.capacity()) [[unlikely]] {
    return make_error(ErrorCode::kTooLarge,
                      fmt::format("an entry of {} bytes needs {} of staging memory, there are {}: "
                                  "use smaller entries or more staging memory",
                                  payload.size(), room, staging.capacity()));
  }
  const auto chunk = staging.take(room);
  if (!chunk) return std::optional<Placed>();
  Placed result{plan, *chunk, posted, {}, 0};
  if (plan.pad_bytes > 0) {
    std::span<std::byte, kMaxPadWriteBytes> pad(memory.get() + chunk->offset, kMaxPadWriteBytes);
    const uint64_t bytes = seal_pad(pad, plan, position);
    result.pieces[result.piece_count++] = piece(chunk->offset, plan.pad_lsn, bytes);
  }
  const uint64_t at = chunk->offset + pad_room;
  const std::span<std::byte> entry(memory.get() + at, plan.bytes);
  std::copy(payload.begin(), payload.end(), entry.begin() + sizeof(EntryHeader));
  seal_entry(entry, plan, position, payload.size(), sequence);
  result.pieces[result.piece_count++] = piece(at, plan.lsn, plan.bytes);
  PMSTORE_CHECK(pad_room + plan.bytes <= room, "the entry would leave its chunk of staging memory");
  position.tail_lsn = plan.next_lsn();
  ++posted;
  return std::optional<Placed>(result);
}

// ---- several entries, or one of several pieces ----

Result<RemoteAppender::State::Measured> RemoteAppender::State::measure(
    const Entries& entries) const {
  Measured all;
  RingPosition end = position;
  end.start_lsn = end.tail_lsn;  // as if everything were truncated
  const size_t count = entries.gather ? 1 : entries.payloads.size();
  for (size_t i = 0; i < count; ++i) {
    const auto pieces = entries.gather ? entries.payloads : entries.payloads.subspan(i, 1);
    const auto plan = plan_entry(end, entries.prefix.size() + bytes_of(pieces), true, rules);
    if (!plan && plan.code() != ErrorCode::kBackPressure) return plan.error();
    if (!plan) {
      return make_error(ErrorCode::kTooLarge,
                        fmt::format("{} entries together are over the {} bytes of their ring: "
                                    "append fewer at a time",
                                    count, position.data_bytes));
    }
    all.staged += staged_pad_bytes(*plan) + plan->bytes;
    end.tail_lsn = plan->next_lsn();
  }
  all.bytes = end.tail_lsn - position.tail_lsn;
  return all;
}

// Makes the next piece of the write, or the last one longer where it is its neighbour.
void RemoteAppender::State::add(Placed& result, uint64_t staged, uint64_t lsn,
                                uint64_t bytes) const {
  const persist::RemotePiece next = piece(staged, lsn, bytes);
  if (result.piece_count > 0) {
    persist::RemotePiece& last = result.pieces[result.piece_count - 1];
    if (last.offset + last.from.bytes == next.offset) {
      last.from.bytes += next.from.bytes;
      return;
    }
  }
  PMSTORE_CHECK(result.piece_count < kPieces, "what fits in a ring passes its end once");
  result.pieces[result.piece_count++] = next;
}

// Measured before, so every plan succeeds.
void RemoteAppender::State::lay_out(Entries& entries, Placed& result) {
  std::byte* to = memory.get() + result.chunk.offset;
  const auto staged = [&] { return static_cast<uint64_t>(to - memory.get()); };
  const size_t count = entries.gather ? 1 : entries.payloads.size();
  for (size_t i = 0; i < count; ++i) {
    const auto pieces = entries.gather ? entries.payloads : entries.payloads.subspan(i, 1);
    const uint64_t payload_bytes = entries.prefix.size() + bytes_of(pieces);
    const PlannedEntry plan = *plan_entry(position, payload_bytes, true, rules);
    if (plan.pad_bytes > 0) {
      const uint64_t bytes = staged_pad_bytes(plan);
      seal_pad(std::span<std::byte, kMaxPadWriteBytes>(to, kMaxPadWriteBytes), plan, position);
      if (bytes > kMaxPadWriteBytes) {
        std::memset(to + kMaxPadWriteBytes, 0, bytes - kMaxPadWriteBytes);
      }
      add(result, staged(), plan.pad_lsn, bytes);
      to += bytes;
    }
    std::byte* at = to + sizeof(EntryHeader);
    at = std::copy(entries.prefix.begin(), entries.prefix.end(), at);
    for (const auto& from : pieces) at = std::copy(from.begin(), from.end(), at);
    seal_entry({to, plan.bytes}, plan, position, payload_bytes, (*entries.next_sequence)++);
    add(result, staged(), plan.lsn, plan.bytes);
    to += plan.bytes;
    position.tail_lsn = plan.next_lsn();
    if (i == 0) entries.first_lsn = plan.lsn;
    result.plan = plan;
  }
  PMSTORE_CHECK(position.tail_lsn - position.start_lsn <= position.data_bytes,
                "what was measured is what was laid out");
  entries.last_sequence = *entries.next_sequence - 1;
  entries.placed = true;
}

Result<std::optional<RemoteAppender::State::Placed>> RemoteAppender::State::place(
    Entries* entries) {
  PMSTORE_CHECK(!entries->payloads.empty(), "there is nothing to place");
  if (entries->expected_sequence != 0 && entries->expected_sequence != *entries->next_sequence) {
    return make_error(ErrorCode::kConflict,
                      fmt::format("the next entry is {}, not {}: one before it was not appended",
                                  *entries->next_sequence, entries->expected_sequence));
  }
  PMSTORE_TRY(const Measured all, measure(*entries));
  if (all.bytes > position.free_bytes()) return make_error(ErrorCode::kBackPressure);
  const uint64_t room = persist::round_up(all.staged, persist::kLineBytes);
  if (room > staging.capacity()) [[unlikely]] {
    return make_error(
        ErrorCode::kTooLarge,
        fmt::format("what is appended at a time needs {} bytes of staging memory, there are {}: "
                    "append less at a time or use more staging memory",
                    room, staging.capacity()));
  }
  const auto chunk = staging.take(room);
  if (!chunk) return std::optional<Placed>();
  Placed result{{}, *chunk, posted, {}, 0};
  lay_out(*entries, result);
  ++posted;
  return std::optional<Placed>(result);
}

base::Task<Status> RemoteAppender::State::make_room(const Entries& entries) {
  if (entries.room == nullptr) co_return make_error(ErrorCode::kBackPressure);
  PMSTORE_CO_TRY(const Measured all, measure(entries));
  PMSTORE_CO_TRY(const uint64_t start,
                 co_await entries.room->make_room(position.tail_lsn, all.bytes));
  PMSTORE_CO_TRY_STATUS(move_start(start));
  if (all.bytes > position.free_bytes()) {
    co_return make_error(ErrorCode::kBackPressure,
                         fmt::format("the ring has {} bytes free, {} are needed: truncate it",
                                     position.free_bytes(), all.bytes));
  }
  co_return Status{};
}

// ---- the calls ----

template <typename... What>
base::Task<Result<RemoteAppender::Appended>> RemoteAppender::State::append(State& s, What... what) {
  InProgress<State> call(s);
  const uint64_t turn = s.called++;
  while (s.placed != turn && !s.failed) co_await s.placing.wait();
  std::optional<Placed> placed;
  while (!s.failed) {
    auto tried = s.place(what...);
    if constexpr (std::is_same_v<void(What...), void(Entries*)>) {
      if (!tried && tried.code() == ErrorCode::kBackPressure) {
        Status made = co_await s.make_room(*what...);
        if (made) continue;
        tried = std::move(made.error());
      }
    }
    if (!tried) {
      s.pass_on();
      call.finished = true;
      co_return std::move(tried.error());
    }
    placed = *tried;
    if (placed) break;
    co_await s.placing.wait();
  }
  if (!placed) {
    call.finished = true;
    co_return s.failed_before();
  }
  s.pass_on();

  const std::span<const persist::RemotePiece> pieces(placed->pieces.data(), placed->piece_count);
  const Result<persist::Persisted> written = co_await s.writer.write(pieces);
  while (s.reported != placed->ticket && !s.failed) co_await s.reporting.wait();
  call.finished = true;
  if (s.failed) co_return s.failed_before();
  if (!written) {
    s.fail(written.error());
    co_return written.error();
  }
  PMSTORE_CHECK(s.reported == placed->ticket && s.reported < s.posted,
                "an entry would be acknowledged before those in front of it");
  ++s.reported;
  s.staging.give_back(placed->chunk);
  s.placing.notify_all();
  s.reporting.notify_all();
  co_return Appended{placed->plan.lsn, placed->plan.next_lsn(), *written};
}

base::Task<Result<RemoteAppender::Appended>> RemoteAppender::append(
    uint64_t sequence, std::span<const std::byte> payload) {
  return State::append(*state_, sequence, payload);
}

base::Task<Result<RemoteAppender::Appended>> RemoteAppender::append_all(Entries& entries) {
  return State::append(*state_, &entries);
}

Status RemoteAppender::truncated(uint64_t start_lsn) { return state_->move_start(start_lsn); }

Status RemoteAppender::State::move_start(uint64_t start_lsn) {
  if (start_lsn < position.start_lsn || start_lsn > position.tail_lsn ||
      !is_boundary(start_lsn, position.data_bytes)) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("a ring with lsn {} to {} cannot have been truncated to {}",
                                  position.start_lsn, position.tail_lsn, start_lsn));
  }
  position.start_lsn = start_lsn;
  PMSTORE_CHECK(position.tail_lsn - position.start_lsn <= position.data_bytes,
                "an entry would overwrite one that was not truncated");
  return {};
}

bool RemoteAppender::idle() const { return state_->in_progress == 0; }

const RingPosition& RemoteAppender::position() const { return state_->position; }

}  // namespace pmstore::log
