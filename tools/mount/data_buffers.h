// DataBuffers: memory for what requests carry and what answers carry, used again and again.
//
// The first kKept large ones lie in one piece of memory, kept(), which may be registered with the
// FileSystem: data then goes from and to them without a copy between. Further ones, and small ones,
// are the heap's, and have the size that was asked for. A buffer whose request was given up is kept
// until the DataBuffers end, because its data may still be on the way from or to a server then.
// Invariants: lent_bytes_ + retired_bytes_ is the size of all buffers that are not free; what is
// free lies in kept().
// Threads: one. Lifetimes: DataBuffers outlives its buffers, and the FileSystem's connections end
// before it does.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"

namespace pmstore::tools {

class DataBuffers {
 public:
  static constexpr size_t kKept = 16;

  // One request's. Goes back when it is release()d; when it is only destroyed, it is retired.
  class Buffer {
   public:
    Buffer(Buffer&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)),
          own_(std::move(other.own_)),
          bytes_(other.bytes_) {}
    Buffer& operator=(Buffer&&) = delete;
    ~Buffer() {
      if (owner_ != nullptr) owner_->retire(std::move(own_), bytes_.size());
    }
    std::span<std::byte> bytes() { return bytes_; }
    void release() {
      PMSTORE_CHECK(owner_ != nullptr, "a buffer is released once");
      std::exchange(owner_, nullptr)->take_back(std::move(own_), bytes_);
    }

   private:
    friend class DataBuffers;
    Buffer(DataBuffers& owner, std::unique_ptr<std::byte[]> own, std::span<std::byte> bytes)
        : owner_(&owner), own_(std::move(own)), bytes_(bytes) {}
    DataBuffers* owner_;
    std::unique_ptr<std::byte[]> own_;  // nullptr: it lies in kept()
    std::span<std::byte> bytes_;
  };

  // Each in kept() has `large_bytes`. Pages that are not used take no memory.
  explicit DataBuffers(size_t large_bytes)
      : large_bytes_(large_bytes),
        kept_(std::make_unique_for_overwrite<std::byte[]>(kKept * large_bytes)) {
    for (size_t i = kKept; i > 0; --i) free_.push_back(kept_.get() + (i - 1) * large_bytes);
  }

  std::span<std::byte> kept() { return {kept_.get(), kKept * large_bytes_}; }

  Buffer lend(size_t bytes) {
    PMSTORE_CHECK(bytes <= large_bytes_, "the kernel keeps to the sizes that it was told");
    lent_bytes_ += bytes;
    if (bytes > kSmallBytes && !free_.empty()) {
      std::byte* const memory = free_.back();
      free_.pop_back();
      return {*this, nullptr, {memory, bytes}};
    }
    auto own = std::make_unique_for_overwrite<std::byte[]>(bytes);
    std::byte* const memory = own.get();
    return {*this, std::move(own), {memory, bytes}};
  }

  size_t used_bytes() const { return lent_bytes_ + retired_bytes_; }
  size_t retired_bytes() const { return retired_bytes_; }

 private:
  void take_back(std::unique_ptr<std::byte[]> own, std::span<std::byte> bytes) {
    PMSTORE_CHECK(lent_bytes_ >= bytes.size(), "what comes back was lent");
    lent_bytes_ -= bytes.size();
    PMSTORE_CHECK(own != nullptr || (bytes.data() - kept_.get()) % ptrdiff_t(large_bytes_) == 0,
                  "what is free begins a place of kept()");
    if (own == nullptr) free_.push_back(bytes.data());
    PMSTORE_CHECK(free_.size() <= kKept, "a buffer goes back once");
  }
  void retire(std::unique_ptr<std::byte[]> own, size_t bytes) {
    PMSTORE_CHECK(lent_bytes_ >= bytes, "what is retired was lent");
    lent_bytes_ -= bytes;
    retired_bytes_ += bytes;
    if (own != nullptr) retired_.push_back(std::move(own));
  }

  static constexpr size_t kSmallBytes = 64 * 1024;
  const size_t large_bytes_;
  size_t lent_bytes_ = 0;
  size_t retired_bytes_ = 0;
  std::unique_ptr<std::byte[]> kept_;
  std::vector<std::byte*> free_;
  std::vector<std::unique_ptr<std::byte[]>> retired_;
};

}  // namespace pmstore::tools
