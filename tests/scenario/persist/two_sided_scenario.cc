// The server's half of two_sided: it drains before it answers, and believes nothing.
#include <cstring>

#include "tests/scenario/persist/persist_scenario.h"

namespace pmstore::scenario {
namespace {

TEST_P(PersistScenario, TheServerDrainsOnceForEachTwoSidedWrite) {
  auto durable = writer({.strategy = WriteStrategy::kTwoSided});
  ASSERT_NE(durable, nullptr);
  const persist::MemoryStats before = server_stats();
  for (int i = 0; i < 10; ++i) {
    // Two lines at the ends that are flushed, whole lines between them that are streamed.
    const RemotePiece pieces[] = {piece(0, 300, 32 + uint64_t(i) * 1024), piece(1024, 40, 704)};
    ASSERT_TRUE(write(*durable, pieces));
  }
  const persist::MemoryStats after = server_stats();
  EXPECT_EQ(after.drains - before.drains, 10u);
  switch (answer_.domain) {
    case Domain::kNone: EXPECT_GE(after.msyncs - before.msyncs, 10u); break;
    case Domain::kMemoryController:
      EXPECT_EQ(after.flushed_lines - before.flushed_lines, 10u * (2 + 1));
      break;
    case Domain::kCpuCache: EXPECT_EQ(after.flushed_lines, before.flushed_lines); break;
  }
  expect_content();
}

TEST_P(PersistScenario, WritesLargerThanARequestAreSplit) {
  auto durable = writer({.strategy = WriteStrategy::kTwoSided});
  ASSERT_NE(durable, nullptr);
  const uint32_t limit = rpc_->max_request_bytes();
  const RemotePiece pieces[] = {piece(0, limit + 100'000, 64),
                                piece(limit + 200'000, 1000, limit + 300'000),
                                piece(limit + 300'000, limit, limit + 400'000)};
  const fabric::Counters before = connection_->counters();
  const Status done = write(*durable, pieces);
  ASSERT_TRUE(done) << done.error().to_string();
  EXPECT_EQ((connection_->counters() - before).server_messages, 3u);
  expect_content();
}

Task<void> write_once(RemoteWriter& durable, RemotePiece piece, int& failures, int& running) {
  const RemotePiece pieces[] = {piece};
  const std::span<const RemotePiece> all(pieces);
  Result<persist::Persisted> done = co_await durable.write(all);
  if (!done) ++failures;
  --running;
}

TEST_P(PersistScenario, WritersWaitWhileTheRingsAreFull) {
  disconnect();
  ASSERT_NO_FATAL_FAILURE(connect(4096));
  auto durable = writer({.strategy = WriteStrategy::kTwoSided});
  ASSERT_NE(durable, nullptr);
  int failures = 0;
  int running = 60;
  for (int i = 0; i < 60; ++i) {
    const RemotePiece each = piece(static_cast<size_t>(i) * 2048, 1200, uint64_t(i) * 1200);
    executor_.spawn(write_once(*durable, each, failures, running));
  }
  ASSERT_TRUE(all_end(running, kPatientTimeoutNs)) << "writers hang";
  EXPECT_EQ(failures, 0);
  expect_content();
}

// ---- messages that no RemoteWriter sends ----

struct Message {
  std::vector<std::byte> bytes;

  template <typename T>
  Message& add(const T& value) {
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    bytes.insert(bytes.end(), from, from + sizeof value);
    return *this;
  }
  Message& data(size_t count) {
    bytes.resize(bytes.size() + count, std::byte{0xdd});
    return *this;
  }
};

persist::PersistWriteHeader header(uint32_t pieces) {
  return {persist::kPersistWriteMagic, pieces};
}

TEST_P(PersistScenario, MalformedWritesStoreNothing) {
  using Piece = persist::PersistWritePiece;
  const std::pair<const char*, Message> malformed[] = {
      {"empty", {}},
      {"half a header", Message().add(uint32_t{persist::kPersistWriteMagic})},
      {"another magic", Message().add(uint32_t{7}).add(uint32_t{1}).add(Piece{0, 8, 0}).data(8)},
      {"another version",
       Message().add(persist::kPersistWriteMagic + 1).add(uint32_t{1}).add(Piece{0, 8, 0}).data(8)},
      {"no pieces", Message().add(header(0))},
      {"too many pieces", Message().add(header(17)).data(17 * 16 + 17)},
      {"pieces that are not there", Message().add(header(16)).add(Piece{0, 8, 0}).data(8)},
      {"more pieces than fit in any message", Message().add(header(UINT32_MAX)).data(64)},
      {"an empty piece", Message().add(header(1)).add(Piece{0, 0, 0})},
      {"data missing", Message().add(header(1)).add(Piece{0, 9, 0}).data(8)},
      {"data left over", Message().add(header(1)).add(Piece{0, 7, 0}).data(8)},
      {"a length that wraps",
       Message().add(header(2)).add(Piece{0, UINT32_MAX, 0}).add(Piece{0, 9, 0}).data(8)},
      {"reserved bits", Message().add(header(1)).add(Piece{0, 8, 1}).data(8)},
  };
  const persist::MemoryStats before = server_stats();
  for (const auto& [what, message] : malformed) {
    SCOPED_TRACE(what);
    const auto refused = call(persist::kPersistWriteMethod, message.bytes);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.code(), ErrorCode::kProtocol) << refused.error().to_string();
  }
  const std::pair<const char*, Message> outside[] = {
      {"behind the end", Message().add(header(1)).add(Piece{kGrantedBytes - 7, 8, 0}).data(8)},
      {"far outside", Message().add(header(1)).add(Piece{UINT64_MAX - 3, 8, 0}).data(8)},
      {"the second one outside",
       Message().add(header(2)).add(Piece{0, 8, 0}).add(Piece{kGrantedBytes, 8, 0}).data(16)},
  };
  for (const auto& [what, message] : outside) {
    SCOPED_TRACE(what);
    const auto refused = call(persist::kPersistWriteMethod, message.bytes);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.code(), ErrorCode::kAccess) << refused.error().to_string();
  }
  EXPECT_EQ(server_stats().drains, before.drains);
  expect_content();
}

}  // namespace
}  // namespace pmstore::scenario
