// PolledDevice: the base of the tcp and the shm device; see fabric/device.h.
//
// Each poll() handles what has arrived. While the executor is busy, a tick once a millisecond (more
// often while a handshake is under way) checks connection events and deadlines. Before the executor
// blocks, arm() works out when the next tick is due; without a deadline there is none. Both look
// only at connections that need attention: an idle one costs nothing, however many there are.
//
// A callback or coroutine that runs inside poll() may destroy the device, once its connections are
// destroyed.
#pragma once

#include <vector>

#include "base/check.h"
#include "fabric/destruction_watch.h"
#include "fabric/device.h"
#include "fabric/internal/handshake.h"
#include "fabric/internal/polled_connection.h"

namespace pmstore::fabric::internal {

class HandshakeListener;

class PolledDevice : public Device, public base::Poller {
 public:
  ~PolledDevice() override;

  base::Task<Result<std::unique_ptr<Connection>>> connect(Uri uri, ConnectOptions options) override;
  base::Task<Result<std::unique_ptr<Connection>>> loopback() override;

  size_t poll() override;
  uint64_t next_event_ns() const override { return armed_until_ns_; }
  bool arm() override;
  void disarm() override;

  // ---- for connections and listeners ----
  void add(PolledConnection& connection);
  void remove(PolledConnection& connection);
  // `connection` is not attended to.
  void attend(PolledConnection& connection);
  void add(HandshakeListener& listener) { listeners_.push_back(&listener); }
  void remove(HandshakeListener& listener);
  // The next poll ticks.
  void tick_soon() {
    next_tick_ns_ = 0;
    polls_since_look_ = kLookNow;
  }
  // A callback ran inside poll(): perhaps what the executor waits for is done.
  void count_event() { ++events_; }
  // How many connections ticks, blocks and polls have looked at.
  uint64_t visits() const { return visits_; }
  // Ticks are more frequent while a handshake is under way.
  void handshake_started() { ++handshakes_; }
  void handshake_ended() {
    PMSTORE_CHECK(handshakes_ > 0, "a handshake ends once");
    --handshakes_;
  }

 protected:
  PolledDevice(base::Executor& executor, Scheme scheme);

  // Starts connecting. InvalidArgument or Disconnected when that can be told without the peer.
  virtual Result<std::unique_ptr<PolledConnection>> dial(const Uri& uri,
                                                         const ConnectionOptions& options) = 0;
  // Handles what has arrived. The device may be destroyed afterwards.
  virtual size_t poll_queues() = 0;
  // Calls visit(connection) for each that needs attention, and perhaps others. `visit` destroys
  // none.
  template <typename Visit>
  void for_each_attentive(Visit visit) {
    for (PolledConnection* at = attentive_.front(); at != nullptr;) {
      PolledConnection* const next = attentive_.next(*at);
      count_visit();
      visit(*at);
      at = next;
    }
  }
  void count_visit() { ++visits_; }

 private:
  // Reading the clock costs about as much as an empty poll, so it is not done at each.
  static constexpr unsigned kLookNow = 16;

  // The device may be destroyed afterwards.
  void tick();
  // The same for the connections.
  void tick_connections(uint64_t now_ns);
  void let_rest(PolledConnection& connection, uint64_t now_ns);
  base::Task<Result<std::unique_ptr<Connection>>> shake_hands(Uri uri, std::vector<std::byte> hello,
                                                              uint64_t timeout_ns,
                                                              uint64_t operation_timeout_ns);
  // Waits for the next message, which must be of `kind`. Gives the listener's error if it refuses.
  base::Task<Result<HandshakeMessage>> await_answer(PolledConnection& connection, MessageKind kind,
                                                    uint64_t deadline_ns, const std::string& where);

 protected:
  Lifetime lifetime_;

 private:
  const Scheme scheme_;
  size_t connections_ = 0;
  IntrusiveList<PolledConnection, &PolledConnection::attention_> attentive_;
  // They rest; in the order of rested_ns_.
  IntrusiveList<PolledConnection, &PolledConnection::surplus_> surplus_;
  uint64_t visits_ = 0;
  uint64_t ticks_ = 0;
  std::vector<HandshakeListener*> listeners_;
  unsigned handshakes_ = 0;
  unsigned polls_since_look_ = 0;
  size_t events_ = 0;                   // of ticks, since the last poll
  uint64_t next_tick_ns_ = 0;           // 0: at the next poll
  uint64_t armed_until_ns_ = kNoEvent;  // while armed
};

}  // namespace pmstore::fabric::internal
