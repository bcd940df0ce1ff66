// ShmConnection: an OfiConnection over libfabric's shm provider: one FI_EP_RDM endpoint with an
// address vector for the one peer, and a Unix socket, which carries the handshake and tells when
// the peer has died.
//
// The target moves the data, in the order in which it was posted to its segment, while it polls
// (CMA is off), so requests take effect in posting order and nothing moves once the endpoint is
// closed. The files in /dev/shm are unlinked as soon as both sides have mapped them: a killed
// process leaves nothing behind.
#pragma once

#include "fabric/ofi/internal/ofi_connection.h"
#include "fabric/ofi/internal/shm_lock_breaker.h"
#include "fabric/ofi/internal/shm_segment.h"
#include "fabric/ofi/internal/shm_socket.h"

namespace pmstore::fabric::ofi {

class ShmDevice;

class ShmConnection final : public OfiConnection {
 public:
  // Starts connecting to the server `name`.
  static Result<std::unique_ptr<ShmConnection>> dial(ShmDevice& device, const std::string& name,
                                                     const ConnectionOptions& options);
  static Result<std::unique_ptr<ShmConnection>> accept(ShmDevice& device, ShmSocket socket,
                                                       const ConnectionOptions& options);
  ~ShmConnection() override;

  void tick(uint64_t now_ns) override;
  bool transport_ready() const override { return connected_; }
  std::string endpoint_name() const override { return segment_name_; }
  Status link(const std::string& peer_endpoint) override;
  Status send_control(std::vector<std::byte> message) override;
  void peer_has_linked() override;

 private:
  ShmConnection(ShmDevice& device, const ConnectionOptions& options);
  Status open();
  void close_transport() override;
  void close_socket();
  bool served_peer() override;
  void connect_socket();
  void poll_socket();

  ShmDevice& shm_;
  ShmSocket socket_;
  std::string server_;  // when dialing
  bool connected_ = false;
  FidPtr<fid_av> addresses_;
  std::string segment_name_;
  std::unique_ptr<ShmSegment> own_segment_;
  std::unique_ptr<ShmSegment> peer_segment_;
  bool layout_known_ = false;  // to ShmSegment
  uint64_t commands_taken_ = 0;
};

}  // namespace pmstore::fabric::ofi
