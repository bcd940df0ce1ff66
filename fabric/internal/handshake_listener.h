// HandshakeListener: the listener's half of the handshake, the same over tcp and shm; and when it
// accepts.
//
// Owns the connections whose handshake is under way, each for at most kTimeoutNs after each message
// that it awaits. Their number is bounded, fairly by where they come from (internal/newcomers.h). A
// derived class accepts new connections from its socket and gives them to take(). A tick looks only
// at handshakes that have news, however many are under way.
//
// Invariants:
//   retry_at_ns_ != 0  =>  the socket is watched for no event, and no client is known to wait
//   a derived class calls stop() before it closes its socket
//   each of pending_ is either in newcomers_, or in refused_ if its stage is kRefused
#pragma once

#include <map>
#include <memory>

#include "base/sleeper.h"
#include "fabric/device.h"
#include "fabric/internal/handshake.h"
#include "fabric/internal/newcomers.h"
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
  // In each tick, when some of those that wait have been accepted.
  virtual void after_accepting() {}
  size_t handshakes() const { return newcomers_.size(); }
  // A client from `origin` shakes hands from now on. When too many do, one of the others is
  // refused.
  void take(std::unique_ptr<PolledConnection> connection, const Origin& origin);

  PolledDevice& device_;
  Uri uri_;

 private:
  static constexpr uint64_t kTimeoutNs = 5'000'000'000;
  // A refused peer has this long to read the error, and at most so many have it.
  static constexpr uint64_t kRefusalNs = 1'000'000'000;
  static constexpr size_t kMostRefused = 256;
  // While a client cannot be accepted, it is tried again after so long.
  static constexpr uint64_t kRetryNs = 100'000'000;
  // A tick accepts so many clients and handles so many messages at most: established connections
  // are served in between, and what the accepted ones have sent is read before more are accepted.
  static constexpr size_t kMostAccepted = 64;
  static constexpr size_t kMostHandled = 16;

  enum class Stage { kAwaitHello, kAwaitReady, kRefused };
  struct Pending final : Newcomer, HandshakeWatcher {
    Pending(HandshakeListener& owner, std::unique_ptr<PolledConnection> made, uint64_t number)
        : listener(owner), connection(std::move(made)), token(number) {}
    void on_handshake_news() override { listener.look_at(*this); }

    HandshakeListener& listener;
    std::unique_ptr<PolledConnection> connection;
    const uint64_t token;
    Stage stage = Stage::kAwaitHello;
    uint64_t refused_until_ns = 0;
    ListLinks<Pending> in_news;
    ListLinks<Pending> in_refused;
  };

  void on_ready(uint32_t events) override;
  void accept_new(uint64_t now_ns);
  // In the next tick. No effect if that is noted.
  void look_at(Pending& pending);
  // Handles its news. It may be destroyed afterwards.
  void advance(Pending& pending);
  Status answer_hello(Pending& pending, std::span<const std::byte> message);
  void refuse(Pending& pending, const Error& why);
  void complete(std::unique_ptr<Pending> pending);
  // Ends the handshake without a connection.
  void abandon(Pending& pending);
  // The same, and tells the client why.
  void turn_away(Pending& pending);
  void end_overdue(uint64_t now_ns);
  std::unique_ptr<Pending> take_off(Pending& pending);

  Acceptor& acceptor_;
  int fd_ = -1;  // while it is watched
  bool clients_wait_ = false;
  uint64_t retry_at_ns_ = 0;  // 0: the last client could be accepted
  uint64_t next_token_ = 1;
  std::map<uint64_t, std::unique_ptr<Pending>> pending_;  // by token
  // Without a share: whoever has said hello has done more than a flood does, and many programs of a
  // busy host take seconds for the rest. A newcomer in place of one of them would never end.
  Newcomers newcomers_{Newcomers::kMost, Newcomers::kMost};
  IntrusiveList<Pending, &Pending::in_news> news_;
  IntrusiveList<Pending, &Pending::in_refused> refused_;  // the first one's time is over first
};

}  // namespace pmstore::fabric::internal
