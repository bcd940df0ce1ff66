// What the logs of a LogStore hold, taken straight from the memory; for tests, without GoogleTest.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "log/log_layout.h"
#include "log/log_store.h"

namespace pmstore::log {

struct TestEntry {
  uint64_t index;
  std::string payload;
  bool operator==(const TestEntry&) const = default;
};

// In the memory of the log's extent.
inline std::byte* data_in_store(const LogStore& store, uint64_t id, uint64_t lsn) {
  const auto where = store.where(id).value();
  const uint64_t data_bytes = where.region_bytes - kRingHeaderBytes;
  return store.memory_of(where.extent).data() + where.region_offset + kRingHeaderBytes +
         lsn % data_bytes;
}

// What a reader sees of a log: the whole entries between start and published tail; damaged ranges
// are skipped. Damaged where a reader would be stuck.
inline Result<std::vector<TestEntry>> read_entries(const LogStore& store, std::string_view name) {
  std::vector<TestEntry> found;
  PMSTORE_TRY(const LogInfo info, store.find(name));
  if (is_lost(info)) return found;
  PMSTORE_TRY(const LogStore::Where where, store.where(info.id));
  for (uint64_t lsn = info.start_lsn; lsn < info.tail_lsn;) {
    bool skipped = false;
    for (const DamagedRange& range : info.damaged) {
      if (range.from_lsn != lsn) continue;
      lsn = range.to_lsn;
      skipped = true;
    }
    if (skipped) continue;
    EntryHeader header;
    const std::byte* const from = data_in_store(store, info.id, lsn);
    std::memcpy(&header, from, sizeof header);
    const bool pad = header.magic == kPadMagic;
    const uint64_t room = info.bytes - lsn % info.bytes - sizeof header;
    const bool fits =
        pad || (header.payload_bytes >= sizeof(LogEntryPrefix) && header.payload_bytes <= room);
    const std::span<const std::byte> payload(from + sizeof header,
                                             pad || !fits ? 0 : header.payload_bytes);
    if (header.lsn != lsn || !fits || header.crc != entry_crc(header, payload, where.salt)) {
      return make_error(ErrorCode::kDamaged, fmt::format("{}: no entry at lsn {} of {} to {}", name,
                                                         lsn, info.start_lsn, info.tail_lsn));
    }
    if (!pad) {
      const auto text = payload.subspan(sizeof(LogEntryPrefix));
      found.push_back(
          {header.sequence, std::string(reinterpret_cast<const char*>(text.data()), text.size())});
    }
    lsn += entry_bytes(header);
  }
  return found;
}

}  // namespace pmstore::log
