// ReadBuffer: registered memory for READs, and the one batch of them that is under way.
//
// The batch may outlive the coroutine that waits for it (an abandoned task), so its completion
// lives here and not in that one's frame: whoever drops a buffer asks under_way() first. Threads:
// those of the connection. The device outlives it; it is destroyed after its READs are done or
// after the connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/result.h"
#include "base/task.h"
#include "fabric/batch.h"
#include "fabric/connection.h"
#include "fabric/device.h"

namespace pmstore::log::internal {

class ReadBuffer {
 public:
  // Errors of register_memory().
  static Result<std::unique_ptr<ReadBuffer>> create(fabric::Device& device, size_t bytes);

  std::span<std::byte> bytes() const { return {memory_.get(), bytes_}; }
  bool under_way() const { return !completion_.idle() && !completion_.done(); }

  // Begins the next batch; then add READs. Requires that none is under way. `holds` lives until the
  // next batch begins: the connection, which must not be destroyed before the READs are done, or
  // they would never be.
  void clear(std::shared_ptr<const void> holds);
  void read(size_t to, uint32_t bytes, fabric::RemoteAddress from);
  // Posts the batch with one doorbell and waits: one round trip. Timeout when the send queue stays
  // full for `timeout_ns`.
  base::Task<Status> execute(fabric::Connection& connection, uint64_t timeout_ns);
  // Waits, up to that, for a batch that somebody has abandoned.
  base::Task<Status> settle(uint64_t timeout_ns);

 private:
  struct Delete {
    void operator()(std::byte* memory) const;
  };
  ReadBuffer(fabric::Device& device, size_t bytes);

  fabric::Device& device_;
  size_t bytes_;
  std::unique_ptr<std::byte[], Delete> memory_;
  std::unique_ptr<fabric::MemoryRegion> region_;
  fabric::Batch batch_;
  fabric::Completion completion_;
  std::shared_ptr<const void> holds_;  // goes first
};

}  // namespace pmstore::log::internal
