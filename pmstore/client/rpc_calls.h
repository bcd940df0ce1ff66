// RpcCalls: a session's StoreCalls as messages to the server.
//
// Threads: the executor's. Lifetimes: the session outlives it, and every answer that is awaited.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/task.h"
#include "pmstore/server/store_calls.h"

namespace pmstore::internal {

class ClientSession;

class RpcCalls final : public StoreCalls {
 public:
  // The session's RPC client is attached.
  explicit RpcCalls(ClientSession& session);

  bool connected() const override;
  // One request. TooLarge: it does not fit in a message, and nothing happened.
  base::Answer<Status> commit(const CommitView& request) override;
  // One request. An answer that does not decode is Protocol, and the session is dropped.
  base::Answer<Result<GetReply>> get(TableId table, std::string_view key, uint32_t room,
                                     ValueRoom value) override;
  // The same.
  base::Answer<Result<ScanPage>> scan(const ScanRequest& request, uint32_t reply_bytes) override;
  uint32_t range_page_bytes() const override { return 256 * 1024; }
  base::Answer<Result<RangePage>> range_scan(const RangeScanRequest& request, const KeyRange& range,
                                             uint32_t reply_bytes) override;

 private:
  Result<std::span<const std::byte>> lay_out(const CommitView& request);
  base::Task<Status> send_commit(std::span<const std::byte> message, bool writes);
  base::Task<Result<GetReply>> send_get(TableId table, std::string_view key, uint32_t room,
                                        ValueRoom value);
  base::Task<Result<ScanPage>> send_scan(ScanRequest request, uint32_t reply_bytes);
  base::Task<Result<RangePage>> send_range_scan(RangeScanRequest request, const KeyRange& range,
                                                uint32_t reply_bytes);

  ClientSession& session_;
  // Memory to lay out a commit. An RPC call copies its request before it suspends, so one is enough
  // for all coroutines.
  const size_t scratch_bytes_;
  const std::unique_ptr<std::byte[]> scratch_;
};

}  // namespace pmstore::internal
