#include "pmstore/client/buffer_pool.h"

#include <new>

namespace pmstore::internal {
namespace {

constexpr size_t kAlignment = 256;
static_assert(OpBuffer::kBytes % kAlignment == 0);

}  // namespace

void BufferPool::FreeMemory::operator()(std::byte* memory) const {
  ::operator delete[](memory, std::align_val_t{kAlignment});
}

Result<std::unique_ptr<BufferPool>> BufferPool::create(fabric::Device& device, size_t count) {
  PMSTORE_CHECK(count > 0, "an operation that waits for a buffer must get one some time");
  std::unique_ptr<BufferPool> pool(new BufferPool(device.executor()));
  const size_t bytes = count * OpBuffer::kBytes;
  pool->memory_.reset(
      static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{kAlignment})));
  PMSTORE_TRY(pool->region_,
              device.register_memory({pool->memory_.get(), bytes}, fabric::Access::kLocal));
  pool->buffers_ = std::vector<OpBuffer>(count);
  pool->free_.reserve(count);
  pool->abandoned_.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const size_t index = count - 1 - i;
    OpBuffer& buffer = pool->buffers_[index];
    buffer.number = static_cast<uint32_t>(index);
    buffer.data = pool->memory_.get() + index * OpBuffer::kBytes;
    buffer.region = pool->region_.get();
    pool->free_.push_back(&buffer);
  }
  return pool;
}

BufferPool::~BufferPool() = default;

void BufferPool::reclaim() {
  std::erase_if(abandoned_, [this](OpBuffer* buffer) {
    if (buffer->under_way()) return false;
    ++buffer->uses;
    free_.push_back(buffer);
    waiting_.notify_one();
    return true;
  });
}

std::vector<uint64_t> BufferPool::uses() const {
  std::vector<uint64_t> uses;
  for (const OpBuffer& buffer : buffers_) uses.push_back(buffer.uses);
  return uses;
}

bool BufferPool::have_ended(const std::vector<uint64_t>& uses) {
  PMSTORE_CHECK(uses.size() == buffers_.size(), "they are of this pool");
  reclaim();
  for (size_t i = 0; i < uses.size(); ++i) {
    if (uses[i] % 2 == 1 && buffers_[i].uses == uses[i]) return false;
  }
  return true;
}

// Of a waiter that polls: when it is destroyed, the next one has to.
class BufferPool::Polling {
 public:
  explicit Polling(BufferPool& pool) : pool_(pool) {}
  ~Polling() {
    if (!over) pool_.waiting_.notify_one();
  }
  Polling(const Polling&) = delete;
  Polling& operator=(const Polling&) = delete;
  bool over = false;

 private:
  BufferPool& pool_;
};

base::Task<BufferLease> BufferPool::take() {
  constexpr uint64_t kPauseNs = 10'000;
  while (true) {
    BufferLease lease = try_take();
    if (lease) co_return std::move(lease);
    // No notification comes when the request of an abandoned buffer completes.
    if (abandoned_.empty()) {
      co_await waiting_.wait();
    } else {
      Polling polling(*this);
      co_await executor_.sleep_for(kPauseNs);
      polling.over = true;
    }
  }
}

}  // namespace pmstore::internal
