#include "fabric/verbs/internal/cm_events.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace pmstore::fabric::verbs {

Status CmEvents::open() {
  channel_.reset(rdma_create_event_channel());
  if (!channel_) {
    return make_error(ErrorCode::kUnsupported,
                      std::string("no RDMA connection manager: ") + std::strerror(errno) +
                          "; load it with `modprobe rdma_ucm` and check /dev/infiniband/rdma_cm");
  }
  const int flags = fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return make_error(ErrorCode::kIo,
                      std::string("rdma_cm channel: ") + std::strerror(errno) + "; check limits");
  }
  return {};
}

CmEvents::Key CmEvents::add(CmTarget* target) {
  const Key key = next_key_++;
  targets_.emplace(key, target);
  return key;
}

bool CmEvents::next(CmEvent& event, Key& key) {
  rdma_cm_event* raw = nullptr;
  if (rdma_get_cm_event(channel_.get(), &raw) != 0) return false;
  event.type = raw->event;
  event.status = raw->status;
  event.id = raw->id;
  // The parameters of other events have another shape; nothing of them is used.
  event.private_bytes = 0;
  event.responder_resources = 0;
  event.initiator_depth = 0;
  if (raw->event == RDMA_CM_EVENT_CONNECT_REQUEST || raw->event == RDMA_CM_EVENT_CONNECT_RESPONSE ||
      raw->event == RDMA_CM_EVENT_REJECTED) {
    const rdma_conn_param& conn = raw->param.conn;
    event.responder_resources = conn.responder_resources;
    event.initiator_depth = conn.initiator_depth;
    if (conn.private_data != nullptr) {
      event.private_bytes = conn.private_data_len;
      std::memcpy(event.private_data.data(), conn.private_data, conn.private_data_len);
    }
  }
  // A request's id carries what its listener was bound to.
  key = reinterpret_cast<Key>(raw->id->context);
  rdma_ack_cm_event(raw);
  return true;
}

void CmEvents::dispatch(const CmEvent& event, Key key) {
  const auto found = targets_.find(key);
  if (found != targets_.end()) {
    found->second->on_cm_event(event);
  } else if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
    rdma_reject(event.id, nullptr, 0);  // its listener has just gone
    rdma_destroy_id(event.id);
  }
}

}  // namespace pmstore::fabric::verbs
