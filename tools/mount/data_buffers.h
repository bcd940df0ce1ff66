// DataBuffers: memory for what requests carry and what answers carry, used again and again.
//
// A buffer whose request was given up is kept until the DataBuffers end, because its data may still
// be on the way from or to a server then.
// Invariants: lent_bytes_ + retired_bytes_ is the size of all buffers that are not free;
// free_.size() <= kMostFree.
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
  // One request's. Goes back when it is release()d; when it is only destroyed, it is retired.
  class Buffer {
   public:
    Buffer(Buffer&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)),
          memory_(std::move(other.memory_)),
          bytes_(other.bytes_) {}
    Buffer& operator=(Buffer&&) = delete;
    ~Buffer() {
      if (owner_ != nullptr) owner_->retire(std::move(memory_), bytes_);
    }
    std::span<std::byte> bytes() { return {memory_.get(), bytes_}; }
    void release() {
      PMSTORE_CHECK(owner_ != nullptr, "a buffer is released once");
      std::exchange(owner_, nullptr)->take_back(std::move(memory_), bytes_);
    }

   private:
    friend class DataBuffers;
    Buffer(DataBuffers& owner, std::unique_ptr<std::byte[]> memory, size_t bytes)
        : owner_(&owner), memory_(std::move(memory)), bytes_(bytes) {}
    DataBuffers* owner_;
    std::unique_ptr<std::byte[]> memory_;
    size_t bytes_;
  };

  // All large buffers have `large_bytes`.
  explicit DataBuffers(size_t large_bytes) : large_bytes_(large_bytes) {}

  Buffer lend(size_t bytes) {
    PMSTORE_CHECK(bytes <= large_bytes_, "the kernel keeps to the sizes that it was told");
    if (bytes > kSmallBytes) bytes = large_bytes_;
    lent_bytes_ += bytes;
    if (bytes == large_bytes_ && !free_.empty()) {
      auto memory = std::move(free_.back());
      free_.pop_back();
      return {*this, std::move(memory), bytes};
    }
    return {*this, std::make_unique_for_overwrite<std::byte[]>(bytes), bytes};
  }

  size_t used_bytes() const { return lent_bytes_ + retired_bytes_; }
  size_t retired_bytes() const { return retired_bytes_; }

 private:
  void take_back(std::unique_ptr<std::byte[]> memory, size_t bytes) {
    PMSTORE_CHECK(lent_bytes_ >= bytes, "what comes back was lent");
    lent_bytes_ -= bytes;
    if (bytes == large_bytes_ && free_.size() < kMostFree) free_.push_back(std::move(memory));
  }
  void retire(std::unique_ptr<std::byte[]> memory, size_t bytes) {
    PMSTORE_CHECK(lent_bytes_ >= bytes, "what is retired was lent");
    lent_bytes_ -= bytes;
    retired_bytes_ += bytes;
    retired_.push_back(std::move(memory));
  }

  static constexpr size_t kSmallBytes = 128 * 1024;
  static constexpr size_t kMostFree = 16;
  const size_t large_bytes_;
  size_t lent_bytes_ = 0;
  size_t retired_bytes_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> free_;
  std::vector<std::unique_ptr<std::byte[]>> retired_;
};

}  // namespace pmstore::tools
