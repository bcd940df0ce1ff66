// TcpConnection: an OfiConnection over libfabric's tcp provider: one FI_EP_MSG endpoint, one
// socket.
//
// The target takes everything from one byte stream, so requests take effect in posting order, and
// closing the socket ends whatever was on its way. Control messages are libfabric messages on the
// same stream.
#pragma once

#include <deque>

#include "fabric/ofi/internal/ofi_connection.h"

namespace pmstore::fabric::ofi {

class TcpDevice;

class TcpConnection final : public OfiConnection {
 public:
  // Starts connecting to the destination in `info`.
  static Result<std::unique_ptr<TcpConnection>> dial(TcpDevice& device, const fi_info& info,
                                                     const ConnectionOptions& options,
                                                     std::string where);
  // Accepts the request in `info`.
  static Result<std::unique_ptr<TcpConnection>> accept(TcpDevice& device, const fi_info& info,
                                                       const ConnectionOptions& options);
  ~TcpConnection() override;

  // Connection events; the connection may be gone after the second and third.
  void on_connected() { connected_ = true; }
  void on_shutdown();
  void on_connect_error(int code);

  bool transport_ready() const override { return connected_; }
  std::string endpoint_name() const override { return mailbox_->name(); }
  Status link(const std::string& peer_endpoint) override {
    return mailbox_->set_peer(peer_endpoint);
  }
  Status send_control(std::vector<std::byte> message) override;

 private:
  TcpConnection(TcpDevice& device, const ConnectionOptions& options, std::string where);
  Status open(const fi_info& info);
  Status post_receive();
  void close_transport() override;
  void on_control_received(size_t bytes) override;

  TcpDevice& tcp_;
  std::string where_;
  bool connected_ = false;
  int queue_fd_ = -1;  // libfabric's
  // The provider reads from these until they are sent; a handshake has two at most.
  std::deque<std::vector<std::byte>> sent_;
  std::vector<std::byte> receive_buffer_;
};

}  // namespace pmstore::fabric::ofi
