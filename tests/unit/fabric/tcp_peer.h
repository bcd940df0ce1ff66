// TcpPeer: a test that is the peer of a tcp listener, by a bare socket.
#pragma once

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "fabric/internal/frame_sender.h"
#include "fabric/tcp/tcp_device.h"
#include "tests/unit/fabric/framed_peer.h"

namespace pmstore::fabric::tcp {

using internal::FrameHeader;
using internal::FrameKind;
using internal::FrameSender;
using internal::kAnswerWhenDone;

class TcpPeer : public FramedPeer {
 protected:
  explicit TcpPeer(const base::ExecutorOptions& options = {}) : FramedPeer(1, options) {}

  void SetUp() override {
    auto device = open_tcp_device(executor_);
    ASSERT_TRUE(device);
    device_ = std::move(*device);
    listen(*device_, Uri{Scheme::kTcp, "127.0.0.1", 0});
    dial();
  }

  void dial() {
    make_socket();
    knock();
  }
  void make_socket() {
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    // So that it does not depend on the host how much it takes without being read.
    const int room = 128 * 1024;
    setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    const int at_once = 1;
    setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
  }
  // Needs no descriptor.
  void knock() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(listener_->uri().port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  void hang_up() override {
    if (socket_ >= 0) close(std::exchange(socket_, -1));
  }

  static ConnectOptions patient() {
    ConnectOptions options;
    options.timeout_ns = options.operation_timeout_ns = patience_ns();
    return options;
  }

  // Long enough that whatever has been sent is served.
  void run_a_while() { run_turns(1'000'000); }

  void send_bytes(const void* bytes, size_t count) {
    ASSERT_EQ(::send(socket_, bytes, count, MSG_NOSIGNAL), static_cast<ssize_t>(count));
  }
  void send_message(const std::vector<std::byte>& message, uint32_t channel = 1) {
    FrameHeader header{};
    header.kind = FrameKind::kHandshake;
    header.bytes = static_cast<uint32_t>(message.size());
    header.channel = channel;
    send_frame(header, {reinterpret_cast<const char*>(message.data()), message.size()});
  }
  void send_frame(const FrameHeader& header, const std::string& body = {}) {
    std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
    bytes += body;
    send_bytes(bytes.data(), bytes.size());
  }
  std::string receive_bytes(size_t count) override {
    std::string bytes;
    run_until([&] {
      char buffer[4096];
      ssize_t got = 1;
      while (got > 0 && bytes.size() < count) {
        got = recv(socket_, buffer, std::min(sizeof buffer, count - bytes.size()), MSG_DONTWAIT);
        if (got > 0) bytes.append(buffer, static_cast<size_t>(got));
      }
      return bytes.size() == count || got == 0 || errno != EAGAIN;
    });
    return bytes;
  }
  Result<internal::HandshakeMessage> receive_message(uint32_t channel = 1) {
    const FrameHeader header = receive_frame();
    EXPECT_EQ(header.kind, FrameKind::kHandshake);
    EXPECT_EQ(header.channel, channel);
    const std::string bytes = receive_bytes(header.bytes);
    return internal::decode(std::as_bytes(std::span(bytes)));
  }
  // The connection that was there before is kept, but nobody hears of it.
  void shake_hands(uint32_t channel = 1) {
    served_.keep();
    send_message(internal::encode({internal::MessageKind::kHello, {}, {}, {}}), channel);
    auto accept = receive_message(channel);
    ASSERT_TRUE(accept) << accept.error().to_string();
    ASSERT_EQ(accept->kind, internal::MessageKind::kAccept);
    send_message(internal::encode({internal::MessageKind::kReady, {}, {}, {}}), channel);
    auto welcome = receive_message(channel);
    ASSERT_TRUE(welcome) << welcome.error().to_string();
    ASSERT_NE(served_.connection, nullptr);
  }

  std::unique_ptr<Device> device_;
  int socket_ = -1;
};

}  // namespace pmstore::fabric::tcp
