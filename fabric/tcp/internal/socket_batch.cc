#include "fabric/tcp/internal/socket_batch.h"

#include <cerrno>
#include <utility>

#include "base/check.h"

namespace pmstore::fabric::tcp {

std::unique_ptr<SocketBatch> SocketBatch::open() {
  std::unique_ptr<SocketBatch> batch(new SocketBatch);
  // No flags: calls that never block are over when they are submitted, and what belongs to one
  // thread of the kernel's (IORING_SETUP_SINGLE_ISSUER) would only forbid to hand an executor over.
  if (io_uring_queue_init(kMaxCalls, &batch->ring_, 0) != 0) return nullptr;
  batch->open_ = true;
  // Kernels from 5.1 on have rings, but not yet all of the calls.
  io_uring_probe* const probe = io_uring_get_probe_ring(&batch->ring_);
  if (probe == nullptr) return nullptr;
  bool has_all = true;
  for (const int call : {IORING_OP_SEND, IORING_OP_RECV, IORING_OP_SENDMSG, IORING_OP_RECVMSG}) {
    has_all = has_all && io_uring_opcode_supported(probe, call) != 0;
  }
  io_uring_free_probe(probe);
  return has_all ? std::move(batch) : nullptr;
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

unsigned SocketBatch::take_results() {
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
  return seen;
}

bool SocketBatch::run() {
  results_.fill(-EAGAIN);
  unsigned left = size_;
  bool usable = true;
  while (usable && left > 0) {
    const int submitted = io_uring_submit_and_wait(&ring_, left);
    const unsigned over = take_results();
    PMSTORE_CHECK(over <= left, "each call completes once");
    left -= over;
    usable = submitted >= 0 || submitted == -EINTR;
  }
  size_ = 0;
  return usable;
}

}  // namespace pmstore::fabric::tcp
