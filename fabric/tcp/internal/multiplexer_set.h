// MultiplexerSet: the multiplexers of one executor. All devices of the executor share it: the
// sessions and producers of a client have a device each and still share a socket.
//
// While its executor spins, poll() reads one or two multiplexers at every turn, which costs no more
// than asking whether there is something to read. With more, and when the executor blocks between
// events, the executor's look at its descriptors says which to read. Each poll receives at most
// once and sends at most twice on each socket; where io_uring is to be had, one system call does
// that for up to 64 of those that a look has found (socket_batch.h). A callback or coroutine that
// runs inside poll() may destroy the set, once all devices are destroyed.
//
// At the listening end a socket is silent while it has no connection, else served. Both numbers are
// bounded. A silent socket is closed after kPatienceNs, or when there are too many
// (internal/newcomers.h). A hello on a socket that cannot be served is refused with the reason.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/executor.h"
#include "fabric/destruction_watch.h"
#include "fabric/internal/intrusive_list.h"
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
  void disarm() override { armed_until_ns_ = kNoEvent; }
  uint64_t next_event_ns() const override { return armed_until_ns_; }
  // How many multiplexers polls and blocks have looked at.
  uint64_t visits() const { return visits_; }

  // A multiplexer to `where` that new connections may use; null when there is none.
  Multiplexer* find(const std::string& where) const;
  // Begins to connect. Disconnected, Io.
  Result<Multiplexer*> dial(std::vector<SocketAddress> addresses, const std::string& where);
  // Takes a client's socket. When too many are silent, another one is closed.
  void adopt(Socket::Client client, TcpListener& listener);
  void forget_listener(const TcpListener& listener);
  // Closes sockets of clients that have been silent, or have not read, for kPatienceNs.
  void close_silent(uint64_t now_ns);
  // Closes the silent socket that must go first (internal/newcomers.h), if it has had time to say
  // hello; else false.
  bool close_one_silent(uint64_t now_ns);
  // When close_silent() must be called; base::Poller::kNoEvent: without need.
  uint64_t next_close_ns(uint64_t now_ns) const;
  // The bounds follow the limit of open files.
  void fit_descriptors();
  const internal::Newcomers& silent() const { return silent_; }
  size_t served() const { return accepted_ - silent_.size(); }
  // The most served sockets within the present limit of open files.
  static size_t most_served();

  // ---- for multiplexers ----
  base::Executor& executor() { return executor_; }
  // Where a multiplexer receives; it returns the room when that is empty.
  static constexpr size_t kRoomBytes = 64 * 1024;
  std::unique_ptr<std::byte[]> take_room();
  void return_room(std::unique_ptr<std::byte[]> room);
  // Io when the kernel watches no more descriptors.
  Status watch(int fd, Multiplexer& multiplexer);
  void unwatch(int fd, Multiplexer& multiplexer);
  // It is over: the next poll deletes it.
  void forget(Multiplexer& multiplexer);
  // It is being deleted.
  void forget_ended(Multiplexer& multiplexer) {
    if (multiplexer.ended.listed) ended_.remove(multiplexer);
  }
  void set_silent(Multiplexer& multiplexer, bool silent);
  void set_leftover(Multiplexer& multiplexer, bool leftover);
  // BackPressure when no other silent socket can be served.
  Status may_serve() const;
  void count_closed() {
    PMSTORE_CHECK(accepted_ > silent_.size(), "a socket that closes is not silent any more");
    --accepted_;
  }
  // Both have no effect on one that is in the list already.
  void add_readable(Multiplexer& multiplexer) {
    if (!multiplexer.readable.listed) readable_.push_back(multiplexer);
  }
  void add_dirty(Multiplexer& multiplexer) {
    if (!multiplexer.dirty.listed) dirty_.push_back(multiplexer);
  }

 private:
  using Multiplexers = std::vector<std::unique_ptr<Multiplexer>>;
  // With more multiplexers than this, one look costs less than a recv() on each.
  static constexpr size_t kReadAll = 2;
  static constexpr size_t kMostServed = 8192;
  // Descriptors that are neither of silent nor of served sockets, in the first place.
  static constexpr size_t kOtherDescriptors = 64;
  static constexpr uint64_t kPatienceNs = 5'000'000'000;
  static constexpr uint64_t kHelloNs = 100'000'000;
  // Sockets whose client does not read are looked at so often.
  static constexpr uint64_t kLookNs = 1'000'000'000;
  // How soon what the kernel had no memory for is sent again.
  static constexpr uint64_t kRefusedNs = 1'000'000;

  explicit MultiplexerSet(base::Executor& executor);
  Multiplexer& own(std::unique_ptr<Multiplexer> multiplexer);
  void delete_ended();
  void flush_dirty();
  size_t read_all();
  size_t read_readable();
  // With several sockets. No effect where io_uring is not to be had, or not wanted.
  void open_batch();
  // Null when each of `sockets` has its own system calls.
  SocketBatch* batch(size_t sockets) { return sockets > 1 ? batch_.get() : nullptr; }
  void flush_dirty_together(SocketBatch& batch);
  size_t read_readable_together(SocketBatch& batch);
  void tell_of_received(const SocketBatch& batch);

  base::Executor& executor_;
  internal::Lifetime lifetime_;
  Multiplexers multiplexers_;
  std::vector<Multiplexer*> watched_;   // connected
  std::vector<Multiplexer*> together_;  // in the batch that is made up or handled now
  internal::IntrusiveList<Multiplexer, &Multiplexer::dirty> dirty_;
  internal::IntrusiveList<Multiplexer, &Multiplexer::readable> readable_;
  internal::IntrusiveList<Multiplexer, &Multiplexer::with_leftover> leftovers_;
  internal::IntrusiveList<Multiplexer, &Multiplexer::to_server> to_servers_;
  internal::IntrusiveList<Multiplexer, &Multiplexer::ended> ended_;
  std::vector<std::unique_ptr<std::byte[]>> rooms_;  // free ones; at most one batch needs so many
  uint64_t armed_until_ns_ = kNoEvent;
  uint64_t visits_ = 0;
  std::unique_ptr<SocketBatch> batch_;
  bool batch_is_of_use_ = true;  // else the next poll closes it
  size_t accepted_ = 0;          // sockets of clients
  size_t most_served_ = kMostServed;
  internal::Newcomers silent_;
};

}  // namespace pmstore::fabric::tcp
