// TcpPeer: a test that is the peer of a tcp listener, by a bare socket. One thread.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <optional>

#include "base/clock.h"
#include "base/executor.h"
#include "fabric/internal/frame.h"
#include "fabric/internal/handshake.h"
#include "fabric/tcp/tcp_device.h"

namespace pmstore::fabric::tcp {

using internal::FrameHeader;
using internal::FrameKind;
using internal::FrameSender;
using internal::kAnswerWhenDone;

inline constexpr size_t kBytes = 1u << 20;
inline constexpr uint64_t kPatienceNs = 60'000'000'000;

inline ConnectOptions patient() {
  ConnectOptions options;
  options.timeout_ns = options.operation_timeout_ns = kPatienceNs;
  return options;
}

// The listener's side: one connection.
struct Served final : Acceptor, Receiver {
  std::unique_ptr<Connection> connection;
  std::vector<std::unique_ptr<Connection>> kept;
  std::vector<uint32_t> immediates;
  std::optional<Error> disconnected;
  int hellos = 0;

  void keep() {
    if (!connection) return;
    connection->set_receiver(nullptr);
    kept.push_back(std::move(connection));
  }

  Result<std::vector<std::byte>> on_hello(uint64_t, std::span<const std::byte>) override {
    ++hellos;
    return std::vector<std::byte>(3, std::byte{9});
  }
  void on_connected(uint64_t, std::unique_ptr<Connection> made) override {
    connection = std::move(made);
    connection->set_receiver(this);
  }
  void on_abandoned(uint64_t) override {}
  void on_immediate(uint32_t immediate) override { immediates.push_back(immediate); }
  void on_disconnect(const Error& why) override { disconnected = why; }
};

class TcpPeer : public testing::Test {
 protected:
  void SetUp() override {
    auto device = open_tcp_device(executor_);
    ASSERT_TRUE(device);
    device_ = std::move(*device);
    region_ =
        std::move(*device_->register_memory(memory_, Access::kRemoteRead | Access::kRemoteWrite));
    auto listener = device_->listen(Uri{Scheme::kTcp, "127.0.0.1", 0}, served_);
    ASSERT_TRUE(listener) << listener.error().to_string();
    listener_ = std::move(*listener);
    dial();
  }
  void TearDown() override {
    hang_up();
    served_.connection.reset();
    served_.kept.clear();
    region_.reset();
    listener_.reset();
  }

  void dial() {
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    // So that it does not depend on the host how much it takes without being read.
    const int room = 128 * 1024;
    setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(listener_->uri().port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  void hang_up() {
    if (socket_ >= 0) close(std::exchange(socket_, -1));
  }

  // False when it has not come true for so long that it never will, also on a busy machine.
  bool run_until(const std::function<bool()>& condition) {
    const uint64_t deadline = clock_.now_ns() + kPatienceNs;
    while (!condition()) {
      if (clock_.now_ns() > deadline) return false;
      executor_.run_once();
    }
    return true;
  }
  // Long enough that whatever has been sent is served, by turns as well as by time.
  void run_a_while() {
    const uint64_t end = clock_.now_ns() + 20'000'000;
    for (int turn = 0; turn < 200 || clock_.now_ns() < end; ++turn) executor_.run_once();
  }

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
  // The next `count` bytes that it sends; fewer when it closes, or says nothing for kPatienceNs.
  std::string receive_bytes(size_t count) {
    std::string bytes;
    run_until([&] {
      char buffer[4096];
      const ssize_t got =
          recv(socket_, buffer, std::min(sizeof buffer, count - bytes.size()), MSG_DONTWAIT);
      if (got > 0) bytes.append(buffer, static_cast<size_t>(got));
      return bytes.size() == count || got == 0 || (got < 0 && errno != EAGAIN);
    });
    return bytes;
  }
  FrameHeader receive_frame() {
    FrameHeader header{};
    const std::string bytes = receive_bytes(sizeof header);
    if (bytes.size() == sizeof header) std::memcpy(&header, bytes.data(), sizeof header);
    return header;
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

  FrameHeader frame(FrameKind kind, uint32_t bytes, uint64_t offset, uint8_t flags = 0) const {
    FrameHeader header{};
    header.kind = kind;
    header.flags = flags;
    header.bytes = bytes;
    header.channel = 1;
    header.address = region_->remote().at(offset).address;
    header.key = region_->remote().key;
    return header;
  }
  void expect_cut_off(ErrorCode code) {
    ASSERT_TRUE(run_until([&] { return served_.disconnected.has_value(); }));
    EXPECT_EQ(served_.disconnected->code, code) << served_.disconnected->message;
  }

  base::RealClock clock_;
  base::Executor executor_{clock_};
  std::unique_ptr<Device> device_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(kBytes);
  std::unique_ptr<MemoryRegion> region_;
  Served served_;
  std::unique_ptr<Listener> listener_;
  int socket_ = -1;
};

inline std::string text_at(const std::vector<std::byte>& memory, size_t offset, size_t count) {
  return {reinterpret_cast<const char*>(memory.data()) + offset, count};
}

}  // namespace pmstore::fabric::tcp
