// The request that makes ranges durable: what is taken, and what is refused.
#include "persist/persist_ranges_message.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace pmstore::persist {
namespace {

std::vector<std::byte> request_of(PersistRangesHeader header, std::vector<RemoteRange> ranges) {
  std::vector<std::byte> request(sizeof header + ranges.size() * sizeof(RemoteRange));
  std::memcpy(request.data(), &header, sizeof header);
  if (!ranges.empty()) {
    std::memcpy(request.data() + sizeof header, ranges.data(), ranges.size() * sizeof(RemoteRange));
  }
  return request;
}

ErrorCode refused(std::span<const std::byte> request, uint64_t granted_bytes = 1 << 20) {
  PersistRanges out;
  const Status decoded = decode_persist_ranges(request, granted_bytes, out);
  EXPECT_FALSE(decoded);
  return decoded ? ErrorCode::kUnsupported : decoded.code();
}

TEST(PersistRangesMessage, GivesTheRangesInOrder) {
  const std::vector<RemoteRange> ranges{{64, 100}, {0, 1}, {4096, 64}};
  PersistRanges out;
  ASSERT_TRUE(decode_persist_ranges(request_of({.ranges = 3}, ranges), 8192, out));
  EXPECT_EQ(std::vector<RemoteRange>(out.ranges().begin(), out.ranges().end()), ranges);
}

TEST(PersistRangesMessage, RefusesWhatIsMalformed) {
  const std::vector<std::byte> good = request_of({.ranges = 1}, {{0, 64}});
  EXPECT_EQ(refused({}), ErrorCode::kProtocol);
  EXPECT_EQ(refused(std::span(good).first(4)), ErrorCode::kProtocol);
  EXPECT_EQ(refused(std::span(good).first(good.size() - 1)), ErrorCode::kProtocol);
  EXPECT_EQ(refused(request_of({.magic = 1, .ranges = 1}, {{0, 64}})), ErrorCode::kProtocol);
  EXPECT_EQ(refused(request_of({.ranges = 0}, {})), ErrorCode::kProtocol);
  EXPECT_EQ(refused(request_of({.ranges = 1}, {{0, 64}, {64, 64}})), ErrorCode::kProtocol);
  EXPECT_EQ(refused(request_of({.ranges = 1}, {{0, 0}})), ErrorCode::kProtocol);
  const std::vector<RemoteRange> many(kMaxPersistRanges + 1, {0, 64});
  EXPECT_EQ(refused(request_of({.ranges = kMaxPersistRanges + 1}, many)), ErrorCode::kProtocol);
}

TEST(PersistRangesMessage, RefusesMoreBytesThanAServerFlushesInOneTurn) {
  const uint64_t granted = 4 * kMaxPersistBytes;
  PersistRanges out;
  EXPECT_TRUE(
      decode_persist_ranges(request_of({.ranges = 1}, {{0, kMaxPersistBytes}}), granted, out));
  EXPECT_EQ(refused(request_of({.ranges = 2}, {{0, kMaxPersistBytes}, {0, 1}}), granted),
            ErrorCode::kProtocol);
}

TEST(PersistRangesMessage, RefusesWhatWasNotGranted) {
  EXPECT_EQ(refused(request_of({.ranges = 2}, {{0, 64}, {4096, 64}}), 4100), ErrorCode::kAccess);
  EXPECT_EQ(refused(request_of({.ranges = 1}, {{UINT64_MAX, 64}}), 4100), ErrorCode::kAccess);
}

}  // namespace
}  // namespace pmstore::persist
