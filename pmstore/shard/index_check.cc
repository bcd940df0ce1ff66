#include "pmstore/shard/index_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

#include "base/checksum.h"

namespace pmstore::internal {
namespace {

uint64_t hash_of(std::string_view key, std::string_view value) {
  const auto bytes = [](std::string_view text) { return std::as_bytes(std::span(text)); };
  return base::checksum64(bytes(key), base::checksum64(bytes(value), 0));
}

}  // namespace

IndexCheck::IndexCheck(const IndexToCheck& names, TableId base, TableId index)
    : names_(names), base_(base), index_(index) {}

void IndexCheck::see(TableId table, uint64_t offset, std::string_view key, std::string_view value,
                     const Problem& problem) {
  if (table == index_) {
    ++entries_;
    meet(hash_of(key, value), {offset, true});
  }
  if (table != base_) return;
  const auto entry = index_entry_of(names_.definition, key, value);
  if (!entry) {
    return problem(fmt::format("record at offset {}, of table '{}': it cannot be in index '{}': {}",
                               offset, names_.base, names_.index, entry.error().message));
  }
  if (*entry) meet(hash_of((*entry)->key, (*entry)->value), {offset, false});
}

void IndexCheck::meet(uint64_t hash, Waiting seen) {
  const auto [first, last] = waiting_.equal_range(hash);
  const auto other = std::find_if(
      first, last, [&](const auto& waiting) { return waiting.second.entry != seen.entry; });
  if (other != last) {
    waiting_.erase(other);
  } else {
    waiting_.emplace(hash, seen);
  }
}

uint64_t IndexCheck::finish(const Problem& problem) const {
  std::vector<Waiting> alone;
  for (const auto& [hash, waiting] : waiting_) alone.push_back(waiting);
  std::sort(alone.begin(), alone.end(),
            [](const Waiting& a, const Waiting& b) { return a.offset < b.offset; });
  for (const Waiting& each : alone) {
    problem(each.entry ? fmt::format("entry at offset {}, of index '{}': no record of table '{}' "
                                     "has it",
                                     each.offset, names_.index, names_.base)
                       : fmt::format("record at offset {}, of table '{}': index '{}' lacks its "
                                     "entry",
                                     each.offset, names_.base, names_.index));
  }
  return entries_;
}

}  // namespace pmstore::internal
