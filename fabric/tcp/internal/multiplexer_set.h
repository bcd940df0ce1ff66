// MultiplexerSet: the multiplexers of one executor. All devices of the executor share it: the
// sessions and producers of a client have a device each and still share a socket.
//
// While its executor spins, poll() reads one or two multiplexers at every turn, which costs no more
// than asking whether there is something to read. With more, and when the executor blocks between
// events, the executor's look at its descriptors says which to read. Each poll receives at most
// once and sends at most twice on each socket; where io_uring is to be had, one system call does
// that for up to 64 of those that a look has found (socket_batch.h). A callback or coroutine that
// runs inside poll() may destroy the set, once all devices are destroyed.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/executor.h"
#include "fabric/destruction_watch.h"
#include "fabric/tcp/internal/multiplexer.h"
#include "fabric/tcp/internal/socket_batch.h"

namespace pmstore::fabric::tcp {

class MultiplexerSet final : public base::Poller {
 public:
  // The set of `executor`; made if there is none. Any thread.
  static std::shared_ptr<MultiplexerSet> of(base::Executor& executor);
  ~MultiplexerSet() override;

  size_t poll() override;
  bool arm() override;

  // A multiplexer to `where` that new connections may use; null when there is none.
  Multiplexer* find(const std::string& where) const;
  // Begins to connect. Disconnected, Io.
  Result<Multiplexer*> dial(std::vector<SocketAddress> addresses, const std::string& where);
  // Takes a client's socket; closes it when there are kMaxMultiplexers.
  void adopt(Socket socket, TcpListener& listener);
  void forget_listener(const TcpListener& listener);
  // Closes sockets of clients that have had no connection, or have not read, for kIdleNs.
  void close_idle(uint64_t now_ns);
  // Whether close_idle() has a reason to be called, from time to time.
  bool impatient() const { return impatient_ > 0; }
  // `region` is being deregistered.
  void withdraw(const MemoryRegion& region);

  // ---- for multiplexers ----
  base::Executor& executor() { return executor_; }
  // Io when the kernel watches no more descriptors.
  Status watch(int fd, Multiplexer& multiplexer);
  void forget(Multiplexer& multiplexer);
  void count_impatient(int change) {
    impatient_ += change;
    PMSTORE_CHECK(impatient_ >= 0, "each multiplexer is counted once");
  }
  // Both have no effect on one that is in the list already.
  void add_readable(Multiplexer& multiplexer) {
    if (!std::exchange(multiplexer.readable, true)) readable_.push_back(&multiplexer);
  }
  void add_dirty(Multiplexer& multiplexer) {
    if (!std::exchange(multiplexer.dirty, true)) dirty_.push_back(&multiplexer);
  }

 private:
  // With more multiplexers than this, one look costs less than a recv() on each.
  static constexpr size_t kReadAll = 2;
  static constexpr size_t kMaxMultiplexers = 1024;
  static constexpr uint64_t kIdleNs = 5'000'000'000;

  explicit MultiplexerSet(base::Executor& executor);
  void flush_dirty();
  size_t read_all();
  size_t read_readable();
  // With several sockets. No effect where io_uring is not to be had, or not wanted.
  void open_batch();
  // Null when each of `sockets` has its own system calls.
  SocketBatch* batch(size_t sockets) { return sockets > 1 ? batch_.get() : nullptr; }
  void flush_dirty_together(SocketBatch& batch);
  size_t read_readable_together(SocketBatch& batch);

  base::Executor& executor_;
  internal::Lifetime lifetime_;
  std::vector<std::unique_ptr<Multiplexer>>
      multiplexers_;                    // the next poll deletes those that are over
  std::vector<Multiplexer*> watched_;   // connected
  std::vector<Multiplexer*> dirty_;     // have something to send
  std::vector<Multiplexer*> readable_;  // have something to be read
  std::vector<Multiplexer*> together_;  // in the batch that is made up or handled now
  std::unique_ptr<SocketBatch> batch_;
  bool batch_is_of_use_ = true;  // else the next poll closes it
  int impatient_ = 0;
};

}  // namespace pmstore::fabric::tcp
