#include "fabric/verbs/internal/completion_queues.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace pmstore::fabric::verbs {

namespace {
constexpr uint32_t kFirstEntries = 8192;  // 7 connections; 512 KiB at 64 B each
}

Status CompletionQueues::open() {
  channel_.reset(ibv_create_comp_channel(context_));
  const int flags = channel_ ? fcntl(channel_->fd, F_GETFL) : -1;
  if (flags < 0 || fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return make_error(ErrorCode::kIo, std::string("no completion channel: ") +
                                          std::strerror(errno) + "; check the limit of open files");
  }
  return {};
}

bool CompletionQueues::request_events() {
  bool all = true;
  for (Queue& queue : queues_) {
    if (queue.requested) continue;
    PMSTORE_CHECK(ibv_req_notify_cq(queue.queue.get(), 0) == 0,
                  "a completion queue with a channel gives events");
    queue.requested = true;
    all = false;
  }
  return all;
}

void CompletionQueues::take_events() {
  ibv_cq* happened = nullptr;
  void* context = nullptr;
  while (ibv_get_cq_event(channel_.get(), &happened, &context) == 0) {
    // At once: destroying a queue waits for the acknowledgment of its events.
    ibv_ack_cq_events(happened, 1);
    for (Queue& queue : queues_) {
      if (queue.queue.get() == happened) queue.requested = false;
    }
  }
}

Result<ibv_cq*> CompletionQueues::reserve(uint32_t entries) {
  for (Queue& queue : queues_) {
    if (queue.capacity - queue.reserved - queue.draining >= entries) {
      queue.reserved += entries;
      PMSTORE_CHECK(queue.reserved + queue.draining <= queue.capacity, "reserved room exists");
      return queue.queue.get();
    }
  }
  uint32_t wanted = queues_.empty() ? kFirstEntries : 2 * queues_.back().capacity;
  wanted = std::min(std::max(wanted, entries), max_entries_);
  QueueHandle queue;
  while (!queue && wanted >= entries) {
    queue.reset(ibv_create_cq(context_, static_cast<int>(wanted), nullptr, channel_.get(), 0));
    if (!queue) wanted /= 2;
  }
  if (!queue) {
    return make_error(ErrorCode::kIo, std::string("no completion queue for another connection: ") +
                                          std::strerror(errno) +
                                          "; close connections, or raise the locked-memory limit "
                                          "(ulimit -l)");
  }
  queues_.push_back(Queue{std::move(queue), wanted, entries, 0, false});
  return queues_.back().queue.get();
}

void CompletionQueues::release(ibv_cq* queue, uint32_t entries) {
  for (Queue& candidate : queues_) {
    if (candidate.queue.get() != queue) continue;
    PMSTORE_CHECK(candidate.reserved >= entries, "room is given back once");
    candidate.reserved -= entries;
    candidate.draining += entries;
    return;
  }
  PMSTORE_CHECK(false, "the queue belongs to this device");
}

}  // namespace pmstore::fabric::verbs
