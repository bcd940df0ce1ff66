// The control path of TcpConnection: connecting, breaking, deadlines. The data path has its own
// file.
#include "fabric/tcp/internal/tcp_connection.h"

#include "fabric/tcp/internal/tcp_device.h"

namespace pmstore::fabric::tcp {

using internal::DestructionWatch;

TcpConnection::TcpConnection(TcpDevice& device, const internal::ConnectionOptions& options)
    : PolledConnection(device),
      tcp_(device),
      operation_timeout_ns_(options.operation_timeout_ns),
      expected_(kMaxUnanswered),
      in_(new std::byte[kInBytes]) {}

TcpConnection::TcpConnection(TcpDevice& device, Socket socket,
                             const internal::ConnectionOptions& options)
    : TcpConnection(device, options) {
  socket_ = std::move(socket);
  connected_ = true;
  tcp_.watch(socket_.fd(), *this);
}

Result<std::unique_ptr<TcpConnection>> TcpConnection::dial(
    TcpDevice& device, std::vector<SocketAddress> addresses,
    const internal::ConnectionOptions& options, std::string where) {
  std::unique_ptr<TcpConnection> connection(new TcpConnection(device, options));
  connection->addresses_ = std::move(addresses);
  connection->where_ = std::move(where);
  PMSTORE_TRY_STATUS(connection->connect_next());
  return connection;
}

TcpConnection::~TcpConnection() {
  // What was posted before goes out as far as the socket takes it at once.
  if (!closed() && !post_error_ && connected_) flush();
  close_transport();
}

Status TcpConnection::connect_next() {
  std::string reason = "no address";
  while (next_address_ < addresses_.size()) {
    Result<Socket> socket = Socket::connect(addresses_[next_address_++]);
    if (socket) {
      socket_ = std::move(*socket);
      return {};
    }
    if (socket.code() == ErrorCode::kIo) return std::move(socket.error());
    reason = socket.error().message;
  }
  return make_error(ErrorCode::kDisconnected,
                    "nobody answers at " + where_ + ": " + reason +
                        "; check the address and that pmstored runs there");
}

void TcpConnection::look_at_connecting() {
  Result<bool> done = socket_.connected();
  if (done) {
    connected_ = *done;
    if (connected_) tcp_.watch(socket_.fd(), *this);
    return;
  }
  if (next_address_ < addresses_.size()) {
    if (Status next = connect_next(); !next) fail(next.error());
    return;
  }
  fail(make_error(ErrorCode::kDisconnected,
                  "nobody answers at " + where_ + ": " + done.error().message +
                      "; check the address and that pmstored runs there"));
}

void TcpConnection::close_transport() {
  sender_.clear();
  place_left_ = 0;
  in_begin_ = in_end_ = 0;
  tcp_.forget(socket_.fd(), *this);
  socket_.close();
}

Completion* TcpConnection::take_outstanding() {
  while (unanswered_ > 0) {
    Completion* completion = expected(0).completion;
    expected_head_ = (expected_head_ + 1) % kMaxUnanswered;
    --unanswered_;
    if (completion != nullptr) return completion;
  }
  return nullptr;
}

// Of the end that dialed: the listener may send as soon as it has accepted.
Status TcpConnection::link(const std::string&) {
  if (!where_.empty()) accepted_ = true;
  return {};
}

Status TcpConnection::send_control(std::vector<std::byte> message) {
  if (broken()) return why_broken_;
  sender_.push_control(std::move(message));
  mark_dirty();
  return {};
}

void TcpConnection::withdraw(const MemoryRegion& region) {
  const bool arriving = place_left_ > 0 && place_region_ == &region;
  if (closed() || (!arriving && !sender_.sends_from(region))) return;
  sender_.clear();
  place_left_ = 0;
  post_error_ =
      make_error(ErrorCode::kAccess, "a region was withdrawn while the peer read or wrote it");
}

void TcpConnection::tick(uint64_t now_ns) {
  if (closed()) return;
  if (!connected_) return look_at_connecting();
  if (post_error_) return fail(*post_error_);
  // Unstamped entries are the newest ones: their time starts now, at most one tick late.
  for (uint32_t i = unanswered_; i > 0 && expected(i - 1).deadline_ns == 0; --i) {
    expected(i - 1).deadline_ns = now_ns + operation_timeout_ns_;
  }
  if (std::optional<Error> why = overdue(now_ns)) fail(*why);
}

std::optional<Error> TcpConnection::overdue(uint64_t now_ns) {
  bool late = unanswered_ > 0 && expected(0).deadline_ns <= now_ns;
  if (sender_.empty()) {
    stuck_deadline_ns_ = 0;
  } else if (stuck_deadline_ns_ == 0 || stuck_since_bytes_ != sender_.sent_bytes()) {
    stuck_deadline_ns_ = now_ns + operation_timeout_ns_;
  } else {
    late |= stuck_deadline_ns_ <= now_ns;
  }
  stuck_since_bytes_ = sender_.sent_bytes();
  if (!late) return {};
  return make_error(ErrorCode::kTimeout, "the peer did not serve a batch within " +
                                             std::to_string(operation_timeout_ns_ / 1'000'000) +
                                             " ms; check that it runs and can be reached");
}

}  // namespace pmstore::fabric::tcp
