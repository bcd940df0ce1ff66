#include "base/checksum_copy.h"

#include <cstring>

#include "base/check.h"
#include "base/checksum.h"
#include "base/internal/xxh3_vectors.h"

namespace pmstore::base {
namespace {

bool by_vectors(std::span<const std::byte> bytes) {
  return bytes.size() >= internal::kLeastVectorBytes && internal::processor_has_xxh3_vectors();
}

}  // namespace

uint64_t checksum64_of_far(std::span<const std::byte> bytes, uint64_t seed) {
  if (!by_vectors(bytes)) return checksum64(bytes, seed);
  return internal::xxh3_by_vectors(bytes.data(), bytes.size(), seed);
}

uint64_t checksum64_and_copy(std::span<const std::byte> bytes, uint64_t seed, size_t skipped,
                             std::byte* to) {
  PMSTORE_CHECK(skipped <= bytes.size(), "what is skipped is a part of what is summed");
  if (by_vectors(bytes)) {
    return internal::xxh3_and_copy_by_vectors(bytes.data(), bytes.size(), seed, skipped, to);
  }
  const uint64_t sum = checksum64(bytes, seed);
  if (bytes.size() > skipped) std::memcpy(to, bytes.data() + skipped, bytes.size() - skipped);
  return sum;
}

}  // namespace pmstore::base
