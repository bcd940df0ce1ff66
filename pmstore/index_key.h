// Secondary indexes: what an index table holds for each record of its base table.
//
// A definition has a key function, which says by what a record is found: it gives the record's
// index key, or nothing when the record is not in the index. It is a pure function: the same record
// always has the same index key. An index table is ordered, and has one entry for each record that
// has an index key. docs/secondary-indexes.md has the format.
// Threads: any one at a time, as far as the key function allows it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "pmstore/types.h"

namespace pmstore {

enum class IndexKind : uint8_t {
  kMany,    // several records may have the same index key
  kUnique,  // at most one has: another one is AlreadyExists
};

using IndexKeyFunction =
    std::function<std::optional<std::string>(std::string_view key, std::string_view value)>;

// So many bytes of a record's value, from an offset on. Values that are too short are not in the
// index.
struct IndexField {
  uint32_t offset = 0;
  uint32_t bytes = 0;
};
IndexKeyFunction key_of_field(IndexField field);

struct IndexDefinition {
  IndexKind kind = IndexKind::kMany;
  IndexKeyFunction index_key;
};

struct IndexTableEntry {
  std::string key;    // of the entry, in the index table
  std::string value;  // kUnique: the record's key; else empty
  bool operator==(const IndexTableEntry&) const = default;
};

// The entry of a record; nullopt: it has none. InvalidArgument: a unique index key is empty.
// TooLarge: the entry's key would exceed kMaxKeyBytes, because kMany takes the record's key, too.
Result<std::optional<IndexTableEntry>> index_entry_of(const IndexDefinition& index,
                                                      std::string_view key, std::string_view value);

// What an entry says: the index key and the record's key. nullopt: it is no entry of such an index.
struct IndexedKey {
  std::string index_key;
  std::string key;
};
std::optional<IndexedKey> read_index_entry(IndexKind kind, std::string_view entry_key,
                                           std::string_view entry_value);

// The entries of all index keys in `range`, of one index key, and as ranges of an index table.
KeyRange index_entries(IndexKind kind, const KeyRange& range);
KeyRange index_entries_of(IndexKind kind, std::string_view index_key);

}  // namespace pmstore
