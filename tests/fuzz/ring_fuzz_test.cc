// Damaged and forged rings: never read outside, never give an entry whose bytes were changed, never
// lose one that lies before the damage. The ring lies between two pages that cannot be touched.
//
// The number of rounds is small enough for every test run; PMSTORE_FUZZ_ROUNDS in the environment
// makes it larger.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/checksum.h"
#include "base/random.h"
#include "log/ring.h"
#include "persist/memory.h"
#include "tests/fuzz/fuzzing.h"

namespace pmstore::log {
namespace {

constexpr uint64_t kBytes = 16 * 1024;
constexpr uint64_t kData = kBytes - kRingHeaderBytes;
constexpr uint32_t kSalt = 31;

using fuzz::kPage;
using fuzz::rounds;
using Guarded = fuzz::Guarded<kBytes>;

struct Golden {
  uint64_t next_lsn;
  uint64_t sequence;
  std::string payload;
};

// A ring with some laps behind it, and everything that was ever appended to it.
struct Sample {
  std::vector<std::byte> image;
  std::map<uint64_t, Golden> appended;  // by lsn
  uint64_t start_lsn = 0;
  uint64_t tail_lsn = 0;
};

Sample make_sample(uint64_t seed) {
  Sample sample;
  Random random(seed);
  Guarded region;
  persist::Memory memory(region.bytes(), {.domain = persist::Domain::kCpuCache});
  Ring ring = Ring::format(memory, 0, kBytes, kSalt).value();
  const uint64_t entries = 20 + random.below(150);
  for (uint64_t sequence = 1; sequence <= entries; ++sequence) {
    if (random.below(10) == 0) {
      PMSTORE_CHECK(ring.walk([](const EntryView&) {}) && ring.take_over(ring.owner()), "sound");
    }
    const size_t bytes = random.below(random.below(6) == 0 ? 3000 : 400);
    std::string payload(bytes, '\0');
    for (char& c : payload) c = static_cast<char>(random.next());
    ring.set_padding({random.below(4) > 0, true, random.below(4) > 0});
    auto lsn = ring.append(sequence, std::as_bytes(std::span(payload)));
    while (!lsn) {
      auto oldest = sample.appended.upper_bound(ring.position().start_lsn);
      const uint64_t mark =
          oldest == sample.appended.end() ? ring.position().tail_lsn : oldest->first;
      PMSTORE_CHECK(ring.truncate(memory.drain().value(), mark, 0), "an entry's start");
      lsn = ring.append(sequence, std::as_bytes(std::span(payload)));
    }
    sample.appended[*lsn] = {ring.position().tail_lsn, sequence, payload};
  }
  sample.start_lsn = ring.position().start_lsn;
  sample.tail_lsn = ring.position().tail_lsn;
  sample.image.assign(region.bytes().begin(), region.bytes().end());
  return sample;
}

// Changes bytes of a ring without knowing how they are protected, and remembers which.
class Damager {
 public:
  Damager(std::span<std::byte> ring, Random& random)
      : ring_(ring), random_(random), touched_(ring.size(), false) {}

  void strike() {
    const uint64_t at = place();
    const uint64_t room = ring_.size() - at;
    const uint64_t bytes = 1 + random_.below(std::min<uint64_t>(room, 1 + random_.below(700)));
    switch (random_.below(6)) {
      case 0:
        ring_[at] ^= std::byte{1} << random_.below(8);
        touch(at, 1);
        break;
      case 1:
        ring_[at] = static_cast<std::byte>(random_.next());
        touch(at, 1);
        break;
      case 2:
        std::memset(&ring_[at], 0, bytes);
        touch(at, bytes);
        break;
      case 3:
        for (uint64_t i = 0; i < bytes; ++i) ring_[at + i] = static_cast<std::byte>(random_.next());
        touch(at, bytes);
        break;
      case 4: {  // something that lies elsewhere: entries at wrong places
        const uint64_t from = random_.below(ring_.size() - bytes + 1) / 8 * 8;
        std::memmove(&ring_[at], &ring_[from], bytes);
        touch(at, bytes);
        break;
      }
      case 5: {  // an extreme number where a field may be
        static constexpr uint64_t kExtremes[] = {0, 1, UINT64_MAX, UINT32_MAX, 1u << 31, kData};
        const uint64_t field = std::min(at, ring_.size() - 8);
        const uint64_t width = 1 + random_.below(8);
        std::memcpy(&ring_[field], &kExtremes[random_.below(std::size(kExtremes))], width);
        touch(field, width);
        break;
      }
    }
  }

  bool touched(uint64_t offset, uint64_t bytes) const {
    const auto from = touched_.begin() + static_cast<ptrdiff_t>(offset);
    return std::find(from, from + static_cast<ptrdiff_t>(bytes), true) !=
           from + static_cast<ptrdiff_t>(bytes);
  }

 private:
  // Often where a header may be.
  uint64_t place() {
    const uint64_t at = random_.below(ring_.size());
    return random_.below(2) == 0 ? at : at / 64 * 64 + random_.below(32);
  }
  void touch(uint64_t at, uint64_t bytes) {
    std::fill_n(touched_.begin() + static_cast<ptrdiff_t>(at), bytes, true);
  }
  std::span<std::byte> ring_;
  Random& random_;
  std::vector<bool> touched_;
};

// Gives a header a new value in one field.
template <typename Header, typename Reseal>
void forge(std::byte* at, Random& random, Reseal reseal) {
  Header header;
  std::memcpy(&header, at, sizeof header);
  auto* fields = reinterpret_cast<std::byte*>(&header);
  const uint64_t field = random.below(sizeof header / 4) * 4;
  const uint64_t extremes[] = {0, 1, UINT32_MAX, random.next(), kData - 8, kData, 1u << 31};
  std::memcpy(fields + field, &extremes[random.below(std::size(extremes))],
              field % 8 == 0 && random.below(2) == 0 ? 8 : 4);
  reseal(header);
  std::memcpy(at, &header, sizeof header);
}

uint32_t right_crc(const EntryHeader& header, const std::byte* ring, uint64_t offset) {
  const uint64_t room = kBytes - offset - sizeof header;
  const bool payload = header.magic == kEntryMagic && header.payload_bytes <= room;
  return entry_crc(header, {ring + offset + sizeof header, payload ? header.payload_bytes : 0},
                   kSalt);
}

// Makes every checksum right that could be one: what is left of a reader that does not check them.
void heal_checksums(std::span<std::byte> ring) {
  for (uint64_t at = kRingHeaderBytes; at + sizeof(EntryHeader) <= kBytes; at += kLsnUnit) {
    EntryHeader header;
    std::memcpy(&header, &ring[at], sizeof header);
    if (header.magic != kEntryMagic && header.magic != kPadMagic) continue;
    header.crc = right_crc(header, ring.data(), at);
    std::memcpy(&ring[at], &header, sizeof header);
  }
}

// What the inputs have come to: of a corpus that gets nowhere, nothing is shown.
struct Reached {
  uint64_t entries = 0;   // whole ones that were given
  uint64_t cut_off = 0;   // rings whose walk ended before an entry that there was
  uint64_t one_copy = 0;  // rings opened by the one copy of their header that is whole
  uint64_t refused = 0;   // rings

  // Everything, again and again, in so many rounds.
  std::optional<std::string> too_little(uint64_t rounds) const {
    if (entries >= 5 * rounds && cut_off >= rounds / 2 && one_copy >= rounds / 100 &&
        refused >= rounds / 1000) {
      return std::nullopt;
    }
    return fmt::format("{} rounds: {} entries, {} rings cut off, {} opened by one copy, {} refused",
                       rounds, entries, cut_off, one_copy, refused);
  }
};

// Walks a damaged ring. What is wrong with what it gave, or nothing.
std::optional<std::string> check_damaged(const Sample& sample, persist::Memory& memory,
                                         const Damager& damage, Reached& counts) {
  auto ring = Ring::open(memory, 0, kBytes, kSalt);
  const bool header_whole = !damage.touched(0, kRingHeaderBytes);
  const bool first_touched = damage.touched(0, sizeof(RingHeader));
  const bool second_touched = damage.touched(kRingHeaderCopyStride, sizeof(RingHeader));
  counts.refused += ring ? 0 : 1;
  counts.one_copy += ring && first_touched != second_touched ? 1 : 0;
  if (!ring) return header_whole ? std::optional("a whole header is refused") : std::nullopt;
  std::optional<std::string> wrong;
  uint64_t reached = ring->position().start_lsn;
  const Status walked = ring->walk([&](const EntryView& entry) {
    const auto it = sample.appended.find(entry.lsn);
    const std::string payload(reinterpret_cast<const char*>(entry.payload.data()),
                              entry.payload.size());
    if (it == sample.appended.end() || it->second.sequence != entry.sequence ||
        it->second.payload != payload) {
      wrong = fmt::format("an entry at lsn {} that was never appended", entry.lsn);
    }
    if (entry.lsn < reached) wrong = fmt::format("lsn {} after {}", entry.lsn, reached);
    reached = entry.next_lsn;
    ++counts.entries;
  });
  counts.cut_off += reached < sample.tail_lsn ? 1 : 0;
  if (wrong || !header_whole) return wrong;
  // Up to the damage, everything must be there.
  uint64_t whole = sample.start_lsn;
  for (auto it = sample.appended.lower_bound(whole); it != sample.appended.end(); ++it) {
    bool hit = false;
    for (uint64_t lsn = whole; lsn < it->second.next_lsn; lsn += 8) {
      hit = hit || damage.touched(kRingHeaderBytes + lsn % kData, 8);
    }
    if (hit) break;
    whole = it->second.next_lsn;
  }
  if (reached < whole) return fmt::format("stopped at {}, whole up to {}", reached, whole);
  if (walked && ring->position().tail_lsn < reached) return "the tail is before the last entry";
  return std::nullopt;
}

std::optional<std::string> fuzz_damaged(uint64_t count, bool heal) {
  Guarded region;
  persist::Memory memory(region.bytes(), {.domain = persist::Domain::kCpuCache});
  Random random(11);
  Sample sample;
  Reached reached;
  for (uint64_t round = 0; round < count; ++round) {
    if (round % 100 == 0) sample = make_sample(random.next());
    std::memcpy(region.bytes().data(), sample.image.data(), kBytes);
    Damager damage(region.bytes(), random);
    for (uint64_t strikes = 1 + random.below(4); strikes > 0; --strikes) damage.strike();
    if (heal) heal_checksums(region.bytes());
    if (auto wrong = check_damaged(sample, memory, damage, reached)) {
      return fmt::format("round {}: {}", round, *wrong);
    }
  }
  return reached.too_little(count);
}

TEST(RingFuzz, DamagedRingGivesOnlyWhatWasAppended) {
  const auto wrong = fuzz_damaged(rounds(30000), false);
  EXPECT_FALSE(wrong) << *wrong;
}

TEST(RingFuzz, CanaryReaderWithoutChecksumsIsCaught) {
  const auto wrong = fuzz_damaged(rounds(5000), true);
  ASSERT_TRUE(wrong);
  EXPECT_NE(wrong->find("never appended"), std::string::npos) << *wrong;
}

// Somebody who knows salt and checksum can write entries, but cannot make the owner read or write
// elsewhere, loop, or fail a CHECK.
TEST(RingFuzz, ForgedRingStaysInsideItself) {
  Guarded region;
  persist::Memory memory(region.bytes(), {.domain = persist::Domain::kCpuCache});
  Random random(12);
  Sample sample;
  uint64_t opened = 0;
  uint64_t walked_whole = 0;
  const uint64_t count = rounds(30000);
  for (uint64_t round = 0; round < count; ++round) {
    if (round % 100 == 0) sample = make_sample(random.next());
    std::byte* const base = region.bytes().data();
    std::memcpy(base, sample.image.data(), kBytes);
    for (uint64_t i = random.below(4); i > 0; --i) {
      auto victim = sample.appended.lower_bound(sample.start_lsn);
      std::advance(victim, random.below(std::distance(victim, sample.appended.end())));
      const uint64_t at = kRingHeaderBytes + victim->first % kData;
      forge<EntryHeader>(base + at, random,
                         [&](EntryHeader& h) { h.crc = right_crc(h, base, at); });
    }
    if (random.below(2) == 0) {
      for (uint64_t copy : {0, 1}) {
        forge<RingHeader>(base + copy * kRingHeaderCopyStride, random, [](RingHeader& h) {
          h.crc = base::crc32c(std::as_bytes(std::span(&h, 1)).subspan(8), kSalt);
        });
      }
    }
    auto ring = Ring::open(memory, 0, kBytes, kSalt);
    if (!ring) continue;
    ++opened;
    uint64_t visited = 0;
    const Status walked = ring->walk([&](const EntryView& entry) {
      ++visited;
      ASSERT_GE(entry.payload.data(), base + kRingHeaderBytes);
      ASSERT_LE(entry.payload.data() + entry.payload.size(), base + kBytes);
    });
    ASSERT_LE(visited, kData / sizeof(EntryHeader));
    for (int i = 0; i < 4; ++i) (void)ring->entry_at(random.next() >> random.below(64));
    if (!walked) continue;
    ++walked_whole;
    const RingPosition& position = ring->position();
    ASSERT_LE(position.tail_lsn - position.start_lsn, kData);
    if (!ring->take_over(random.below(3))) continue;
    const std::vector<std::byte> payload(random.below(max_payload_bytes(kData) + 2));
    (void)ring->append(1, payload);
    (void)ring->note_tail(random.next() >> random.below(64));
    const persist::Persisted applied = memory.drain().value();
    (void)ring->truncate(applied, random.next() >> random.below(64), random.next());
    (void)ring->truncate(applied, position.tail_lsn, UINT64_MAX);
    (void)ring->append(1, payload);
  }
  EXPECT_GT(opened, count / 3);
  EXPECT_GT(walked_whole, count / 10);
}

TEST(RingFuzzDeath, CanaryReadOutsideIsCaught) {
  Guarded region;
  // A ring that believes to be one page longer than its memory.
  persist::Memory lying({region.bytes().data(), kBytes + kPage},
                        {.domain = persist::Domain::kCpuCache});
  EXPECT_DEATH((void)Ring::format(lying, 0, kBytes + kPage, kSalt), "");
}

}  // namespace
}  // namespace pmstore::log
