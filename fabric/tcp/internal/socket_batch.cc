#include "fabric/tcp/internal/socket_batch.h"

#include <cerrno>

#include "base/check.h"

namespace pmstore::fabric::tcp {

std::unique_ptr<SocketBatch> SocketBatch::open() {
  std::unique_ptr<SocketBatch> batch(new SocketBatch);
  // No flags: calls that never block are over when they are submitted, and what belongs to one
  // thread of the kernel's (IORING_SETUP_SINGLE_ISSUER) would only forbid to hand an executor over.
  if (io_uring_queue_init(kMaxCalls, &batch->ring_, 0) != 0) return nullptr;
  batch->open_ = true;
  return batch;
}

SocketBatch::~SocketBatch() {
  if (open_) io_uring_queue_exit(&ring_);
}

io_uring_sqe& SocketBatch::add(const msghdr& message) {
  PMSTORE_CHECK(!full(), "a batch has room for what is added");
  messages_[size_] = message;
  io_uring_sqe* const call = io_uring_get_sqe(&ring_);
  PMSTORE_CHECK(call != nullptr,
                "the queue is as long as the longest batch, and empty between two");
  ++size_;
  return *call;
}

void SocketBatch::add_receive(int fd, const msghdr& message) {
  io_uring_sqe& call = add(message);
  msghdr& own = messages_[size_ - 1];
  if (own.msg_iovlen == 1) {
    io_uring_prep_recv(&call, fd, own.msg_iov[0].iov_base, own.msg_iov[0].iov_len, MSG_DONTWAIT);
  } else {
    io_uring_prep_recvmsg(&call, fd, &own, MSG_DONTWAIT);
  }
  io_uring_sqe_set_data64(&call, size_ - 1);
}

void SocketBatch::add_send(int fd, const msghdr& message) {
  io_uring_sqe& call = add(message);
  msghdr& own = messages_[size_ - 1];
  if (own.msg_iovlen == 1) {
    io_uring_prep_send(&call, fd, own.msg_iov[0].iov_base, own.msg_iov[0].iov_len,
                       MSG_DONTWAIT | MSG_NOSIGNAL);
  } else {
    io_uring_prep_sendmsg(&call, fd, &own, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  io_uring_sqe_set_data64(&call, size_ - 1);
}

void SocketBatch::run() {
  unsigned left = size_;
  while (left > 0) {
    const int submitted = io_uring_submit_and_wait(&ring_, left);
    PMSTORE_CHECK(submitted >= 0 || submitted == -EINTR || submitted == -EAGAIN,
                  "a ring of the thread's own takes as many calls as it has room for");
    io_uring_cqe* completion = nullptr;
    unsigned head = 0;
    unsigned seen = 0;
    io_uring_for_each_cqe(&ring_, head, completion) {
      const uint64_t index = io_uring_cqe_get_data64(completion);
      PMSTORE_CHECK(index < size_, "each call completes once");
      results_[index] = completion->res;
      ++seen;
    }
    io_uring_cq_advance(&ring_, seen);
    PMSTORE_CHECK(seen <= left, "each call completes once");
    left -= seen;
  }
  size_ = 0;
}

}  // namespace pmstore::fabric::tcp
