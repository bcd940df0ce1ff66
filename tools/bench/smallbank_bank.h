// The bank as a whole: its tables, its loading, its audit.
#pragma once

#include <atomic>
#include <map>
#include <string>

#include "tools/bench/smallbank.h"
#include "tools/bench/smallbank_journal.h"

namespace pmstore::tools::smallbank {

// UnknownTable when there is none and `create` is false.
Task<Result<Tables>> open_tables(Client& client, bool create);
// How many accounts the bank in the store has; 0: none, or not loaded to the end.
Task<Result<uint64_t>> find_bank(Client& client, Tables tables);
// Makes all accounts and then the record that says so. `loaded` follows it, for a progress line.
Task<Status> load_bank(Client& client, Tables tables, uint64_t accounts,
                       std::atomic<uint64_t>& loaded);

// The result of an audit. It is exact if no transactions run meanwhile.
struct Audit {
  uint64_t accounts = 0;
  uint64_t account_records = 0;
  uint64_t bad_records = 0;  // damaged, doubled, or of no account
  uint64_t ledger_records = 0;
  uint64_t ledger_transactions = 0;
  int64_t initial_cents = 0;
  int64_t ledger_net_cents = 0;  // of all runs so far
  int64_t actual_cents = 0;
  uint64_t expected_writes = 0;
  uint64_t actual_writes = 0;
  uint64_t workers_compared = 0;
  uint64_t workers_different = 0;  // ledger records that are not what was acknowledged
  std::string first_difference;
  // The store's ledger, by key.
  std::map<std::string, LedgerEntry, std::less<>> ledger;

  int64_t expected_cents() const { return initial_cents + ledger_net_cents; }
  bool ok() const {
    return account_records == 2 * accounts && bad_records == 0 &&
           actual_cents == expected_cents() && actual_writes == expected_writes &&
           workers_different == 0;
  }
  // One line that says what is wrong.
  std::string why_not() const;
  // `key` must be `entry`, or may be `other`, and missing when the one it is has no transactions.
  void compare(std::string_view key, const LedgerEntry& entry, const LedgerEntry* other = nullptr);
};

// Reads the whole bank. Errors of Client::scan.
Task<Result<Audit>> audit_bank(Client& client, Tables tables, uint64_t accounts);
// Compares with what a process that was killed had been told.
void compare_journal(Audit& audit, const Journal& journal);

}  // namespace pmstore::tools::smallbank
