// Damaged and forged log areas: never read outside, never give wrong bytes, lose only what is
// damaged, and say so.
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

#include "base/checksum.h"
#include "log/entry.h"
#include "log/log_check.h"
#include "tests/fuzz/log_corpus.h"

namespace pmstore::log {
namespace {

using Found = std::map<uint64_t, std::string>;  // payloads by index

// What the inputs have come to: of a corpus that gets nowhere, nothing is shown.
struct Reached {
  uint64_t entries = 0;   // whole ones that were given
  uint64_t damaged = 0;   // ranges that were reported
  uint64_t repaired = 0;  // copies of places that were damaged and are whole again
  uint64_t gone = 0;      // places with both copies damaged
  uint64_t lost = 0;      // logs with both headers damaged
  uint64_t refused = 0;   // areas

  // Everything, again and again, in so many rounds.
  std::optional<std::string> too_little(uint64_t rounds) const {
    if (entries >= 10 * rounds && damaged >= rounds / 4 && repaired >= rounds / 20 &&
        gone >= rounds / 1000 && lost >= rounds / 200 && refused >= rounds / 1000) {
      return std::nullopt;
    }
    return fmt::format(
        "{} rounds: {} entries, {} ranges damaged, {} copies repaired, {} places "
        "gone, {} logs lost, {} areas refused",
        rounds, entries, damaged, repaired, gone, lost, refused);
  }
};

// What a reader gets, from start to tail, going over the damaged ranges. Complains where it would
// be stuck.
std::optional<std::string> read_log(const LogStore& store, const LogInfo& info, Found& found) {
  const auto where = store.where(info.id).value();
  const auto data = store.area().subspan(where.region_offset + kRingHeaderBytes, info.bytes);
  for (uint64_t lsn = info.start_lsn; lsn < info.tail_lsn;) {
    const auto damage = std::find_if(info.damaged.begin(), info.damaged.end(),
                                     [&](const DamagedRange& r) { return r.from_lsn == lsn; });
    if (damage != info.damaged.end()) {
      if (damage->to_lsn <= lsn) return "an empty damaged range";
      lsn = damage->to_lsn;
      continue;
    }
    const uint64_t at = lsn % info.bytes;
    EntryHeader header{};
    if (at + sizeof header > info.bytes) return fmt::format("no entry can be at lsn {}", lsn);
    std::memcpy(&header, &data[at], sizeof header);
    const bool pad = header.magic == kPadMagic;
    if (header.lsn != lsn || entry_bytes(header) > info.bytes - at) {
      return fmt::format("stuck at lsn {} of {} to {}", lsn, info.start_lsn, info.tail_lsn);
    }
    const auto payload = data.subspan(at + sizeof header, pad ? 0 : header.payload_bytes);
    if (header.crc != entry_crc(header, payload, where.salt)) {
      return fmt::format("a wrong checksum at lsn {}", lsn);
    }
    if (!pad) {
      const auto text = payload.subspan(sizeof(LogEntryPrefix));
      found[header.sequence].assign(reinterpret_cast<const char*>(text.data()), text.size());
    }
    lsn += entry_bytes(header);
  }
  return std::nullopt;
}

std::optional<std::string> check_log(const LogStore& store, const SampleLog& log,
                                     const LogInfo& info, const Damager& damage, Reached& reached) {
  if (is_lost(info)) {
    ++reached.lost;
    const bool both = damage.touched(log.region, sizeof(RingHeader)) &&
                      damage.touched(log.region + kRingHeaderCopyStride, sizeof(RingHeader));
    return both ? std::nullopt : std::optional<std::string>("lost with a whole header");
  }
  Found found;
  if (auto stuck = read_log(store, info, found)) return stuck;
  reached.entries += found.size();
  reached.damaged += info.damaged.size();
  for (const auto& [index, payload] : found) {
    const auto golden = log.entries.find(index);
    if (golden == log.entries.end() || golden->second.payload != payload) {
      return fmt::format("entry {} was never appended so", index);
    }
    if (index >= info.next_index) return fmt::format("index {} will come again", index);
  }
  for (const auto& [index, entry] : log.entries) {
    if (entry.lsn < log.start_lsn || entry.next_lsn > log.certain_lsn) continue;
    if (index >= info.next_index) return fmt::format("index {} will come again", index);
    const uint64_t at = log.region + kRingHeaderBytes + entry.lsn % info.bytes;
    if (found.contains(index) || damage.touched(at, entry.next_lsn - entry.lsn)) continue;
    return fmt::format("entry {} is whole and not found", index);
  }
  return std::nullopt;
}

// That of a log in the area ends in front of `extent`, and without an identity in front of that.
uint32_t slot_crc(const LogSlot& slot, uint64_t area) {
  const size_t in_area =
      slot.identity != 0 ? offsetof(LogSlot, extent) : offsetof(LogSlot, identity);
  const size_t end = slot.extent != 0 ? sizeof slot : in_area;
  return base::crc32c(std::as_bytes(std::span(&slot, 1)).subspan(8, end - 8),
                      static_cast<uint32_t>(base::mix64(area)));
}

// How many of the copies of a log's place are whole.
uint64_t whole_copies(std::span<const std::byte> area, const SampleLog& log, uint64_t identity) {
  uint64_t whole = 0;
  for (uint64_t copy = 0; copy < kCopies; ++copy) {
    LogSlot slot;
    std::memcpy(&slot, &area[kLogSlotsOffset + (log.place * kCopies + copy) * kLogSlotBytes],
                sizeof slot);
    whole += slot.magic == kLogSlotMagic && slot.crc == slot_crc(slot, identity);
  }
  return whole;
}

// Opens a damaged area. What is wrong with what it gives, or nothing.
std::optional<std::string> check_damaged(const Sample& sample, Guarded& region,
                                         const Damager& damage, Reached& reached) {
  const auto area = region.bytes().subspan(sample.area);
  LogAreaHeader header;
  std::memcpy(&header, &sample.image[sample.area], sizeof header);
  std::map<std::string, uint64_t> whole_before;
  for (const auto& [name, log] : sample.logs) {
    whole_before[name] = whole_copies(area, log, header.area);
  }
  auto pool = pool_in(region);
  const auto checked = check_logs(*pool);
  auto opened = LogStore::open(*pool);
  if (opened.has_value() != checked.has_value()) return "check and open disagree";
  if (!opened) {
    ++reached.refused;
    const bool both = damage.touched(0, sizeof(LogAreaHeader)) &&
                      damage.touched(kLogAreaCopyStride, sizeof(LogAreaHeader));
    return both ? std::nullopt : std::optional<std::string>(opened.error().to_string());
  }
  LogStore& store = **opened;
  bool sound = store.damaged_places() == 0;
  for (const LogInfo& info : store.list()) {
    sound = sound && info.damaged.empty();
    const auto log = sample.logs.find(info.name);
    if (log == sample.logs.end() || log->second.id != info.id) {
      return fmt::format("a log '{}' that there was not", info.name);
    }
    if (info.identity != log->second.identity) {
      return fmt::format("{}: another identity", info.name);
    }
    if (auto wrong = check_log(store, log->second, info, damage, reached)) {
      return fmt::format("{}: {}", info.name, *wrong);
    }
  }
  if (sound != checked->sound()) return "the check does not say what is damaged";
  for (const auto& [name, log] : sample.logs) {
    if (store.info(log.id)) {
      if (whole_copies(area, log, header.area) < kCopies) return name + ": a copy stays damaged";
      reached.repaired += kCopies - whole_before[name];
      continue;
    }
    ++reached.gone;
    const uint64_t slot = kLogSlotsOffset + log.place * kCopies * kLogSlotBytes;
    if (!damage.touched(slot, sizeof(LogSlot)) ||
        !damage.touched(slot + kLogSlotBytes, sizeof(LogSlot))) {
      return fmt::format("{}: gone with a whole place", name);
    }
  }
  return std::nullopt;
}

// It must be usable, whatever was found.
std::optional<std::string> use(Guarded& region, Random& random) {
  auto pool = pool_in(region);
  auto opened = LogStore::open(*pool);
  if (!opened) return std::nullopt;
  const std::string payload(1 + random.below(500), 'n');
  const std::span<const std::byte> spans[] = {std::as_bytes(std::span(payload))};
  std::map<uint64_t, uint64_t> appended;  // index by log
  for (const LogInfo& info : (*opened)->list()) {
    if (random.below(4) == 0) (void)(*opened)->erase(info.id);
    if (random.below(4) == 0) {
      (void)(*opened)->trim_below_index(info.id, random.below(info.next_index + 2));
    }
    if (random.below(4) == 0 && (*opened)->acquire(info.id, info.membership)) {
      (void)(*opened)->make_room(info.id, random.below(kLogBytes));
      (void)(*opened)->release(info.id);
    }
    const auto range = (*opened)->append(info.id, spans);
    if (range) appended[info.id] = range->first.index;
  }
  (void)(*opened)->create("fresh", {kLogBytes, FullPolicy::kBackPressure});
  if (!(*opened)->commit_appends()) return "memory cannot be drained";
  opened->reset();
  auto again = LogStore::open(*pool);
  if (!again) return "cannot be opened again: " + again.error().to_string();
  for (const auto& [id, index] : appended) {
    const auto info = (*again)->info(id);
    if (!info) return "a log is gone after use";
    Found found;
    if (auto stuck = read_log(**again, *info, found)) return "after use: " + *stuck;
    if (!found.contains(index) || found[index] != payload) return "an appended entry is gone";
  }
  return std::nullopt;
}

// Gives every entry of the image a checksum that fits: a reader that does not look at them.
void heal_checksums(Guarded& region, const Sample& sample) {
  for (const auto& [name, log] : sample.logs) {
    for (const auto& [index, entry] : log.entries) {
      if (entry.next_lsn > log.certain_lsn || entry.lsn < log.start_lsn) continue;
      LogSlot slot;
      std::byte* const area = region.bytes().data() + sample.area;
      std::memcpy(&slot, area + kLogSlotsOffset + log.place * kCopies * kLogSlotBytes, sizeof slot);
      if (slot.magic != kLogSlotMagic || slot.region_bytes < kMinRingBytes) continue;
      std::byte* const at =
          area + log.region + kRingHeaderBytes + entry.lsn % (slot.region_bytes - kRingHeaderBytes);
      EntryHeader header;
      std::memcpy(&header, at, sizeof header);
      if (header.magic != kEntryMagic || header.lsn != entry.lsn ||
          header.payload_bytes != entry.payload.size() + sizeof(LogEntryPrefix)) {
        continue;
      }
      const uint64_t identity = sample.logs.empty() ? 0 : [&] {
        LogAreaHeader header_of_area;
        std::memcpy(&header_of_area, sample.image.data() + sample.area, sizeof header_of_area);
        return header_of_area.area;
      }();
      const auto salt = static_cast<uint32_t>(base::mix64(identity + log.id));
      header.crc = entry_crc(header, {at + sizeof header, header.payload_bytes}, salt);
      std::memcpy(at, &header, sizeof header);
    }
  }
}

std::optional<std::string> fuzz_damaged(uint64_t count, bool heal) {
  Guarded region;
  Random random(21);
  Reached reached;
  Sample sample;
  for (uint64_t round = 0; round < count; ++round) {
    if (round % 50 == 0) sample = Recording(random.next()).take();
    std::memcpy(region.bytes().data(), sample.image.data(), kBytes);
    Damager damage(region.bytes(), sample, random);
    for (uint64_t strikes = 1 + random.below(5); strikes > 0; --strikes) damage.strike();
    if (heal) heal_checksums(region, sample);
    auto wrong = check_damaged(sample, region, damage, reached);
    if (!wrong) wrong = use(region, random);
    if (wrong) return fmt::format("round {}: {}", round, *wrong);
  }
  return reached.too_little(count);
}

TEST(LogFuzz, DamagedAreaGivesOnlyWhatWasAppendedAndLosesOnlyWhatIsDamaged) {
  const auto wrong = fuzz_damaged(rounds(10000), false);
  EXPECT_FALSE(wrong) << *wrong;
}

TEST(LogFuzz, CanaryReaderWithoutChecksumsIsCaught) {
  const auto wrong = fuzz_damaged(rounds(5000), true);
  ASSERT_TRUE(wrong);
  EXPECT_NE(wrong->find("never appended"), std::string::npos) << *wrong;
}

// ---- forged ----

// Changes a field or two of a structure, and makes its checksum right.
template <typename T, typename Crc>
void forge(std::byte* at, Random& random, Crc crc) {
  T value;
  std::memcpy(&value, at, sizeof value);
  auto* const bytes = reinterpret_cast<uint8_t*>(&value);
  for (uint64_t i = 1 + random.below(2); i > 0; --i) {
    const uint64_t field = 8 + 8 * random.below(sizeof(T) / 8 - 1);
    const uint64_t edges[] = {0, 1, 7, 64, 256, kLogBytes, kBytes, UINT64_MAX, kMaxLsn};
    uint64_t number = random.below(3) == 0 ? random.next() : edges[random.below(std::size(edges))];
    if (random.below(3) == 0) {
      std::memcpy(&number, bytes + field, sizeof number);
      number += random.below(3) * 64 - 64;
    }
    std::memcpy(bytes + field, &number, 1 + random.below(8));
  }
  value.crc = crc(value);
  std::memcpy(at, &value, sizeof value);
}

template <typename T>
uint32_t crc_behind(const T& value, size_t from, uint32_t seed) {
  return base::crc32c(std::as_bytes(std::span(&value, 1)).subspan(from), seed);
}

// Somebody who knows all checksums can write anything, but cannot make the owner read or write
// outside of the area, loop, or fail a CHECK.
TEST(LogFuzz, ForgedAreaStaysInsideItself) {
  Guarded region;
  Random random(22);
  Sample sample;
  LogAreaHeader header{};
  uint64_t opened = 0;
  uint64_t damaged = 0;
  uint64_t trimmed = 0;
  const uint64_t count = rounds(10000);
  for (uint64_t round = 0; round < count; ++round) {
    if (round % 50 == 0) {
      do sample = Recording(random.next()).take();
      while (sample.logs.empty());
      std::memcpy(&header, sample.image.data() + sample.area, sizeof header);
    }
    std::memcpy(region.bytes().data(), sample.image.data(), kBytes);
    std::byte* const area = region.bytes().data() + sample.area;
    auto victim = sample.logs.begin();
    std::advance(victim, random.below(sample.logs.size()));
    const SampleLog& log = victim->second;
    const auto salt = static_cast<uint32_t>(base::mix64(header.area + log.id));
    if (random.below(8) == 0) {
      forge<LogAreaHeader>(area + random.below(2) * kLogAreaCopyStride, random,
                           [](const LogAreaHeader& h) { return crc_behind(h, 8, 0); });
    }
    for (uint64_t i = random.below(3); i > 0; --i) {
      const uint64_t place = random.below(4) == 0 ? random.below(kSlots) : log.place;
      forge<LogSlot>(area + kLogSlotsOffset + (place * 2 + random.below(2)) * kLogSlotBytes, random,
                     [&](const LogSlot& s) { return slot_crc(s, header.area); });
    }
    for (uint64_t i = random.below(3); i > 0; --i) {
      forge<RingHeader>(area + log.region + random.below(2) * kRingHeaderCopyStride, random,
                        [&](const RingHeader& h) { return crc_behind(h, 8, salt); });
    }
    for (uint64_t i = random.below(4); i > 0 && !log.entries.empty(); --i) {
      auto entry = log.entries.begin();
      std::advance(entry, random.below(log.entries.size()));
      std::byte* const at = area + log.region + kRingHeaderBytes + entry->second.lsn % kLogBytes;
      forge<EntryHeader>(at, random, [&](const EntryHeader& h) {
        const uint64_t room = static_cast<uint64_t>(region.bytes().data() + kBytes - at);
        const uint64_t bytes =
            std::min<uint64_t>(h.payload_bytes, room - std::min(room, sizeof(EntryHeader)));
        return entry_crc(h, {at + sizeof h, h.magic == kPadMagic ? 0 : bytes}, salt);
      });
    }
    (void)check_logs(*pool_in(region));
    auto pool = pool_in(region);
    auto store = LogStore::open(*pool);
    if (!store) continue;
    ++opened;
    for (const LogInfo& info : (*store)->list()) {
      ASSERT_LE(info.damaged.size(), 1024u);
      if (is_lost(info)) continue;
      ASSERT_LE(info.start_lsn, info.tail_lsn);
      ASSERT_LE(info.tail_lsn - info.start_lsn, info.bytes);
      damaged += info.damaged.size();
      for (int i = 0; i < 4; ++i) {
        trimmed += (*store)->trim(info.id, random.next() >> random.below(64)) ? 1 : 0;
      }
    }
    store->reset();
    (void)use(region, random);
  }
  EXPECT_GT(opened, count / 2);
  EXPECT_GT(damaged, count / 4) << "forged entries were looked at";
  EXPECT_GT(trimmed, count / 4);
}

}  // namespace
}  // namespace pmstore::log
