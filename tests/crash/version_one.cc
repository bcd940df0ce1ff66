#include "tests/crash/version_one.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "base/checksum.h"
#include "base/random.h"
#include "log/log_layout.h"

namespace pmstore::log {
namespace {

constexpr size_t kCrcEnd = 8;           // of a header and a slot: what the checksum covers begins
constexpr size_t kSlotBytesThen = 632;  // of LogSlot in version 1

std::optional<uint64_t> area_offset(const persist::Pool& pool) {
  const auto& extents = pool.info().extents;
  const auto extent = std::find_if(extents.begin(), extents.end(), [](const persist::Extent& each) {
    return each.kind == persist::ExtentKind::kLog;
  });
  if (extent == extents.end()) return std::nullopt;
  return extent->offset;
}

uint64_t header_at(uint64_t area, uint64_t copy) { return area + copy * kLogAreaCopyStride; }

uint64_t slot_at(uint64_t area, uint64_t slot_copy) {
  return area + kLogSlotsOffset + slot_copy * kLogSlotBytes;
}

template <typename Struct>
Struct read(const persist::Memory& memory, uint64_t offset) {
  Struct found;
  std::memcpy(&found, memory.at(offset), sizeof found);
  return found;
}

template <typename Struct>
uint32_t crc_of(const Struct& what, size_t bytes, uint32_t seed = 0) {
  return base::crc32c(std::as_bytes(std::span(&what, 1)).subspan(kCrcEnd, bytes - kCrcEnd), seed);
}

}  // namespace

void make_version_one(persist::Pool& pool) {
  persist::Memory& memory = pool.memory();
  const uint64_t area = area_offset(pool).value();
  LogAreaHeader header{};
  for (uint64_t copy = 0; copy < 2; ++copy) {
    header = read<LogAreaHeader>(memory, header_at(area, copy));
    header.version = 1;
    header.crc = crc_of(header, sizeof header);
    memory.store(memory.at(header_at(area, copy)), &header, sizeof header);
  }
  for (uint64_t copy = 0; copy < 2 * uint64_t{header.slots}; ++copy) {
    LogSlot slot = read<LogSlot>(memory, slot_at(area, copy));
    if (slot.generation == 0) continue;
    PMSTORE_CHECK(slot.identity == 0, "there was none then");
    slot.crc = crc_of(slot, kSlotBytesThen, static_cast<uint32_t>(base::mix64(header.area)));
    memory.store(memory.at(slot_at(area, copy)), &slot, kSlotBytesThen);
  }
}

Status check_version_one(persist::Pool& pool) {
  const persist::Memory& memory = pool.memory();
  const std::optional<uint64_t> area = area_offset(pool);
  uint64_t slots = 0;
  uint32_t version = 0;  // the highest that it says: a program of an earlier one refuses it
  for (uint64_t copy = 0; area && copy < 2; ++copy) {
    const auto header = read<LogAreaHeader>(memory, header_at(*area, copy));
    if (header.magic != kLogAreaMagic || header.crc != crc_of(header, sizeof header)) continue;
    version = std::max(version, header.version);
    slots = header.slots;
  }
  for (uint64_t copy = 0; copy < 2 * slots; ++copy) {
    const auto slot = read<LogSlot>(memory, slot_at(*area, copy));
    const bool later = (version < 2 && slot.identity != 0) || (version < 3 && slot.extent != 0);
    if (!later) continue;
    return make_error(ErrorCode::kDamaged,
                      fmt::format("an area of version {} has a slot {} that this version does not "
                                  "know",
                                  version, copy / 2));
  }
  return {};
}

}  // namespace pmstore::log
