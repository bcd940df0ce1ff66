// IndexCheck: compares an index table with its base table, record by record.
//
// A pool is read once, in the order of its slots. So what was seen on one side waits for its
// counterpart on the other: about 56 B of memory for each record that waits. Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "pmstore/check.h"
#include "pmstore/index_key.h"
#include "pmstore/types.h"

namespace pmstore::internal {

class IndexCheck {
 public:
  using Problem = std::function<void(std::string)>;

  // `names` outlives it.
  IndexCheck(const IndexToCheck& names, TableId base, TableId index);

  bool concerns(TableId table) const { return table == base_ || table == index_; }
  // A live record of the pool. Those of other tables are ignored.
  void see(TableId table, uint64_t offset, std::string_view key, std::string_view value,
           const Problem& problem);
  // Behind the last record: tells what has no counterpart. Gives the number of entries.
  uint64_t finish(const Problem& problem) const;

 private:
  struct Waiting {
    uint64_t offset;
    bool entry;  // else a record of the base table
  };
  // By the 64-bit hash of the whole entry, which stands for it.
  void meet(uint64_t hash, Waiting seen);

  const IndexToCheck& names_;
  const TableId base_;
  const TableId index_;
  std::unordered_multimap<uint64_t, Waiting> waiting_;
  uint64_t entries_ = 0;
};

}  // namespace pmstore::internal
