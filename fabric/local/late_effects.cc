#include "fabric/local/late_effects.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/atomic_copy.h"
#include "base/check.h"
#include "fabric/local/local_device.h"

namespace pmstore::fabric {

namespace {

constexpr uint64_t kLineBytes = 64;
constexpr uint64_t kTellPatience = 8;  // looks at a completion until it is delivered, on average

template <size_t N>
uint64_t one_of(base::Random& random, const std::array<uint64_t, N>& values) {
  return values[random.below(N)];
}

}  // namespace

LateFlight::LateFlight(const Capabilities& capabilities, Endpoint& peer, uint64_t seed)
    : capabilities_(capabilities),
      peer_(peer),
      random_(seed),
      temper_{one_of<4>(random_, {16, 64, 256, 1024}),
              one_of<4>(random_, {300, 1'000, 3'000, 10'000}), one_of<3>(random_, {1, 4, 32}),
              one_of<3>(random_, {1, 8, 64})} {}

// ---- the poster's thread ----

bool LateFlight::has_room(size_t operations, uint32_t immediates) {
  std::lock_guard lock(mutex_);
  const size_t unacknowledged = first_ + operations_.size() - std::max(acknowledged_, first_);
  return unacknowledged + operations <= kMaxOperations && peer_.room() >= immediates_ + immediates;
}

uint64_t LateFlight::post(const WorkRequest& request, const FaultDecision& decision) {
  std::lock_guard lock(mutex_);
  PMSTORE_CHECK(!stopped_, "nothing is posted to a broken connection");
  Operation& operation = operations_.emplace_back();
  operation.request = request;
  operation.decision = decision;
  if (request.bytes > 0) {
    const uint64_t first = request.remote_address / kLineBytes;
    const uint64_t last = (request.remote_address + request.bytes - 1) / kLineBytes;
    operation.lines = static_cast<uint32_t>(last - first + 1);
    operation.first_line = static_cast<uint32_t>(random_.below(operation.lines));
    do {
      operation.stride = 1 + static_cast<uint32_t>(random_.below(operation.lines));
    } while (std::gcd(operation.stride, operation.lines) != 1);
  }
  if (urgent(operation)) ++urgent_;
  if (request.op == OpCode::kWriteImmediate) ++immediates_;
  return first_ + operations_.size() - 1;
}

LateFlight::Outcome LateFlight::turn(uint64_t now_ns) {
  std::lock_guard lock(mutex_);
  return go_on(now_ns, true);
}

bool LateFlight::acknowledged(uint64_t number) {
  std::lock_guard lock(mutex_);
  return number < acknowledged_;
}

bool LateFlight::tells_now() {
  std::lock_guard lock(mutex_);
  return random_.below(kTellPatience) == 0;
}

uint64_t LateFlight::next_event_ns() {
  std::lock_guard lock(mutex_);
  return operations_.empty() ? base::Poller::kNoEvent : due_ns_;
}

void LateFlight::stop() {
  std::lock_guard lock(mutex_);
  if (stopped_) return;
  stopped_ = true;
  while (operations_.size() > received_) {
    if (!operations_.back().finished && urgent(operations_.back())) --urgent_;
    if (operations_.back().request.op == OpCode::kWriteImmediate) --immediates_;
    operations_.pop_back();
  }
  for (Operation& operation : operations_) {
    operation.request.local = nullptr;
    if (reads(operation) && !operation.finished) finish(operation);
  }
  drop_finished();
}

void LateFlight::abandon() {
  stop();
  std::lock_guard lock(mutex_);
  abandoned_ = true;
}

// ---- the target's thread ----

bool LateFlight::drift(uint64_t now_ns) {
  std::lock_guard lock(mutex_);
  return go_on(now_ns, false) == Outcome::kMoved;
}

bool LateFlight::abandoned() {
  std::lock_guard lock(mutex_);
  return abandoned_;
}

void LateFlight::fence() {
  std::lock_guard lock(mutex_);
  finish_received(acknowledged_ <= first_ ? 0 : acknowledged_ - first_);
  for (uint64_t steps = random_.below(8); steps > 0; --steps) {
    find_candidates(candidates_);
    if (candidates_.empty()) break;
    take_effect(candidates_[random_.below(candidates_.size())]);
  }
  first_ += operations_.size();
  operations_.clear();
  received_ = 0;
  urgent_ = 0;
  immediates_ = 0;
}

void LateFlight::withdraw(uint64_t key) {
  std::lock_guard lock(mutex_);
  size_t end = 0;
  for (size_t i = 0; i < received_; ++i) {
    if (operations_[i].request.remote_key == key && !operations_[i].finished) end = i + 1;
  }
  finish_received(end);
}

// ---- turns ----

LateFlight::Outcome LateFlight::go_on(uint64_t now_ns, bool by_poster) {
  if (operations_.empty() || peer_.gone.load(std::memory_order_seq_cst)) return Outcome::kNothing;
  if (now_ns < due_ns_ && random_.below(temper_.patience) != 0) return Outcome::kNothing;
  due_ns_ = now_ns + 1 + random_.below(temper_.span_ns);
  Outcome outcome = Outcome::kNothing;
  for (uint64_t steps = 1 + random_.below(temper_.burst); steps > 0; --steps) {
    const Outcome one = step(by_poster);
    if (one != Outcome::kNothing) outcome = one;
    if (one != Outcome::kMoved) break;
  }
  drop_finished();
  return outcome;
}

void LateFlight::find_candidates(std::vector<size_t>& found) const {
  found.clear();
  bool behind_write = false;
  bool behind_read = false;  // or an atomic
  for (size_t i = 0; i < received_ && !(behind_write && behind_read); ++i) {
    const Operation& operation = operations_[i];
    if (operation.finished) continue;
    bool waits = false;
    if (writes(operation)) {
      waits = behind_write && capabilities_.write_after_write;
      behind_write = true;
    } else if (reads(operation)) {
      waits = (behind_write && capabilities_.read_after_write) ||
              (behind_read && capabilities_.read_after_read);
      behind_read = true;
    } else {
      waits = (behind_write || behind_read) && capabilities_.atomic_after_write;
      behind_read = true;
    }
    if (!waits) found.push_back(i);
  }
}

LateFlight::Outcome LateFlight::step(bool by_poster) {
  find_candidates(candidates_);
  const bool more = by_poster && !stopped_ && received_ < operations_.size();
  const size_t choices = candidates_.size() + (more ? 1 : 0);
  if (choices == 0) {
    const uint64_t before = acknowledged_;
    acknowledge(true);
    return acknowledged_ == before ? Outcome::kNothing : Outcome::kMoved;
  }
  const size_t chosen = random_.below(choices);
  const Outcome outcome =
      chosen < candidates_.size() ? take_effect(candidates_[chosen]) : receive();
  acknowledge(false);
  return outcome;
}

LateFlight::Outcome LateFlight::receive() {
  Operation& operation = operations_[received_];
  const WorkRequest& request = operation.request;
  if (operation.decision.fault == Fault::kBreakBefore) return Outcome::kBroken;
  if (peer_.state.load(std::memory_order_seq_cst) != EndpointState::kOpen) {
    return Outcome::kNothing;  // the poster will hear of it
  }
  if (request.bytes > 0) {
    const RegionTable::Found found = peer_.device->regions().find(
        request.remote_key, request.remote_address, request.bytes, right_for(request.op));
    fault_ = found.fault;
    if (fault_ == AccessFault::kNone && is_atomic(request.op) && !base::aligned8(found.data)) {
      fault_ = AccessFault::kMisaligned;
    }
    if (fault_ != AccessFault::kNone) {
      refused_op_ = request.op;
      return Outcome::kViolation;
    }
    operation.target = found.data;
    if (writes(operation)) operation.source.assign(request.local, request.local + request.bytes);
  }
  ++received_;
  return Outcome::kMoved;
}

LateFlight::Outcome LateFlight::take_effect(size_t index) {
  Operation& operation = operations_[index];
  const bool nobody_waits = first_ + index < acknowledged_ && urgent_ == 0;
  if (nobody_waits && random_.below(temper_.lazy) != 0) return Outcome::kNothing;
  if (is_atomic(operation.request.op)) {
    execute_atomic(operation);
  } else {
    const uint32_t left = operation.lines - operation.moved;
    const bool one = left <= 1 || random_.below(2) == 0;
    move_lines(operation,
               one ? std::min(left, 1u) : 1 + static_cast<uint32_t>(random_.below(left)));
    if (operation.moved < operation.lines) return Outcome::kMoved;
  }
  finish(operation);
  return operation.decision.fault == Fault::kBreakAfter ? Outcome::kBroken : Outcome::kMoved;
}

// ---- effects ----

void LateFlight::move_lines(Operation& operation, uint32_t count) {
  for (; count > 0; --count, ++operation.moved) {
    const uint64_t at = operation.first_line + uint64_t{operation.moved} * operation.stride;
    move_line(operation, static_cast<uint32_t>(at % operation.lines));
  }
}

void LateFlight::move_line(Operation& operation, uint32_t line) {
  const WorkRequest& request = operation.request;
  const uint64_t base = request.remote_address / kLineBytes * kLineBytes;
  const uint64_t line_begin = base + uint64_t{line} * kLineBytes;
  const uint64_t begin = std::max(line_begin, request.remote_address);
  const uint64_t end = std::min(line_begin + kLineBytes, request.remote_address + request.bytes);
  const uint64_t offset = begin - request.remote_address;
  if (reads(operation)) {
    base::copy_from_shared(request.local + offset, operation.target + offset, end - begin);
  } else {
    base::copy_to_shared(operation.target + offset, operation.source.data() + offset, end - begin);
  }
}

void LateFlight::execute_atomic(Operation& operation) {
  const WorkRequest& request = operation.request;
  const uint64_t old = internal::execute_atomic(request, operation.target);
  if (request.local != nullptr) std::memcpy(request.local, &old, sizeof(old));
}

void LateFlight::finish(Operation& operation) {
  PMSTORE_CHECK(!operation.finished, "an operation takes effect once");
  operation.finished = true;
  PMSTORE_CHECK(!urgent(operation) || urgent_ > 0, "urgent_ counts what is not finished");
  if (urgent(operation)) --urgent_;
  if (operation.request.op != OpCode::kWriteImmediate) return;
  PMSTORE_CHECK(immediates_ > 0, "each immediate is delivered once");
  --immediates_;
  if (peer_.state.load(std::memory_order_seq_cst) != EndpointState::kOpen) return;
  peer_.push(operation.request.immediate);
  peer_.device->schedule(peer_);
}

// Of what was received, all before `end`, in posting order.
void LateFlight::finish_received(size_t end) {
  for (size_t i = 0; i < std::min(end, received_); ++i) {
    Operation& operation = operations_[i];
    if (operation.finished) continue;
    if (is_atomic(operation.request.op)) {
      execute_atomic(operation);
    } else {
      move_lines(operation, operation.lines - operation.moved);
    }
    finish(operation);
  }
}

void LateFlight::acknowledge(bool surely) {
  while (!stopped_ && acknowledged_ < first_ + received_) {
    const Operation& next = operations_[acknowledged_ - first_];
    if (!writes(next) && !next.finished) return;
    if (next.decision.fault == Fault::kBreakAfter) return;
    if (!surely && random_.below(2) == 0) return;
    ++acknowledged_;
    PMSTORE_CHECK(acknowledged_ <= first_ + received_, "acknowledged operations are received");
  }
}

void LateFlight::drop_finished() {
  while (received_ > 0 && operations_.front().finished && (stopped_ || first_ < acknowledged_)) {
    operations_.pop_front();
    ++first_;
    --received_;
  }
}

}  // namespace pmstore::fabric
