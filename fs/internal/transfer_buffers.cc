#include "fs/internal/transfer_buffers.h"

#include <new>

namespace pmstore::fs::internal {
namespace {

constexpr size_t kBufferAlignment = 4096;
constexpr size_t kWordsBytes = kMaxWords * sizeof(uint64_t);  // a line of its own

}  // namespace

void TransferBuffers::FreeMemory::operator()(std::byte* memory) const {
  ::operator delete[](memory, std::align_val_t{kBufferAlignment});
}

Result<std::unique_ptr<TransferBuffers>> TransferBuffers::create(fabric::Device& device,
                                                                 size_t small, size_t large,
                                                                 size_t large_bytes) {
  PMSTORE_CHECK(small > 0 && large > 0, "who waits for a buffer must get one some time");
  PMSTORE_CHECK(large_bytes >= kSmallBytes, "the large ones are for what is not small");
  std::unique_ptr<TransferBuffers> made(new TransferBuffers(device.executor()));
  made->large_bytes_ = large_bytes;
  const size_t count = small + large;
  const size_t data_bytes = small * kSmallBytes + large * large_bytes;
  const size_t bytes = data_bytes + count * kWordsBytes;
  made->memory_.reset(
      static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{kBufferAlignment})));
  PMSTORE_TRY(made->region_,
              device.register_memory({made->memory_.get(), bytes}, fabric::Access::kLocal));
  made->buffers_ = std::vector<TransferBuffer>(count);
  std::byte* words = made->memory_.get() + data_bytes;
  for (TransferBuffer& buffer : made->buffers_) {
    buffer.region = made->region_.get();
    buffer.words = new (words) uint64_t[kMaxWords]{};
    words += kWordsBytes;
  }
  std::byte* data = made->memory_.get();
  made->fill(made->small_, 0, small, kSmallBytes, data);
  made->fill(made->large_, small, large, large_bytes, data);
  return made;
}

void TransferBuffers::fill(Shelf& shelf, size_t from, size_t count, size_t bytes,
                           std::byte*& data) {
  shelf.free.reserve(count);
  for (size_t i = from; i < from + count; ++i) {
    buffers_[i].data = data;
    buffers_[i].bytes = bytes;
    data += bytes;
    shelf.free.push_back(&buffers_[i]);
  }
}

base::Task<TransferBuffers::Lease> TransferBuffers::take(size_t bytes) {
  PMSTORE_CHECK(bytes <= large_bytes_, "a part fits in a buffer");
  Shelf& shelf = shelf_of(bytes);
  // Some may be free for those that were woken before and have not run yet.
  while (shelf.free.size() <= shelf.waiting.chosen()) co_await shelf.waiting.wait();
  TransferBuffer* const buffer = shelf.free.back();  // last in, first out: the same lines again
  shelf.free.pop_back();
  co_return Lease(*this, *buffer);
}

void TransferBuffers::give_back(TransferBuffer& buffer) {
  Shelf& shelf = shelf_of(buffer.bytes);
  PMSTORE_CHECK(shelf.free.size() < shelf.free.capacity(), "a buffer is given back once");
  shelf.free.push_back(&buffer);
  if (shelf.waiting.waiting() > 0) shelf.waiting.notify_one();
}

}  // namespace pmstore::fs::internal
