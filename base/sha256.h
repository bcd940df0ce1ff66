// SHA-256 (FIPS 180-4), for values from which the input cannot be found: a client's id, which is
// made from its secret. Not for the data path: about 200 ns for each 64 bytes.
// Threads: a function of its argument.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace pmstore::base {

using Sha256Digest = std::array<uint8_t, 32>;

Sha256Digest sha256(std::span<const std::byte> message);

}  // namespace pmstore::base
