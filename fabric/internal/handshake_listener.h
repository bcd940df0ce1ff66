// HandshakeListener: the listener's half of the handshake, the same over tcp and shm.
//
// Owns the connections whose handshake is under way: at most kMaxPending, each for at most
// kTimeoutNs. A derived class accepts new connections and gives them to take().
#pragma once

#include <memory>
#include <vector>

#include "fabric/device.h"
#include "fabric/internal/handshake.h"
#include "fabric/internal/polled_connection.h"

namespace pmstore::fabric::internal {

class HandshakeListener : public Listener {
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

  // Accepts new connections and gives them to take(). The derived class sees to it that the device
  // ticks when there are some.
  virtual void accept_new() = 0;
  bool full() const { return pending_.size() >= kMaxPending; }
  void take(std::unique_ptr<PolledConnection> connection);

  PolledDevice& device_;
  Uri uri_;

 private:
  static constexpr size_t kMaxPending = 256;
  static constexpr uint64_t kTimeoutNs = 5'000'000'000;
  // A refused peer has this long to read the error.
  static constexpr uint64_t kRefusalNs = 1'000'000'000;

  enum class Stage { kAwaitHello, kAwaitReady, kRefused };
  struct Pending {
    std::unique_ptr<PolledConnection> connection;
    uint64_t token;
    uint64_t deadline_ns;
    Stage stage;
  };

  // False when the handshake is complete or has failed: the caller removes `pending`.
  bool advance(Pending& pending, uint64_t now_ns);
  Status answer_hello(Pending& pending, std::span<const std::byte> message);
  void refuse(Pending& pending, const Error& why, uint64_t now_ns);
  void complete(Pending& pending);

  Acceptor& acceptor_;
  uint64_t next_token_ = 1;
  std::vector<Pending> pending_;
};

}  // namespace pmstore::fabric::internal
