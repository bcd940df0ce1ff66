// CrashRecorder: watches the persistent memory of a modelled host and keeps a Trace: all stores,
// flushes and drains, what devices write, packets, and the marks that the test sets in between
// ("this is acknowledged now"). Threads: one.
#pragma once

#include "model/crash_trace.h"
#include "model/nvm_observer.h"
#include "persist/memory.h"

namespace pmstore::model {

class CrashRecorder final : public NvmObserver {
 public:
  // Starts with what `memory` holds now, all of it taken for durable; is its observer until
  // destroyed or taken. What the CPU does is passed on to `behind`, if any.
  explicit CrashRecorder(persist::Memory& memory, persist::Observer* behind = nullptr);
  ~CrashRecorder() override;
  CrashRecorder(const CrashRecorder&) = delete;
  CrashRecorder& operator=(const CrashRecorder&) = delete;

  // What was done so far is acknowledged to somebody.
  void mark();
  // The process ends here, and another one goes on with the same memory.
  void process_dies();
  // Stops watching: `behind` is the observer again.
  Trace take();
  const Trace& trace() const { return trace_; }

  void on_store(const void* to, const void* from, size_t bytes, bool non_temporal) override;
  void on_flush(const void* from, size_t bytes) override;
  void on_drain() override;
  void on_dma_write(const void* to, const void* from, size_t bytes, Landing landing) override;
  void on_packet(Packet packet, uint32_t qp, size_t bytes) override;

 private:
  persist::Memory* memory_;
  persist::Observer* behind_;
  Trace trace_;
};

}  // namespace pmstore::model
