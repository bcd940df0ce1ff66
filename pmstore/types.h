// The small types of the store: identities, versions, outcomes, limits.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pmstore {

inline constexpr size_t kMaxKeyBytes = 255;
inline constexpr size_t kMaxValueBytes = 1u << 20;
// At the same time; a pool below 16 MiB, or of an earlier release, has room for 1,008.
inline constexpr size_t kMaxTables = 4080;
// In a pool's life: a table's id is never used again (pmstore/layout/catalog_layout.h).
inline constexpr size_t kMaxTableIds = UINT16_MAX;
inline constexpr size_t kMaxTableNameBytes = 47;

// What no record can have: InvalidArgument (an empty key), TooLarge.
Status check_key(std::string_view key);
Status check_sizes(std::string_view key, std::string_view value);

// InvalidArgument for a name that no new table can have: of no or too many bytes, or with control
// characters.
Status check_table_name(std::string_view name);

// A table of one pool. Given by the pool's catalog, never reused.
enum class TableId : uint16_t {};

// A slot's place: byte offset of the record in the records extent, a multiple of 64.
enum class SlotOffset : uint64_t {};
constexpr uint64_t raw(SlotOffset slot) { return static_cast<uint64_t>(slot); }
constexpr uint16_t raw(TableId table) { return static_cast<uint16_t>(table); }

// A transaction's name: which client, and that client's own number for it. Never used twice.
struct TxId {
  uint64_t client = 0;
  uint64_t sequence = 0;
  auto operator<=>(const TxId&) const = default;
  // "0123456789abcdef-42"; parse_tx_id() reads it back.
  std::string to_string() const;
};
// InvalidArgument when `text` is not such a name.
Result<TxId> parse_tx_id(std::string_view text);

enum class Outcome : uint8_t {
  kCommitted = 1,
  kAborted = 2,  // did not happen and never will
};

// Who changes lock words (never both, because RNIC and CPU atomics are not coherent on most
// devices).
enum class LockDiscipline : uint8_t {
  kCpu = 1,   // only the server's CPU; clients may READ them
  kRnic = 2,  // only RNIC atomics, the server's own through a loopback queue pair
};
std::string_view discipline_name(LockDiscipline discipline);  // "cpu", "rnic"

}  // namespace pmstore
