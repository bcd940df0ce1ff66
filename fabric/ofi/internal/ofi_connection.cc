// The control path of OfiConnection: opening, breaking, deadlines. The data path has its own file.
#include "fabric/ofi/internal/ofi_connection.h"

#include <algorithm>

#include "fabric/ofi/internal/ofi_device.h"

namespace pmstore::fabric::ofi {

OfiConnection::OfiConnection(OfiDevice& device, const ConnectionOptions& options)
    : PolledConnection(device),
      device_(device),
      operation_timeout_ns_(options.operation_timeout_ns),
      slots_(kSlots),
      queued_(kMaxQueued) {
  for (uint32_t i = 0; i < kSlots; ++i) slots_[i].next = i + 1 < kSlots ? i + 1 : kNoSlot;
  free_ = 0;
}

OfiConnection::~OfiConnection() { close_endpoint(); }

Status OfiConnection::open_endpoint(const fi_info& info) {
  fid_domain* domain = device_.provider().domain();
  fi_cq_attr attributes{};
  attributes.format = FI_CQ_FORMAT_DATA;
  attributes.wait_obj = FI_WAIT_NONE;
  attributes.size = 2 * kSlots;
  fid_cq* queue = nullptr;
  if (int r = fi_cq_open(domain, &attributes, &queue, nullptr); r != 0) {
    return ofi_error("cannot open a completion queue", r, "check the limit of open files");
  }
  queue_.reset(queue);
  // libfabric does not change the info, but its interface is not const.
  InfoPtr copy(Libfabric::loaded().dupinfo(&info));
  fid_ep* endpoint = nullptr;
  if (int e = copy ? fi_endpoint(domain, copy.get(), &endpoint, nullptr) : -FI_ENOMEM; e != 0) {
    return ofi_error("cannot open an endpoint", e, "check the limits of open files and memory");
  }
  endpoint_.reset(endpoint);
  int r = fi_ep_bind(endpoint, &queue->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION);
  if (r == 0) r = fi_ep_bind(endpoint, &queue->fid, FI_RECV);
  if (r != 0) {
    return ofi_error("cannot bind a completion queue", r, "see FI_LOG_LEVEL=warn");
  }
  return {};
}

void OfiConnection::close_endpoint() {
  endpoint_.reset();
  queue_.reset();
}

void OfiConnection::close_transport() {
  close_endpoint();
  queue_size_ = 0;
}

Completion* OfiConnection::take_outstanding() {
  if (oldest_ == kNoSlot) return nullptr;
  Completion* completion = slots_[oldest_].completion;
  release_slot(oldest_);
  return completion;
}

void OfiConnection::on_peer_closed(const Error& why) {
  DestructionWatch watch(lifetime_);
  // What has arrived is bounded by the provider's queues; the bound here only keeps a bug from
  // hanging us.
  for (int rounds = 0; rounds < 1 << 16; ++rounds) {
    if (closed()) return;
    const size_t handled = drain_queue();
    if (watch.destroyed()) return;
    if (handled == 0) break;
  }
  fail(why);
}

Error OfiConnection::queue_error() {
  fi_cq_err_entry entry{};
  const ssize_t r = fi_cq_readerr(queue_.get(), &entry, 0);
  const int code = r > 0 ? entry.err : FI_EOTHER;
  switch (code) {
    case FI_ETRUNC:
      return make_error(ErrorCode::kProtocol, "the peer sent a control message that is too long");
    case FI_EACCES:
    case FI_EKEYREJECTED:
      return make_error(ErrorCode::kAccess, "the target refused a remote access");
    default:
      return make_error(ErrorCode::kDisconnected,
                        std::string("the connection broke (") + Libfabric::loaded().strerror(code) +
                            "); the peer has gone, or refused a remote access");
  }
}

void OfiConnection::tick(uint64_t now_ns) {
  if (closed()) return;
  // Unstamped slots are the newest ones: their time starts now, at most one tick late.
  for (uint32_t i = newest_; i != kNoSlot && slots_[i].deadline_ns == 0; i = slots_[i].previous) {
    slots_[i].deadline_ns = now_ns + operation_timeout_ns_;
  }
  if (std::optional<Error> why = overdue(now_ns)) fail(*why);
}

std::optional<Error> OfiConnection::overdue(uint64_t now_ns) {
  bool late = oldest_ != kNoSlot && slots_[oldest_].deadline_ns <= now_ns;
  if (queue_size_ == 0) {
    queue_deadline_ns_ = 0;
  } else if (queue_deadline_ns_ == 0 || issued_from_queue_ != issued_at_last_tick_) {
    queue_deadline_ns_ = now_ns + operation_timeout_ns_;
  } else {
    late |= queue_deadline_ns_ <= now_ns;
  }
  issued_at_last_tick_ = issued_from_queue_;
  if (!late) return {};
  return make_error(ErrorCode::kTimeout, "the peer did not serve a batch within " +
                                             std::to_string(operation_timeout_ns_ / 1'000'000) +
                                             " ms; it hangs, or refused a remote access");
}

}  // namespace pmstore::fabric::ofi
