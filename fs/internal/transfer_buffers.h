// TransferBuffers: registered memory for the parts of file accesses: what an RNIC reads and writes
// for those whose own memory is not registered, and where generation words arrive.
//
// A buffer is leased for one part and given back when nothing of it is under way: who leases it
// runs to its end (base::RunningTasks). Invariants: a buffer is free or leased; one that waits for
// a buffer holds none. Bounded: both sizes have a fixed number. Threads: one. The device is
// borrowed; the connections that use the buffers go before them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"
#include "fabric/batch.h"
#include "fabric/device.h"

namespace pmstore::fs::internal {

// Words of one part, at most.
inline constexpr size_t kMaxWords = 8;

struct TransferBuffer {
  std::byte* data = nullptr;
  uint64_t* words = nullptr;  // kMaxWords
  size_t bytes = 0;           // of data
  const fabric::MemoryRegion* region = nullptr;
  fabric::Batch batch;  // here, because it is too large for a coroutine's frame

  fabric::LocalBuffer at(size_t offset, uint32_t count) const {
    PMSTORE_CHECK(offset <= bytes && count <= bytes - offset, "a piece lies in its buffer");
    return {data + offset, count, region};
  }
  fabric::LocalBuffer word(size_t index) const {
    PMSTORE_CHECK(index < kMaxWords, "a word lies in its buffer");
    return {reinterpret_cast<std::byte*>(words + index), sizeof(uint64_t), region};
  }
};

class TransferBuffers {
 public:
  static constexpr size_t kSmallBytes = 16 * 1024;

  class Lease {
   public:
    Lease(TransferBuffers& buffers, TransferBuffer& buffer) : from_(&buffers), buffer_(&buffer) {}
    Lease(Lease&& other) noexcept
        : from_(other.from_), buffer_(std::exchange(other.buffer_, nullptr)) {}
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (buffer_ != nullptr) from_->give_back(*buffer_);
    }
    TransferBuffer& operator*() const { return *buffer_; }
    TransferBuffer* operator->() const { return buffer_; }

   private:
    TransferBuffers* from_;
    TransferBuffer* buffer_;
  };

  // Buffers of kSmallBytes and of `large_bytes`. Io as Device::register_memory().
  static Result<std::unique_ptr<TransferBuffers>> create(fabric::Device& device, size_t small,
                                                         size_t large, size_t large_bytes);
  // One of at least so many bytes, at most `large_bytes`. Waits for it.
  base::Task<Lease> take(size_t bytes);

 private:
  // Those of one size.
  struct Shelf {
    explicit Shelf(base::Executor& executor) : waiting(executor) {}
    std::vector<TransferBuffer*> free;
    base::WaitList waiting;
  };
  struct FreeMemory {
    void operator()(std::byte* memory) const;
  };

  explicit TransferBuffers(base::Executor& executor) : small_(executor), large_(executor) {}
  void fill(Shelf& shelf, size_t from, size_t count, size_t bytes, std::byte*& data);
  Shelf& shelf_of(size_t bytes) { return bytes <= kSmallBytes ? small_ : large_; }
  void give_back(TransferBuffer& buffer);

  size_t large_bytes_ = 0;
  std::unique_ptr<std::byte, FreeMemory> memory_;
  std::unique_ptr<fabric::MemoryRegion> region_;
  std::vector<TransferBuffer> buffers_;
  Shelf small_;
  Shelf large_;
};

}  // namespace pmstore::fs::internal
