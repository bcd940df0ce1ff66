// CmEvents: polls the events of the connection manager and delivers each to its target.
//
// Targets are found by number, not by address: the owner of an id may be destroyed before an event
// about the id is handled. Each event is copied and acknowledged before it is handled, because
// rdma_destroy_id() waits for acknowledgements and the handler may call it. Threads: one executor.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>

#include "base/result.h"
#include "fabric/verbs/internal/handles.h"

namespace pmstore::fabric::verbs {

struct CmEvent {
  rdma_cm_event_type type;
  int status;
  rdma_cm_id* id;  // RDMA_CM_EVENT_CONNECT_REQUEST: a new one, owned by the handler
  uint8_t responder_resources;
  uint8_t initiator_depth;
  uint8_t private_bytes;
  std::array<std::byte, 256> private_data;
};

class CmTarget {
 public:
  virtual void on_cm_event(const CmEvent& event) = 0;

 protected:
  ~CmTarget() = default;
};

class CmEvents {
 public:
  using Key = uint64_t;

  // Unsupported when the kernel has no connection manager for users.
  Status open();
  rdma_event_channel* channel() const { return channel_.get(); }
  int fd() const { return channel_->fd; }

  Key add(CmTarget* target);
  void set_target(Key key, CmTarget* target) { targets_[key] = target; }
  void remove(Key key) { targets_.erase(key); }
  static void bind(rdma_cm_id* id, Key key) { id->context = reinterpret_cast<void*>(key); }

  // The next event, acknowledged; false when there is none.
  bool next(CmEvent& event, Key& key);
  void dispatch(const CmEvent& event, Key key);

 private:
  ChannelHandle channel_;
  Key next_key_ = 1;
  std::unordered_map<Key, CmTarget*> targets_;
};

}  // namespace pmstore::fabric::verbs
