// Hostile RPC clients and servers: rings full of mutated headers, payloads and immediates.
//
// The other side must neither crash nor hang nor reach outside its rings (run this under the
// address sanitizer for the last one), and must go on serving the next connection. That the
// generator has teeth is checked too: it must have been refused for every single reason that the
// decoder has, and accepted often.
#include <algorithm>
#include <set>

#include "base/random.h"
#include "fabric/rpc_layout.h"
#include "tests/fuzz/fuzzing.h"
#include "tests/unit/fabric/rpc_pair.h"

namespace pmstore::fabric {
namespace {

constexpr uint32_t kRing = 8192;
constexpr uint32_t kArena = 4096;
constexpr uint32_t kCalls = 8;

// A value that is often near one of the edges.
uint32_t edgy(base::Random& random, uint32_t limit) {
  const uint32_t edges[] = {0,          1,           limit / 2,      limit / 2 + 1,
                            limit - 64, limit - 1,   limit,          limit + 1,
                            limit + 64, UINT32_MAX,  1u << 31,       UINT32_MAX - 63,
                            limit - 16, limit - 256, UINT32_MAX / 2, 16};
  if (random.below(3) == 0) return static_cast<uint32_t>(random.next());
  if (random.below(2) == 0) return static_cast<uint32_t>(random.below(limit + 1));
  return edges[random.below(std::size(edges))];
}

class RpcFuzz : public RpcPair {
 protected:
  base::Task<void> connect_raw(RemoteRegion replies) {
    ConnectOptions how;
    how.hello = std::as_bytes(std::span(&replies, 1));
    auto made = co_await client_device_->connect(uri_, how);
    if (made) connection_ = std::move(*made);
  }

  RpcServer target_{*server_device_, {kRing, kArena, kCalls, 1'000'000'000}};
};

// A good header, most fields of which are then left alone.
RpcRequestHeader mutated_request(base::Random& random, uint32_t offset) {
  RpcRequestHeader header{kRpcRequestMagic,
                          static_cast<uint32_t>(sizeof(RpcRequestHeader) + random.below(200)),
                          static_cast<uint16_t>(random.next()),
                          static_cast<uint16_t>(random.below(kCalls)),
                          static_cast<uint16_t>(random.next()),
                          0,
                          static_cast<uint32_t>(random.below(8)) * 64,
                          static_cast<uint32_t>(random.below(500)),
                          0};
  if (random.below(2) == 0) return header;
  switch (random.below(8)) {
    case 0: header.magic ^= 1u << random.below(32); break;
    case 1: header.total_bytes = edgy(random, kRing - offset); break;
    case 2: header.slot = static_cast<uint16_t>(edgy(random, kCalls)); break;
    case 3: header.reserved = static_cast<uint16_t>(random.next()); break;
    case 4: header.reserved2 = random.next(); break;
    case 5: header.reply_offset = edgy(random, kArena); break;
    case 6: header.reply_capacity = edgy(random, kArena); break;
    default:  // anything at all
      for (size_t i = 0; i < sizeof(header); ++i) {
        reinterpret_cast<uint8_t*>(&header)[i] = static_cast<uint8_t>(random.next());
      }
  }
  return header;
}

TEST_F(RpcFuzz, AServerSurvivesHostileClients) {
  base::Random random(4711);
  Memory memory(*client_device_, kRing, Access::kRemoteWrite);
  uint64_t accepted = 0;
  uint64_t touched = 0;
  target_.serve = [&](RpcPeer&, RpcCall call) {
    ++accepted;
    for (std::byte b : call.request()) touched += static_cast<uint8_t>(b);
    std::fill(call.reply_room().begin(), call.reply_room().end(), std::byte{0x11});
    switch (random.below(4)) {
      case 0: call.reply_filled(call.reply_room().size()); break;
      case 1: call.reply(call.request()); break;
      case 2: target_.held.push_back(std::move(call)); break;
      default:
        call.reply_error(make_error(ErrorCode::kNotFound, std::string(random.below(400), 'e')));
    }
    if (random.below(100) == 0) target_.peer.reset();
  };
  uint64_t told = 0;
  target_.waits = [&](uint16_t, std::span<const std::byte> request) {
    ++told;
    for (const std::byte b : request) touched += static_cast<uint8_t>(b);
  };
  auto listener = server_device_->listen(uri_, target_);
  ASSERT_TRUE(listener);
  const RemoteRegion replies{memory.remote(0).address, kArena, memory.remote(0).key};
  RemoteRegion requests;
  const uint64_t total = fuzz::rounds(20'000);
  for (uint64_t round = 0; round < total; ++round) {
    if (connection_ == nullptr || connection_->broken()) {
      connection_.reset();
      target_.held.clear();
      target_.peer.reset();
      client_executor_.spawn(connect_raw(replies));
      for (int i = 0; i < 50 && connection_ == nullptr; ++i) both();
      ASSERT_NE(connection_, nullptr) << "the server does not serve any more";
      std::memcpy(&requests, connection_->peer_hello().data(), sizeof(requests));
    }
    const auto offset = static_cast<uint32_t>(random.below(kRing / 64)) * 64;
    const RpcRequestHeader header = mutated_request(random, offset);
    std::memcpy(memory.bytes.data(), &header, sizeof(header));
    const uint32_t room = std::min<uint32_t>(kRing - offset, 256);
    Batch batch;
    batch.write_immediate(memory.at(0, random.below(50) == 0 ? 0 : room), requests.at(offset),
                          random.below(20) == 0 ? edgy(random, kRing / 64) : offset / 64);
    (void)connection_->post(batch, nullptr);
    if (random.below(4) == 0) continue;  // it waits with the next one
    both(2);
    if (random.below(16) == 0) target_.held.clear();
  }
  EXPECT_GT(accepted, total / 10);
  EXPECT_GT(touched, 0u);
  EXPECT_GT(told, total / 20);
  std::set<std::string> reasons;
  for (const Error& why : target_.gone) {
    if (why.code == ErrorCode::kProtocol) reasons.insert(why.message);
  }
  EXPECT_EQ(reasons.size(), 7u) << "the generator no longer reaches every check of the decoder";
  for (const std::string& reason : reasons) RecordProperty("reason", reason);
  connection_.reset();
  target_.held.clear();
  target_.peer.reset();
}

TEST_F(RpcFuzz, AClientSurvivesHostileServers) {
  base::Random random(4712);
  const uint64_t total = fuzz::rounds(20'000) / 4;
  uint64_t failed = 0;
  uint64_t answered = 0;  // rounds with an error of the server that the client took for one
  hold_everything();
  for (uint64_t round = 0; round < total; ++round) {
    connect({kRing, kArena, kCalls, 1'000'000'000});
    outcomes_ = {};
    start_calls(1 + random.below(12), random.below(300));
    both(2);
    Memory from(*server_device_, kArena, Access::kLocal);
    for (int shots = 0; shots < 4 && server_.peer != nullptr; ++shots) {
      RpcReplyHeader header{kRpcReplyMagic,
                            static_cast<uint32_t>(16 + random.below(300)),
                            static_cast<uint16_t>(random.below(kCalls)),
                            1,
                            static_cast<uint16_t>(random.below(3)),
                            0};
      if (random.below(2) == 0) header.total_bytes = edgy(random, kArena);
      if (random.below(4) == 0) header.status = static_cast<uint16_t>(random.next());
      if (random.below(8) == 0) header.magic ^= 1u << random.below(32);
      const auto bytes = static_cast<uint32_t>(random.below(kArena));
      for (uint32_t at = 0; at + 16 <= kArena; at += 64) {
        std::memcpy(from.bytes.data() + at, &header, sizeof(header));
      }
      const uint32_t immediate = random.below(4) == 0
                                     ? edgy(random, kCalls)
                                     : rpc_reply_immediate(header.slot, header.generation);
      Batch batch;
      batch.write_immediate(from.at(0, bytes), client_->reply_region().at(0), immediate);
      (void)server_.peer->connection()->post(batch, nullptr);
      both(2);
    }
    failed += client_->failed();
    answered += std::any_of(outcomes_.errors.begin(), outcomes_.errors.end(),
                            [](const Error& why) { return why.code != ErrorCode::kDisconnected; });
    server_.held.clear();
    both(2);
    connection_.reset();
    client_.reset();
    both(2);
    server_.peer.reset();
  }
  EXPECT_GT(failed, total / 10);
  EXPECT_GT(answered, total / 100) << "the generator is too wild to get past the first check";
}

}  // namespace
}  // namespace pmstore::fabric
