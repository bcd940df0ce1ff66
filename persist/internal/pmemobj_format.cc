#include "persist/internal/pmemobj_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/size_text.h"
#include "persist/internal/pool_bytes.h"
#include "persist/pool_layout.h"

namespace pmstore::persist::internal {
namespace {

// struct pool_hdr, at 0.
constexpr size_t kMajorOffset = 8;
constexpr size_t kIncompatOffset = 16;
constexpr uint32_t kMajor = 6;
constexpr uint32_t kChecksum2k = 2;     // POOL_FEAT_CKSUM_2K: only the first 2 KiB are summed
constexpr uint32_t kShutdownState = 4;  // POOL_FEAT_SDS
constexpr size_t kHeader2kBytes = 2048;
constexpr size_t kHeaderChecksumOffset = kPmemobjHeaderBytes - 8;

// struct pmemobjpool, behind it: the persistent descriptor, then fields that are not summed.
constexpr size_t kDescriptorOffset = kPmemobjHeaderBytes;
constexpr size_t kDescriptorBytes = 2048;
constexpr size_t kLayoutNameBytes = 1024;
constexpr size_t kLanesOffsetOffset = kDescriptorOffset + kLayoutNameBytes;
constexpr size_t kLaneCountOffset = kLanesOffsetOffset + 8;
constexpr size_t kHeapOffsetOffset = kLanesOffsetOffset + 16;
constexpr size_t kDescriptorChecksum = kDescriptorBytes - 8;
constexpr size_t kRootOffsetOffset = kDescriptorOffset + kDescriptorBytes;
constexpr size_t kRootSizeOffset = kRootOffsetOffset + 16;
constexpr size_t kHeapSizeOffset = kRootOffsetOffset + 32;
constexpr size_t kFixedBytes = 2 * 4096;

// struct lane_layout: two redo logs and an undo log. Each begins with struct ulog: a checksum, the
// place of the next part of it, and six other words (ulog.h, lane.h). A redo log counts while its
// checksum is right, and its checksum is cleared when it is done; an undo log counts when it has an
// entry.
constexpr uint64_t kLaneBytes = 3072;
constexpr uint64_t kLogHeaderBytes = 64;
constexpr uint64_t kNextLogOffset = 8;
constexpr uint64_t kSecondRedoLog = kLogHeaderBytes + 192;
constexpr uint64_t kUndoLog = kSecondRedoLog + kLogHeaderBytes + 640;

// struct heap_layout: a header, then zones, each with a header, its chunks' headers, and the
// chunks.
constexpr uint64_t kHeapHeaderBytes = 1024;
constexpr char kHeapSignature[16] = "MEMORY_HEAP_HDR";
constexpr size_t kHeapChecksum = kHeapHeaderBytes - 8;
constexpr uint64_t kMaxChunks = 65528;
constexpr uint64_t kZoneFixedBytes = 64;
constexpr uint64_t kChunkHeaderBytes = 8;
constexpr uint64_t kZoneHeaderBytes = kZoneFixedBytes + kMaxChunks * kChunkHeaderBytes;
constexpr uint64_t kZoneMaxBytes = kZoneHeaderBytes + kMaxChunks * kChunkBytes;
constexpr uint64_t kZoneMinBytes = kZoneHeaderBytes + kChunkBytes;
constexpr uint32_t kZoneMagic = 0xC3F0A2D2;
// An object that is larger than a chunk has a "compact" header of 16 bytes.
constexpr uint64_t kCompactObjects = 1;
// Runs of libpmemobj's own allocation classes have at most RUN_SIZE_IDX_CAP (16) chunks.
constexpr uint64_t kMaxRunChunks = 64;

Error not_ours(std::string_view name, std::string_view what) {
  return make_error(ErrorCode::kBadPool,
                    fmt::format("{}: not a pool: {}: give the path of a pool", name, what));
}

bool sum_matches(std::span<const std::byte> bytes, size_t checksum_offset, size_t covered) {
  return fletcher64(bytes, checksum_offset, covered) == read_as<uint64_t>(bytes, checksum_offset);
}

bool lanes_lie_before(uint64_t lanes_at, uint64_t lanes, uint64_t heap_offset) {
  return lanes_at >= kFixedBytes && lanes_at <= heap_offset &&
         lanes <= (heap_offset - lanes_at) / kLaneBytes;
}

Status check_layout_name(std::span<const std::byte> file, std::string_view name) {
  const auto* text = reinterpret_cast<const char*>(file.data() + kDescriptorOffset);
  const std::string layout(text, strnlen(text, 64));
  if (layout == kPoolLayoutName) return {};
  const bool printable = std::all_of(layout.begin(), layout.end(),
                                     [](unsigned char c) { return std::isprint(c) != 0; });
  if (printable && layout.starts_with(kPoolLayoutPrefix)) {
    return make_error(
        ErrorCode::kVersionMismatch,
        fmt::format("{}: pool format {}, this program reads {}: use the pmstore that made it", name,
                    layout.substr(sizeof kPoolLayoutPrefix - 1), kPoolFormatVersion));
  }
  return not_ours(name, fmt::format("a libpmemobj pool of another program (layout \"{}\")",
                                    printable ? layout : "?"));
}

Status check_headers(std::span<const std::byte> file, std::string_view name) {
  const auto incompat = read_as<uint32_t>(file, kIncompatOffset);
  const size_t covered = (incompat & kChecksum2k) ? kHeader2kBytes : kHeaderChecksumOffset;
  if (!sum_matches(file.first(kPmemobjHeaderBytes), kHeaderChecksumOffset, covered)) {
    return bad_pool(name, "damaged header (checksum)");
  }
  if (const auto major = read_as<uint32_t>(file, kMajorOffset); major != kMajor) {
    return make_error(
        ErrorCode::kVersionMismatch,
        fmt::format("{}: libpmemobj format {}, this program reads {}: convert it with "
                    "pmdk-convert",
                    name, major, kMajor));
  }
  // The checksum before the layout's name: a damaged name is not another program's pool.
  if (!sum_matches(file.subspan(kDescriptorOffset, kDescriptorBytes), kDescriptorChecksum,
                   kDescriptorBytes)) {
    return bad_pool(name, "damaged header (descriptor checksum)");
  }
  return check_layout_name(file, name);
}

}  // namespace

uint64_t fletcher64(std::span<const std::byte> bytes, size_t skip_begin, size_t covered) {
  uint32_t low = 0;
  uint32_t high = 0;
  for (size_t at = 0; at + 4 <= bytes.size(); at += 4) {
    const bool as_zero = (at >= skip_begin && at < skip_begin + 8) || at >= covered;
    if (!as_zero) low += read_as<uint32_t>(bytes, at);
    high += low;
  }
  return uint64_t{high} << 32 | low;
}

Result<PmemobjFacts> check_pmemobj(std::span<const std::byte> file, std::string_view name) {
  if (file.size() < sizeof kPmemobjSignature ||
      std::memcmp(file.data(), kPmemobjSignature, sizeof kPmemobjSignature) != 0) {
    return not_ours(name, "it does not begin like one");
  }
  if (file.size() < kFixedBytes) {
    return bad_pool(name, fmt::format("truncated: only {} are left", base::size_text(file.size())));
  }
  PMSTORE_TRY_STATUS(check_headers(file, name));

  PmemobjFacts facts{};
  facts.heap_offset = read_as<uint64_t>(file, kHeapOffsetOffset);
  facts.root_offset = read_as<uint64_t>(file, kRootOffsetOffset);
  const auto heap_bytes = read_as<uint64_t>(file, kHeapSizeOffset);
  if (facts.heap_offset < kFixedBytes || facts.heap_offset > UINT64_MAX / 4 ||
      heap_bytes > UINT64_MAX / 4) {
    return bad_pool(name, "damaged header (heap size)");
  }
  if (!lanes_lie_before(read_as<uint64_t>(file, kLanesOffsetOffset),
                        read_as<uint64_t>(file, kLaneCountOffset), facts.heap_offset)) {
    return bad_pool(name, "damaged header (lanes)");
  }
  facts.pool_bytes = facts.heap_offset + heap_bytes;
  if (facts.pool_bytes > file.size()) {
    return bad_pool(name, fmt::format("truncated: {} of {} are left", base::size_text(file.size()),
                                      base::size_text(facts.pool_bytes)));
  }
  if (heap_bytes < kHeapHeaderBytes + kZoneMinBytes ||
      std::memcmp(file.data() + facts.heap_offset, kHeapSignature, sizeof kHeapSignature) != 0 ||
      !sum_matches(file.subspan(facts.heap_offset, kHeapHeaderBytes), kHeapChecksum,
                   kHeapHeaderBytes)) {
    return bad_pool(name, "damaged header (heap)");
  }
  if (facts.root_offset < facts.heap_offset || facts.root_offset > facts.pool_bytes ||
      read_as<uint64_t>(file, kRootSizeOffset) < kPoolLayoutBytes) {
    return bad_pool(name, "damaged catalog header (no root object; was its creation interrupted?)");
  }
  return facts;
}

namespace {

bool plausible(ChunkType type, uint64_t length, uint64_t left) {
  if (length == 0 || length > left) return false;
  return type == ChunkType::kFree || type == ChunkType::kUsed ||
         (type == ChunkType::kRun && length <= kMaxRunChunks);
}

// Calls zone(header offset), then group(ChunkGroup) for each group in the zone, for all zones.
template <typename Zone, typename Group>
void walk_heap(std::span<const std::byte> pool, const PmemobjFacts& facts, Zone&& zone,
               Group&& group) {
  uint64_t zone_at = facts.heap_offset + kHeapHeaderBytes;
  while (facts.pool_bytes - zone_at >= kZoneMinBytes) {
    const uint64_t zone_bytes = std::min(facts.pool_bytes - zone_at, kZoneMaxBytes);
    const uint64_t chunks = std::min((zone_bytes - kZoneHeaderBytes) / kChunkBytes, kMaxChunks);
    const uint64_t data = zone_at + kZoneHeaderBytes;
    const uint64_t data_end = data + chunks * kChunkBytes;
    zone(zone_at);
    const uint64_t first = zone_at + kZoneFixedBytes;
    if (read_as<uint32_t>(pool, zone_at) != kZoneMagic) {
      group(ChunkGroup{ChunkType::kFree, data, data_end, first, zone_at, false});
    } else {
      for (uint64_t chunk = 0; chunk < chunks;) {
        const uint64_t header = first + chunk * kChunkHeaderBytes;
        const auto type = static_cast<ChunkType>(read_as<uint16_t>(pool, header));
        const auto length = read_as<uint32_t>(pool, header + 4);
        const uint64_t begin = data + chunk * kChunkBytes;
        if (!plausible(type, length, chunks - chunk)) {
          group(ChunkGroup{ChunkType::kBroken, begin, data_end, header, zone_at, true});
          break;
        }
        group(ChunkGroup{type, begin, begin + length * kChunkBytes, header, zone_at, true});
        chunk += length;
      }
    }
    zone_at += zone_bytes;
  }
}

}  // namespace

std::vector<ChunkGroup> chunk_groups(std::span<const std::byte> pool, const PmemobjFacts& facts) {
  std::vector<ChunkGroup> groups;
  walk_heap(
      pool, facts, [](uint64_t) {}, [&](const ChunkGroup& group) { groups.push_back(group); });
  return groups;
}

uint64_t chunk_header_of(ChunkType type, uint64_t chunks) {
  const uint64_t flags = type == ChunkType::kUsed ? kCompactObjects : 0;
  return static_cast<uint64_t>(type) | flags << 16 | chunks << 32;
}

uint64_t zone_header_of(uint64_t chunks) { return kZoneMagic | chunks << 32; }

std::vector<uint64_t> words_of_busy_lanes(std::span<const std::byte> pool,
                                          const PmemobjFacts& facts) {
  const auto lanes_at = read_as<uint64_t>(pool, kLanesOffsetOffset);
  const auto lanes = read_as<uint64_t>(pool, kLaneCountOffset);
  PMSTORE_CHECK(lanes_lie_before(lanes_at, lanes, facts.heap_offset), "the pool was checked");
  std::vector<uint64_t> words;
  for (uint64_t lane = lanes_at; lane < lanes_at + lanes * kLaneBytes; lane += kLaneBytes) {
    const uint64_t second = lane + kSecondRedoLog;
    const uint64_t undo = lane + kUndoLog;
    for (const uint64_t word : {lane, lane + kNextLogOffset, second, second + kNextLogOffset,
                                undo + kNextLogOffset, undo + kLogHeaderBytes}) {
      if (read_as<uint64_t>(pool, word) != 0) words.push_back(word);
    }
  }
  return words;
}

bool lanes_are_idle(std::span<const std::byte> pool, const PmemobjFacts& facts) {
  return words_of_busy_lanes(pool, facts).empty();
}

uint64_t largest_free_object(std::span<const std::byte> pool, const PmemobjFacts& facts) {
  uint64_t most = 0;
  walk_heap(
      pool, facts, [](uint64_t) {},
      [&](const ChunkGroup& group) {
        if (group.type == ChunkType::kFree) most = std::max(most, group.end - group.begin);
      });
  return most == 0 ? 0 : most - kObjectHeaderBytes;
}

std::vector<ByteRange> metadata_ranges(std::span<const std::byte> pool, const PmemobjFacts& facts,
                                       const std::vector<Extent>& extents) {
  std::vector<Extent> in_order = extents;
  std::sort(in_order.begin(), in_order.end(),
            [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
  std::vector<ByteRange> ranges = {{0, facts.heap_offset + kHeapHeaderBytes}};
  const auto add_without_extents = [&](ByteRange range) {
    for (const Extent& extent : in_order) {
      if (extent.offset >= range.end || extent.offset + extent.bytes <= range.begin) continue;
      if (range.begin < extent.offset) ranges.push_back({range.begin, extent.offset});
      range.begin = extent.offset + extent.bytes;
    }
    if (range.begin < range.end) ranges.push_back(range);
  };
  walk_heap(
      pool, facts,
      [&](uint64_t zone) {
        ranges.push_back({zone, zone + kZoneHeaderBytes});
      },
      [&](const ChunkGroup& group) {
        if (group.type == ChunkType::kUsed) ranges.push_back({group.begin, group.begin + 64});
        if (group.type == ChunkType::kRun) ranges.push_back({group.begin, group.end});
        if (group.type == ChunkType::kBroken) add_without_extents({group.begin, group.end});
      });
  return ranges;
}

Status check_allocated(std::span<const std::byte> pool, const PmemobjFacts& facts,
                       const std::vector<Extent>& extents, std::string_view name) {
  bool broken = false;
  bool root_found = false;
  size_t found = 0;
  walk_heap(
      pool, facts, [](uint64_t) {},
      [&](const ChunkGroup& group) {
        broken = broken || group.type == ChunkType::kBroken;
        if (group.type != ChunkType::kUsed && group.type != ChunkType::kRun) return;
        const auto holds = [&](uint64_t offset, uint64_t bytes) {
          return offset >= group.begin + kObjectHeaderBytes && offset < group.end &&
                 bytes <= group.end - offset;
        };
        root_found = root_found || holds(facts.root_offset, kPoolLayoutBytes);
        if (group.type != ChunkType::kUsed) return;
        for (const Extent& extent : extents) found += holds(extent.offset, extent.bytes) ? 1 : 0;
      });
  if (broken) return bad_pool(name, "damaged heap (chunk header)");
  if (!root_found) return bad_pool(name, "damaged heap (the root object counts as free space)");
  if (found != extents.size())
    return bad_pool(name, "damaged heap (an extent counts as free space)");
  return {};
}

ShutdownState shutdown_state_in(std::span<const std::byte> pool) {
  return read_as<ShutdownState>(pool, kShutdownStateOffset);
}

bool counts_shutdowns(const ShutdownState& state) {
  return read_as<uint64_t>(state, 0) != 0 || read_as<uint64_t>(state, sizeof(uint64_t)) != 0;
}

void clear_shutdown_state(std::span<std::byte> header) {
  auto incompat = read_as<uint32_t>(header, kIncompatOffset);
  const size_t covered = (incompat & kChecksum2k) ? kHeader2kBytes : kHeaderChecksumOffset;
  incompat &= ~kShutdownState;
  std::memcpy(header.data() + kIncompatOffset, &incompat, sizeof incompat);
  const uint64_t sum = fletcher64(header, kHeaderChecksumOffset, covered);
  std::memcpy(header.data() + kHeaderChecksumOffset, &sum, sizeof sum);
}

}  // namespace pmstore::persist::internal
