// HandshakeListener: the listener's half of the handshake, the same over tcp and shm; and when it
// accepts.
//
// Owns the connections whose handshake is under way: at most kMaxPending, each for at most
// kTimeoutNs. A derived class accepts new connections from its socket and gives them to take().
//
// Invariants:
//   retry_at_ns_ != 0  =>  the socket is watched for no event, and no client is known to wait
//   a derived class calls stop() before it closes its socket
#pragma once

#include <memory>
#include <vector>

#include "base/sleeper.h"
#include "fabric/device.h"
#include "fabric/internal/handshake.h"
#include "fabric/internal/polled_connection.h"

namespace pmstore::fabric::internal {

class HandshakeListener : public Listener, private base::Watched {
 public:
  ~HandshakeListener() override;
  HandshakeListener(const HandshakeListener&) = delete;
  HandshakeListener& operator=(const HandshakeListener&) = delete;

  const Uri& uri() const override { return uri_; }

  // Called by the device.
  void tick(uint64_t now_ns);
  // Before the executor blocks: the time at which tick() must run though nothing arrives;
  // base::Poller::kNoEvent for none.
  virtual uint64_t next_tick_ns(uint64_t now_ns) const;

 protected:
  // The options of accepted connections. The client's options are for the client's end only.
  static constexpr ConnectionOptions kAcceptedOptions{10'000'000'000};

  HandshakeListener(PolledDevice& device, Uri uri, Acceptor& acceptor);

  // Accepts clients from now on, whenever the listening socket `fd` is readable. Io when it cannot
  // be watched.
  Status start(int fd);
  // Before the socket is closed.
  void stop();

  enum class Accepted { kClient, kNobody, kNotNow };
  // Accepts the next client. kNobody: none waits. kNotNow: there is no descriptor for it, or too
  // many handshakes are under way.
  virtual Accepted accept_next() = 0;
  // In each tick, when those that wait have been accepted.
  virtual void after_accepting() {}
  bool full() const { return pending_.size() >= kMaxPending; }
  void take(std::unique_ptr<PolledConnection> connection);

  PolledDevice& device_;
  Uri uri_;

 private:
  static constexpr size_t kMaxPending = 256;
  static constexpr uint64_t kTimeoutNs = 5'000'000'000;
  // A refused peer has this long to read the error.
  static constexpr uint64_t kRefusalNs = 1'000'000'000;
  // While a client cannot be accepted, it is tried again after so long.
  static constexpr uint64_t kRetryNs = 100'000'000;

  enum class Stage { kAwaitHello, kAwaitReady, kRefused };
  struct Pending {
    std::unique_ptr<PolledConnection> connection;
    uint64_t token;
    uint64_t deadline_ns;
    Stage stage;
  };

  void on_ready(uint32_t events) override;
  void accept_new(uint64_t now_ns);
  // False when the handshake is complete or has failed: the caller removes `pending`.
  bool advance(Pending& pending, uint64_t now_ns);
  Status answer_hello(Pending& pending, std::span<const std::byte> message);
  void refuse(Pending& pending, const Error& why, uint64_t now_ns);
  void complete(Pending& pending);

  Acceptor& acceptor_;
  int fd_ = -1;  // while it is watched
  bool clients_wait_ = false;
  uint64_t retry_at_ns_ = 0;  // 0: the last client could be accepted
  uint64_t next_token_ = 1;
  std::vector<Pending> pending_;
};

}  // namespace pmstore::fabric::internal
