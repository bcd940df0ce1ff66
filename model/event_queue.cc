// Invariants: heap_[i] is not after heap_[4i+1 .. 4i+4]; last_ never goes back.
#include "model/event_queue.h"

#include <algorithm>

#include "base/check.h"

namespace pmstore::model {

namespace {
constexpr size_t kChildren = 4;
// Events between two rounds of the executor, so that it notices a stop or another thread's work.
constexpr size_t kMaxBurst = 4096;
}  // namespace

EventQueue::EventQueue(base::Executor& executor) : executor_(executor) {
  PMSTORE_CHECK(executor.clock().advance_to(executor.now_ns()),
                "the modelled machine runs in virtual time: give its executor a VirtualClock");
  executor_.add_poller(this);
}

EventQueue::~EventQueue() { executor_.remove_poller(this); }

void EventQueue::push(const Event& event) {
  size_t at = heap_.size();
  heap_.push_back(event);
  while (at > 0) {
    const size_t parent = (at - 1) / kChildren;
    if (!event.before(heap_[parent])) break;
    heap_[at] = heap_[parent];
    at = parent;
  }
  heap_[at] = event;
}

EventQueue::Event EventQueue::pop() {
  PMSTORE_CHECK(!heap_.empty(), "an event is due");
  const Event first = heap_.front();
  const Event moved = heap_.back();
  heap_.pop_back();
  const size_t size = heap_.size();
  if (size == 0) return first;
  size_t at = 0;
  while (true) {
    const size_t begin = at * kChildren + 1;
    if (begin >= size) break;
    const size_t end = std::min(begin + kChildren, size);
    size_t least = begin;
    for (size_t child = begin + 1; child < end; ++child) {
      if (heap_[child].before(heap_[least])) least = child;
    }
    if (!heap_[least].before(moved)) break;
    heap_[at] = heap_[least];
    at = least;
  }
  heap_[at] = moved;
  return first;
}

size_t EventQueue::poll() {
  size_t handled = 0;
  bool may_jump = !interrupted_;
  interrupted_ = false;
  while (!heap_.empty()) {
    const uint64_t due_ns = heap_.front().time_ps / kPsPerNs;
    if (due_ns > executor_.now_ns()) {
      // The clock moves only behind an event of this poll: other pollers may have work at this
      // time.
      if (handled == 0 || handled >= kMaxBurst || !may_jump || interrupted_) break;
      if (!executor_.quiet_until(due_ns)) break;
      executor_.clock().advance_to(due_ns);
    }
    const Event event = pop();
    last_.move_to(event.time_ps);
    ++events_;
    ++handled;
    event.call(event.object, event.argument);
  }
  // What was interrupted within this poll is over with the round that follows it.
  return handled;
}

}  // namespace pmstore::model
