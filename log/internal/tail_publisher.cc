#include "log/internal/tail_publisher.h"

#include <algorithm>

#include "base/check.h"

namespace pmstore::log::internal {
TailPublisher::TailPublisher(fabric::Device& device, fabric::Connection& connection,
                             const fabric::RemoteRegion& target, uint64_t tail_lsn)
    : connection_(connection),
      target_(target),
      durable_(tail_lsn),
      posted_(tail_lsn),
      confirmed_(tail_lsn),
      work_(device.executor()) {}

Result<std::unique_ptr<TailPublisher>> TailPublisher::create(fabric::Device& device,
                                                             fabric::Connection& connection,
                                                             const fabric::RemoteRegion& target,
                                                             uint64_t tail_lsn) {
  std::unique_ptr<TailPublisher> made(new TailPublisher(device, connection, target, tail_lsn));
  PMSTORE_TRY(made->region_, device.register_memory(std::as_writable_bytes(std::span(made->slots_)),
                                                    fabric::Access::kLocal));
  return made;
}

void TailPublisher::set_durable(persist::Persisted /*entries*/, uint64_t tail_lsn) {
  set_acknowledged(tail_lsn);
}

void TailPublisher::set_acknowledged(uint64_t tail_lsn) {
  PMSTORE_CHECK(tail_lsn >= durable_, "what is durable stays durable");
  durable_ = tail_lsn;
  work_.notify_one();
}

std::optional<persist::WriteRider::Ride> TailPublisher::board() {
  if (all_posted()) return std::nullopt;
  boarding_ = durable_;
  uint64_t& slot = slots_[next_slot_];
  slot = boarding_;
  return Ride{{reinterpret_cast<std::byte*>(&slot), sizeof slot, region_.get()}, target_.at(0)};
}

void TailPublisher::departed() {
  PMSTORE_CHECK(posted_ <= boarding_ && boarding_ <= durable_,
                "readers would see a tail that is not durable");
  posted_ = boarding_;
  next_slot_ = (next_slot_ + 1) % kSlots;
}

void TailPublisher::post() {
  const auto ride = board();
  if (!ride) return;
  batch_.clear();
  batch_.write(ride->from, ride->to);
  if (connection_.post(batch_, nullptr)) departed();
}

base::Task<Status> TailPublisher::publish(uint64_t timeout_ns) {
  const uint64_t wanted = durable_;
  const fabric::PendingCompletion completion(connection_.completions());
  const auto try_post = [&]() -> Status {
    if (confirmed_ >= wanted) return {};
    PMSTORE_CHECK(confirmed_ <= durable_ && posted_ <= durable_, "a tail is durable, then posted");
    // Again: nobody waits for what was posted before. Another publish() that waits for room has
    // done the same, and a completion may have come meanwhile: posted_ may be the lower of the two.
    posted_ = confirmed_;
    const Ride ride = *board();
    batch_.clear();
    batch_.write(ride.from, ride.to);
    if (connection_.capabilities().read_after_write) {
      std::byte* const answer = reinterpret_cast<std::byte*>(&slots_[kSlots]);
      batch_.read({answer, sizeof slots_[kSlots], region_.get()}, ride.to);
    }
    return connection_.post(batch_, &*completion);
  };
  Status posted = co_await connection_.post_when_room(timeout_ns, try_post);
  if (!posted || confirmed_ >= wanted) co_return posted;
  departed();
  const uint64_t published = boarding_;
  fabric::CompletionAwaiter completed(*completion);
  const bool landed = co_await completed;
  ++connection_.mutable_counters().round_trips;
  if (!landed) co_return connection_.why_broken();
  confirmed_ = std::max(confirmed_, published);
  PMSTORE_CHECK(confirmed_ <= durable_, "a tail that is not durable was published");
  co_return Status{};
}

}  // namespace pmstore::log::internal
