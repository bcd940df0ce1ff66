// A server's store that starts on what a power cut has left, without any connection.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "persist/pool.h"
#include "pmstore/shard/store.h"
#include "tests/crash/recorded_run.h"

namespace pmstore::crash {

inline constexpr uint64_t kStoreClient = 77;
inline constexpr char kStoreTable[] = "t";

using StoreContent = std::map<std::string, std::string>;
uint64_t content_digest(const StoreContent& content);
std::string content_text(const StoreContent& content);

// One write of a transaction; no value erases.
struct KeyWrite {
  std::string key;
  std::optional<std::string> value;
};

// The transaction by one call, as the server does it for a client.
Status commit_writes(internal::Store& store, ClientId client, TableId table, uint64_t sequence,
                     const std::vector<KeyWrite>& writes);
// Of these keys.
Result<StoreContent> read_store(const internal::Store& store, TableId table,
                                const std::vector<std::string>& keys);

// The content of the store after each transaction.
struct StoreHistory {
  struct Transaction {
    TxId id;
    bool committed;
    uint64_t digest_after;
    uint64_t epoch;                                     // of the server
    std::vector<std::pair<uint64_t, uint64_t>> places;  // slot and version of what it wrote
  };
  // The highest version that a slot had up to transaction `last`.
  uint64_t version_at(uint64_t slot, size_t last) const;
  TableId table{};
  std::vector<TableId> earlier_tables;    // of the same name, dropped
  std::vector<std::string> keys;          // all that there ever were
  bool leaves_checkpoints = false;        // each orderly stop does
  std::vector<Transaction> transactions;  // the first is none: the empty store
};

// Recovery: check_store() must find the pool sound. Then the store opens. It must count no damaged
// records, and must have nothing to put in place if the catalog says that it was closed in order;
// then it must use the checkpoint, where each stop leaves one.
// The outcome of a transaction whose effect is there must not be "aborted", that of a later one not
// "committed". Work: one more transaction; the slot of its new record must have a version that it
// never had.
class RestartedStore final : public Restarted {
 public:
  // `history` is borrowed.
  static Result<std::unique_ptr<Restarted>> open(std::span<std::byte> memory,
                                                 persist::Domain domain,
                                                 const StoreHistory& history);
  std::vector<persist::Memory*> memories() override { return {&pool_->memory()}; }
  Result<uint64_t> recover() override;
  uint64_t start_number() const override { return store_ ? store_->catalog().header().epoch : 0; }
  Result<uint64_t> work() override;

 private:
  explicit RestartedStore(const StoreHistory& history) : history_(history) {}
  Status check_pool();
  Status check_outcomes(uint64_t digest);
  bool outcomes_fit(size_t last) const;

  const StoreHistory& history_;
  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<internal::Store> store_;
  TableId table_{};  // the one that is there now
  StoreContent content_;
  size_t last_ = 0;  // the transaction after which this is the content
};

}  // namespace pmstore::crash
