// WireSet: the wires of one executor, whichever of its devices their connections belong to. So the
// sessions and producers of a client share a socket although each has a device of its own.
//
// It polls them: one or two wires are read at every turn, which costs no more than asking whether
// there is something; with more, an epoll set says which to read. What is resumed from inside
// poll() may destroy the set, once all devices are gone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/file_descriptor.h"
#include "fabric/internal/destruction_watch.h"
#include "fabric/tcp/internal/wire.h"

namespace pmstore::fabric::tcp {

class WireSet final : public base::Poller {
 public:
  // The one of `executor`, made when there is none. Any thread. Io when there is no descriptor
  // left.
  static Result<std::shared_ptr<WireSet>> of(base::Executor& executor);
  ~WireSet() override;

  size_t poll() override;

  // A wire to there that new connections may use; null when there is none.
  Wire* find(const std::string& where) const;
  // Begins to connect. Disconnected, Io.
  Result<Wire*> dial(std::vector<SocketAddress> addresses, const std::string& where);
  // A client's socket. One too many is closed at once.
  void adopt(Socket socket, TcpListener& listener);
  void forget_listener(const TcpListener& listener);
  // Closes sockets of clients that have had no connection, or taken nothing, for a while.
  void close_idle(uint64_t now_ns);
  // A region is no longer there.
  void withdraw(const MemoryRegion& region);

  // ---- for wires ----
  base::Executor& executor() { return executor_; }
  void watch(int fd, Wire& wire);
  void forget(int fd, Wire& wire);
  void add_dirty(Wire& wire) { dirty_.push_back(&wire); }

 private:
  // Above this many wires one more system call is cheaper than one for each.
  static constexpr size_t kReadAll = 2;
  static constexpr int kMaxReady = 64;
  static constexpr size_t kMaxWires = 1024;
  static constexpr uint64_t kIdleNs = 5'000'000'000;

  explicit WireSet(base::Executor& executor);
  void flush_dirty();
  size_t read_all();
  size_t read_ready();

  base::Executor& executor_;
  internal::Lifetime lifetime_;
  base::FileDescriptor epoll_;
  bool watches_all_ = true;                   // each wire is in the epoll set
  std::vector<std::unique_ptr<Wire>> wires_;  // those that are over are deleted by the next poll
  std::vector<Wire*> watched_;                // can be read
  std::vector<Wire*> dirty_;                  // have something to send
};

}  // namespace pmstore::fabric::tcp
