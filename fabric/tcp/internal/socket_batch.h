// SocketBatch: one system call for the recv() or sendmsg() of several sockets, by io_uring.
//
// run() is over when all its calls are: nothing is in flight between two batches, so that sockets,
// buffers and connections end as they do without it. Only for sockets that never block.
//
// One thread at a time. Allocates in open() only.
#pragma once

#include <liburing.h>
#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <memory>

namespace pmstore::fabric::tcp {

class SocketBatch {
 public:
  static constexpr unsigned kMaxCalls = 64;

  // Null where io_uring is not to be had: a kernel before 5.6, a container that forbids it, no free
  // descriptor, no memory that may be locked. The caller then makes one system call for each
  // socket.
  static std::unique_ptr<SocketBatch> open();
  ~SocketBatch();
  SocketBatch(const SocketBatch&) = delete;
  SocketBatch& operator=(const SocketBatch&) = delete;

  unsigned size() const { return size_; }
  bool full() const { return size_ == kMaxCalls; }
  // What `message` points to is borrowed until run() returns. CHECK: it is not full.
  void add_receive(int fd, const msghdr& message);
  void add_send(int fd, const msghdr& message);
  // Makes the calls that were added, in any order. Then result(i) is that of the i-th. False when
  // the kernel takes no more (it has no memory): the result of calls that it did not take is
  // -EAGAIN, and the batch is of no more use.
  bool run();
  // As recvmsg(2) and sendmsg(2) give it; -errno instead of -1.
  int result(unsigned i) const { return results_[i]; }

 private:
  SocketBatch() = default;
  io_uring_sqe& add(const msghdr& message);
  // Notes the results of what is over, and returns how many these are.
  unsigned take_results();

  io_uring ring_{};
  bool open_ = false;
  unsigned size_ = 0;
  std::array<msghdr, kMaxCalls> messages_;
  std::array<int, kMaxCalls> results_;
};

}  // namespace pmstore::fabric::tcp
