// TcpConnection: one connection of a multiplexer; see fabric/connection.h and docs/fabric-tcp.md.
//
// Invariant: multiplexer_ is there until the connection is closed
#pragma once

#include <string>
#include <vector>

#include "fabric/internal/framed_connection.h"
#include "fabric/tcp/internal/multiplexer.h"

namespace pmstore::fabric::tcp {

class TcpDevice;

class TcpConnection final : public internal::FramedConnection {
 public:
  // At the dialing end.
  TcpConnection(TcpDevice& device, Multiplexer& multiplexer,
                const internal::ConnectionOptions& options);
  // At the listening end: the connection that the peer calls `channel`.
  TcpConnection(TcpDevice& device, Multiplexer& multiplexer, uint32_t channel,
                const internal::ConnectionOptions& options);
  ~TcpConnection() override;

  // The device reads multiplexers, not connections.
  size_t poll() override { return 0; }
  void tick(uint64_t now_ns) override;
  uint64_t next_tick_ns(uint64_t now_ns) override;

  bool transport_ready() const override {
    return multiplexer_ != nullptr && multiplexer_->connected();
  }
  Status send_control(std::vector<std::byte> message) override;

  // For the multiplexer.
  void announce(uint32_t immediate, std::span<const std::byte> data) {
    announce_immediate(immediate, data);
  }
  // For the multiplexer. The connection may be destroyed afterwards.
  void take_handshake(std::vector<std::byte> message);

 private:
  void close_transport() override;
  void frames_are_ready() override { multiplexer_->mark_ready(*sender_); }
  bool transport_needs_attention() const override {
    return !multiplexer_->connected() || multiplexer_->receives_body_of(*this);
  }
  bool forget_body(const MemoryRegion& region) override {
    return multiplexer_->forget_body(*this, region);
  }
  void send_frames() override { multiplexer_->flush(); }
  uint64_t sent_bytes() const override { return multiplexer_->sent_bytes(); }
  void give_up_sending() override { multiplexer_->hang_up(); }

  Multiplexer* multiplexer_;
  const uint32_t channel_;
  bool heard_ = false;  // the peer has answered something
};

}  // namespace pmstore::fabric::tcp
