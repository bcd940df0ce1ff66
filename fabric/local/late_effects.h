// LateFlight: the requests of one end of a local connection that have not taken effect in full,
// when the poster's device has late effects (LocalDeviceOptions::late_effects_seed).
//
// An operation goes through these steps, each at a moment that a seeded random source chooses among
// those that fabric/capabilities.h allows:
//   posted       its source is still the poster's
//   received     its rights are checked, its source copied; in posting order
//   taking effect  line by line of 64 bytes, in any order, in any number of turns; not before the
//                operations that a declared capability orders in front of it
//   acknowledged  a READ or an atomic after its effect, a WRITE from its reception on; in posting
//                order. Only then may its completion be delivered.
// A connection that breaks, or that its poster destroys, receives nothing more; the WRITEs and
// atomics that were received may still take effect until the target's end is destroyed.
//
// Invariants:
//   operations_[i] has the number first_ + i; the first received_ of them are received
//   acknowledged_ <= first_ + received_: an operation is acknowledged after its reception
//   urgent_ counts the unfinished operations that are not plain WRITEs; immediates_ the immediates
//   that are still to be delivered
//   after fence() operations_ stays empty
//
// Threads: the poster's, and the target's, which fences, withdraws regions, and continues the
// operations of a destroyed end. mutex_ guards everything; under it only the target's device is
// called (schedule()). The Channel owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "base/random.h"
#include "fabric/batch.h"
#include "fabric/capabilities.h"
#include "fabric/local/channel.h"
#include "fabric/local/fault_injection.h"
#include "fabric/local/region_table.h"

namespace pmstore::fabric {

class LateFlight {
 public:
  // The most unacknowledged operations of one end; more are BackPressure.
  static constexpr size_t kMaxOperations = 1024;

  enum class Outcome : uint8_t {
    kNothing,
    kMoved,
    kViolation,  // the target refused an operation: fault() and refused_op()
    kBroken,     // a fault was injected
  };

  // `peer` is the target's end; the Channel outlives both.
  LateFlight(const Capabilities& capabilities, Endpoint& peer, uint64_t seed);
  LateFlight(const LateFlight&) = delete;
  LateFlight& operator=(const LateFlight&) = delete;

  // ---- the poster's thread ----
  bool has_room(size_t operations, uint32_t immediates);
  // The number of the operation. Its local buffer is borrowed until it is acknowledged, or stop().
  uint64_t post(const WorkRequest& request, const FaultDecision& decision);
  Outcome turn(uint64_t now_ns);
  AccessFault fault() const { return fault_; }
  OpCode refused_op() const { return refused_op_; }
  // The completion of this operation may be delivered.
  bool acknowledged(uint64_t number);
  // The completion that may be delivered is delivered now, rather than at a later look.
  bool tells_now();
  // When turn() should be called again at the latest.
  uint64_t next_event_ns();
  // The connection is broken: nothing more is received, no local buffer is touched any more.
  void stop();
  // stop(), and turn() will not be called again.
  void abandon();

  // ---- the target's thread ----
  // turn() for what abandon() has left.
  bool drift(uint64_t now_ns);
  bool abandoned();
  // The target's end is being destroyed (Endpoint::gone is set): what was acknowledged takes effect
  // now; what else was received does or does not; nothing does afterwards.
  void fence();
  // The region is being withdrawn: what was received for it takes effect now.
  void withdraw(uint64_t key);

 private:
  struct Operation {
    WorkRequest request;  // `local`: the poster's buffer, null after stop()
    FaultDecision decision;
    std::vector<std::byte> source;  // of a WRITE, from its reception on
    std::byte* target = nullptr;    // the same
    uint32_t lines = 0;
    uint32_t moved = 0;  // lines whose bytes are where they belong
    uint32_t first_line = 0;
    uint32_t stride = 1;
    bool finished = false;
  };
  // How late this connection is; drawn once from the seed.
  struct Temper {
    uint64_t patience;  // one of this many turns acts before its time
    uint64_t span_ns;   // the time between turns that do
    uint64_t burst;     // the most steps of a turn
    uint64_t lazy;      // one of this many steps moves a WRITE whose completion is delivered
  };

  static bool reads(const Operation& o) { return o.request.op == OpCode::kRead; }
  static bool writes(const Operation& o) {
    return o.request.op == OpCode::kWrite || o.request.op == OpCode::kWriteImmediate;
  }
  static bool urgent(const Operation& o) {
    return o.request.op != OpCode::kWrite || o.decision.fault != Fault::kNone;
  }

  // Under mutex_.
  Outcome go_on(uint64_t now_ns, bool by_poster);
  Outcome step(bool by_poster);
  Outcome receive();
  Outcome take_effect(size_t index);
  void find_candidates(std::vector<size_t>& found) const;
  void move_lines(Operation& operation, uint32_t count);
  void move_line(Operation& operation, uint32_t line);
  void execute_atomic(Operation& operation);
  void finish(Operation& operation);
  void finish_received(size_t end);
  void acknowledge(bool surely);
  void drop_finished();

  const Capabilities capabilities_;
  Endpoint& peer_;
  std::mutex mutex_;
  base::Random random_;
  const Temper temper_;
  std::deque<Operation> operations_;
  std::vector<size_t> candidates_;  // of step()
  uint64_t first_ = 0;
  size_t received_ = 0;
  uint64_t acknowledged_ = 0;  // all with smaller numbers are
  size_t urgent_ = 0;
  uint32_t immediates_ = 0;
  uint64_t due_ns_ = 0;
  bool stopped_ = false;
  bool abandoned_ = false;
  AccessFault fault_ = AccessFault::kNone;
  OpCode refused_op_ = OpCode::kRead;
};

}  // namespace pmstore::fabric
