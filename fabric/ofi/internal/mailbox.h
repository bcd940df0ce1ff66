// Mailbox: how immediates travel over tcp without a completion at the target.
//
// In libfabric 1.17 each completion at a target costs two system calls: a byte is written to the
// queue's wait object and read again, although we poll. So the immediate of a WRITE is a second
// piece of the same message: 8 bytes into a ring at the target, which looks there after it has
// progressed. One message is one stretch of the byte stream and is placed in order, so an entry
// that is there has its data before it. The idea is that of the rings of FaRM (NSDI 2014).
//
// One thread. Each end owns the ring that its peer writes; the peer is told the key in the
// handshake. An entry is sequence << 32 | immediate; sequences count from 1 and never name an old
// entry, and their bytes arrive last. So an entry that has arrived in part does not look complete.
//
// Invariants:
//   sent_ - credit <= kEntries: what the peer has not taken is never overwritten, nor is the copy
//   here from which libfabric may still send; the peer tells how many it has taken every kCredit
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "fabric/memory_region.h"
#include "fabric/ofi/internal/provider.h"

namespace pmstore::fabric::ofi {

class Mailbox {
 public:
  static constexpr uint32_t kEntries = 1024;

  // Where the 8 bytes come from and go to; `offset` is in the region that `key` names.
  struct Piece {
    iovec local;
    uint64_t offset;
    uint64_t key;
  };

  // Io when libfabric does not register the ring.
  static Result<std::unique_ptr<Mailbox>> create(const Provider& provider);

  // For the handshake: what the peer needs, and what it said. Protocol when that is malformed.
  std::string name() const;
  Status set_peer(const std::string& name);

  // What the peer can write.
  std::span<std::byte> memory() const { return region_->bytes(); }

  // Sending: the piece that carries `immediate` may be handed to libfabric if there is room, and
  // count_sent() tells that it has been taken.
  bool has_room();
  Piece entry(uint32_t immediate);
  void count_sent() { ++sent_; }

  // Receiving: the next immediate that has arrived.
  std::optional<uint32_t> take();
  // What is to be written to the peer now so that it knows how many were taken, if that is due.
  std::optional<Piece> credit_due();
  void count_credited() { credited_ = taken_; }

 private:
  static constexpr uint32_t kCredit = kEntries / 4;
  // As the peer writes it.
  struct alignas(64) Incoming {
    uint64_t credit;  // how many of ours the peer has taken
    std::array<uint64_t, 7> unused;
    std::array<uint64_t, kEntries> entries;
  };

  Mailbox() : incoming_(std::make_unique<Incoming>()) {}

  std::unique_ptr<Incoming> incoming_;
  std::unique_ptr<MemoryRegion> region_;  // after incoming_: withdrawn before it
  std::array<uint64_t, kEntries> outgoing_{};
  std::optional<uint64_t> peer_key_;
  uint64_t sent_ = 0;
  uint64_t credit_ = 0;  // the largest seen
  uint64_t taken_ = 0;
  uint64_t credited_ = 0;       // taken_ when the peer was told
  uint64_t credit_source_ = 0;  // libfabric may send it later
};

}  // namespace pmstore::fabric::ofi
