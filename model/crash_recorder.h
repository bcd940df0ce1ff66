// CrashRecorder: watches the persistent memory of a modelled host and keeps a Trace: all stores,
// flushes and drains, what devices write, packets, and the marks that the test sets in between
// ("this is acknowledged now"). Threads: one.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "model/crash_trace.h"
#include "model/nvm_observer.h"
#include "persist/memory.h"

namespace pmstore::model {

class CrashRecorder final : public NvmObserver {
 public:
  // Starts with what `memory` holds now, all of it taken for durable; is its observer until
  // destroyed or taken. What the CPU does is passed on to `behind`, if any.
  explicit CrashRecorder(persist::Memory& memory, persist::Observer* behind = nullptr);
  // Records several machines, each of which drains only its own part. `parts` lie in `whole`; no
  // line is in two of them.
  CrashRecorder(std::span<persist::Memory* const> parts, std::span<const std::byte> whole,
                persist::Observer* behind = nullptr);
  ~CrashRecorder() override;
  CrashRecorder(const CrashRecorder&) = delete;
  CrashRecorder& operator=(const CrashRecorder&) = delete;

  // Everything so far has been acknowledged to a client.
  void mark();
  // The process ends here, and another one goes on with the same memory.
  void process_dies();
  // Stops watching: `behind` is the observer again.
  Trace take();
  const Trace& trace() const { return trace_; }
  // Calls `listener` with each message that a recorded host posts (NvmObserver::on_post).
  void tell_posts(std::function<void(std::span<const std::byte>)> listener) {
    post_listener_ = std::move(listener);
  }
  // Of several machines: the observer of the memory of machine `index`.
  NvmObserver& part(size_t index);

  void on_store(const void* destination, const void* source, size_t bytes,
                bool non_temporal) override;
  void on_flush(const void* source, size_t bytes) override;
  void on_drain() override;
  void on_fence() override;
  void on_sync(const void* source, size_t bytes) override;
  void on_dma_write(const void* destination, const void* source, size_t bytes,
                    Landing landing) override;
  void on_packet(Packet packet, uint32_t qp, size_t bytes) override;
  void on_post(std::span<const std::byte> message) override;

 private:
  class Part;
  void start(std::span<const std::byte> whole, persist::Domain domain);
  uint64_t offset_of(const void* address) const;

  std::span<const std::byte> whole_;
  std::vector<persist::Memory*> memories_;
  std::vector<std::unique_ptr<Part>> parts_;
  persist::Observer* behind_;
  std::function<void(std::span<const std::byte>)> post_listener_;
  Trace trace_;
};

}  // namespace pmstore::model
