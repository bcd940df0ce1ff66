// Batch: a chain of work requests that is posted with one doorbell.
//
// The requests take effect at the target as fabric/capabilities.h says for the connection. Only the
// last one is signaled: its success means that all of them succeeded, because the first that fails
// breaks the connection. A Batch is plain data. The buffers that it names are borrowed until its
// Completion is done; without a Completion, until a later batch on the same connection has
// completed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "fabric/memory_region.h"

namespace pmstore::fabric {

enum class OpCode : uint8_t {
  kWrite,
  kWriteImmediate,  // once the data is in memory, the target's Receiver::on_immediate is called
  kRead,
  kCompareSwap,  // 8 bytes, remote address aligned to 8; `local` receives the old value
  kFetchAdd,     // the same
  kFlush,        // native FLUSH; only where Capabilities::native_flush
};

struct WorkRequest {
  OpCode op;
  uint32_t bytes;
  uint32_t immediate;
  std::byte* local;
  const MemoryRegion* local_region;
  uint64_t remote_address;
  uint64_t remote_key;
  uint64_t compare_or_add;
  uint64_t swap;
};

class Batch {
 public:
  static constexpr size_t kMaxWorkRequests = 32;

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool full() const { return size_ == kMaxWorkRequests; }
  void clear() { size_ = 0; }
  const WorkRequest& operator[](size_t i) const { return requests_[i]; }
  const WorkRequest* begin() const { return requests_; }
  const WorkRequest* end() const { return requests_ + size_; }

  // remote[0, bytes) = local[0, bytes)
  Batch& write(LocalBuffer local, RemoteAddress remote) {
    return add({OpCode::kWrite, local.bytes, 0, local.data, local.region, remote.address,
                remote.key, 0, 0});
  }
  Batch& write_immediate(LocalBuffer local, RemoteAddress remote, uint32_t immediate) {
    return add({OpCode::kWriteImmediate, local.bytes, immediate, local.data, local.region,
                remote.address, remote.key, 0, 0});
  }
  // local[0, bytes) = remote[0, bytes)
  Batch& read(LocalBuffer local, RemoteAddress remote) {
    return add({OpCode::kRead, local.bytes, 0, local.data, local.region, remote.address, remote.key,
                0, 0});
  }
  // old = *remote; if (old == expected) *remote = desired; *local = old. All in host byte order.
  Batch& compare_swap(LocalBuffer local, RemoteAddress remote, uint64_t expected,
                      uint64_t desired) {
    return add({OpCode::kCompareSwap, 8, 0, local.data, local.region, remote.address, remote.key,
                expected, desired});
  }
  Batch& fetch_add(LocalBuffer local, RemoteAddress remote, uint64_t addend) {
    return add(
        {OpCode::kFetchAdd, 8, 0, local.data, local.region, remote.address, remote.key, addend, 0});
  }
  Batch& flush(uint32_t bytes, RemoteAddress remote) {
    return add({OpCode::kFlush, bytes, 0, nullptr, nullptr, remote.address, remote.key, 0, 0});
  }

 private:
  Batch& add(const WorkRequest& request) {
    PMSTORE_CHECK(!full(), "the caller splits what does not fit in one batch");
    requests_[size_++] = request;
    return *this;
  }
  size_t size_ = 0;
  WorkRequest requests_[kMaxWorkRequests];
};

}  // namespace pmstore::fabric
