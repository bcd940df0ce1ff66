// A peer made of librdmacm and libibverbs alone, that says what a well-behaved one never would.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace pmstore::fabric::verbs {

class RawPeer {
 public:
  RawPeer();
  ~RawPeer();
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  // Each step blocks until the other side has answered; the test polls that side from a thread of
  // its own. False when an event other than the expected one came (it is in last_event() then),
  // when none came for a minute, or after give_up().
  bool resolve(const std::string& host, uint16_t port);
  bool connect(std::span<const std::byte> private_data);
  bool send(std::span<const std::byte> message);

  // Listens and accepts one connection with that private data, then says no more.
  uint16_t listen(const std::string& host);
  bool accept_one(std::span<const std::byte> private_data);

  // Ends a step that waits in another thread, and every later one.
  void give_up() { given_up_ = true; }

  rdma_cm_event_type last_event() const { return last_event_; }
  const std::vector<std::byte>& peer_private_data() const { return peer_private_data_; }

 private:
  bool wait_for(rdma_cm_event_type wanted);
  bool event_comes();
  void make_queue_pair(rdma_cm_id* id);

  rdma_event_channel* channel_;
  std::atomic<bool> given_up_ = false;
  rdma_cm_id* id_ = nullptr;
  rdma_cm_id* accepted_ = nullptr;
  rdma_cm_event_type last_event_ = RDMA_CM_EVENT_ADDR_RESOLVED;
  std::vector<std::byte> peer_private_data_;
  std::vector<std::byte> memory_;
  ibv_mr* region_ = nullptr;
};

}  // namespace pmstore::fabric::verbs
