#include "log/internal/read_buffer.h"

#include <new>
#include <utility>

#include "base/check.h"

namespace pmstore::log::internal {
namespace {

constexpr size_t kAlignment = 4096;
constexpr uint64_t kReadAgainNs = 1000;

}  // namespace

void ReadBuffer::Delete::operator()(std::byte* memory) const {
  ::operator delete[](memory, std::align_val_t{kAlignment});
}

ReadBuffer::ReadBuffer(fabric::Device& device, size_t bytes)
    : device_(device),
      bytes_(bytes),
      memory_(static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{kAlignment}))) {}

Result<std::unique_ptr<ReadBuffer>> ReadBuffer::create(fabric::Device& device, size_t bytes) {
  std::unique_ptr<ReadBuffer> buffer(new ReadBuffer(device, bytes));
  PMSTORE_TRY(buffer->region_,
              device.register_memory({buffer->memory_.get(), bytes}, fabric::Access::kLocal));
  return buffer;
}

void ReadBuffer::clear(std::shared_ptr<const void> holds) {
  PMSTORE_CHECK(!under_way(), "a READ would land in what is reused");
  holds_ = std::move(holds);
  batch_.clear();
}

void ReadBuffer::read(size_t to, uint32_t bytes, fabric::RemoteAddress from) {
  PMSTORE_CHECK(to <= bytes_ && bytes <= bytes_ - to, "a READ would leave its buffer");
  batch_.read({memory_.get() + to, bytes, region_.get()}, from);
}

base::Task<Status> ReadBuffer::execute(fabric::Connection& connection, uint64_t timeout_ns) {
  PMSTORE_CHECK(!under_way(), "two READs would wait for one completion");
  Status posted = co_await connection.post_when_room(batch_, &completion_, timeout_ns);
  if (!posted) co_return posted;
  fabric::CompletionAwaiter completed(completion_);
  const bool landed = co_await completed;
  ++connection.mutable_counters().round_trips;
  if (!landed) co_return connection.why_broken();
  co_return Status{};
}

base::Task<Status> ReadBuffer::settle(uint64_t timeout_ns) {
  base::Executor& executor = device_.executor();
  const uint64_t give_up_ns = executor.now_ns() + timeout_ns;
  while (under_way()) {
    if (executor.now_ns() >= give_up_ns) {
      co_return make_error(ErrorCode::kTimeout, "a READ that was abandoned does not end");
    }
    co_await executor.sleep_for(kReadAgainNs);
  }
  co_return Status{};
}

}  // namespace pmstore::log::internal
