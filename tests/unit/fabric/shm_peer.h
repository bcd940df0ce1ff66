// ShmPeer: a test that is the peer of a shm listener, by a bare socket and a segment.
#pragma once

#include <unistd.h>

#include <algorithm>

#include "fabric/shm/internal/segment.h"
#include "fabric/shm/internal/shm_device.h"
#include "fabric/shm/internal/shm_socket.h"
#include "tests/unit/fabric/framed_peer.h"

namespace pmstore::fabric::shm {

using internal::FrameHeader;
using internal::FrameKind;
using internal::kAnswerWhenDone;

class ShmPeer : public FramedPeer {
 protected:
  explicit ShmPeer(const base::ExecutorOptions& options = {}) : FramedPeer(0, options) {}

  void SetUp() override {
    listen(device_, uri_);
    dial();
  }

  // A new socket and a new segment.
  void dial() {
    served_.connection.reset();
    served_.disconnected.reset();
    served_.immediates.clear();
    make_socket();
    knock();
  }
  void make_socket() {
    Result<ShmSocket> socket = ShmSocket::create(uri_.name);
    ASSERT_TRUE(socket);
    socket_ = std::move(*socket);
    Result<Segment> segment = Segment::create();
    ASSERT_TRUE(segment) << segment.error().to_string();
    segment_.emplace(std::move(*segment));
    writer_ = segment_->writer();
    reader_ = segment_->reader();
  }
  // Needs no descriptor.
  void knock() {
    const Result<bool> connected = socket_.connect(uri_.name);
    ASSERT_TRUE(connected && *connected);
  }
  void hang_up() override { socket_.close(); }

  // Long enough that whatever has been sent is served.
  void run_a_while() { run_turns(); }

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

  void append(const FrameHeader& header, const std::string& body = {}) {
    ASSERT_TRUE(writer_.look());
    ASSERT_EQ(writer_.append(&header, sizeof header), sizeof header);
    ASSERT_EQ(writer_.append(body.data(), body.size()), body.size());
  }
  void send_frame(const FrameHeader& header, const std::string& body = {}) {
    append(header, body);
    writer_.publish();
  }
  std::string receive_bytes(size_t count) override {
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

  ShmDevice device_{executor_};
  const Uri uri_{Scheme::kShm, "peer-" + std::to_string(getpid()), 0};
  ShmSocket socket_;
  std::optional<Segment> segment_;
  RingWriter writer_;
  RingReader reader_;
};

}  // namespace pmstore::fabric::shm
