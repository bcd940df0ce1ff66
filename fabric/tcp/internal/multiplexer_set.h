// MultiplexerSet: the multiplexers of one executor. All devices of the executor share it: the
// sessions and producers of a client have a device each and still share a socket.
//
// poll() reads one or two multiplexers at every turn, which costs no more than asking whether there
// is something to read; with more, an epoll set says which to read. A callback or coroutine that
// runs inside poll() may destroy the set, once all devices are destroyed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/file_descriptor.h"
#include "fabric/destruction_watch.h"
#include "fabric/tcp/internal/multiplexer.h"

namespace pmstore::fabric::tcp {

class MultiplexerSet final : public base::Poller {
 public:
  // The set of `executor`; made if there is none. Any thread. Io without a free descriptor.
  static Result<std::shared_ptr<MultiplexerSet>> of(base::Executor& executor);
  ~MultiplexerSet() override;

  size_t poll() override;

  // A multiplexer to `where` that new connections may use; null when there is none.
  Multiplexer* find(const std::string& where) const;
  // Begins to connect. Disconnected, Io.
  Result<Multiplexer*> dial(std::vector<SocketAddress> addresses, const std::string& where);
  // Takes a client's socket; closes it when there are kMaxMultiplexers.
  void adopt(Socket socket, TcpListener& listener);
  void forget_listener(const TcpListener& listener);
  // Closes sockets of clients that have had no connection, or have not read, for kIdleNs.
  void close_idle(uint64_t now_ns);
  // `region` is being deregistered.
  void withdraw(const MemoryRegion& region);

  // ---- for multiplexers ----
  base::Executor& executor() { return executor_; }
  void watch(int fd, Multiplexer& multiplexer);
  void forget(int fd, Multiplexer& multiplexer);
  void add_dirty(Multiplexer& multiplexer) { dirty_.push_back(&multiplexer); }

 private:
  // With more multiplexers than this, one epoll_wait() costs less than a recv() on each.
  static constexpr size_t kReadAll = 2;
  static constexpr int kMaxReady = 64;
  static constexpr size_t kMaxMultiplexers = 1024;
  static constexpr uint64_t kIdleNs = 5'000'000'000;

  explicit MultiplexerSet(base::Executor& executor);
  void flush_dirty();
  size_t read_all();
  size_t read_ready();

  base::Executor& executor_;
  internal::Lifetime lifetime_;
  base::FileDescriptor epoll_;
  bool watches_all_ = true;  // each multiplexer is in the epoll set
  std::vector<std::unique_ptr<Multiplexer>>
      multiplexers_;                   // the next poll deletes those that are over
  std::vector<Multiplexer*> watched_;  // connected
  std::vector<Multiplexer*> dirty_;    // have something to send
};

}  // namespace pmstore::fabric::tcp
