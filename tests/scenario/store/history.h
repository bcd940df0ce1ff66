// History: what concurrent transactions read and wrote, and whether an order of them explains it.
//
// Every register holds the name of the transaction that wrote it last, and each transaction reads
// what it overwrites. So the writes of a register form a chain, and the histories are strictly
// serializable exactly when the transactions, ordered by "read from", "overwrites", "read before
// it was overwritten" and "ended before the other began", have no cycle. (The dependency graph of
// Adya, "Weak Consistency", with real-time edges.)
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace pmstore::scenario {

class History {
 public:
  struct Transaction {
    uint64_t name;  // not 0: that is who wrote the initial values
    uint64_t began;
    uint64_t ended;
    std::map<std::string, uint64_t> reads;  // register -> who had written it
    std::vector<std::string> writes;        // each is in `reads` as well
  };

  // Only of committed transactions.
  void add(Transaction transaction) { transactions_.push_back(std::move(transaction)); }
  size_t size() const { return transactions_.size(); }

  // Nothing when an order exists; else what is wrong.
  std::optional<std::string> check() const;

 private:
  struct Graph;
  std::vector<Transaction> transactions_;
};

}  // namespace pmstore::scenario
