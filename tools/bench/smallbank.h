// SmallBank: the six transactions of the benchmark of the same name (Cahill, Roehm, Fekete, 2008;
// mix and skew as in H-Store and FaRM), over a Transaction of the store.
//
// Amounts are cents. Every account has a record in the tables smallbank_savings and
// smallbank_checking, whose value is the balance and how often it was written. For the audit, every
// worker (run, client, coroutine) has one record in smallbank_ledger, which it writes inside each
// of its transactions that write: how many those were, what they did to the money of the whole
// bank, and how many balances they wrote. So at every committed state, crash or not:
//   sum of balances            == initial money + sum of the ledger's net effects
//   sum of the write counters  == sum of the ledger's counters
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/random.h"
#include "base/result.h"
#include "base/task.h"
#include "pmstore/client.h"

namespace pmstore::tools::smallbank {

enum class Kind : uint8_t {
  kAmalgamate,
  kBalance,
  kDepositChecking,
  kSendPayment,
  kTransactSavings,
  kWriteCheck,
};
inline constexpr size_t kKinds = 6;
std::string_view kind_name(Kind kind);

inline constexpr int64_t kInitialCents = 1'000'000;  // of each of an account's two balances
inline constexpr int64_t kOverdraftPenaltyCents = 100;
inline constexpr uint64_t kMaxAccounts = 99'999'999;  // eight digits

struct Tables {
  TableId savings{};
  TableId checking{};
  TableId ledger{};
  TableId meta{};
};

struct Balance {
  int64_t cents = 0;
  uint64_t writes = 0;
  bool operator==(const Balance&) const = default;
};
struct LedgerEntry {
  uint64_t transactions = 0;
  int64_t net_cents = 0;
  uint64_t writes = 0;
  bool operator==(const LedgerEntry&) const = default;
};

// Text, so that `pmstore kv scan` shows it: "+0000001000000 000000001". nullopt: damaged.
std::string encode(const Balance& balance);
std::optional<Balance> decode_balance(std::string_view text);
std::string encode(const LedgerEntry& entry);
std::optional<LedgerEntry> decode_ledger(std::string_view text);
// Eight digits.
std::string account_key(uint64_t account);

// One request of a customer.
struct Order {
  Kind kind = Kind::kBalance;
  uint64_t first = 0;
  uint64_t second = 0;  // amalgamate, send-payment: another account
  int64_t cents = 0;    // negative for a transact-savings that takes money out
};

// Orders with the standard mix and skew: 25% send-payment, 15% of each other kind; 4% of the
// accounts get 90% of the accesses. At least 2 accounts.
class OrderSource {
 public:
  OrderSource(uint64_t seed, uint64_t accounts);
  Order next();

 private:
  uint64_t account();
  Random random_;
  uint64_t accounts_;
  uint64_t hot_;
};

// The effects of the transaction if it commits.
struct Effect {
  bool rolled_back = false;  // the bank says no: to be aborted, not committed
  int64_t net_cents = 0;     // what it does to the money of the whole bank
  uint64_t writes = 0;       // how many balances it writes; 0: it only reads
};

// Runs `order` inside `transaction`, which is neither committed nor aborted here. Errors of
// Transaction::get, and BadPool when a balance is missing or damaged.
Task<Result<Effect>> execute(Transaction& transaction, Tables tables, Order order);

}  // namespace pmstore::tools::smallbank
