#include "fabric/ofi/internal/tcp_connection.h"

#include "fabric/ofi/internal/handshake.h"
#include "fabric/ofi/internal/tcp_device.h"

namespace pmstore::fabric::ofi {

TcpConnection::TcpConnection(TcpDevice& device, const ConnectionOptions& options, std::string where)
    : OfiConnection(device, options),
      tcp_(device),
      where_(std::move(where)),
      receive_buffer_(kMaxMessageBytes) {
  window_ = 256;
}

TcpConnection::~TcpConnection() {
  close_transport();
  close_endpoint();  // libfabric may read our buffers until then
}

Status TcpConnection::open(const fi_info& info) {
  PMSTORE_TRY(mailbox_, Mailbox::create(device_.provider()));
  PMSTORE_TRY_STATUS(open_endpoint(info, FI_WAIT_FD));
  if (int r = fi_ep_bind(endpoint_.get(), &tcp_.events()->fid, 0); r != 0) {
    return ofi_error("cannot bind an event queue", r, "see FI_LOG_LEVEL=warn");
  }
  if (int r = fi_enable(endpoint_.get()); r != 0) {
    return ofi_error("cannot enable an endpoint", r, "check the limit of open files");
  }
  if (int r = fi_control(&queue_->fid, FI_GETWAIT, &queue_fd_); r != 0) {
    return ofi_error("cannot wait for a completion queue", r, "see FI_LOG_LEVEL=warn");
  }
  tcp_.watch_queue(queue_fd_, *this);
  return post_receive();
}

Status TcpConnection::post_receive() {
  const ssize_t r = fi_recv(endpoint_.get(), receive_buffer_.data(), receive_buffer_.size(),
                            nullptr, FI_ADDR_UNSPEC, this);
  if (r != 0) return ofi_error("cannot post a receive", r, "see FI_LOG_LEVEL=warn");
  return {};
}

Result<std::unique_ptr<TcpConnection>> TcpConnection::dial(TcpDevice& device, const fi_info& info,
                                                           const ConnectionOptions& options,
                                                           std::string where) {
  std::unique_ptr<TcpConnection> connection(new TcpConnection(device, options, std::move(where)));
  PMSTORE_TRY_STATUS(connection->open(info));
  if (int r = fi_connect(connection->endpoint_.get(), info.dest_addr, nullptr, 0); r != 0) {
    return make_error(ErrorCode::kDisconnected,
                      "cannot connect to " + connection->where_ + ": " + fi_strerror(-r) +
                          "; check the address and that pmstored runs there");
  }
  return connection;
}

Result<std::unique_ptr<TcpConnection>> TcpConnection::accept(TcpDevice& device, const fi_info& info,
                                                             const ConnectionOptions& options) {
  std::unique_ptr<TcpConnection> connection(new TcpConnection(device, options, "a client"));
  PMSTORE_TRY_STATUS(connection->open(info));
  if (int r = fi_accept(connection->endpoint_.get(), nullptr, 0); r != 0) {
    return ofi_error("cannot accept a connection", r, "see FI_LOG_LEVEL=warn");
  }
  return connection;
}

void TcpConnection::close_transport() {
  if (queue_fd_ < 0) return;
  tcp_.forget_queue(queue_fd_, *this);
  queue_fd_ = -1;
}

void TcpConnection::on_shutdown() {
  on_peer_closed(
      make_error(ErrorCode::kDisconnected,
                 "the peer closed the connection; it has gone, or refused a remote access"));
}

void TcpConnection::on_connect_error(int code) {
  fail(make_error(ErrorCode::kDisconnected,
                  (connected_ ? "the connection broke: " : "nobody answers at " + where_ + ": ") +
                      std::string(fi_strerror(code)) +
                      "; check the address and that pmstored runs there"));
}

Status TcpConnection::send_control(std::vector<std::byte> message) {
  if (broken()) return why_broken_;
  sent_.push_back(std::move(message));
  const std::vector<std::byte>& kept = sent_.back();
  const iovec buffer{const_cast<std::byte*>(kept.data()), kept.size()};
  void* descriptor = nullptr;
  const fi_msg out{&buffer, &descriptor, 1, FI_ADDR_UNSPEC, nullptr, 0};
  // Never more than two in a queue of hundreds, so EAGAIN is an error like any other.
  const ssize_t r = fi_sendmsg(endpoint_.get(), &out, 0);
  if (r != 0) {
    return make_error(ErrorCode::kDisconnected,
                      std::string("cannot send a handshake: ") + fi_strerror(static_cast<int>(-r)));
  }
  return {};
}

void TcpConnection::on_control_received(size_t bytes) {
  std::vector<std::byte> message(receive_buffer_.begin(),
                                 receive_buffer_.begin() + static_cast<ptrdiff_t>(bytes));
  receive_control(std::move(message));
  if (broken()) return;
  // Kept posted for good: when the socket breaks, its failure is the first thing that tells.
  if (Status posted = post_receive(); !posted) fail(posted.error());
}

}  // namespace pmstore::fabric::ofi
