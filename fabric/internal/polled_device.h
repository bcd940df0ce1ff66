// PolledDevice: what the tcp and the shm device have in common; see fabric/device.h.
//
// Polling is in two parts: what has arrived at every turn, and once a millisecond (more often
// while a handshake is under way) a tick for connection events, deadlines and peers that have gone.
//
// What is resumed from inside poll() may destroy the device, once its connections are gone.
#pragma once

#include <vector>

#include "fabric/device.h"
#include "fabric/internal/destruction_watch.h"
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

  // ---- for connections and listeners ----
  void add(PolledConnection& connection) { connections_.push_back(&connection); }
  void remove(PolledConnection& connection);
  void add(HandshakeListener& listener) { listeners_.push_back(&listener); }
  void remove(HandshakeListener& listener);
  // While at least one is under way, ticks come more often.
  void handshake_started() { ++handshakes_; }
  void handshake_ended() { --handshakes_; }

 protected:
  PolledDevice(base::Executor& executor, Scheme scheme);

  // Starts connecting; InvalidArgument or Disconnected at once where that is plain already.
  virtual Result<std::unique_ptr<PolledConnection>> dial(const Uri& uri,
                                                         const ConnectionOptions& options) = 0;
  // Takes what has arrived. The device may be gone afterwards.
  virtual size_t poll_queues();

  const std::vector<PolledConnection*>& connections() const { return connections_; }

 private:
  // The device may be gone afterwards.
  size_t tick();
  // Those that are there by the time it is their turn; ends early when the device is destroyed.
  template <typename Visit>
  void for_each_connection(Visit visit);
  base::Task<Result<std::unique_ptr<Connection>>> introduce(Uri uri, std::vector<std::byte> hello,
                                                            uint64_t timeout_ns,
                                                            uint64_t operation_timeout_ns);
  // The next message, which must be of that kind; the listener's error if it refuses.
  base::Task<Result<HandshakeMessage>> await_answer(PolledConnection& connection, MessageKind kind,
                                                    uint64_t deadline_ns, const std::string& where);

 protected:
  Lifetime lifetime_;

 private:
  const Scheme scheme_;
  std::vector<PolledConnection*> connections_;  // holes while walking_
  std::vector<HandshakeListener*> listeners_;
  unsigned walking_ = 0;
  unsigned handshakes_ = 0;
  unsigned polls_since_look_ = 0;
  uint64_t next_tick_ns_ = 0;
};

}  // namespace pmstore::fabric::internal
