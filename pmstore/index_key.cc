#include "pmstore/index_key.h"

namespace pmstore {
namespace {

// A zero byte of an index key becomes kZero kEscaped, and kZero kEnd ends it: so a key that another
// one begins with comes first, and what follows the end is never compared with another index key.
constexpr char kZero = '\0';
constexpr char kEscaped = '\xff';
constexpr char kEnd = '\x01';

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 2);
  for (const char byte : text) {
    out.push_back(byte);
    if (byte == kZero) out.push_back(kEscaped);
  }
  return out;
}

std::string ended(std::string_view index_key) {
  std::string out = escaped(index_key);
  out.push_back(kZero);
  out.push_back(kEnd);
  return out;
}

}  // namespace

IndexKeyFunction key_of_field(IndexField field) {
  return [field](std::string_view, std::string_view value) -> std::optional<std::string> {
    if (value.size() < uint64_t{field.offset} + field.bytes) return std::nullopt;
    return std::string(value.substr(field.offset, field.bytes));
  };
}

Result<std::optional<IndexTableEntry>> index_entry_of(const IndexDefinition& index,
                                                      std::string_view key,
                                                      std::string_view value) {
  std::optional<std::string> index_key = index.index_key(key, value);
  if (!index_key) return std::optional<IndexTableEntry>();
  if (index.kind == IndexKind::kUnique) {
    PMSTORE_TRY_STATUS(check_key(*index_key));
    return std::optional(IndexTableEntry{std::move(*index_key), std::string(key)});
  }
  std::string entry_key = ended(*index_key).append(key);
  if (entry_key.size() > kMaxKeyBytes) {
    return make_error(ErrorCode::kTooLarge,
                      "index key and key of a record may take " + std::to_string(kMaxKeyBytes - 2) +
                          " bytes together, a zero byte counted twice; these take " +
                          std::to_string(entry_key.size() - 2));
  }
  return std::optional(IndexTableEntry{std::move(entry_key), std::string()});
}

std::optional<IndexedKey> read_index_entry(IndexKind kind, std::string_view entry_key,
                                           std::string_view entry_value) {
  if (kind == IndexKind::kUnique) {
    if (!check_key(entry_key) || !check_key(entry_value)) return std::nullopt;
    return IndexedKey{std::string(entry_key), std::string(entry_value)};
  }
  IndexedKey entry;
  for (size_t i = 0; i < entry_key.size(); ++i) {
    if (entry_key[i] != kZero) {
      entry.index_key.push_back(entry_key[i]);
      continue;
    }
    ++i;
    if (i == entry_key.size()) return std::nullopt;
    if (entry_key[i] == kEscaped) {
      entry.index_key.push_back(kZero);
      continue;
    }
    entry.key = entry_key.substr(i + 1);
    const bool sound = entry_key[i] == kEnd && !entry.key.empty() && entry_value.empty();
    return sound ? std::optional(std::move(entry)) : std::nullopt;
  }
  return std::nullopt;
}

KeyRange index_entries(IndexKind kind, const KeyRange& range) {
  if (kind == IndexKind::kUnique) return range;
  return {escaped(range.from), escaped(range.to)};
}

KeyRange index_entries_of(IndexKind kind, std::string_view index_key) {
  if (kind == IndexKind::kMany) return KeyRange::with_prefix(ended(index_key));
  std::string behind(index_key);
  behind.push_back(kZero);
  return {std::string(index_key), std::move(behind)};
}

}  // namespace pmstore
