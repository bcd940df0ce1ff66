// The control path of Wire: connecting, who shares it, breaking. The data path has its own file.
#include "fabric/tcp/internal/wire.h"

#include <sys/socket.h>

#include <algorithm>

#include "fabric/tcp/internal/tcp_connection.h"
#include "fabric/tcp/internal/tcp_listener.h"
#include "fabric/tcp/internal/wire_set.h"

namespace pmstore::fabric::tcp {

using internal::DestructionWatch;

Wire::Wire(WireSet& set, std::vector<SocketAddress> addresses, std::string where)
    : set_(set),
      dialed_(true),
      where_(std::move(where)),
      addresses_(std::move(addresses)),
      in_(new std::byte[kInBytes]) {
  pieces_.reserve(kMaxPieces);
}

Wire::Wire(WireSet& set, Socket socket, TcpListener& listener, uint64_t now_ns)
    : set_(set),
      socket_(std::move(socket)),
      connected_(true),
      dialed_(false),
      listener_(&listener),
      idle_since_ns_(now_ns),
      in_(new std::byte[kInBytes]) {
  pieces_.reserve(kMaxPieces);
  set_.watch(socket_.fd(), *this);
}

Wire::~Wire() {
  PMSTORE_CHECK(connections_.empty(), "connections use their device to the end");
  close_socket();
}

Status Wire::connect_next() {
  std::string reason = "it has no IP address";
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

void Wire::look_at_connecting() {
  if (connected_ || over_) return;
  Result<bool> done = socket_.connected();
  if (done) {
    connected_ = *done;
    if (connected_) set_.watch(socket_.fd(), *this);
    return;
  }
  Status next = make_error(ErrorCode::kDisconnected,
                           "nobody answers at " + where_ + ": " + done.error().message +
                               "; check the address and that pmstored runs there");
  if (next_address_ < addresses_.size()) next = connect_next();
  if (!next) break_all(next.error());
}

void Wire::look_after(uint64_t now_ns, uint64_t patience_ns) {
  if (dialed_ || over_) return;
  if (connections_.empty() && now_ns - idle_since_ns_ >= patience_ns) return close_socket();
  if (leftover_ == nullptr) {
    leftover_since_ns_ = 0;
  } else if (leftover_since_ns_ == 0 || leftover_since_bytes_ != sent_bytes_) {
    leftover_since_ns_ = now_ns;
    leftover_since_bytes_ = sent_bytes_;
  } else if (now_ns - leftover_since_ns_ >= patience_ns) {
    hang_up();
  }
}

void Wire::hang_up() {
  shutdown(socket_.fd(), SHUT_RDWR);
  mute_ = true;
}

void Wire::close_socket() {
  over_ = true;
  set_.forget(socket_.fd(), *this);
  socket_.close();
  ready_.clear();
  leftover_.reset();
  in_begin_ = in_end_ = 0;
  place_left_ = 0;
  place_for_ = nullptr;
}

uint32_t Wire::add(TcpConnection& connection) {
  connections_.emplace(++last_channel_, &connection);
  return last_channel_;
}

void Wire::remove(uint32_t channel, std::unique_ptr<FrameSender> sender, FrameKind last,
                  bool tell) {
  connections_.erase(channel);
  // What is still coming for it is skipped.
  if (place_for_ != nullptr && placing_.channel == channel) place_for_ = nullptr;
  if (over_) return;
  if (!sender->abandon()) {
    // More is to come than is worth a copy: it costs the others, too.
    hang_up();
    unlist(*sender);
  } else if (sender->empty()) {
    unlist(*sender);
  } else {
    leftover_ = std::move(sender);
  }
  if (tell) tell_closed(last, channel);
  flush();
  if (!connections_.empty()) return;
  // Whoever dialed it needs it no more; at the other end the client may come again, if somebody
  // takes it.
  if (dialed_ || listener_ == nullptr) {
    close_socket();
  } else {
    idle_since_ns_ = set_.executor().now_ns();
  }
}

void Wire::tell_closed(FrameKind kind, uint32_t channel) {
  if (notices_.push_closed(kind, channel)) {
    mark_ready(notices_);
  } else {
    // The peer opens and opens, and takes nothing.
    hang_up();
  }
}

void Wire::withdraw(const MemoryRegion& region) {
  for (auto& [channel, connection] : connections_) {
    const bool arriving = place_for_ == connection && place_region_ == &region;
    if (arriving) place_for_ = nullptr;
    connection->withdraw(region, arriving);
  }
}

void Wire::break_all(const Error& why) {
  if (over_) return;
  const Error reason = why;
  DestructionWatch watch(lifetime_);
  close_socket();
  while (!watch.destroyed() && !connections_.empty()) {
    connections_.begin()->second->fail(reason);
  }
}

TcpConnection* Wire::find(uint32_t channel) const {
  const auto found = connections_.find(channel);
  return found == connections_.end() ? nullptr : found->second;
}

}  // namespace pmstore::fabric::tcp
