#include "pmstore/client/rnic_background.h"

#include <array>
#include <cstring>

#include "base/check.h"

namespace pmstore::internal {
namespace {

// Counts passive work, so that an orderly end can wait for it.
class Passive {
 public:
  explicit Passive(ClientSession& session) : session_(session) { ++session_.passive; }
  Passive(const Passive&) = delete;
  Passive& operator=(const Passive&) = delete;
  ~Passive() {
    PMSTORE_CHECK(session_.passive > 0, "each passive task is counted");
    --session_.passive;
  }

 private:
  ClientSession& session_;
};

class Truncating {
 public:
  explicit Truncating(RedoRing& ring) : ring_(ring) {
    PMSTORE_CHECK(!ring_.truncating, "one truncation at a time");
    ring_.truncating = true;
  }
  Truncating(const Truncating&) = delete;
  Truncating& operator=(const Truncating&) = delete;
  ~Truncating() {
    ring_.truncating = false;
    ring_.truncation_ended.notify_all();
  }

 private:
  RedoRing& ring_;
};

// Every unlock found the lock that it expected. It cannot be otherwise while both sides keep to the
// protocol.
bool all_unlocked(const OpBuffer& buffer) {
  for (const fabric::WorkRequest& request : buffer.batch) {
    if (request.op != fabric::OpCode::kCompareSwap) continue;
    uint64_t old;
    std::memcpy(&old, request.local, sizeof(old));
    if (old != request.compare_or_add) return false;
  }
  return true;
}

void maybe_truncate(const SessionRef& session) {
  RedoRing& ring = session->ring();
  if (!ring.more_than_half_used() || ring.truncating || !session->usable()) return;
  if (ring.done_through_lsn() == ring.start_lsn()) return;
  session->executor().spawn(truncate_ring(session));
}

}  // namespace

base::Task<void> finish_in_place(SessionBuffer held, RedoRing::Ticket ticket) {
  const Passive passive(*held.session);
  fabric::CompletionAwaiter completed(held.buffer->completion);
  if (!co_await completed) co_return;
  if (!all_unlocked(*held.buffer)) {
    held.session->drop();
    co_return;
  }
  held.session->ring().done(ticket);
  maybe_truncate(held.session);
}

base::Task<void> apply_logged(persist::Persisted /*logged*/, SessionRef session, uint64_t lsn,
                              RedoRing::Ticket ticket) {
  const Passive passive(*session);
  std::array<std::byte, sizeof(RequestPrefix) + sizeof(ApplyRequest)> room;
  MessageWriter request(room);
  request.put(session->prefix());
  request.put(ApplyRequest{lsn, session->ring().logged_tail_lsn()});
  const auto answer =
      co_await session->rpc().call(static_cast<uint16_t>(Method::kApply), request.message(), 0);
  if (!answer) {
    session->drop();
    co_return;
  }
  session->ring().done(ticket);
  maybe_truncate(session);
}

base::Task<void> truncate_ring(SessionRef session) {
  RedoRing& ring = session->ring();
  if (ring.truncating) {
    co_await ring.truncation_ended.wait();
    co_return;
  }
  const uint64_t through = ring.done_through_lsn();
  if (through == ring.start_lsn()) co_return;
  const Truncating truncating(ring);
  const Passive passive(*session);
  // Where a READ makes earlier WRITEs of its queue pair durable, this one does it for all in-place
  // writes of the entries that go. Where it does not, the server flushes them.
  OpBuffer& buffer = session->truncation_buffer();
  // A call that was abandoned may have left its READ under way, which is older than some of the
  // writes that go now.
  constexpr uint64_t kLookAgainNs = 1'000;
  const uint64_t give_up_ns = session->executor().now_ns() + session->call_timeout_ns();
  while (buffer.under_way() && session->usable()) {
    if (session->executor().now_ns() >= give_up_ns) session->drop();
    co_await session->executor().sleep_for(kLookAgainNs);
  }
  if (!session->usable()) co_return;
  buffer.batch.clear();
  buffer.batch.read(buffer.word_at(0), session->record_at(SlotOffset{0}));
  Status read = co_await session->execute(buffer);
  if (!read) read = co_await session->execute_after(std::move(read), buffer);
  if (!read) co_return;

  std::array<std::byte, sizeof(RequestPrefix) + sizeof(TruncateRequest)> room;
  MessageWriter request(room);
  request.put(session->prefix());
  request.put(TruncateRequest{through, ring.logged_tail_lsn()});
  const auto answer = co_await session->rpc().call(static_cast<uint16_t>(Method::kTruncate),
                                                   request.message(), sizeof(TruncateReply));
  if (!answer) {
    session->drop();
    co_return;
  }
  MessageReader reader(answer->bytes());
  const auto reply = reader.get<TruncateReply>();
  if (!reader.complete() || reply.start_lsn > through || !ring.truncated(reply.start_lsn)) {
    session->drop();
  }
}

}  // namespace pmstore::internal
