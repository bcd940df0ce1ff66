// VerbsDevice: see fabric/device.h. One context, one protection domain, one set of completion
// queues and one rdma_cm channel per executor; nothing of it is shared with other threads.
//
// Polling: every poll() looks at the completion queues; the kernel is asked (connection-manager and
// asynchronous events) at most every kEventsEvery_ns, more often while a handshake is under way,
// and connections are looked over (deadlines, idle peers) every kScanEvery_ns: the data path makes
// no system call. Before the executor blocks, it is to be woken by the completion channel, by the
// two event descriptors, and at the next deadline of a connection.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fabric/device.h"
#include "fabric/verbs/internal/cm_events.h"
#include "fabric/verbs/internal/completion_queues.h"
#include "fabric/verbs/internal/handles.h"
#include "fabric/verbs/internal/handshake.h"
#include "fabric/verbs/internal/rdma_device.h"
#include "fabric/verbs/internal/verbs_connection.h"

namespace pmstore::fabric::verbs {

class VerbsRegion final : public MemoryRegion {
 public:
  VerbsRegion(RegistrationHandle registration, std::span<std::byte> memory, Access access);
  uint32_t local_key() const { return registration_->lkey; }

 private:
  RegistrationHandle registration_;
};

class VerbsDevice final : public Device, public base::Poller {
 public:
  static constexpr uint64_t kEventsEvery_ns = 1'000'000;
  static constexpr uint64_t kHandshakeEventsEvery_ns = 100'000;
  static constexpr uint64_t kScanEvery_ns = 10'000'000;
  // Incoming handshakes under way; more are refused with BackPressure.
  static constexpr size_t kMaxIncoming = 128;

  static Result<std::unique_ptr<VerbsDevice>> open(base::Executor& executor);
  ~VerbsDevice() override;

  Result<std::unique_ptr<MemoryRegion>> register_memory(std::span<std::byte> memory,
                                                        Access access) override;
  base::Task<Result<std::unique_ptr<Connection>>> connect(Uri uri, ConnectOptions options) override;
  Result<std::unique_ptr<Listener>> listen(const Uri& uri, Acceptor& acceptor) override;
  base::Task<Result<std::unique_ptr<Connection>>> loopback() override;

  size_t poll() override;
  bool arm() override;
  void disarm() override;
  uint64_t next_event_ns() const override { return armed_until_ns_; }

  // ---- for this folder ----
  const RdmaDevice& rdma() const { return rdma_; }
  ibv_pd* protection_domain() const { return pd_.get(); }
  CompletionQueues& queues() { return queues_; }
  CmEvents& cm_events() { return cm_events_; }
  // A clock that runs only while the executor polls: a stalled executor does not time its peers
  // out.
  uint64_t active_ns() const { return active_ns_; }

  ConnectionRef add(VerbsConnection* connection);
  void remove(ConnectionRef ref);
  VerbsConnection* find(ConnectionRef ref) const {
    return ref.index < table_.size() && table_[ref.index].generation == ref.generation
               ? table_[ref.index].connection
               : nullptr;
  }
  // on_deferred() of `ref` is called by the next poll, and by later ones until nothing is left.
  void defer(ConnectionRef ref) { deferred_.push_back(ref); }

  void add(Handshake* handshake) { handshakes_.push_back(handshake); }
  void remove(Handshake* handshake);
  void accept(const CmEvent& request, VerbsListener& listener);
  void forget(const VerbsListener& listener);
  uint64_t next_token() { return next_token_++; }
  // Unsupported when `id` has been routed through another RDMA device.
  Status check_device(const rdma_cm_id& id) const;

 private:
  struct Entry {
    VerbsConnection* connection = nullptr;
    uint32_t generation = 0;
  };
  struct Incoming {
    std::unique_ptr<Handshake> handshake;
    base::Task<void> task;
  };

  // A descriptor of the kernel's that has something to tell.
  class Signal final : public base::Watched {
   public:
    void on_ready(uint32_t events) override {
      raised_ = true;
      gone_ = gone_ || (events & EPOLLIN) == 0;
    }
    // The device is gone: the descriptor says so at each look, and tells nothing more.
    bool gone() const { return gone_; }
    void forget() { gone_ = false; }
    bool take() { return std::exchange(raised_, false); }
    bool raised() const { return raised_; }

   private:
    bool raised_ = false;
    bool gone_ = false;
  };

  VerbsDevice(base::Executor& executor, RdmaDevice rdma);
  Status watch_descriptors();
  // The device has been removed: its descriptors would keep the executor from blocking.
  void forget_descriptors();

  // These return false as soon as a callback has destroyed the device.
  bool poll_queues(size_t& handled);
  bool dispatch(const ibv_wc& wc);
  // Tells receivers of the immediates among them, when there are several.
  void tell_of_waiting(std::span<const ibv_wc> completions);
  bool run_deferred();
  bool slow_poll(size_t& handled);
  bool poll_cm_events(size_t& handled);
  bool poll_async_events(size_t& handled);
  bool scan(uint64_t now_ns, size_t& handled);
  // Destroys incoming handshakes that are over.
  void reap();
  bool is_event_pending() const;

  RdmaDevice rdma_;
  ProtectionDomainHandle pd_;
  CompletionQueues queues_;
  CmEvents cm_events_;

  std::vector<Entry> table_;
  std::vector<uint32_t> free_;
  std::vector<ConnectionRef> deferred_;
  std::vector<ConnectionRef> running_deferred_;
  std::vector<Handshake*> handshakes_;
  std::vector<Incoming> incoming_;
  uint64_t next_token_ = 1;

  bool polling_ = false;
  bool* destroyed_ = nullptr;  // set while polling
  uint32_t poll_weight_ = 0;
  uint64_t polled_ns_ = 0;
  uint64_t armed_until_ns_ = kNoEvent;  // while armed
  Signal completions_;
  Signal cm_signal_;
  Signal async_signal_;
  std::vector<int> watched_;
  uint64_t events_ns_ = 0;
  uint64_t scanned_ns_ = 0;
  uint64_t active_ns_ = 1;
};

}  // namespace pmstore::fabric::verbs
