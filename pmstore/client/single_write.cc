#include "pmstore/client/single_write.h"

#include "pmstore/shard/commit_view.h"

namespace pmstore::internal {
namespace {

// Under lock discipline rnic a write of a record that was not read loses only races; it may simply
// try again, but not for ever.
constexpr unsigned kRnicAttempts = 64;
constexpr uint64_t kMostPauseNs = 256'000;

base::Task<Status> write_one_rnic(Client& client, WriteKind kind, TableId table,
                                  std::string_view key, std::string_view value) {
  Executor& executor = client.executor();
  uint64_t pause_ns = 1000;
  for (unsigned attempt = 1;; ++attempt) {
    Transaction transaction = client.begin();
    switch (kind) {
      case WriteKind::kPut: transaction.put(table, key, value); break;
      case WriteKind::kInsert: transaction.insert(table, key, value); break;
      case WriteKind::kErase: transaction.erase(table, key); break;
    }
    Status done = co_await transaction.commit();
    if (done || done.code() != ErrorCode::kConflict || attempt == kRnicAttempts) {
      co_return std::move(done);
    }
    co_await executor.sleep_for(executor.random().below(pause_ns));
    if (pause_ns < kMostPauseNs) pause_ns *= 2;
  }
}

}  // namespace

[[gnu::hot]] base::Task<Status> write_one(Client& client, Connector& connector,
                                          TransactionNumbers& numbers, WriteKind kind,
                                          TableId table, std::string_view key,
                                          std::string_view value) {
  if (Status sizes = check_sizes(key, value); !sizes) co_return std::move(sizes.error());
  SessionRef session = connector.session();
  if (!connector.may_begin()) {
    PMSTORE_CO_TRY(session, co_await connector.connected());
  }
  if (session->discipline() == LockDiscipline::kRnic) {
    co_return co_await write_one_rnic(client, kind, table, key, value);
  }
  const TxId tx = numbers.take();
  TransactionNumbers::Running is_running(numbers, tx.sequence);
  const CommitWrite write{kind, table, 0, 0, key, value};
  const CommitView request{tx.client, tx.sequence, {}, {}, CommitWrites(std::span(&write, 1)), 1};
  Status committed = co_await session->calls().commit(request);
  is_running.settled();
  co_return numbers.commit_status(tx, *session, std::move(committed));
}

}  // namespace pmstore::internal
