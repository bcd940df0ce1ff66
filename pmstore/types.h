// The small types of the store: identities, versions, outcomes, limits.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "service/identity.h"

namespace pmstore {

inline constexpr size_t kMaxKeyBytes = 512;
inline constexpr size_t kMaxValueBytes = 1u << 20;
// Tables that exist at the same time; a pool below 16 MiB, or of an earlier release, takes 1,008.
inline constexpr size_t kMaxTables = 4080;
// Tables that a pool can ever have: an id is never used again (pmstore/layout/catalog_layout.h).
inline constexpr size_t kMaxTableIds = UINT16_MAX / 2;
inline constexpr size_t kMaxTableNameBytes = 47;

// Success: a record may have this key and a value of this size. InvalidArgument: the key is empty.
// TooLarge: key or value exceed the limits above.
Status check_key(std::string_view key);
Status check_sizes(std::string_view key, std::string_view value);

// InvalidArgument: no new table can have this name, because it is empty, too long, or has control
// characters.
Status check_table_name(std::string_view name);

// Identifies a table of one pool. The pool's catalog assigns it and never reuses it.
enum class TableId : uint16_t {};

// The position of a slot: the byte offset of its record in the records extent, a multiple of 64.
enum class SlotOffset : uint64_t {};
constexpr uint64_t raw(SlotOffset slot) { return static_cast<uint64_t>(slot); }
constexpr uint16_t raw(TableId table) { return static_cast<uint16_t>(table); }
// How a table finds its records: by their keys' hash, or by the keys in order, which can be
// scanned.
enum class TableKind : uint8_t { kHash = 0, kOrdered = 1 };
// The kind is a part of the id, so that whoever has a record or an id knows it.
inline constexpr uint16_t kOrderedTableBit = 1 << 15;
constexpr bool is_ordered(TableId table) { return (raw(table) & kOrderedTableBit) != 0; }
constexpr TableKind kind_of(TableId table) {
  return is_ordered(table) ? TableKind::kOrdered : TableKind::kHash;
}
std::string_view table_kind_name(TableKind kind);  // "hash", "ordered"

// Keys from `from` on and before `to`. An empty `from` is before all keys, an empty `to` behind
// all.
struct KeyRange {
  std::string from;
  std::string to;
  // The keys that begin with `prefix`.
  static KeyRange with_prefix(std::string_view prefix);
};
enum class ScanDirection : uint8_t { kForward, kBackward };

// Tables of both kinds are numbered together, from 1 on.
constexpr uint32_t number_of(TableId table) {
  return static_cast<uint32_t>(raw(table) & ~kOrderedTableBit);
}
constexpr TableId table_id(uint32_t number, TableKind kind) {
  return static_cast<TableId>(number | (kind == TableKind::kOrdered ? kOrderedTableBit : 0));
}

// Identifies a transaction: its client, and that client's number for it. Never used twice.
struct TxId {
  ClientId client;
  uint64_t sequence = 0;
  auto operator<=>(const TxId&) const = default;
  // "0123456789abcdef0123456789abcdef-42-dd5a"; parse_tx_id() reads it back. The last four digits
  // are a checksum of the others.
  std::string to_string() const;
};
// InvalidArgument: `text` is not the output of TxId::to_string().
Result<TxId> parse_tx_id(std::string_view text);

enum class Outcome : uint8_t {
  kCommitted = 1,
  kAborted = 2,  // it has no effect and never will have one
};

// Which side changes lock words. Never both, because RNIC and CPU atomics are not coherent on most
// devices. The server decides, and the handshake tells the client.
enum class LockDiscipline : uint8_t {
  kCpu = 1,   // only the server's CPU; clients may READ them
  kRnic = 2,  // only RNIC atomics, the server's own through a loopback queue pair
};
std::string_view discipline_name(LockDiscipline discipline);  // "cpu", "rnic"

// How a client reads a record whose place is not in its location cache.
enum class MissPath : uint8_t {
  kAuto,      // kRpc where a READ is work for a CPU of the server (tcp, shm), else kOneSided
  kOneSided,  // READs of the hash bucket, then of the record: two round trips, no server CPU
  kRpc,       // one request, whose answer has the value and the place
};
std::string_view miss_path_name(MissPath path);  // "auto", "one-sided", "rpc"
// InvalidArgument: `text` is not one of these names.
Result<MissPath> parse_miss_path(std::string_view text);

}  // namespace pmstore
