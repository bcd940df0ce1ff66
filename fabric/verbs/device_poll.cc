// Polling: completions on every look; the kernel's events and the state of connections now and
// then.
#include <poll.h>

#include <algorithm>

#include "base/check.h"
#include "fabric/verbs/internal/device.h"
#include "fabric/verbs/internal/handshake.h"

namespace pmstore::fabric::verbs {

namespace {

constexpr int kCompletionsAtOnce = 32;
constexpr int kRoundsPerPoll = 8;  // then others of the executor get their turn
// The clock is read once per so much weight: polls that found something weigh 1, others 8, because
// an idle executor polls seldom and a busy one has no time to lose.
constexpr uint32_t kClockEveryWeight = 64;
constexpr uint32_t kIdleWeight = 8;
// The most that one gap between polls counts for operation timeouts.
constexpr uint64_t kMaxGap_ns = 100'000'000;

// Layout of work-request ids: see VerbsConnection::work_id().
ConnectionRef ref_of(uint64_t work_id) {
  return {static_cast<uint32_t>(work_id >> 17) & 0xffffff, static_cast<uint32_t>(work_id >> 41)};
}
uint16_t slot_of(uint64_t work_id) { return static_cast<uint16_t>(work_id >> 1); }
bool is_receive(uint64_t work_id) { return (work_id & 1) != 0; }

}  // namespace

size_t VerbsDevice::poll() {
  if (polling_) return 0;  // completions must be handled in order
  bool destroyed = false;
  destroyed_ = &destroyed;
  polling_ = true;
  size_t handled = 0;
  if (completions_.take()) queues_.take_events();
  if (completions_.gone() || cm_signal_.gone() || async_signal_.gone()) forget_descriptors();
  bool alive = poll_queues(handled);
  if (alive && !deferred_.empty()) alive = run_deferred();
  if (alive) {
    poll_weight_ += handled > 0 ? 1 : kIdleWeight;
    const bool told = cm_signal_.raised() || async_signal_.raised();
    if (poll_weight_ >= kClockEveryWeight || told) alive = slow_poll(handled);
  }
  if (!alive) return handled;
  polling_ = false;
  destroyed_ = nullptr;
  return handled;
}

bool VerbsDevice::poll_queues(size_t& handled) {
  ibv_wc completions[kCompletionsAtOnce];
  for (size_t i = 0; i < queues_.size(); ++i) {
    for (int round = 0; round < kRoundsPerPoll; ++round) {
      const int count = ibv_poll_cq(queues_.at(i), kCompletionsAtOnce, completions);
      PMSTORE_CHECK(count >= 0, "completion queues do not overflow: their room is reserved");
      if (count > 1) tell_of_waiting({completions, static_cast<size_t>(count)});
      for (int k = 0; k < count; ++k) {
        if (!dispatch(completions[k])) return false;
      }
      handled += static_cast<size_t>(count);
      if (count == kCompletionsAtOnce) continue;
      queues_.saw_empty(i);
      break;
    }
  }
  return true;
}

void VerbsDevice::tell_of_waiting(std::span<const ibv_wc> completions) {
  const auto is_request = [](const ibv_wc& wc) {
    return is_receive(wc.wr_id) && wc.status == IBV_WC_SUCCESS &&
           wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM;
  };
  if (std::count_if(completions.begin(), completions.end(), is_request) < 2) return;
  for (const ibv_wc& wc : completions) {
    if (!is_request(wc)) continue;
    if (VerbsConnection* connection = find(ref_of(wc.wr_id))) connection->announce(wc);
  }
}

bool VerbsDevice::dispatch(const ibv_wc& wc) {
  VerbsConnection* connection = find(ref_of(wc.wr_id));
  if (connection == nullptr) return true;  // a leftover of one that is gone
  const bool* destroyed = destroyed_;
  connection->on_completion(wc, is_receive(wc.wr_id), slot_of(wc.wr_id));
  return !*destroyed;
}

bool VerbsDevice::run_deferred() {
  const bool* destroyed = destroyed_;
  running_deferred_.swap(deferred_);
  for (const ConnectionRef ref : running_deferred_) {
    if (VerbsConnection* connection = find(ref)) connection->on_deferred();
    if (*destroyed) return false;
  }
  running_deferred_.clear();
  return true;
}

bool VerbsDevice::slow_poll(size_t& handled) {
  poll_weight_ = 0;
  const uint64_t now_ns = executor_.now_ns();
  active_ns_ += std::min(now_ns - polled_ns_, kMaxGap_ns);
  polled_ns_ = now_ns;
  const uint64_t events_every_ns = handshakes_.empty() ? kEventsEvery_ns : kHandshakeEventsEvery_ns;
  const bool cm_told = cm_signal_.take();
  const bool told = async_signal_.take() || cm_told;
  if (told || now_ns - events_ns_ >= events_every_ns) {
    events_ns_ = now_ns;
    if (told || is_event_pending()) {
      if (!poll_cm_events(handled) || !poll_async_events(handled)) return false;
    }
  }
  if (now_ns - scanned_ns_ >= kScanEvery_ns) {
    scanned_ns_ = now_ns;
    return scan(now_ns, handled);
  }
  return true;
}

void VerbsDevice::forget_descriptors() {
  for (const int fd : watched_) executor_.unwatch(fd);
  watched_.clear();
  completions_.forget();
  cm_signal_.forget();
  async_signal_.forget();
}

bool VerbsDevice::arm() {
  const bool owed = std::any_of(deferred_.begin(), deferred_.end(), [this](ConnectionRef ref) {
    const VerbsConnection* const connection = find(ref);
    return connection != nullptr && connection->can_run_deferred();
  });
  const bool pending =
      completions_.raised() || cm_signal_.raised() || async_signal_.raised() || owed || polling_;
  // Each block is preceded by a poll, so what came before an earlier request has been handled.
  if (pending || !queues_.request_events()) return false;
  const uint64_t now_ns = executor_.now_ns();
  if (!handshakes_.empty() || !incoming_.empty()) {
    armed_until_ns_ = now_ns + kScanEvery_ns;
    return true;
  }
  uint64_t due_ns = kNoEvent;  // on the clock of active_ns_
  for (const Entry& entry : table_) {
    if (entry.connection != nullptr) due_ns = std::min(due_ns, entry.connection->next_scan_ns());
  }
  if (due_ns == kNoEvent) {
    armed_until_ns_ = kNoEvent;
  } else {
    armed_until_ns_ = now_ns + kScanEvery_ns + (due_ns > active_ns_ ? due_ns - active_ns_ : 0);
  }
  return true;
}

void VerbsDevice::disarm() {
  armed_until_ns_ = kNoEvent;
  // A blocked executor is not a stalled one: a completion would have woken it.
  const uint64_t now_ns = executor_.now_ns();
  active_ns_ += now_ns - polled_ns_;
  polled_ns_ = now_ns;
  poll_weight_ = kClockEveryWeight;
}

bool VerbsDevice::is_event_pending() const {
  pollfd fds[2] = {{cm_events_.fd(), POLLIN, 0}, {rdma_.context->async_fd, POLLIN, 0}};
  return ::poll(fds, 2, 0) > 0;
}

bool VerbsDevice::poll_cm_events(size_t& handled) {
  const bool* destroyed = destroyed_;
  CmEvent event;
  CmEvents::Key key = 0;
  while (cm_events_.next(event, key)) {
    ++handled;
    // Completions of the peer's requests before the disconnect are in the queues by now; they are
    // delivered first.
    if (event.type == RDMA_CM_EVENT_DISCONNECTED && !poll_queues(handled)) return false;
    cm_events_.dispatch(event, key);
    if (*destroyed) return false;
  }
  return true;
}

bool VerbsDevice::poll_async_events(size_t& handled) {
  const bool* destroyed = destroyed_;
  ibv_async_event event{};
  while (ibv_get_async_event(rdma_.context.get(), &event) == 0) {
    ++handled;
    const ibv_event_type type = event.event_type;
    const ibv_qp* qp = event.element.qp;
    ibv_ack_async_event(&event);  // before anything is destroyed: that waits for it
    const bool of_device = type == IBV_EVENT_DEVICE_FATAL || type == IBV_EVENT_CQ_ERR;
    const bool of_queue_pair = type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR ||
                               type == IBV_EVENT_QP_ACCESS_ERR;
    if (!of_device && !of_queue_pair) continue;
    for (size_t i = 0; i < table_.size(); ++i) {
      VerbsConnection* connection = table_[i].connection;
      if (connection == nullptr || (of_queue_pair && !connection->has(qp))) continue;
      connection->fail(make_error(
          of_device ? ErrorCode::kIo : ErrorCode::kDisconnected,
          std::string("the RDMA device reported: ") + ibv_event_type_str(type) +
              (of_device ? "; check the kernel log" : "; the peer broke the rules or is gone")));
      if (*destroyed) return false;
    }
  }
  return true;
}

// A coroutine that the scan resumes counts as handled. Otherwise the executor may block right
// afterwards without a timer, although the task that it runs has ended.
bool VerbsDevice::scan(uint64_t now_ns, size_t& handled) {
  const bool* destroyed = destroyed_;
  for (size_t i = 0; i < table_.size(); ++i) {
    VerbsConnection* const connection = table_[i].connection;
    if (connection != nullptr && connection->on_scan(active_ns_)) ++handled;
    if (*destroyed) return false;
  }
  const std::vector<Handshake*> handshakes = handshakes_;
  for (Handshake* handshake : handshakes) {
    const bool there =
        std::find(handshakes_.begin(), handshakes_.end(), handshake) != handshakes_.end();
    if (there && handshake->on_scan(now_ns)) ++handled;
    if (*destroyed) return false;
  }
  reap();
  return true;
}

}  // namespace pmstore::fabric::verbs
