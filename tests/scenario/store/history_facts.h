// HistoryFacts: a History with numbers for its keys, transactions and versions, and without the
// reads that a transaction made of its own writes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pmstore::scenario {

struct HistoryFacts {
  static constexpr uint32_t kAbsent = 0;  // a version

  struct Access {
    uint32_t key;
    uint32_t version;
    bool scanned;  // not read by its name
  };
  // A transaction that committed, or whose outcome is unknown.
  struct Node {
    uint64_t name;
    uint64_t began;
    uint64_t ended;  // UINT64_MAX: its outcome is unknown
    // It has committed: its caller knows, or one that has committed read what it wrote.
    bool certain;
    // Whether it has happened matters: it is certain, or may have made absent what others saw
    // absent, or one in play has read what it wrote.
    bool in_play;
    std::vector<Access> reads;   // one of each key
    std::vector<Access> writes;  // one of each key

    // nullptr: it has none of this key.
    const Access* write_of(uint32_t key) const {
      for (const Access& write : writes) {
        if (write.key == key) return &write;
      }
      return nullptr;
    }
  };

  std::vector<std::string> keys;  // in order
  std::vector<Node> nodes;
  std::vector<uint32_t> writer_of;  // version -> node; version 0 has none
};

}  // namespace pmstore::scenario
