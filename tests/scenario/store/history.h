// History: what concurrent transactions read, scanned and wrote, and whether an order of them
// explains it. So it judges strict serializability.
//
// Each transaction has a name, and each value that it puts names it, so a reader knows whose value
// it has read. Absence has no name: a reader does not know who erased a key, and puts may be blind.
// So the order in which a key was written is not known, and is searched for:
//
//   1. Single transactions are checked: own writes that are hidden, a key that changed between two
//      reads, values of transactions that were aborted or never were.
//   2. history_order.h searches an order in which every transaction reads what those before it
//      have left, and none is before one that had ended when it began.
//   3. The order that was found is replayed, one transaction after the other, by code that shares
//      nothing with the search. Only a replay without a difference makes a history good. So what
//      the search may miss makes a good history bad, never a bad one good.
//   4. If there is none, history_cycle.h looks for transactions each of which must be before the
//      next (Adya, "Weak Consistency": write-read, write-write, read-write, also of a scan that
//      did not see a key; and real time), to say in words what is wrong.
//
// A transaction whose outcome is unknown may have happened at any time after it began, or never.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace pmstore::scenario {

class History {
 public:
  static constexpr uint64_t kAbsent = 0;  // the writer of a key that is not there
  enum class Outcome : uint8_t { kCommitted, kAborted, kUnknown };
  using Seen = std::map<std::string, uint64_t>;  // key -> who has written it

  // What a transaction did, step by step, in its order.
  class Transaction {
   public:
    // `name` is not kAbsent, and unique in the history.
    Transaction(uint64_t name, uint64_t began) : name_(name), began_(began) {}

    void read(std::string key, uint64_t writer);
    // All keys from `from` on and before `to` that are not in `seen` were absent.
    void scanned(std::string from, std::string to, Seen seen);
    void put(std::string key);
    void erase(std::string key);
    // When the transaction's caller knew its outcome.
    void end(Outcome outcome, uint64_t ended);

    uint64_t name() const { return name_; }

   private:
    friend class History;
    friend class HistoryReplay;
    enum class Kind : uint8_t { kRead, kScan, kPut, kErase };
    struct Step {
      Kind kind;
      std::string key;  // of a scan: the first one
      std::string to;
      uint64_t writer;
      Seen seen;
    };
    uint64_t name_;
    uint64_t began_;
    uint64_t ended_ = UINT64_MAX;
    Outcome outcome_ = Outcome::kUnknown;
    std::vector<Step> steps_;
  };

  struct Counts {
    size_t transactions = 0;
    size_t committed = 0;
    size_t aborted = 0;
    size_t unknown = 0;
    size_t with_scan = 0;
    // Others wrote, during the transaction, keys of a range that it scanned.
    size_t scan_written_into = 0;

    Counts& operator+=(const Counts& other);
  };

  // Only what has ended, or what never will.
  void add(Transaction transaction) { transactions_.push_back(std::move(transaction)); }
  Counts counts() const;

  // Nothing when an order exists; else what is wrong.
  std::optional<std::string> check() const;

 private:
  class Preparation;
  std::vector<Transaction> transactions_;
};

}  // namespace pmstore::scenario
