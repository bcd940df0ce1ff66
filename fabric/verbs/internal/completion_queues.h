// CompletionQueues: the completion queues of one Device, shared by its connections.
//
// An overflow breaks every connection of a completion queue, so each connection reserves room for
// all that it can ever have outstanding. When the room is used up, another queue is added, twice as
// large; there are few of them on hardware with large queues, so that a poll reads few queues.
//
// All queues share a completion channel, which wakes a blocked executor. An event is requested only
// before it blocks, and stays requested until it comes.
//
// Invariant, for each queue: reserved + draining <= capacity. `draining` is the room of destroyed
// connections, whose completions may be in the queue until it has been empty once.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "fabric/verbs/internal/handles.h"

namespace pmstore::fabric::verbs {

class CompletionQueues {
 public:
  CompletionQueues(ibv_context* context, uint32_t max_entries)
      : context_(context), max_entries_(max_entries) {}

  // Io when the device has no completion channel. Before anything else.
  Status open();
  // Readable when an event that was requested has come.
  int fd() const { return channel_->fd; }
  // Requests an event for the next completion of each queue. True if they had all been requested
  // before this call. Otherwise completions may have come before the request: poll once more.
  bool request_events();
  // Takes the events that have come.
  void take_events();

  // A queue with room for `entries`, now reserved. Io when the device has no more.
  Result<ibv_cq*> reserve(uint32_t entries);
  void release(ibv_cq* queue, uint32_t entries);

  size_t size() const { return queues_.size(); }
  ibv_cq* at(size_t i) const { return queues_[i].queue.get(); }
  // The i-th queue has just been seen empty.
  void saw_empty(size_t i) { queues_[i].draining = 0; }

 private:
  struct Queue {
    QueueHandle queue;
    uint32_t capacity;
    uint32_t reserved;
    uint32_t draining;
    bool requested;  // an event, that has not been taken
  };
  ibv_context* context_;
  CompletionChannelHandle channel_;  // before queues_: destroyed after them
  uint32_t max_entries_;
  std::vector<Queue> queues_;
};

}  // namespace pmstore::fabric::verbs
