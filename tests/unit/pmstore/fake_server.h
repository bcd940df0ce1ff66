// FakeServer: the server's half of the protocol as a test writes it: memory that the test fills, a
// handshake that it may spoil, answers that it gives by hand. On the test's own executor.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/device.h"
#include "pmstore/layout/bucket_layout.h"
#include "pmstore/layout/lock_word.h"
#include "pmstore/layout/protocol.h"
#include "pmstore/layout/record.h"
#include "pmstore/layout/size_class.h"
#include "tests/harness/numbered_client.h"
#include "tests/harness/rpc_test_server.h"

namespace pmstore::testing {

class FakeServer final : public harness::RpcTestServer {
 public:
  // In use, of depth 4, until a test changes that.
  static constexpr size_t kBuckets = 16;
  static constexpr size_t kRecordsBytes = 1u << 20;

  explicit FakeServer(Executor& executor);
  ~FakeServer() override;

  const fabric::Uri& uri() const { return listener_->uri(); }
  fabric::Device& device() { return *device_; }

  // What the next handshake says; regions are filled in.
  service::Welcome welcome;
  ServerHello hello;
  std::function<void(service::Welcome&)> spoil_welcome;
  std::function<void(ServerHello&)> spoil_hello;
  size_t hello_bytes = sizeof(service::Welcome) + sizeof(ServerHello);
  std::vector<std::pair<service::Hello, ClientHello>> hellos;  // that came
  Error refusal{ErrorCode::kConflict, ""};
  bool refuse = false;

  // Every request, in order; then `answer` answers it. Default: the empty reply, and for a commit
  // success.
  struct Request {
    Method method;
    std::vector<std::byte> body;  // behind the prefix
    uint64_t epoch;
  };
  std::vector<Request> requests;
  std::function<void(const Request&, fabric::RpcCall)> answer;
  size_t count(Method method) const;
  // Answers as if `answer` were not set.
  static void answer_plainly(const Request& request, fabric::RpcCall call);

  // The memory that clients read.
  Bucket& bucket_of(TableId table, std::string_view key);
  // Of the first piece, or of the second one: the first so many buckets of it are there.
  static constexpr size_t kBucketsOfSecondPiece = 16;
  Bucket& bucket_at(uint64_t number);
  // Gives clients the second piece when they ask for it.
  void answer_regions(const Request& request, fabric::RpcCall call);
  LockWord& word_of(SlotOffset slot);
  std::span<std::byte> record_at(SlotOffset slot, size_t bytes);
  // A live record in the index, with its word unlocked.
  void place(SlotOffset slot, TableId table, std::string_view key, std::string_view value,
             uint64_t version);
  // The same without an index entry.
  void store(SlotOffset slot, TableId table, std::string_view key, std::string_view value,
             uint64_t version);
  void unindex(TableId table, std::string_view key);

  size_t connections() const { return clients() + handshakes(); }
  void break_connections() { disconnect_all(); }
  void stop_listening() { listener_.reset(); }

  Result<std::vector<std::byte>> on_hello(uint64_t token,
                                          std::span<const std::byte> bytes) override;
  void on_call(fabric::RpcPeer& peer, fabric::RpcCall call) override;

 private:
  struct Memory {
    alignas(256) std::byte records[kRecordsBytes];
    alignas(64) LockWord words[lock_table_bytes(kRecordsBytes) / sizeof(LockWord)];
    alignas(64) Bucket buckets[kBucketsPerPiece];
    alignas(64) Bucket second_piece[kBucketsOfSecondPiece];
  };
  std::unique_ptr<fabric::Device> device_;
  std::unique_ptr<Memory> memory_;
  std::vector<std::unique_ptr<fabric::MemoryRegion>> regions_;
  std::unique_ptr<fabric::Listener> listener_;
};

}  // namespace pmstore::testing
