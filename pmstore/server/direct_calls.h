// DirectCalls: the calls of a client whose server is in its process and on its executor.
//
// The client has a session like any other: a ring, numbers that are executed once, an end by
// fencing. Only what it asks for in transactions and reads comes as a call: no message, and no
// suspension where there is nothing to wait for. So that a client that calls all the time keeps
// nobody from working, some answers come after the executor's next turn.
// Lock discipline cpu only: under rnic it is the client that locks, by atomics of the device.
// Threads: the executor's. Lifetimes: the server may end first; then the session has ended, and
// every call is Disconnected.
#pragma once

#include <cstdint>
#include <memory>

#include "base/task.h"
#include "pmstore/server/store_calls.h"

namespace pmstore::internal {

class ServerCore;
struct Session;

class DirectCalls final : public StoreCalls {
 public:
  // Calls of `session`, which is not fenced (CHECK).
  // `known_through`: as service::LinkOptions; each call tells it.
  DirectCalls(ServerCore& core, std::shared_ptr<Session> session,
              std::shared_ptr<const uint64_t> known_through);

  bool connected() const override;
  // CHECK: the transaction is of this session's client, and its number was not used before.
  base::Answer<Status> commit(const CommitView& request) override;
  // Copies a value of any size.
  base::Answer<Result<GetReply>> get(TableId table, std::string_view key, uint32_t room,
                                     ValueRoom value) override;
  void prefetch(TableId table, std::span<const std::string_view> keys) override;
  base::Answer<Result<ScanPage>> scan(const ScanRequest& request, uint32_t reply_bytes) override;
  // A page takes about a millisecond, and then lets others work. What is more than a page must be
  // validated.
  uint32_t range_page_bytes() const override { return 1024 * 1024; }
  base::Answer<Result<RangePage>> range_scan(const RangeScanRequest& request, const KeyRange& range,
                                             uint32_t reply_bytes) override;

 private:
  // The first steps of each call. An error is its answer.
  Status begin();
  // Whether others must have their turn, after a call that has moved so many bytes.
  bool is_turn_over(size_t bytes);

  // Of one turn: so many writes are about 25 us, with a quick msync each a few hundred. (A slow one
  // is waited for: commit_group.h.)
  static constexpr uint32_t kCallsPerTurn = 16;
  static constexpr size_t kBytesLikeACall = 4096;

  ServerCore& core_;  // not to be used once the session is fenced
  const std::shared_ptr<Session> session_;
  const std::shared_ptr<const uint64_t> known_through_;
  uint32_t since_turn_ = 0;  // calls, and what counts as so many
};

}  // namespace pmstore::internal
