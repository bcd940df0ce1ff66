// SHA-256 (FIPS 180-4), for the few places where a value must follow from another one that nobody
// can find: a client's id from its secret. Not for the data path: about 200 ns for each 64 bytes.
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
