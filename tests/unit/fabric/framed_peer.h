// FramedPeer: what the tests share that are the peer of a tcp or shm listener by a bare socket: the
// listener's side, a region that the peer may read and write, and the time that passes. One thread.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "fabric/device.h"
#include "fabric/internal/frame.h"
#include "fabric/internal/handshake.h"
#include "tests/harness/patience.h"
#include "tests/unit/fabric/turn_counter.h"

namespace pmstore::fabric {

// What Receiver::on_waiting() said, and how many immediates had come before.
struct Told {
  uint32_t immediate;
  std::string data;
  size_t after;
  bool operator==(const Told&) const = default;
};
inline std::ostream& operator<<(std::ostream& out, const Told& told) {
  return out << told.immediate << " '" << told.data << "' after " << told.after;
}

// The listener's side: one connection.
struct Served final : Acceptor, Receiver {
  std::unique_ptr<Connection> connection;
  std::vector<std::unique_ptr<Connection>> kept;
  std::vector<uint32_t> immediates;
  std::vector<Told> told;
  std::optional<Error> disconnected;
  int hellos = 0;
  int idle = 0;

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
  void on_waiting(uint32_t immediate, std::span<const std::byte> data) override {
    const std::string text(reinterpret_cast<const char*>(data.data()), data.size());
    told.push_back({immediate, text, immediates.size()});
  }
  void on_disconnect(const Error& why) override { disconnected = why; }
  void on_idle() override { ++idle; }
};

class FramedPeer : public testing::Test {
 protected:
  static constexpr size_t kBytes = 1u << 20;
  static uint64_t patience_ns() { return harness::patience_ns(); }

  // `channel`: of the frames that this peer sends.
  FramedPeer(uint32_t channel, const base::ExecutorOptions& options)
      : executor_(clock_, options), channel_(channel) {
    executor_.add_poller(&turns_);
  }
  ~FramedPeer() override { executor_.remove_poller(&turns_); }

  void listen(Device& device, const Uri& uri) {
    region_ =
        std::move(*device.register_memory(memory_, Access::kRemoteRead | Access::kRemoteWrite));
    auto listener = device.listen(uri, served_);
    ASSERT_TRUE(listener) << listener.error().to_string();
    listener_ = std::move(*listener);
  }
  virtual void hang_up() = 0;
  void TearDown() override {
    hang_up();
    served_.connection.reset();
    served_.kept.clear();
    region_.reset();
    listener_.reset();
  }

  // False when it has not come true for so long that it never will, also on a busy machine.
  bool run_until(const std::function<bool()>& condition) {
    const uint64_t deadline = clock_.now_ns() + patience_ns();
    while (!condition()) {
      if (clock_.now_ns() > deadline) return false;
      run_for(kPauseNs);
    }
    return true;
  }
  void run_for(uint64_t time_ns) { executor_.run(sleep(time_ns)); }
  // By turns as well as by time: when the machine stalls, all the time may be over in one turn.
  void run_turns(uint64_t pause_ns = kPauseNs) {
    for (int i = 0; i < 20; ++i) {
      executor_.look();
      run_for(pause_ns);
    }
  }

  // The next `count` bytes that the other end sends; fewer when it closes, or says nothing for
  // patience_ns().
  virtual std::string receive_bytes(size_t count) = 0;
  internal::FrameHeader receive_frame() {
    internal::FrameHeader header{};
    const std::string bytes = receive_bytes(sizeof header);
    if (bytes.size() == sizeof header) std::memcpy(&header, bytes.data(), sizeof header);
    return header;
  }
  internal::FrameHeader frame(internal::FrameKind kind, uint32_t bytes, uint64_t offset,
                              uint8_t flags = 0) const {
    internal::FrameHeader header{};
    header.kind = kind;
    header.flags = flags;
    header.bytes = bytes;
    header.channel = channel_;
    header.address = region_->remote().at(offset).address;
    header.key = region_->remote().key;
    return header;
  }
  // A request of one letter.
  internal::FrameHeader request(uint32_t immediate) const {
    internal::FrameHeader header = frame(internal::FrameKind::kWriteImmediate, 1, 0);
    header.immediate = immediate;
    return header;
  }
  static std::string bytes_of(const internal::FrameHeader& header) {
    return {reinterpret_cast<const char*>(&header), sizeof header};
  }
  void expect_cut_off(ErrorCode code) {
    ASSERT_TRUE(run_until([&] { return served_.disconnected.has_value(); }));
    EXPECT_EQ(served_.disconnected->code, code) << served_.disconnected->message;
  }
  std::string text_at(size_t offset, size_t count) const {
    return {reinterpret_cast<const char*>(memory_.data()) + offset, count};
  }

  base::RealClock clock_;
  TurnCounter turns_;
  base::Executor executor_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(kBytes);
  std::unique_ptr<MemoryRegion> region_;
  Served served_;
  std::unique_ptr<Listener> listener_;

 private:
  static constexpr uint64_t kPauseNs = 50'000;

  base::Task<void> sleep(uint64_t time_ns) { co_await executor_.sleep_for(time_ns); }

  const uint32_t channel_;
};

}  // namespace pmstore::fabric
