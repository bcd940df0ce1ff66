#include "pmstore/client/rpc_calls.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "pmstore/client/client_session.h"
#include "pmstore/client/commit_message.h"
#include "pmstore/layout/size_class.h"

namespace pmstore::internal {
namespace {

[[gnu::hot]] bool sane(TableId table, const GetReply& reply, uint32_t room,
                       const ClientSession& session) {
  if (reply.found == FoundRecord::kNo) {
    const bool named = is_ordered(table) ? is_leaf_unit(reply.bucket) : reply.bucket < kMostBuckets;
    return reply.value_bytes == 0 && named;
  }
  if (reply.found == FoundRecord::kPlaceOnly) {
    if (reply.value_bytes <= room || reply.value_bytes > kMaxValueBytes) return false;
  } else if (reply.found != FoundRecord::kWithValue) {
    return false;
  }
  return reply.size_class < kSizeClasses && reply.version != 0 &&
         session.in_slot_space(SlotOffset{reply.slot}, kSlotBytes[reply.size_class]);
}

}  // namespace

RpcCalls::RpcCalls(ClientSession& session)
    : session_(session),
      scratch_bytes_(session.largest_commit_bytes()),
      scratch_(std::make_unique_for_overwrite<std::byte[]>(scratch_bytes_)) {}

[[gnu::hot]] bool RpcCalls::connected() const {
  return !session_.connection().broken() && !session_.rpc().failed();
}

// ---- commit ----

[[gnu::hot]] Result<std::span<const std::byte>> RpcCalls::lay_out(const CommitView& request) {
  MessageWriter message({scratch_.get(), scratch_bytes_});
  message.put(session_.prefix());
  put_commit(message, request);
  if (!message.overflowed()) return message.message();
  return make_error(
      ErrorCode::kTooLarge,
      "a transaction may take " + std::to_string(scratch_bytes_) + " bytes as a message; split it");
}

[[gnu::hot]] base::Answer<Status> RpcCalls::commit(const CommitView& request) {
  const auto message = lay_out(request);
  if (!message) return Status(message.error());
  return send_commit(*message, request.write_count > 0);
}

[[gnu::hot]] base::Task<Status> RpcCalls::send_commit(std::span<const std::byte> message,
                                                      bool writes) {
  constexpr auto kMethod = static_cast<uint16_t>(Method::kCommit);
  const auto answer = co_await session_.rpc().call(kMethod, message, sizeof(CommitReply));
  if (!answer) co_return Error(answer.error());
  if (answer->bytes().size() == sizeof(CommitReply)) [[likely]]
    co_return Status{};
  Error malformed = session_.malformed_reply("a commit");
  // The server has answered, so it has committed, whatever the reply was meant to say.
  if (writes) malformed.code = ErrorCode::kCommitUnknown;
  co_return malformed;
}

// ---- get ----

[[gnu::hot]] base::Answer<Result<GetReply>> RpcCalls::get(TableId table, std::string_view key,
                                                          uint32_t room, ValueRoom value) {
  return send_get(table, key, room, value);
}

[[gnu::hot]] base::Task<Result<GetReply>> RpcCalls::send_get(TableId table, std::string_view key,
                                                             uint32_t room, ValueRoom value) {
  std::array<std::byte, sizeof(RequestPrefix) + sizeof(GetRequest) + kMaxKeyBytes> message_room;
  MessageWriter request(message_room);
  request.put(session_.prefix());
  request.put(GetRequest{raw(table), static_cast<uint16_t>(key.size()), {}});
  request.put_bytes(key);
  constexpr auto kMethod = static_cast<uint16_t>(Method::kGet);
  // The server leaves out a value that does not fit.
  const uint32_t capacity = sizeof(GetReply) + (value.is_wanted() ? room : 0);
  const auto answer = co_await session_.rpc().call(kMethod, request.message(), capacity);
  if (!answer) co_return Error(answer.error());
  MessageReader reader(answer->bytes());
  const auto reply = reader.get<GetReply>();
  const bool has_value = reply.found == FoundRecord::kWithValue;
  const std::string_view bytes = reader.get_bytes(has_value ? reply.value_bytes : 0);
  if (!reader.complete() || !sane(table, reply, capacity - sizeof(GetReply), session_)) {
    co_return session_.malformed_reply("a get");
  }
  if (has_value) value.take(bytes);
  co_return reply;
}

// ---- scan ----

base::Answer<Result<ScanPage>> RpcCalls::scan(const ScanRequest& request, uint32_t reply_bytes) {
  return send_scan(request, reply_bytes);
}

base::Task<Result<ScanPage>> RpcCalls::send_scan(ScanRequest request, uint32_t reply_bytes) {
  std::array<std::byte, sizeof(RequestPrefix) + sizeof(ScanRequest)> room;
  MessageWriter message(room);
  message.put(session_.prefix());
  message.put(request);
  const auto answer = co_await session_.rpc().call(static_cast<uint16_t>(Method::kScan),
                                                   message.message(), reply_bytes);
  if (!answer) co_return Error(answer.error());
  MessageReader reader(answer->bytes());
  const auto reply = reader.get<ScanReply>();
  ScanPage page;
  page.cursor = reply.cursor;
  page.damaged = reply.damaged;
  for (uint32_t i = 0; i < reply.count && !reader.failed(); ++i) {
    const auto item = reader.get<ScanItem>();
    const std::string_view key = reader.get_bytes(item.key_bytes);
    const std::string_view value = reader.get_bytes(item.value_bytes);
    page.records.add(key, value);
  }
  if (!reader.complete()) co_return session_.malformed_reply("a scan");
  co_return std::move(page);
}

// ---- scan of a range ----

namespace {

std::optional<RangePage> parse_range_page(std::span<const std::byte> answer, LeafRoutes& routes) {
  MessageReader reader(answer);
  const auto reply = reader.get<RangeScanReply>();
  RangePage page;
  page.more = reply.more != 0;
  for (uint32_t i = 0; i < reply.leaves && !reader.failed(); ++i) {
    page.leaves.push_back(reader.get<LeafSeen>());
  }
  for (uint32_t i = 0; i < reply.records && !reader.failed(); ++i) {
    const auto item = reader.get<RangeItem>();
    const std::string_view key = reader.get_bytes(item.key_bytes);
    const std::string_view value = reader.get_bytes(item.value_bytes);
    page.checks.push_back({item.slot, item.version});
    page.records.add(key, value);
  }
  for (uint8_t i = 0; i < reply.routes && !reader.failed(); ++i) {
    const auto route = reader.get<LeafRoute>();
    const std::string_view low = reader.get_bytes(route.low_bytes);
    const std::string_view high = reader.get_bytes(route.high_bytes);
    if (!reader.failed()) routes.learn(route, low, high);
  }
  if (!reader.complete() || (page.more && page.records.empty())) return std::nullopt;
  return page;
}

}  // namespace

base::Answer<Result<RangePage>> RpcCalls::range_scan(const RangeScanRequest& request,
                                                     const KeyRange& range, uint32_t reply_bytes) {
  return send_range_scan(request, range, reply_bytes);
}

base::Task<Result<RangePage>> RpcCalls::send_range_scan(RangeScanRequest request,
                                                        const KeyRange& range,
                                                        uint32_t reply_bytes) {
  // A bound may be one byte longer than a key: the first key behind the longest one.
  constexpr size_t kBounds = 2 * (kMaxKeyBytes + 1);
  std::array<std::byte, sizeof(RequestPrefix) + sizeof(RangeScanRequest) + kBounds> room;
  request.from_bytes = static_cast<uint16_t>(range.from.size());
  request.to_bytes = static_cast<uint16_t>(range.to.size());
  MessageWriter message(room);
  message.put(session_.prefix());
  message.put(request);
  message.put_bytes(range.from);
  message.put_bytes(range.to);
  const auto answer = co_await session_.rpc().call(static_cast<uint16_t>(Method::kRangeScan),
                                                   message.message(), reply_bytes);
  if (!answer) co_return Error(answer.error());
  auto page = parse_range_page(answer->bytes(), session_.leaf_routes());
  if (!page) co_return session_.malformed_reply("a scan of a range");
  co_return std::move(*page);
}

}  // namespace pmstore::internal
