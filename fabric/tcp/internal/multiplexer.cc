// The control path of Multiplexer: connecting, adding and removing connections, breaking.
#include "fabric/tcp/internal/multiplexer.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>

#include "base/check.h"
#include "fabric/internal/handshake.h"
#include "fabric/tcp/internal/multiplexer_set.h"
#include "fabric/tcp/internal/tcp_connection.h"
#include "fabric/tcp/internal/tcp_listener.h"

namespace pmstore::fabric::tcp {

using internal::DestructionWatch;

Multiplexer::Multiplexer(MultiplexerSet& set, std::vector<SocketAddress> addresses,
                         std::string where)
    : set_(set), dialed_(true), where_(std::move(where)), addresses_(std::move(addresses)) {}

Multiplexer::Multiplexer(MultiplexerSet& set, Socket::Client client, TcpListener& listener)
    : set_(set),
      socket_(std::move(client.socket)),
      connected_(true),
      dialed_(false),
      listener_(&listener) {
  origin = client.origin;
  update_lists();
  start();
}

Multiplexer::~Multiplexer() {
  PMSTORE_CHECK(connections_.empty(), "connections use their device to the end");
  close_socket();
  set_.forget_ended(*this);
}

void Multiplexer::start() {
  if (Status watched = set_.watch(socket_.fd(), *this); !watched) {
    break_all(watched.error());
    return;
  }
  watched_ = true;
}

[[gnu::hot]] void Multiplexer::on_ready(uint32_t events) {
  PMSTORE_CHECK(watched_ && !over_, "a socket that is closed is not watched any more");
  if ((events & EPOLLOUT) != 0) {
    PMSTORE_CHECK(watches_room_, "room is told of only while it is watched for");
    blocked_ = false;
  }
  if ((events & ~uint32_t{EPOLLOUT}) != 0) set_.add_readable(*this);
}

void Multiplexer::watch_room() {
  PMSTORE_CHECK(blocked_, "room that there is would wake the executor without end");
  if (!watches_room_ && watched_ && !refused_) set_watches_room(true);
}

void Multiplexer::set_watches_room(bool watches) {
  PMSTORE_CHECK(watched_ && watches_room_ != watches, "the watch changes when what it is for does");
  const uint32_t room = watches ? uint32_t{EPOLLOUT} : 0;
  set_.executor().change_watch(socket_.fd(), EPOLLIN | room, *this);
  watches_room_ = watches;
}

void Multiplexer::update_lists() {
  if (dialed_) return;
  const bool silent = !over_ && connections_.empty();
  if (silent != internal::Newcomers::listed(*this)) set_.set_silent(*this, silent);
  const bool leftover = !over_ && leftover_ != nullptr;
  if (leftover != with_leftover.listed) set_.set_leftover(*this, leftover);
}

Status Multiplexer::connect_next() {
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

void Multiplexer::continue_connecting() {
  if (connected_ || over_) return;
  Result<bool> done = socket_.connected();
  if (done) {
    connected_ = *done;
    if (connected_) start();
    return;
  }
  Status next = make_error(ErrorCode::kDisconnected,
                           "nobody answers at " + where_ + ": " + done.error().message +
                               "; check the address and that pmstored runs there");
  if (next_address_ < addresses_.size()) next = connect_next();
  if (!next) break_all(next.error());
}

void Multiplexer::close_silent() {
  PMSTORE_CHECK(internal::Newcomers::listed(*this), "a silent socket has no connection");
  close_socket();
}

void Multiplexer::hang_up_when_stuck(uint64_t now_ns, uint64_t patience_ns) {
  PMSTORE_CHECK(leftover_ != nullptr, "only the rest of a closed connection is stuck");
  if (leftover_since_ns_ == 0 || leftover_since_bytes_ != sent_bytes_) {
    leftover_since_ns_ = now_ns;
    leftover_since_bytes_ = sent_bytes_;
  } else if (now_ns - leftover_since_ns_ >= patience_ns) {
    hang_up();
  }
}

void Multiplexer::hang_up() {
  shutdown(socket_.fd(), SHUT_RDWR);
  mute_ = true;
}

void Multiplexer::close_socket() {
  if (std::exchange(over_, true)) return;
  if (std::exchange(watched_, false)) set_.unwatch(socket_.fd(), *this);
  watches_room_ = false;
  set_.forget(*this);
  socket_.close();
  ready_.clear();
  leftover_.reset();
  in_begin_ = in_end_ = 0;
  body_left_bytes_ = 0;
  body_connection_ = nullptr;
  update_lists();
  if (!dialed_) set_.count_closed();
}

uint32_t Multiplexer::add(TcpConnection& connection) {
  PMSTORE_CHECK(last_channel_ < UINT32_MAX, "channel numbers are never used again");
  connections_.emplace(++last_channel_, &connection);
  return last_channel_;
}

void Multiplexer::remove(uint32_t channel, std::unique_ptr<FrameSender> sender, FrameKind last,
                         bool tell) {
  connections_.erase(channel);
  // The rest of a body for it is skipped.
  if (body_connection_ != nullptr && body_header_.channel == channel) body_connection_ = nullptr;
  if (over_) return;
  if (!sender->abandon()) {
    // The rest of the frame is too large to be copied: all connections of the socket break.
    hang_up();
    unlist(*sender);
  } else if (sender->empty()) {
    unlist(*sender);
  } else {
    PMSTORE_CHECK(leftover_ == nullptr, "only one sender is in the middle of a frame");
    leftover_ = std::move(sender);
    leftover_since_ns_ = 0;
  }
  if (tell) tell_closed(last, channel);
  flush();
  update_lists();
  // The dialing end needs it no more. At the listening end the client may open new connections, as
  // long as there is a listener.
  if (connections_.empty() && (dialed_ || listener_ == nullptr)) close_socket();
}

void Multiplexer::tell_closed(FrameKind kind, uint32_t channel) {
  if (notices_.push_closed(kind, channel)) {
    mark_ready(notices_);
  } else {
    // The peer opens connections and reads no answers.
    hang_up();
  }
}

void Multiplexer::refuse(uint32_t channel, const Error& why) {
  if (notices_.push_refusal(internal::encode_refusal(why), channel)) {
    mark_ready(notices_);
  } else {
    hang_up();
  }
}

bool Multiplexer::forget_body(const TcpConnection& connection, const MemoryRegion& region) {
  if (!receives_body_of(connection) || body_region_ != &region) return false;
  body_connection_ = nullptr;
  return true;
}

void Multiplexer::break_all(const Error& why) {
  if (over_) return;
  const Error reason = why;
  DestructionWatch watch(lifetime_);
  close_socket();
  while (!watch.destroyed() && !connections_.empty()) {
    connections_.begin()->second->fail(reason);
  }
}

[[gnu::hot]] TcpConnection* Multiplexer::find(uint32_t channel) const {
  const auto found = connections_.find(channel);
  return found == connections_.end() ? nullptr : found->second;
}

}  // namespace pmstore::fabric::tcp
