#include "persist/internal/pmemobj_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <string>

#include "persist/pool_layout.h"

namespace pmstore::persist::internal {
namespace {

// struct pool_hdr, at 0.
constexpr size_t kMajorOffset = 8;
constexpr size_t kIncompatOffset = 16;
constexpr uint32_t kMajor = 6;
constexpr uint32_t kChecksum2k = 2;  // POOL_FEAT_CKSUM_2K: only the first 2 KiB are summed
constexpr size_t kHeader2kBytes = 2048;
constexpr size_t kHeaderChecksumOffset = kPmemobjHeaderBytes - 8;

// struct pmemobjpool, behind it: the persistent descriptor, then fields that are not summed.
constexpr size_t kDescriptorOffset = kPmemobjHeaderBytes;
constexpr size_t kDescriptorBytes = 2048;
constexpr size_t kLayoutNameBytes = 1024;
constexpr size_t kHeapOffsetOffset = kDescriptorOffset + kLayoutNameBytes + 16;
constexpr size_t kDescriptorChecksum = kDescriptorBytes - 8;
constexpr size_t kRootOffsetOffset = kDescriptorOffset + kDescriptorBytes;
constexpr size_t kRootSizeOffset = kRootOffsetOffset + 16;
constexpr size_t kHeapSizeOffset = kRootOffsetOffset + 32;
constexpr size_t kFixedBytes = 2 * 4096;

// struct heap_layout: a header, then zones, each with a header, its chunks' headers, and the
// chunks.
constexpr uint64_t kHeapHeaderBytes = 1024;
constexpr char kHeapSignature[16] = "MEMORY_HEAP_HDR";
constexpr size_t kHeapChecksum = kHeapHeaderBytes - 8;
constexpr uint64_t kChunkBytes = 256 * 1024;
constexpr uint64_t kMaxChunks = 65528;
constexpr uint64_t kZoneHeaderBytes = 64 + kMaxChunks * 8;
constexpr uint64_t kZoneMaxBytes = kZoneHeaderBytes + kMaxChunks * kChunkBytes;
constexpr uint64_t kZoneMinBytes = kZoneHeaderBytes + kChunkBytes;
constexpr uint32_t kZoneMagic = 0xC3F0A2D2;
constexpr uint16_t kChunkFree = 2;
constexpr uint64_t kObjectHeaderBytes = 16;

template <typename T>
T read_as(std::span<const std::byte> bytes, uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

Error bad(std::string_view name, std::string_view what) {
  return make_error(
      ErrorCode::kBadPool,
      fmt::format("{}: {}: restore the file from a copy, or make a new pool", name, what));
}

Error not_ours(std::string_view name, std::string_view what) {
  return make_error(ErrorCode::kBadPool,
                    fmt::format("{}: not a pool: {}: give the path of a pool", name, what));
}

bool sum_matches(std::span<const std::byte> bytes, size_t checksum_offset, size_t covered) {
  return fletcher64(bytes, checksum_offset, covered) == read_as<uint64_t>(bytes, checksum_offset);
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
    return bad(name, "damaged header (checksum)");
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
    return bad(name, "damaged header (descriptor checksum)");
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
    return bad(name, fmt::format("truncated: only {} bytes are left", file.size()));
  }
  PMSTORE_TRY_STATUS(check_headers(file, name));

  PmemobjFacts facts{};
  facts.heap_offset = read_as<uint64_t>(file, kHeapOffsetOffset);
  facts.root_offset = read_as<uint64_t>(file, kRootOffsetOffset);
  const auto heap_bytes = read_as<uint64_t>(file, kHeapSizeOffset);
  if (facts.heap_offset < kFixedBytes || facts.heap_offset > UINT64_MAX / 4 ||
      heap_bytes > UINT64_MAX / 4) {
    return bad(name, "damaged header (heap size)");
  }
  facts.pool_bytes = facts.heap_offset + heap_bytes;
  if (facts.pool_bytes > file.size()) {
    return bad(name,
               fmt::format("truncated: {} bytes of {} are left", file.size(), facts.pool_bytes));
  }
  if (heap_bytes < kHeapHeaderBytes + kZoneMinBytes ||
      std::memcmp(file.data() + facts.heap_offset, kHeapSignature, sizeof kHeapSignature) != 0 ||
      !sum_matches(file.subspan(facts.heap_offset, kHeapHeaderBytes), kHeapChecksum,
                   kHeapHeaderBytes)) {
    return bad(name, "damaged header (heap)");
  }
  if (facts.root_offset < facts.heap_offset || facts.root_offset > facts.pool_bytes ||
      read_as<uint64_t>(file, kRootSizeOffset) < kPoolLayoutBytes) {
    return bad(name, "damaged catalog header (no root object; was its creation interrupted?)");
  }
  return facts;
}

uint64_t largest_free_object(std::span<const std::byte> pool, const PmemobjFacts& facts) {
  uint64_t most_chunks = 0;
  uint64_t zone_at = facts.heap_offset + kHeapHeaderBytes;
  while (facts.pool_bytes - zone_at >= kZoneMinBytes) {
    const uint64_t zone_bytes = std::min(facts.pool_bytes - zone_at, kZoneMaxBytes);
    const uint64_t chunks = std::min((zone_bytes - kZoneHeaderBytes) / kChunkBytes, kMaxChunks);
    if (read_as<uint32_t>(pool, zone_at) != kZoneMagic) {
      most_chunks = std::max(most_chunks, chunks);  // a zone is set up when it is first needed
    } else {
      for (uint64_t chunk = 0; chunk < chunks;) {
        const uint64_t header = zone_at + 64 + chunk * 8;
        const auto length = read_as<uint32_t>(pool, header + 4);
        if (length == 0 || length > chunks - chunk) break;
        if (read_as<uint16_t>(pool, header) == kChunkFree) {
          most_chunks = std::max<uint64_t>(most_chunks, length);
        }
        chunk += length;
      }
    }
    zone_at += zone_bytes;
  }
  return most_chunks == 0 ? 0 : most_chunks * kChunkBytes - kObjectHeaderBytes;
}

}  // namespace pmstore::persist::internal
