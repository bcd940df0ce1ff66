// pmstore in this process: an ordered table of a pool in a file.
#pragma once

#include <memory>
#include <vector>

#include "base/executor.h"
#include "persist/pool.h"
#include "pmstore/client.h"
#include "pmstore/server.h"
#include "tests/compare/ordered_engine.h"

namespace pmstore::compare {

class PmstoreEngine {
 public:
  static constexpr std::string_view kName = "pmstore";

  PmstoreEngine(Executor& executor, persist::Domain domain, const std::string& folder,
                uint64_t records)
      : executor_(executor) {
    const std::string path = folder + "/pool";
    persist::PoolOpenOptions open;
    open.assume_domain = domain;
    // A record of 16 + 64 B takes 128 B.
    const uint64_t bytes = (uint64_t{512} << 20) + records * 256;
    must("create", persist::Pool::create(path, bytes, open, false, [](persist::Pool& pool) {
           return format_store(pool, FormatOptions{});
         }));
    ClientOptions options;
    options.assume_domain = domain;
    options.local_discipline = LockDiscipline::kCpu;
    client_ = must("open", executor.run(Client::connect(
                               executor, fabric::Uri{fabric::Scheme::kLocal, path, 0}, options)));
    table_ = must("table", executor.run(client_->create_table("records", TableKind::kOrdered)));
  }
  PmstoreEngine(const PmstoreEngine&) = delete;
  PmstoreEngine& operator=(const PmstoreEngine&) = delete;
  ~PmstoreEngine() { executor_.run(client_->close()); }

  Task<bool> put(std::string_view key, std::string_view value) {
    const Status done = co_await client_->put(table_, key, value);
    if (!done && done.code() != ErrorCode::kConflict) give_up(kName, done.error().to_string());
    co_return done.has_value();
  }
  Task<bool> get(std::string_view key, std::string& value) {
    auto got = co_await client_->get(table_, key);
    if (!got && got.code() != ErrorCode::kNotFound) give_up(kName, got.error().to_string());
    if (got) value = std::move(*got);
    co_return got.has_value();
  }
  Task<uint64_t> scan(std::string_view from, uint64_t most) {
    Transaction transaction = client_->begin();
    TransactionScan scan = transaction.scan(table_, {std::string(from), {}});
    uint64_t seen = 0;
    while (seen < most) {
      const auto page = must("scan", co_await scan.next(static_cast<uint32_t>(most - seen)));
      if (page.empty()) break;
      seen += page.size();
    }
    const Status valid = co_await transaction.commit();
    if (!valid) give_up(kName, valid.error().to_string());
    co_return seen;
  }

 private:
  template <typename T>
  static T must(const char* what, Result<T> result) {
    if (!result) give_up(kName, std::string(what) + ": " + result.error().to_string());
    return std::move(*result);
  }

  Executor& executor_;
  std::unique_ptr<Client> client_;
  TableId table_{};
};

}  // namespace pmstore::compare
