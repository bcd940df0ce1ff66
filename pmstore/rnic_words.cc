#include "pmstore/internal/rnic_words.h"

namespace pmstore::internal {
namespace {

constexpr unsigned kAttempts = 5;
constexpr uint64_t kPauseNs = 1'000'000;

}  // namespace

RnicWords::RnicWords(fabric::Device& device, const fabric::MemoryRegion& words)
    : device_(device), room_(device.executor()), connected_(device.executor()), words_(words) {
  for (uint32_t i = 0; i < kInFlight; ++i) free_.push_back(i);
}

base::Task<Result<std::unique_ptr<RnicWords>>> RnicWords::create(
    fabric::Device& device, const fabric::MemoryRegion& words) {
  std::unique_ptr<RnicWords> made(new RnicWords(device, words));
  const auto memory = std::as_writable_bytes(std::span(made->old_values_));
  PMSTORE_CO_TRY(made->old_region_, device.register_memory(memory, fabric::Access::kLocal));
  PMSTORE_CO_TRY_STATUS(co_await made->connect());
  if (made->loopback_->capabilities().atomics == fabric::AtomicScope::kNone) {
    co_return make_error(
        ErrorCode::kUnsupported,
        "this fabric has no remote atomics, so lock discipline rnic cannot be used; "
        "use --locks cpu");
  }
  co_return made;
}

// Once for all who need it at the same time.
base::Task<Status> RnicWords::connect() {
  while (connecting_) co_await connected_.wait();
  if (loopback_ && !loopback_->broken()) co_return Status{};
  connecting_ = true;
  auto connected = co_await device_.loopback();
  connecting_ = false;
  if (connected) loopback_ = std::move(*connected);
  connected_.notify_all();
  if (!connected) co_return std::move(connected.error());
  co_return Status{};
}

base::Task<Result<bool>> RnicWords::compare_swap(SlotOffset slot, LockWord expected,
                                                 LockWord desired) {
  while (free_.empty()) co_await room_.wait();
  const uint32_t place = free_.back();
  free_.pop_back();
  fabric::Batch batch;
  const fabric::LocalBuffer old{reinterpret_cast<std::byte*>(&old_values_[place]), 8,
                                old_region_.get()};
  batch.compare_swap(old, words_.remote().at(lock_word_offset(raw(slot))), expected.bits,
                     desired.bits);
  std::shared_ptr<fabric::Connection> at = loopback_;
  Status done = co_await at->execute(batch);
  bool in_doubt = false;
  for (unsigned attempt = 1; !done && attempt < kAttempts; ++attempt) {
    // Broken under way, it may have taken effect; a full send queue has posted nothing.
    in_doubt |= done.code() != ErrorCode::kBackPressure;
    if (attempt > 1) co_await device_.executor().sleep_for(kPauseNs);
    done = co_await connect();
    if (!done) continue;
    at = loopback_;
    done = co_await at->execute(batch);
  }
  const uint64_t found = old_values_[place];
  free_.push_back(place);
  room_.notify_one();
  if (!done) co_return done.error();
  co_return found == expected.bits || (in_doubt && found == desired.bits);
}

}  // namespace pmstore::internal
