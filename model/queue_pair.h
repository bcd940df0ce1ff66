// QueuePair: the state of one end of a modelled connection. Operation: one work request that is
// under way. model/connection.h makes them; model/rnic.h moves them.
//
// Invariants:
// * An Operation belongs to one QueuePair from post() until all of its `paths` have ended: that of
//   the request and its response, from its reception on that of a WRITE's bytes into memory, and
//   that of its completion while it is owed.
// * It is in `signaled` while its completion is owed; in one of `stalled`, `blocked`, `held` or a
//   queue of the RNIC while that is what it waits for; in `unanswered` from its reception until its
//   response has left; in `unwritten` from the reception of a WRITE until its last byte is in
//   memory.
// * Both ends of a connection live in one ConnectedPair, until both connections are gone and the
// last
//   operation has ended. After a connection is gone (or broken), operations still go their way, but
//   touch no memory and deliver no completion.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/check.h"
#include "fabric/batch.h"

namespace pmstore::fabric {
class Completion;
}

namespace pmstore::model {

class Core;
class ModelConnection;
class Rnic;
struct QueuePair;
struct ConnectedPair;

// The payload of a request that is under way. Reuses its memory.
class Payload {
 public:
  std::byte* room(size_t bytes) {
    if (bytes > capacity_) {
      bytes_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
      capacity_ = bytes;
    }
    return bytes_.get();
  }
  std::byte* data() const { return bytes_.get(); }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  size_t capacity_ = 0;
};

struct Operation {
  fabric::WorkRequest request;  // `local` is the poster's buffer
  QueuePair* qp = nullptr;
  fabric::Completion* completion = nullptr;  // null: unsignaled, or already told
  Payload payload;
  uint64_t posted_ps = 0;
  uint64_t in_ps = 0;          // its last byte has arrived, if there is room for it
  uint32_t wqe = 0;            // its number in the send queue
  uint32_t chain = 0;          // of the first of a post: how many WQEs it has
  uint32_t issued = 0;         // bytes posted on PCIe so far
  uint32_t written_bytes = 0;  // in memory so far
  // Of a READ with late effects: lines in its buffer, and the order in which they come there.
  uint32_t sampled_lines = 0;
  uint32_t first_line = 0;
  uint32_t line_stride = 1;
  uint32_t samples = 1;  // moments at which lines are copied that are yet to come
  uint32_t pieces = 0;   // posted on PCIe, not in memory yet
  uint8_t paths = 0;
  bool inlined = false;     // the payload came with the WQE
  bool answerable = false;  // its response may leave once those before it have
  bool in_cache = false;    // where the last piece was written
  bool held = false;        // in QueuePair::held
  bool told = false;        // its immediate is with the receiver's core
  bool refused = false;  // the connection ended before it took effect: its poster hears only that

  Operation* next = nullptr;
  Operation* next_in_chain = nullptr;
  Operation* next_signaled = nullptr;
  Operation* next_unanswered = nullptr;
  Operation* next_unwritten = nullptr;

  bool writes() const {
    return request.op == fabric::OpCode::kWrite || request.op == fabric::OpCode::kWriteImmediate;
  }
  // What it occupies in the receive buffer: one line for its headers, and its payload.
  uint64_t buffer_bytes() const { return 64 + (writes() ? request.bytes : 0); }
  bool atomic() const {
    return request.op == fabric::OpCode::kCompareSwap || request.op == fabric::OpCode::kFetchAdd;
  }
};

template <Operation* Operation::*Next>
class OperationList {
 public:
  bool empty() const { return first_ == nullptr; }
  Operation* front() const { return first_; }
  void push(Operation* operation) {
    operation->*Next = nullptr;
    (first_ == nullptr ? first_ : last_->*Next) = operation;
    last_ = operation;
  }
  Operation* pop() {
    PMSTORE_CHECK(first_ != nullptr, "an empty list has no first operation");
    Operation* const operation = first_;
    first_ = operation->*Next;
    return operation;
  }

 private:
  Operation* first_ = nullptr;
  Operation* last_ = nullptr;  // meaningful unless first_ is null
};

struct QueuePair {
  ConnectedPair* pair = nullptr;
  QueuePair* peer = nullptr;              // the same for a loopback
  ModelConnection* connection = nullptr;  // null before it is made and when it is gone
  Rnic* rnic = nullptr;
  Core* core = nullptr;
  uint32_t number = 0;  // unique in the cluster

  // ---- as requester ----
  uint32_t wqes = 0;      // in the send queue
  uint32_t next_wqe = 0;  // number of the next one
  uint32_t reads = 0;     // READs and atomics without a response
  uint32_t fetching = 0;  // WQEs whose on_fetched() is yet to come
  // The last time of each step: those of one queue pair never overtake each other, though what it
  // shares with others may serve a later one sooner.
  uint64_t fetched_ps = 0;
  uint64_t arrival_ps = 0;   // at the responder
  uint64_t response_ps = 0;  // back here
  uint64_t completed_ps = 0;
  uint64_t seen_ps = 0;  // completions, in the host
  OperationList<&Operation::next_signaled> signaled;
  OperationList<&Operation::next> stalled;  // wait for a READ to be answered

  // ---- at the responder, for what this end has posted ----
  uint64_t received_ps = 0;
  uint64_t visible_ps = 0;                  // of the WRITEs posted on PCIe so far
  uint64_t sampled_ps = 0;                  // of the READs and atomics so far
  OperationList<&Operation::next> blocked;  // behind an immediate that found no receive
  OperationList<&Operation::next> held;     // acknowledged, not yet on their way to PCIe
  OperationList<&Operation::next_unanswered> unanswered;
  bool refuses = false;  // an answer was a refusal, and so are all behind it
  OperationList<&Operation::next_unwritten> unwritten;

  // ---- as receiver of immediates ----
  uint32_t immediates = 0;  // that wait for the CPU
};

// Both ends of one connection; for a loopback only `connector` is used.
struct ConnectedPair {
  QueuePair connector;
  QueuePair listener;
  size_t references = 0;  // connections, operations and deliveries
  size_t index = 0;       // in the cluster's list
};

}  // namespace pmstore::model
