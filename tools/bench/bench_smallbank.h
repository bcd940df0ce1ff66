// The SmallBank benchmark and its report.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/bench_run.h"
#include "tools/bench/smallbank_bank.h"
#include "tools/bench/smallbank_worker.h"

namespace pmstore::tools {

inline constexpr uint64_t kDefaultAccounts = 10'000;

struct SmallbankOptions {
  BenchOptions bench;
  uint64_t accounts = 0;  // 0: those that are there, else kDefaultAccounts
  bool no_load = false;
  bool audit_only = false;
  std::string journal;
};

class SmallbankBench final : public Bench {
 public:
  explicit SmallbankBench(const SmallbankOptions& options);
  Task<Status> prepare(Client& client) override;
  Task<Status> work(Client& client, uint32_t thread, uint32_t coroutine,
                    BenchControl& control) override;
  Task<Status> finish(Client& client) override;
  std::string progress(double seconds) override;

  uint64_t accounts() const { return accounts_; }
  uint64_t run_id() const { return run_id_; }
  const std::vector<smallbank::Tally>& tallies() const { return tallies_; }
  const smallbank::Audit& audit() const { return audit_; }
  // The bytes that the server made durable by msync during the work; nothing if the server was
  // restarted meanwhile, or is a modelled one.
  std::optional<uint64_t> server_msyncs() const;

 private:
  // Errors of Journal::create and Journal::open.
  // What a server says of itself.
  struct ServerCount {
    uint64_t epoch;  // counts its starts
    uint64_t msyncs;
  };
  Task<std::optional<ServerCount>> count_server(Client& client) const;
  Task<Status> find_or_load(Client& client);
  Status open_journal();
  const SmallbankOptions& options_;
  uint64_t run_id_;
  smallbank::Tables tables_;
  uint64_t accounts_ = 0;
  std::atomic<uint64_t> loaded_{0};
  std::atomic<bool> auditing_{false};
  std::unique_ptr<smallbank::Journal> journal_;
  std::vector<smallbank::Tally> tallies_;         // one a thread
  std::vector<smallbank::LedgerEntry> expected_;  // one a worker
  smallbank::Audit audit_;
  std::optional<ServerCount> before_;
  std::optional<ServerCount> after_;
};

// The report as it is printed.
class SmallbankReport {
 public:
  SmallbankReport(const SmallbankOptions& options, const SmallbankBench& bench,
                  const BenchRun& run);
  bool ok() const { return audit_.ok() && mismatches_ == 0; }
  std::string why_not() const { return mismatches_ > 0 ? first_mismatch_ : audit_.why_not(); }
  nlohmann::ordered_json json() const;
  std::string text() const;

 private:
  nlohmann::ordered_json audit_json() const;
  std::string table_text() const;

  const SmallbankOptions& options_;
  const BenchRun& run_;
  const smallbank::Audit& audit_;
  uint64_t accounts_;
  uint64_t run_id_;
  std::optional<uint64_t> server_msyncs_;
  std::array<smallbank::Tally::OfKind, smallbank::kKinds> kinds_;
  Histogram all_ns_;
  uint64_t rolled_back_ = 0;
  uint64_t conflicts_ = 0;
  uint64_t unknown_committed_ = 0;
  uint64_t unknown_aborted_ = 0;
  uint64_t reconnected_tries_ = 0;
  uint64_t mismatches_ = 0;
  std::string first_mismatch_;
};

}  // namespace pmstore::tools
