// ExpectedReads: look-ups that wait at the server, so that they wait for memory at the same time
// and not one after the other.
//
// A key that is added has its bucket asked for. Before the first look-up, the buckets are looked
// at, and lock word and record of every key are asked for. Nothing depends on any of it: a look-up
// that was not expected is slower, and one that does not come has cost a few lines of cache.
//
// Threads: the server's. Borrows the store. Invariant: count_ <= kMost.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "pmstore/shard/key_index.h"
#include "pmstore/shard/store.h"

namespace pmstore::internal {

class ExpectedReads {
 public:
  // So many keys wait together; the next one begins a new part.
  static constexpr size_t kMost = 16;

  explicit ExpectedReads(const Store& store) : store_(store) {}

  // False: the table is ordered, and nothing is asked for.
  bool add(TableId table, std::string_view key);
  // Before a look-up.
  void ask_for_records() {
    if (count_ > 0) ask();
  }

 private:
  void ask();

  const Store& store_;
  size_t count_ = 0;
  std::array<IndexKey, kMost> keys_{};  // without their bytes, which the clients have
};

}  // namespace pmstore::internal
