// The two checksums of the project: CRC32C (ISA-L) for log entries and headers, XXH3-64 for
// records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace pmstore::base {

// CRC32C (Castagnoli), as in iSCSI and ext4. `seed` is the value of the bytes before, 0 at the
// start: crc32c(b, crc32c(a)) == crc32c(a followed by b).
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t seed = 0);

// XXH3, 64 bits. Different seeds give unrelated sums, so a record that was copied to
// another address is noticed.
uint64_t checksum64(std::span<const std::byte> bytes, uint64_t seed);

}  // namespace pmstore::base
