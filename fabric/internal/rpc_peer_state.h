// RpcPeer::State: the request ring, the mirror of the client's reply arena, the requests in
// progress.
//
// Invariants:
//   in_progress is the number of busy slots; a slot becomes free when its reply is posted, so there
//   are never more unsent replies than slots
//   link->state is `this` until the connection is broken or destroyed; calls look there first
//   memory.held_bytes counts what ring and mirror of this and of all other peers hold
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "base/check.h"
#include "fabric/internal/page_memory.h"
#include "fabric/rpc.h"
#include "fabric/rpc_layout.h"

namespace pmstore::fabric {

// Shared by a peer and its calls. It owns the memory, so that a handler may read its request and
// fill its reply after the peer was destroyed.
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

  State(Device& rpc_device, const RpcOptions& rpc_options, const RemoteRegion& replies,
        RpcHandler& request_handler, RpcMemory* shared_memory)
      : device(rpc_device),
        options(rpc_options),
        reply_region(replies),
        handler(request_handler),
        memory(shared_memory == nullptr ? own_memory : *shared_memory),
        busy(rpc_options.max_calls, 0) {
    unsent.reserve(rpc_options.max_calls);
  }
  ~State();

  // Copies and checks the header that the client wrote at `offset`. Gives nullptr, or the reason
  // for which the client loses its connection.
  const char* decode(uint64_t offset, RpcRequestHeader& header) const;
  // Builds the header and posts the reply, whose payload is in the mirror already.
  void send(const RpcCall& call, uint16_t status, size_t payload_bytes);
  // BackPressure when the send queue is full. Good when the connection is broken: on_disconnect()
  // is on its way.
  Status post(const Reply& reply);
  // Of a ring or mirror, since the peer was idle last. Messages lie in no more pages than those up
  // to the last one's end, nor in more than each of them has: the smaller number counts.
  struct Use {
    uint64_t end = 0;
    uint64_t pages_bytes = 0;
    uint64_t held_bytes() const { return std::min(end, pages_bytes); }
  };
  void use(Use& part, uint64_t offset, uint64_t bytes) {
    constexpr uint64_t kPageBytes = 4096;
    const uint64_t before = part.held_bytes();
    const uint64_t first = offset / kPageBytes;
    part.end = std::max(part.end, (offset + bytes + kPageBytes - 1) / kPageBytes * kPageBytes);
    part.pages_bytes += ((offset + bytes - 1) / kPageBytes - first + 1) * kPageBytes;
    memory.held_bytes += part.held_bytes() - before;
  }
  uint64_t held_bytes() const { return in_ring.held_bytes() + in_mirror.held_bytes(); }
  void give_back_all() {
    PMSTORE_CHECK(memory.held_bytes >= held_bytes(), "what is held was counted");
    memory.held_bytes -= held_bytes();
    in_ring = in_mirror = {};
  }
  void finish_slot(uint16_t slot) {
    PMSTORE_CHECK(busy[slot] == 1 && in_progress > 0, "a request is answered once");
    busy[slot] = 0;
    --in_progress;
  }
  // Posts the replies that found no room. BackPressure when some of them still find none.
  Status flush_unsent();
  // Does so until all are sent, or drops the peer after `timeout_ns`.
  static base::Task<void> flush_later(std::shared_ptr<RpcCall::Link> link, uint64_t timeout_ns);
  // Destroys the connection and tells the handler, which may destroy the peer.
  void drop(const Error& why);

  Device& device;
  RpcOptions options;
  RemoteRegion reply_region;
  RpcHandler& handler;
  RpcMemory own_memory;
  RpcMemory& memory;
  Use in_ring;
  Use in_mirror;
  RpcPeer* self = nullptr;
  std::shared_ptr<RpcCall::Link> link;
  std::unique_ptr<MemoryRegion> ring_region;
  std::unique_ptr<MemoryRegion> mirror_region;
  std::unique_ptr<Connection> connection;
  std::vector<uint8_t> busy;  // by slot
  size_t in_progress = 0;
  std::vector<Reply> unsent;
  bool flushing = false;
  uint16_t notice = 0;
};

}  // namespace pmstore::fabric
