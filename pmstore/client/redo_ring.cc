#include "pmstore/client/redo_ring.h"

#include <algorithm>

#include "base/check.h"

namespace pmstore::internal {
namespace {

// A redo record of one small write takes more than 128 B, so a ring rarely holds more entries.
size_t max_entries(uint64_t data_bytes) { return std::clamp<uint64_t>(data_bytes / 128, 16, 8192); }

}  // namespace

Result<std::unique_ptr<RedoRing>> RedoRing::create(fabric::Device& device,
                                                   fabric::Connection& connection,
                                                   fabric::RpcClient& rpc, const RingReply& granted,
                                                   const persist::PersistCapability& server,
                                                   persist::WriteStrategy strategy,
                                                   persist::PaddingRules padding) {
  std::unique_ptr<RedoRing> ring(
      new RedoRing(device.executor(), granted, max_entries(granted.ring.bytes)));
  const persist::RemoteWriterOptions options{strategy, 0};
  PMSTORE_TRY(ring->writer_, persist::RemoteWriter::create(device, connection, &rpc, granted.ring,
                                                           server, options));
  const log::RingPosition position{granted.ring.bytes, granted.start_lsn, granted.tail_lsn,
                                   granted.incarnation, granted.salt};
  ring->max_payload_bytes_ = log::max_payload_bytes(granted.ring.bytes);
  // One entry of the largest size, and meanwhile a few small ones.
  const uint64_t staging = persist::round_up(ring->max_payload_bytes_ + 4096, 4096);
  PMSTORE_TRY(ring->appender_,
              log::RemoteAppender::create(device, *ring->writer_, position,
                                          static_cast<uint32_t>(staging), padding));
  ring->logged_tail_lsn_ = granted.tail_lsn;
  ring->begin_lsn_ = granted.tail_lsn;
  return ring;
}

base::Task<Result<RedoRing::Appended>> RedoRing::append(uint64_t sequence,
                                                        std::span<const std::byte> payload) {
  if (kept_free_ > 0) {
    co_return make_error(ErrorCode::kBackPressure, "the ring is being probed; try again");
  }
  while (oldest_ < next_ && entry(oldest_).state == State::kVoid) ++oldest_;
  if (next_ - oldest_ == entries_.size()) {
    co_return make_error(ErrorCode::kBackPressure,
                         "too many commits are unacknowledged; truncate the ring");
  }
  PMSTORE_CHECK(next_ - oldest_ < entries_.size(), "every append that may be needed has an entry");
  // No suspension from here to the call: tickets are in the order of the entries.
  const Ticket ticket = next_++;
  entry(ticket) = {0, State::kAppending};
  auto appended = co_await appender_->append(sequence, payload);
  if (!appended) {
    const ErrorCode code = appended.code();
    const bool written = code != ErrorCode::kBackPressure && code != ErrorCode::kTooLarge &&
                         code != ErrorCode::kFull;
    // In doubt it stays kAppending, and nothing from here on is ever truncated by this session.
    if (!written) entry(ticket).state = State::kVoid;
    co_return std::move(appended.error());
  }
  PMSTORE_CHECK(ticket >= oldest_ && entry(ticket).state == State::kAppending,
                "no truncation covers an append that is under way");
  PMSTORE_CHECK(appended->lsn >= begin_lsn_ && appended->next_lsn > appended->lsn,
                "an entry lies after what earlier sessions have left");
  entry(ticket) = {appended->next_lsn, State::kLogged};
  logged_tail_lsn_ = std::max(logged_tail_lsn_, appended->next_lsn);
  co_return Appended{ticket, appended->lsn, appended->persisted};
}

void RedoRing::done(Ticket ticket) {
  PMSTORE_CHECK(ticket >= oldest_ && ticket < next_ && entry(ticket).state == State::kLogged,
                "a commit phase ends once, after its entry was logged");
  entry(ticket).state = State::kDone;
}

uint64_t RedoRing::done_through_lsn() const {
  uint64_t through = std::max(appender_->position().start_lsn, begin_lsn_);
  for (Ticket ticket = oldest_; ticket < next_; ++ticket) {
    const Entry& at = entry(ticket);
    if (at.state == State::kAppending || at.state == State::kLogged) break;
    if (at.state == State::kDone) through = at.next_lsn;
  }
  PMSTORE_CHECK(through <= logged_tail_lsn_, "only durable entries are truncated");
  return through;
}

Status RedoRing::truncated(uint64_t start_lsn) {
  PMSTORE_TRY_STATUS(appender_->truncated(start_lsn));
  while (oldest_ < next_) {
    const Entry& at = entry(oldest_);
    const bool gone =
        at.state == State::kVoid || (at.state == State::kDone && at.next_lsn <= start_lsn);
    if (!gone) break;
    ++oldest_;
  }
  return {};
}

}  // namespace pmstore::internal
