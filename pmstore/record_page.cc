#include "pmstore/record_page.h"

#include <algorithm>

namespace pmstore {

// As large as all blocks before it: so a page of a few records is small, and one of many has few
// blocks.
void RecordPage::add_block(size_t at_least) {
  constexpr size_t kFirstBytes = 1024;
  constexpr size_t kMostBytes = 256 * 1024;
  const size_t bytes = std::max(std::clamp(bytes_, kFirstBytes, kMostBytes), at_least);
  blocks_.push_back(std::make_unique_for_overwrite<char[]>(bytes));
  free_ = blocks_.back().get();
  room_ = bytes;
  bytes_ += bytes;
}

}  // namespace pmstore
