#include "pmstore/internal/rnic_words.h"

namespace pmstore::internal {

RnicWords::RnicWords(fabric::Device& device, const fabric::MemoryRegion& words)
    : room_(device.executor()), words_(words) {
  for (uint32_t i = 0; i < kInFlight; ++i) free_.push_back(i);
}

base::Task<Result<std::unique_ptr<RnicWords>>> RnicWords::create(
    fabric::Device& device, const fabric::MemoryRegion& words) {
  std::unique_ptr<RnicWords> made(new RnicWords(device, words));
  const auto memory = std::as_writable_bytes(std::span(made->old_values_));
  PMSTORE_CO_TRY(made->old_region_, device.register_memory(memory, fabric::Access::kLocal));
  auto connected = co_await device.loopback();
  if (!connected) co_return connected.error();
  made->loopback_ = std::move(*connected);
  if (made->loopback_->capabilities().atomics == fabric::AtomicScope::kNone) {
    co_return make_error(
        ErrorCode::kUnsupported,
        "this fabric has no remote atomics, so lock discipline rnic cannot be used; "
        "use --locks cpu");
  }
  co_return made;
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
  const Status done = co_await loopback_->execute(batch);
  const uint64_t found = old_values_[place];
  free_.push_back(place);
  room_.notify_one();
  if (!done) co_return done.error();
  co_return found == expected.bits;
}

}  // namespace pmstore::internal
