#include "pmstore/server/rnic_words.h"

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

// One attempt to connect. When its coroutine is destroyed, those who wait try themselves.
class RnicWords::Connecting {
 public:
  explicit Connecting(RnicWords& words) : words_(words) { words_.connecting_ = true; }
  Connecting(const Connecting&) = delete;
  Connecting& operator=(const Connecting&) = delete;
  ~Connecting() {
    words_.connecting_ = false;
    words_.connected_.notify_all();
  }

 private:
  RnicWords& words_;
};

// One word of old_values_. When the coroutine is destroyed while its request is under way, the
// RNIC may still write there: then the place is not used again.
class RnicWords::Place {
 public:
  explicit Place(RnicWords& words) : words_(words), index_(words.free_.back()) {
    words_.free_.pop_back();
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  ~Place() {
    if (under_way) return;
    words_.free_.push_back(index_);
    words_.room_.notify_one();
  }
  uint64_t& value() const { return words_.old_values_[index_]; }
  bool under_way = false;

 private:
  RnicWords& words_;
  const uint32_t index_;
};

// Once for all who need it at the same time.
base::Task<Status> RnicWords::connect() {
  while (connecting_) co_await connected_.wait();
  if (loopback_ && !loopback_->broken()) co_return Status{};
  const Connecting attempt(*this);
  auto connected = co_await device_.loopback();
  if (!connected) co_return std::move(connected.error());
  loopback_ = std::move(*connected);
  co_return Status{};
}

base::Task<Result<bool>> RnicWords::compare_swap(SlotOffset slot, LockWord expected,
                                                 LockWord desired) {
  while (free_.size() <= room_.chosen()) co_await room_.wait();
  Place place(*this);
  fabric::Batch batch;
  const fabric::LocalBuffer old{reinterpret_cast<std::byte*>(&place.value()), 8, old_region_.get()};
  batch.compare_swap(old, words_.remote().at(lock_word_offset(raw(slot))), expected.bits,
                     desired.bits);
  std::shared_ptr<fabric::Connection> at = loopback_;
  place.under_way = true;
  Status done = co_await at->execute(batch);
  place.under_way = false;
  bool in_doubt = false;
  for (unsigned attempt = 1; !done && attempt < kAttempts; ++attempt) {
    // Broken under way, it may have taken effect; a full send queue has posted nothing.
    in_doubt |= done.code() != ErrorCode::kBackPressure;
    // The old connection goes before the new one is used: nothing of it takes effect afterwards.
    at.reset();
    if (attempt > 1) co_await device_.executor().sleep_for(kPauseNs);
    done = co_await connect();
    if (!done) continue;
    at = loopback_;
    place.under_way = true;
    done = co_await at->execute(batch);
    place.under_way = false;
  }
  if (!done) co_return done.error();
  const uint64_t found = place.value();
  co_return found == expected.bits || (in_doubt && found == desired.bits);
}

base::Task<void> RnicWords::pause() { co_await device_.executor().yield(); }

}  // namespace pmstore::internal
