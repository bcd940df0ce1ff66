#include "fabric/ofi/internal/shm_connection.h"

#include <utility>

#include "fabric/internal/handshake.h"
#include "fabric/ofi/internal/shm_device.h"

namespace pmstore::fabric::ofi {

ShmConnection::ShmConnection(ShmDevice& device, const ConnectionOptions& options)
    : OfiConnection(device, options), shm_(device) {}

ShmConnection::~ShmConnection() {
  close_endpoint();  // before its address vector
  close_socket();
}

Status ShmConnection::open() {
  PMSTORE_TRY_STATUS(check_segment_room());
  PMSTORE_TRY(segment_name_, new_segment_name());
  const Provider& provider = shm_.provider();
  fi_av_attr attributes{};
  attributes.type = FI_AV_TABLE;
  attributes.count = 1;
  fid_av* addresses = nullptr;
  if (int r = fi_av_open(provider.domain(), &attributes, &addresses, nullptr); r != 0) {
    return ofi_error("cannot open an address vector", r, "see FI_LOG_LEVEL=warn");
  }
  addresses_.reset(addresses);
  PMSTORE_TRY_STATUS(open_endpoint(provider.info()));
  int r = fi_setname(&endpoint_->fid, segment_name_.data(), segment_name_.size() + 1);
  if (r == 0) r = fi_ep_bind(endpoint_.get(), &addresses->fid, 0);
  if (r == 0) r = fi_enable(endpoint_.get());
  if (r != 0) {
    return ofi_error("cannot open an endpoint in /dev/shm", r, "check its permissions and room");
  }
  PMSTORE_TRY(own_segment_, ShmSegment::map(segment_name_));
  layout_known_ = own_segment_->recognized();
  return {};
}

Result<std::unique_ptr<ShmConnection>> ShmConnection::dial(ShmDevice& device,
                                                           const std::string& name,
                                                           const ConnectionOptions& options) {
  std::unique_ptr<ShmConnection> connection(new ShmConnection(device, options));
  PMSTORE_TRY(connection->socket_, ShmSocket::create(name));
  connection->server_ = name;
  // First, so that a missing server is the cheap and likely error.
  PMSTORE_TRY(connection->connected_, connection->socket_.connect(name));
  PMSTORE_TRY_STATUS(connection->open());
  return connection;
}

Result<std::unique_ptr<ShmConnection>> ShmConnection::accept(ShmDevice& device, ShmSocket socket,
                                                             const ConnectionOptions& options) {
  std::unique_ptr<ShmConnection> connection(new ShmConnection(device, options));
  connection->socket_ = std::move(socket);
  connection->connected_ = true;
  if (Status opened = connection->open(); !opened) {
    // Best effort: a client that has gone meanwhile does not need it.
    static_cast<void>(connection->socket_.send(internal::encode_refusal(opened.error())));
    return std::move(opened.error());
  }
  return connection;
}

void ShmConnection::close_transport() {
  OfiConnection::close_transport();
  close_socket();
}

void ShmConnection::close_socket() {
  if (own_segment_) shm_.lock_breaker().remove(own_segment_.get());
  addresses_.reset();
  own_segment_.reset();
  peer_segment_.reset();
  socket_.close();
}

bool ShmConnection::served_peer() {
  if (!layout_known_) return false;
  const uint64_t taken = own_segment_->commands_taken();
  return std::exchange(commands_taken_, taken) != taken;
}

void ShmConnection::tick(uint64_t now_ns) {
  DestructionWatch watch(lifetime_);
  if (!connected_) {
    connect_socket();
  } else if (!broken()) {
    poll_socket();
  }
  if (!watch.destroyed()) OfiConnection::tick(now_ns);
}

void ShmConnection::connect_socket() {
  if (broken()) return;
  Result<bool> done = socket_.connect(server_);
  if (!done) {
    fail(done.error());
  } else {
    connected_ = *done;
  }
}

void ShmConnection::poll_socket() {
  std::vector<std::byte> message;
  switch (socket_.receive(message)) {
    case ShmSocket::Received::kNothing: return;
    case ShmSocket::Received::kMessage: receive_control(std::move(message)); return;
    case ShmSocket::Received::kClosed:
      on_peer_closed(
          make_error(ErrorCode::kDisconnected, "the peer closed the connection or died"));
      return;
  }
}

Status ShmConnection::link(const std::string& peer_endpoint) {
  if (!is_segment_name(peer_endpoint)) {
    return make_error(ErrorCode::kProtocol, "the peer names an endpoint that cannot be one");
  }
  PMSTORE_TRY(peer_segment_, ShmSegment::map(peer_endpoint));
  // Maps the segment.
  const int inserted = fi_av_insert(addresses_.get(), peer_endpoint.c_str(), 1, &peer_, 0, nullptr);
  if (inserted != 1) {
    return ofi_error("cannot reach the peer's endpoint in /dev/shm",
                     inserted < 0 ? inserted : -FI_EOTHER, "see FI_LOG_LEVEL=warn");
  }
  if (layout_known_) {
    shm_.lock_breaker().add(own_segment_.get(), peer_segment_.get(), socket_.fd());
  }
  return {};
}

Status ShmConnection::send_control(std::vector<std::byte> message) {
  if (broken()) return why_broken_;
  return socket_.send(message);
}

// Both have it mapped: the name is of no more use. libfabric unlinks it again when the endpoint
// closes, and does not mind that it is gone.
void ShmConnection::peer_has_linked() { unlink_segment(segment_name_); }

}  // namespace pmstore::fabric::ofi
