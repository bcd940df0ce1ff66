// Handshake: one end of a connection's set-up, from an address or a request to a Connection.
//
// Both ends are coroutines that wait for rdma_cm events, for the hello and for its delivery, and
// give up at the deadline. The order of events is in docs/fabric-verbs.md. Destroying a Handshake
// at any moment undoes what it has done. Threads: the device's executor, resumed from its polling.
#pragma once

#include <coroutine>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fabric/device.h"
#include "fabric/verbs/internal/cm_events.h"
#include "fabric/verbs/internal/handles.h"
#include "fabric/verbs/internal/handshake_layout.h"
#include "fabric/verbs/internal/listener.h"
#include "fabric/verbs/internal/verbs_connection.h"

namespace pmstore::fabric::verbs {

class Handshake final : public CmTarget {
 public:
  // `peer` names the other side in errors.
  Handshake(VerbsDevice& device, std::string peer, uint64_t timeout_ns,
            uint64_t operation_timeout_ns);
  ~Handshake();
  Handshake(const Handshake&) = delete;
  Handshake& operator=(const Handshake&) = delete;

  // Connects to `address`, sends `hello`, receives the answer. Errors as Device::connect().
  base::Task<Result<std::unique_ptr<Connection>>> call(SocketAddress address,
                                                       std::vector<std::byte> hello);
  // Answers a request to `listener`, and tells the listener's acceptor.
  base::Task<void> answer(CmEvent request, VerbsListener* listener);

  const VerbsListener* listener() const { return listener_; }
  // The listener is destroyed: the acceptor is not called any more.
  void abandon();
  // No route was found: the caller may try another address of the host.
  bool unreachable() const { return unreachable_; }

  void on_cm_event(const CmEvent& event) override;
  void on_hello(uint32_t bytes);
  void on_connection_event() { wake(); }
  // The connection was given to the acceptor and destroyed before its answer was delivered.
  void on_hello_returned() {
    lent_to_ = nullptr;
    returned_ = true;
  }
  // True: it has resumed the waiter, who may have destroyed it.
  bool on_scan(uint64_t now_ns);

 private:
  // Resumed by events, by the connection, by the delivery of what was sent, and by the deadline.
  struct Woken {
    Handshake& handshake;
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> waiter) {
      handshake.waiter_ = waiter;
      handshake.sent_.set_waiter(waiter);
    }
    void await_resume() const {
      handshake.waiter_ = {};
      handshake.sent_.set_waiter({});
    }
  };
  Woken woken() { return Woken{*this}; }
  // A caller in this class returns after it: the handshake may be destroyed.
  void wake();

  base::Task<Status> call_steps(SocketAddress address, std::vector<std::byte> hello);
  base::Task<Status> answer_steps(CmEvent request);
  base::Task<Status> expect(rdma_cm_event_type wanted);
  base::Task<Status> until(bool (Handshake::*reached)() const);
  bool is_delivered() const { return sent_.done(); }
  bool has_hello() const { return received_bytes_.has_value(); }
  bool is_exchanged() const { return is_delivered() && has_hello(); }

  // Makes the connection with its queue pair in INIT, and the memory for the hellos.
  Status prepare();
  rdma_conn_param parameters(const Preamble& preamble) const;
  // Agrees on the depths that both ends can do, from the event with the peer's offer.
  void settle_depths(const CmEvent& event);
  Status send(uint16_t refusal, std::span<const std::byte> bytes);
  Result<std::vector<std::byte>> parse(bool refusal_allowed) const;
  void reject(Rejection why);
  Status check_preamble(const CmEvent& event) const;
  Error rejection_error(const CmEvent& event) const;
  Error event_error(const CmEvent& event);
  Error unreachable_error(int error);
  std::optional<Error> failure() const;
  int remaining_ms() const;
  std::unique_ptr<Connection> finish(std::vector<std::byte> peer_hello);

  VerbsDevice& device_;
  const std::string peer_;
  const uint64_t timeout_ns_;
  const uint64_t deadline_ns_;
  const uint64_t operation_timeout_ns_;
  VerbsListener* listener_ = nullptr;
  CmEvents::Key key_;

  // Declared so that the queue pair goes before the memory it uses, and the id goes last.
  CmIdHandle id_;
  std::vector<std::byte> messages_;  // two of kMaxHelloMessageBytes: to send, received
  RegistrationHandle registration_;
  Completion sent_;
  std::unique_ptr<VerbsConnection> connection_;

  uint8_t initiated_;  // READs and atomics under way, as initiator and as target
  uint8_t answered_;
  std::optional<CmEvent> event_;
  std::optional<uint32_t> received_bytes_;
  bool expired_ = false;
  bool abandoned_ = false;
  bool unreachable_ = false;
  bool returned_ = false;
  VerbsConnection* lent_to_ = nullptr;  // no longer ours, but still uses messages_ and sent_
  std::coroutine_handle<> waiter_;
};

}  // namespace pmstore::fabric::verbs
