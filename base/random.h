// Seeded pseudo-random numbers (xoshiro256**, public domain, Blackman and Vigna). The same seed
// gives the same sequence on every host. Not for secrets. One thread each.
#pragma once

#include <bit>
#include <cstdint>

namespace pmstore::base {

// One step of SplitMix64: turns any 64-bit value into a well mixed one. Also used to derive seeds.
inline uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// 64 random bits from the operating system, never 0: for names that must differ between processes.
// Not for anything that a seed should repeat.
uint64_t random_identity();

class Random {
 public:
  explicit Random(uint64_t seed) {
    for (auto& word : state_) word = seed = mix64(seed);
  }

  uint64_t next() {
    const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  // Uniform in [0, bound), bound > 0 (Lemire's multiply-shift; the bias is below 2^-32 for bound <
  // 2^32).
  uint64_t below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
  }

  // Uniform in [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  __extension__ typedef unsigned __int128 Wide;
  uint64_t state_[4];
};

}  // namespace pmstore::base

namespace pmstore {
using base::Random;
}
