// ShmPeer: a test that is the peer of a shm listener, by a bare socket and a segment. One thread.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "fabric/internal/frame.h"
#include "fabric/internal/handshake.h"
#include "fabric/shm/internal/segment.h"
#include "fabric/shm/internal/shm_device.h"
#include "fabric/shm/internal/shm_socket.h"

namespace pmstore::fabric::shm {

using internal::FrameHeader;
using internal::FrameKind;
using internal::kAnswerWhenDone;

// The listener's side: one connection.
struct Served final : Acceptor, Receiver {
  std::unique_ptr<Connection> connection;
  std::vector<uint32_t> immediates;
  std::optional<Error> disconnected;

  Result<std::vector<std::byte>> on_hello(uint64_t, std::span<const std::byte>) override {
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

class ShmPeer : public testing::Test {
 protected:
  static constexpr size_t kBytes = 1u << 20;
  static constexpr uint64_t kPatienceNs = 60'000'000'000;

  void SetUp() override {
    region_ =
        std::move(*device_.register_memory(memory_, Access::kRemoteRead | Access::kRemoteWrite));
    auto listener = device_.listen(uri_, served_);
    ASSERT_TRUE(listener) << listener.error().to_string();
    listener_ = std::move(*listener);
    dial();
  }
  void TearDown() override {
    socket_.close();
    served_.connection.reset();
    region_.reset();
    listener_.reset();
  }

  // A new socket and a new segment.
  void dial() {
    served_.connection.reset();
    served_.disconnected.reset();
    served_.immediates.clear();
    Result<ShmSocket> socket = ShmSocket::create(uri_.name);
    ASSERT_TRUE(socket);
    socket_ = std::move(*socket);
    const Result<bool> connected = socket_.connect(uri_.name);
    ASSERT_TRUE(connected && *connected);
    Result<Segment> segment = Segment::create();
    ASSERT_TRUE(segment) << segment.error().to_string();
    segment_.emplace(std::move(*segment));
    writer_ = segment_->writer();
    reader_ = segment_->reader();
  }

  // False when it has not come true for so long that it never will, also on a busy machine.
  bool run_until(const std::function<bool()>& condition) {
    const uint64_t deadline = clock_.now_ns() + kPatienceNs;
    while (!condition()) {
      if (clock_.now_ns() > deadline) return false;
      executor_.run(pause());
    }
    return true;
  }
  void run_a_while() {
    for (int i = 0; i < 20; ++i) executor_.run(pause());
  }

  Status send_hello(const std::string& endpoint, std::span<const int> descriptors) {
    return socket_.send(internal::encode({internal::MessageKind::kHello, endpoint, {}, {}}),
                        descriptors);
  }
  Result<internal::HandshakeMessage> receive_message() {
    std::vector<std::byte> message;
    std::vector<base::FileDescriptor> descriptors;
    ShmSocket::Received received = ShmSocket::Received::kNothing;
    run_until([&] {
      received = socket_.receive(message, descriptors);
      return received != ShmSocket::Received::kNothing;
    });
    EXPECT_TRUE(descriptors.empty());
    return internal::decode(message);
  }
  void shake_hands() {
    ASSERT_TRUE(send_hello(kSegmentName, segment_->descriptors()));
    auto accept = receive_message();
    ASSERT_TRUE(accept) << accept.error().to_string();
    ASSERT_EQ(accept->kind, internal::MessageKind::kAccept) << accept->to_error().to_string();
    ASSERT_TRUE(socket_.send(internal::encode({internal::MessageKind::kReady, {}, {}, {}})));
    auto welcome = receive_message();
    ASSERT_TRUE(welcome) << welcome.error().to_string();
    ASSERT_NE(served_.connection, nullptr);
  }
  void expect_refusal(ErrorCode code) {
    auto refusal = receive_message();
    ASSERT_TRUE(refusal) << refusal.error().to_string();
    ASSERT_EQ(refusal->kind, internal::MessageKind::kRefuse);
    EXPECT_EQ(refusal->to_error().code, code) << refusal->to_error().to_string();
  }

  FrameHeader frame(FrameKind kind, uint32_t bytes, uint64_t offset, uint8_t flags = 0) const {
    FrameHeader header{};
    header.kind = kind;
    header.flags = flags;
    header.bytes = bytes;
    header.address = region_->remote().at(offset).address;
    header.key = region_->remote().key;
    return header;
  }
  void append(const FrameHeader& header, const std::string& body = {}) {
    ASSERT_TRUE(writer_.look());
    ASSERT_EQ(writer_.append(&header, sizeof header), sizeof header);
    ASSERT_EQ(writer_.append(body.data(), body.size()), body.size());
  }
  void send_frame(const FrameHeader& header, const std::string& body = {}) {
    append(header, body);
    writer_.publish();
  }
  // The next `count` bytes that it writes.
  std::string receive_bytes(size_t count) {
    std::string bytes;
    run_until([&] {
      if (!reader_.look()) return true;
      const size_t taken = std::min(count - bytes.size(), reader_.available());
      bytes.append(reinterpret_cast<const char*>(reader_.front()), taken);
      reader_.consume(taken);
      reader_.publish();
      return bytes.size() == count || reader_.end() != RingEnd::kOpen;
    });
    return bytes;
  }
  FrameHeader receive_frame() {
    FrameHeader header{};
    const std::string bytes = receive_bytes(sizeof header);
    if (bytes.size() == sizeof header) std::memcpy(&header, bytes.data(), sizeof header);
    return header;
  }
  void expect_cut_off(ErrorCode code) {
    ASSERT_TRUE(run_until([&] { return served_.disconnected.has_value(); }));
    EXPECT_EQ(served_.disconnected->code, code) << served_.disconnected->message;
  }
  std::string text_at(size_t offset, size_t count) const {
    return {reinterpret_cast<const char*>(memory_.data()) + offset, count};
  }

  base::RealClock clock_;
  base::Executor executor_{clock_};
  ShmDevice device_{executor_};
  const Uri uri_{Scheme::kShm, "peer-" + std::to_string(getpid()), 0};
  std::vector<std::byte> memory_ = std::vector<std::byte>(kBytes);
  std::unique_ptr<MemoryRegion> region_;
  Served served_;
  std::unique_ptr<Listener> listener_;
  ShmSocket socket_;
  std::optional<Segment> segment_;
  RingWriter writer_;
  RingReader reader_;

 private:
  base::Task<void> pause() { co_await executor_.sleep_for(50'000); }
};

}  // namespace pmstore::fabric::shm
