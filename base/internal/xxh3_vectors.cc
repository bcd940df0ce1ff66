#include "base/internal/xxh3_vectors.h"

#define XXH_INLINE_ALL
#include <immintrin.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace pmstore::base::internal {
namespace {

static_assert(kLeastVectorBytes == XXH3_MIDSIZE_MAX + 1);

void copy(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

// XXH3 of more than 240 bytes, as its specification has it: stripes of 64 bytes go into eight
// sums, sixteen stripes are a block, and the sums are scrambled behind each whole block.
constexpr size_t kStripe = 64;
constexpr size_t kSecret = XXH_SECRET_DEFAULT_SIZE;
constexpr size_t kSecretStep = 8;  // from one stripe to the next
constexpr size_t kStripesOfBlock = (kSecret - kStripe) / kSecretStep;
constexpr size_t kBlock = kStripe * kStripesOfBlock;
constexpr size_t kSecretOfLastStripe = kSecret - kStripe - 7;
constexpr size_t kSecretOfMerge = 11;
// Memory is asked for at this distance. The processor itself fetches ahead within a page only:
// 16 KiB from memory take 2.2 us instead of 2.7 on an AMD EPYC with 1 KiB in its place.
constexpr size_t kAhead = 64 * kStripe;

#define PMSTORE_AVX2 __attribute__((target("avx2"), always_inline)) inline

struct Sums {
  __m256i first, second;
};

PMSTORE_AVX2 __m256i load(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}

PMSTORE_AVX2 __m256i sum_half(__m256i sum, __m256i data, const unsigned char* secret) {
  const __m256i keyed = _mm256_xor_si256(data, load(secret));
  const __m256i product = _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32));
  const __m256i swapped = _mm256_shuffle_epi32(data, _MM_SHUFFLE(1, 0, 3, 2));
  return _mm256_add_epi64(product, _mm256_add_epi64(sum, swapped));
}

template <bool stores>
PMSTORE_AVX2 void sum_stripe(Sums& sums, const std::byte* from, const unsigned char* secret,
                             std::byte* to) {
  const __m256i first = load(from);
  const __m256i second = load(from + kStripe / 2);
  if constexpr (stores) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), first);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + kStripe / 2), second);
  }
  sums.first = sum_half(sums.first, first, secret);
  sums.second = sum_half(sums.second, second, secret + kStripe / 2);
}

PMSTORE_AVX2 __m256i scramble_half(__m256i sum, const unsigned char* secret) {
  const __m256i prime = _mm256_set1_epi32(static_cast<int>(XXH_PRIME32_1));
  const __m256i mixed = _mm256_xor_si256(sum, _mm256_srli_epi64(sum, 47));
  const __m256i keyed = _mm256_xor_si256(mixed, load(secret));
  const __m256i low = _mm256_mul_epu32(keyed, prime);
  const __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(keyed, 32), prime);
  return _mm256_add_epi64(low, _mm256_slli_epi64(high, 32));
}

// Without a copy, all of it is skipped. Each stripe is a line of the copy, but for those at its
// begin and behind the last whole one.
template <bool with_copy>
__attribute__((target("avx2"))) uint64_t sum_and_copy(const std::byte* from, size_t bytes,
                                                      uint64_t seed, size_t skipped,
                                                      std::byte* to) {
  alignas(kStripe) unsigned char secret[kSecret];
  XXH3_initCustomSecret_scalar(secret, seed);
  alignas(kStripe) uint64_t words[] = {XXH_PRIME32_3, XXH_PRIME64_1, XXH_PRIME64_2, XXH_PRIME64_3,
                                       XXH_PRIME64_4, XXH_PRIME32_2, XXH_PRIME64_5, XXH_PRIME32_1};
  Sums sums{load(words), load(words + 4)};
  const size_t whole = (bytes - 1) / kStripe;  // stripes before the last one
  const size_t first_copied = with_copy ? std::min(whole, (skipped + kStripe - 1) / kStripe) : 0;
  if (with_copy) copy(to, from + skipped, std::max(first_copied * kStripe, skipped) - skipped);
  size_t stripe = 0;
  while (stripe < whole) {
    const size_t in_block = stripe % kStripesOfBlock;
    const size_t end = std::min(whole, stripe - in_block + kStripesOfBlock);
    for (; stripe < std::min(end, first_copied); ++stripe) {
      const size_t key = stripe % kStripesOfBlock * kSecretStep;
      sum_stripe<false>(sums, from + stripe * kStripe, secret + key, nullptr);
    }
    for (; stripe < end; ++stripe) {
      const size_t at = stripe * kStripe;
      const size_t key = stripe % kStripesOfBlock * kSecretStep;
      _mm_prefetch(from + std::min(at + kAhead, bytes - 1), _MM_HINT_T0);
      sum_stripe<with_copy>(sums, from + at, secret + key,
                            with_copy ? to + (at - skipped) : nullptr);
    }
    if (stripe % kStripesOfBlock != 0) break;
    sums.first = scramble_half(sums.first, secret + kSecret - kStripe);
    sums.second = scramble_half(sums.second, secret + kSecret - kStripe / 2);
  }
  const size_t copied = std::max(whole * kStripe, skipped);
  if (with_copy) copy(to + (copied - skipped), from + copied, bytes - copied);
  sum_stripe<false>(sums, from + bytes - kStripe, secret + kSecretOfLastStripe, nullptr);
  _mm256_store_si256(reinterpret_cast<__m256i*>(words), sums.first);
  _mm256_store_si256(reinterpret_cast<__m256i*>(words + 4), sums.second);
  return XXH3_mergeAccs(words, secret + kSecretOfMerge, bytes * XXH_PRIME64_1);
}

}  // namespace

bool processor_has_xxh3_vectors() {
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
}

uint64_t xxh3_by_vectors(const std::byte* from, size_t bytes, uint64_t seed) {
  return sum_and_copy<false>(from, bytes, seed, bytes, nullptr);
}

uint64_t xxh3_and_copy_by_vectors(const std::byte* from, size_t bytes, uint64_t seed,
                                  size_t skipped, std::byte* to) {
  return sum_and_copy<true>(from, bytes, seed, skipped, to);
}

}  // namespace pmstore::base::internal
