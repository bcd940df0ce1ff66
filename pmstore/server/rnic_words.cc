#include "pmstore/server/rnic_words.h"

#include "base/check.h"

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

// One attempt to connect. When its coroutine is destroyed, the coroutines that wait for it try.
class RnicWords::Connecting {
 public:
  explicit Connecting(RnicWords& words) : words_(words) {
    PMSTORE_CHECK(!words_.connecting_, "one attempt at a time");
    words_.connecting_ = true;
  }
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
// RNIC may still write there: then the word is not used again.
class RnicWords::OldValue {
 public:
  explicit OldValue(RnicWords& words) : words_(words), index_(words.free_.back()) {
    words_.free_.pop_back();
  }
  OldValue(const OldValue&) = delete;
  OldValue& operator=(const OldValue&) = delete;
  ~OldValue() {
    if (under_way) return;
    PMSTORE_CHECK(words_.free_.size() < kInFlight, "a word is given back once");
    words_.free_.push_back(index_);
    words_.room_.notify_one();
  }
  uint64_t& value() const { return words_.old_values_[index_]; }
  bool under_way = false;

 private:
  RnicWords& words_;
  const uint32_t index_;
};

// One attempt serves all callers at the same time.
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
  PMSTORE_CHECK(!free_.empty(), "a caller waits until a word is free");
  OldValue old_value(*this);
  fabric::Batch batch;
  const fabric::LocalBuffer old{reinterpret_cast<std::byte*>(&old_value.value()), 8,
                                old_region_.get()};
  batch.compare_swap(old, words_.remote().at(lock_word_offset(raw(slot))), expected.bits,
                     desired.bits);
  std::shared_ptr<fabric::Connection> at = loopback_;
  old_value.under_way = true;
  Status done = co_await at->execute(batch);
  old_value.under_way = false;
  bool in_doubt = false;
  for (unsigned attempt = 1; !done && attempt < kAttempts; ++attempt) {
    // A swap whose connection breaks may have taken effect; a full send queue has posted nothing.
    in_doubt |= done.code() != ErrorCode::kBackPressure;
    // The old connection is destroyed before the new one is used: no swap on it takes effect
    // afterwards.
    at.reset();
    if (attempt > 1) co_await device_.executor().sleep_for(kPauseNs);
    done = co_await connect();
    if (!done) continue;
    at = loopback_;
    old_value.under_way = true;
    done = co_await at->execute(batch);
    old_value.under_way = false;
  }
  if (!done) co_return done.error();
  const uint64_t found = old_value.value();
  co_return found == expected.bits || (in_doubt && found == desired.bits);
}

base::Task<void> RnicWords::pause() { co_await device_.executor().yield(); }

}  // namespace pmstore::internal
