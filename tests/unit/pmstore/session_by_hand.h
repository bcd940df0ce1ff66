// A session of lock discipline rnic that is driven by hand, beside a client that keeps its lease.
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "fabric/local/fault_injection.h"
#include "pmstore/client/client_session.h"
#include "pmstore/layout/protocol.h"
#include "tests/unit/pmstore/server_fixture.h"

namespace pmstore::testing {

using internal::ClientSession;
using internal::SessionRef;

constexpr uint64_t kMs = 1'000'000;

// The next compare-swap takes effect; its completion and those behind it come later.
class SlowSwap final : public fabric::FaultInjector {
 public:
  explicit SlowSwap(uint64_t delay_ns) : delay_ns_(delay_ns) {}
  fabric::FaultDecision on_request(const fabric::FaultPoint& point) override {
    if (point.request.op != fabric::OpCode::kCompareSwap || std::exchange(seen_, true)) return {};
    return {fabric::Fault::kDelay, delay_ns_};
  }
  bool seen() const { return seen_; }

 private:
  const uint64_t delay_ns_;
  bool seen_ = false;
};

class SessionByHand : public ClientFixture {
 protected:
  void SetUp() override {
    ClientFixture::SetUp(LockDiscipline::kRnic);
    ASSERT_TRUE(run(client_->put(table_, "alice", "1")));
    by_hand_ = open_session();
    ASSERT_TRUE(by_hand_);
  }
  void TearDown() override {
    by_hand_ = {};
    ClientFixture::TearDown();
  }
  Result<SessionRef> try_open_session(uint64_t client = 7) {
    internal::SessionOptions options;
    options.secret = ClientSecret::of_number(client);
    options.call_timeout_ns = options.connect_timeout_ns = call_timeout_ns_;
    return run(
        ClientSession::open(std::move(*fabric::open_device(fabric::Scheme::kLocal, executor_)),
                            std::make_shared<internal::SessionBook>(), uri_, options));
  }
  SessionRef open_session(uint64_t client = 7) {
    auto opened = try_open_session(client);
    if (!opened) {
      ADD_FAILURE() << opened.error().to_string();
      return {};
    }
    const Status ring = run((*opened)->request_ring());
    EXPECT_TRUE(ring) << ring.error().to_string();
    return std::move(*opened);
  }
  Task<Result<fabric::RpcReply>> call(Method method, std::span<const std::byte> message,
                                      uint32_t reply_bytes) {
    return by_hand_->rpc().call(static_cast<uint16_t>(method), message, reply_bytes);
  }
  // The message lies in room_.
  std::span<const std::byte> reservation(std::string_view key) {
    MessageWriter request(room_);
    request.put(by_hand_->prefix());
    request.put(ReserveRequest{1, 10, raw(table_), static_cast<uint16_t>(key.size()), 0, 0, {}});
    request.put_bytes(key);
    return request.message();
  }
  SlotOffset reserve(std::string_view key) {
    const auto reserved = run(call(Method::kReserve, reservation(key), sizeof(ReserveReply)));
    EXPECT_TRUE(reserved) << reserved.error().to_string();
    return SlotOffset{reserved ? MessageReader(reserved->bytes()).get<ReserveReply>().slot : 0};
  }
  Status release(SlotOffset slot) {
    MessageWriter request(room_);
    request.put(by_hand_->prefix());
    request.put(raw(slot));
    const auto released = run(call(Method::kRelease, request.message(), 0));
    if (!released) return Error(released.error());
    return {};
  }
  // Sends a reservation, and goes: its handler at the server is under way for another ms.
  void leave_amid_a_reservation() {
    {
      auto never_heard = call(Method::kReserve, reservation("bob"), sizeof(ReserveReply));
      never_heard.start();
      let_time_pass(kMs / 10);
      ASSERT_FALSE(never_heard.done());
    }
    by_hand_ = {};
    let_time_pass(kMs / 10);
    ASSERT_TRUE(resolving());
  }
  GetReply find(std::string_view key) {
    MessageWriter request(room_);
    request.put(by_hand_->prefix());
    request.put(GetRequest{raw(table_), static_cast<uint16_t>(key.size()), {}});
    request.put_bytes(key);
    const auto got = run(call(Method::kGet, request.message(), 256));
    EXPECT_TRUE(got);
    return got ? MessageReader(got->bytes()).get<GetReply>() : GetReply{};
  }
  // As a commit does it: announces, then locks.
  Status lock(const GetReply& where) {
    auto buffer = by_hand_->buffers().try_take();
    const uint64_t entries[] = {lock_list_entry(SlotOffset{where.slot}), 0};
    std::memcpy(buffer->data, entries, sizeof entries);
    buffer->batch.clear();
    buffer->batch.write(buffer->at(0, sizeof entries), by_hand_->lock_list_of(*buffer))
        .compare_swap(buffer->word_at(0), by_hand_->word_at(SlotOffset{where.slot}),
                      LockWord::unlocked(where.version).bits,
                      LockWord::locked(where.version, by_hand_->hello().owner).bits);
    return run([](ClientSession& session, internal::OpBuffer& to_post) -> Task<Status> {
      co_return co_await session.execute(to_post);
    }(*by_hand_, *buffer));
  }
  // Gives what the lock word was.
  uint64_t swap(const GetReply& where, uint64_t from, uint64_t to) {
    auto buffer = by_hand_->buffers().try_take();
    buffer->batch.clear();
    buffer->batch.compare_swap(buffer->word_at(0), by_hand_->word_at(SlotOffset{where.slot}), from,
                               to);
    EXPECT_TRUE(run([](ClientSession& session, internal::OpBuffer& to_post) -> Task<Status> {
      co_return co_await session.execute(to_post);
    }(*by_hand_, *buffer)));
    return buffer->word(0);
  }
  // A request, which keeps its lease, is answered.
  bool is_served() {
    MessageWriter request(room_);
    request.put(by_hand_->prefix());
    request.put(GetRequest{raw(table_), 5, {}});
    request.put_bytes("other");
    return run(call(Method::kGet, request.message(), 256)).has_value();
  }
  bool resolving() const {
    return server_->stat_json().find("\"resolving\": 1") != std::string::npos;
  }

  uint64_t lease() const { return uint64_t{server_options_.lease_ms} * kMs; }
  SessionRef by_hand_;
  uint64_t call_timeout_ns_ = 1000 * kMs;
  std::array<std::byte, 512> room_;
};

}  // namespace pmstore::testing
