// The inside of RpcPeer: the request ring, the mirror of the client's reply arena, requests in
// progress.
//
// Invariants:
// * in_progress slots are busy; a slot becomes free when its reply is posted, so unsent replies are
// never
//   more than slots.
// * link->state is `this` until the connection is gone; calls look there before they touch
// anything.
#pragma once

#include <memory>
#include <vector>

#include "fabric/internal/page_memory.h"
#include "fabric/rpc.h"
#include "fabric/rpc_layout.h"

namespace pmstore::fabric {

// What a call and its peer share. The memory is here so that a handler which is still reading its
// request or filling its reply when the peer goes does no harm.
struct RpcCall::Link {
  RpcPeer* peer = nullptr;
  RpcPeer::State* state = nullptr;
  internal::PageMemory ring;
  internal::PageMemory mirror;
};

struct RpcPeer::State {
  struct Reply {
    uint32_t offset;
    uint32_t bytes;  // with header
    uint16_t slot;
    uint16_t generation;
  };

  State(Device& of, const RpcOptions& given, const RemoteRegion& replies, RpcHandler& to)
      : device(of), options(given), reply_region(replies), handler(to), busy(given.max_calls, 0) {
    unsent.reserve(given.max_calls);
  }
  ~State();

  // Looks at what the client wrote at `offset`; a non-null reason costs it the connection.
  const char* decode(uint64_t offset, RpcRequestHeader& header) const;
  // Builds header and posts; the payload is in the mirror already.
  void send(const RpcCall& call, uint16_t status, size_t payload_bytes);
  // BackPressure when the send queue is full. Good when the connection is broken: on_disconnect()
  // is on its way.
  Status post(const Reply& reply);
  void finish_slot(uint16_t slot) {
    busy[slot] = 0;
    --in_progress;
  }
  // Posts the replies that found no room. BackPressure when some of them still find none.
  Status flush_unsent();
  // Does so until all are sent, or drops the peer after `timeout_ns`.
  static base::Task<void> flush_later(std::shared_ptr<RpcCall::Link> link, uint64_t timeout_ns);
  // Withdraws the connection and tells the handler, who may destroy the peer.
  void drop(const Error& why);

  Device& device;
  RpcOptions options;
  RemoteRegion reply_region;
  RpcHandler& handler;
  RpcPeer* self = nullptr;
  std::shared_ptr<RpcCall::Link> link;
  std::unique_ptr<MemoryRegion> ring_region;
  std::unique_ptr<MemoryRegion> mirror_region;
  std::unique_ptr<Connection> connection;
  std::vector<uint8_t> busy;  // by slot
  size_t in_progress = 0;
  std::vector<Reply> unsent;
  bool flushing = false;
};

}  // namespace pmstore::fabric
