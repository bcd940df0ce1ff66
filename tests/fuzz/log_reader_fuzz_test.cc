// Logs that are damaged under a reader, while their server lives: it gives only what was appended,
// loses only what is damaged, says what, and never reads outside of what it was given.
//
// PMSTORE_FUZZ_ROUNDS in the environment makes the rounds more.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <optional>
#include <string>

#include "base/clock.h"
#include "log/entry.h"
#include "log/internal/log_parse.h"
#include "log/log_client.h"
#include "log/log_host.h"
#include "log/log_reader.h"
#include "tests/fuzz/log_corpus.h"

namespace pmstore::log {
namespace {

using base::Task;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Gives every entry of the log a checksum that fits: a reader that does not look at them.
void heal_checksums(std::span<std::byte> area, const SampleLog& log, uint64_t data_bytes,
                    uint32_t salt) {
  for (const auto& [index, entry] : log.entries) {
    if (entry.lsn < log.start_lsn) continue;
    std::byte* const at = &area[log.region + kRingHeaderBytes + entry.lsn % data_bytes];
    EntryHeader header;
    std::memcpy(&header, at, sizeof header);
    if (header.magic != kEntryMagic || header.lsn != entry.lsn ||
        header.payload_bytes != entry.payload.size() + sizeof(LogEntryPrefix)) {
      continue;
    }
    header.crc = entry_crc(header, {at + sizeof header, header.payload_bytes}, salt);
    std::memcpy(at, &header, sizeof header);
  }
}

// What one reader of one log gives.
struct Seen {
  std::map<uint64_t, std::string> entries;  // by index
  std::vector<DamagedRange> lost;
  std::optional<std::string> wrong;
};

Task<Seen> read_all(LogClient& client, uint64_t log, uint32_t window_bytes) {
  Seen seen;
  LogReaderOptions options;
  options.window_bytes = window_bytes;
  auto reader = co_await LogReader::open(client, log, options);
  if (!reader) {
    seen.wrong = "cannot be opened: " + reader.error().to_string();
    co_return seen;
  }
  for (uint64_t steps = 0; steps < kBytes; ++steps) {
    const auto entry = co_await (*reader)->next();
    if (entry) {
      seen.entries[entry->index] = text_of(entry->payload);
      continue;
    }
    if (entry.code() == ErrorCode::kNotFound || entry.code() == ErrorCode::kSealed) co_return seen;
    if (entry.code() != ErrorCode::kDamaged) {
      seen.wrong = "reading ends with " + entry.error().to_string();
      co_return seen;
    }
    const auto range = co_await (*reader)->skip_damaged();
    if (!range || range->to_lsn <= range->from_lsn) {
      seen.wrong = "the damage cannot be skipped";
      co_return seen;
    }
    seen.lost.push_back(*range);
  }
  seen.wrong = "reading does not end";
  co_return seen;
}

std::optional<std::string> check(const SampleLog& log, const LogInfo& info, const Seen& seen,
                                 const Damager& damage) {
  if (seen.wrong) return seen.wrong;
  for (const auto& [index, payload] : seen.entries) {
    const auto golden = log.entries.find(index);
    if (golden == log.entries.end() || golden->second.payload != payload) {
      return fmt::format("entry {} was never appended so", index);
    }
  }
  for (const auto& [index, entry] : log.entries) {
    if (entry.lsn < info.start_lsn || seen.entries.contains(index)) continue;
    const uint64_t at = log.region + kRingHeaderBytes + entry.lsn % info.bytes;
    if (!damage.touched(at, entry.next_lsn - entry.lsn)) {
      return fmt::format("entry {} is whole and not given", index);
    }
    const bool said = std::any_of(seen.lost.begin(), seen.lost.end(), [&](const DamagedRange& r) {
      return r.from_lsn <= entry.lsn && entry.lsn < r.to_lsn;
    });
    if (!said) return fmt::format("entry {} is lost, and nobody says so", index);
  }
  return std::nullopt;
}

// One area, damaged while it is served.
std::optional<std::string> round(const Sample& sample, Random& random, bool heal,
                                 uint64_t& damaged) {
  Guarded region;
  std::memcpy(region.bytes().data(), sample.image.data(), kBytes);
  auto pool = pool_in(region);
  base::RealClock clock;
  base::Executor executor(clock);
  auto host = LogHost::start(executor, *pool, {});
  if (!host) return "cannot be served: " + host.error().to_string();
  const auto uri = executor.run((*host)->listen({fabric::Scheme::kLocal, "log-reader-fuzz", 0}));
  if (!uri) return "cannot be served: " + uri.error().to_string();
  auto client = executor.run(LogClient::connect(executor, *uri, {}));
  if (!client) return "no session: " + client.error().to_string();
  const auto infos = executor.run((*client)->list());
  if (!infos) return "no list: " + infos.error().to_string();
  LogStore& store = (*host)->store();
  Damager damage(region.bytes(), sample, random);
  for (uint64_t strikes = 1 + random.below(5); strikes > 0; --strikes) damage.strike();
  for (const LogInfo& info : *infos) {
    const SampleLog& log = sample.logs.at(info.name);
    const auto where = store.where(info.id).value();
    if (heal) heal_checksums(store.area(), log, info.bytes, where.salt);
    const uint32_t window = 256u << random.below(8);
    const Seen seen = executor.run(read_all(**client, info.id, window));
    damaged += seen.lost.size();
    if (auto wrong = check(log, info, seen, damage)) return info.name + ": " + *wrong;
  }
  return std::nullopt;
}

std::optional<std::string> fuzz_reader(uint64_t count, bool heal) {
  Random random(31);
  Sample sample;
  uint64_t damaged = 0;
  for (uint64_t i = 0; i < count; ++i) {
    if (i % 20 == 0) sample = Recording(random.next()).take();
    if (auto wrong = round(sample, random, heal, damaged)) {
      return fmt::format("round {}: {}", i, *wrong);
    }
  }
  if (damaged < count / 4) return fmt::format("only {} ranges were damaged", damaged);
  return std::nullopt;
}

TEST(LogReaderFuzz, DamageUnderAReaderCostsOnlyWhatIsDamagedAndIsSaid) {
  const auto wrong = fuzz_reader(rounds(2000), false);
  EXPECT_FALSE(wrong) << *wrong;
}

TEST(LogReaderFuzz, CanaryReaderWithoutChecksumsIsCaught) {
  const auto wrong = fuzz_reader(rounds(2000), true);
  ASSERT_TRUE(wrong);
  EXPECT_NE(wrong->find("never appended"), std::string::npos) << *wrong;
}

// ---- the decoder alone ----

using Kind = internal::ParsedEntry::Kind;
using Parsed = std::map<Kind, uint64_t>;  // how many inputs came to what

// `bytes` of an entry at the end of the region, whose next page cannot be touched.
std::optional<std::string> parse_at_end(Guarded& region, std::span<const std::byte> given,
                                        uint64_t lsn, const internal::ParseBounds& bounds,
                                        const SampleEntry& golden, Parsed& counts) {
  const std::span<std::byte> bytes = region.bytes().last(given.size());
  std::copy(given.begin(), given.end(), bytes.begin());
  const internal::ParsedEntry parsed = parse_log_entry(bytes, lsn, bounds);
  ++counts[parsed.kind];
  switch (parsed.kind) {
    case Kind::kInvalid: return std::nullopt;
    case Kind::kPartial:
      if (parsed.needed_bytes <= bytes.size()) return "asks for bytes that it has";
      if (parsed.needed_bytes > bounds.tail_lsn - lsn) return "asks for bytes behind the tail";
      return std::nullopt;
    case Kind::kPad:
    case Kind::kEntry: break;
  }
  if (parsed.next_lsn <= lsn || parsed.next_lsn > bounds.tail_lsn) return "leaves the log";
  if (lsn % bounds.data_bytes + (parsed.next_lsn - lsn) > bounds.data_bytes)
    return "leaves the area";
  if (parsed.kind == Kind::kPad) return std::nullopt;
  if (parsed.payload.data() < bytes.data() ||
      parsed.payload.data() + parsed.payload.size() > bytes.data() + bytes.size()) {
    return "a payload outside of the bytes";
  }
  if (text_of(parsed.payload) != golden.payload) return "other bytes than were appended";
  return std::nullopt;
}

// Whole entries, cut, mutated; under bounds that are right, too short, or of somebody else.
std::optional<std::string> fuzz_parse(uint64_t count, bool heal) {
  Guarded region;
  Random random(32);
  Sample sample;
  Parsed counts;
  for (uint64_t i = 0; i < count; ++i) {
    if (i % 500 == 0) {
      do sample = Recording(random.next()).take();
      while (sample.logs.empty() || sample.logs.begin()->second.entries.empty());
    }
    const SampleLog& log = sample.logs.begin()->second;
    auto at = log.entries.begin();
    std::advance(at, random.below(log.entries.size()));
    const SampleEntry& golden = at->second;
    LogSlot slot;
    std::memcpy(&slot,
                &sample.image[sample.area + kLogSlotsOffset + log.place * kCopies * kLogSlotBytes],
                sizeof slot);
    if (slot.magic != kLogSlotMagic || golden.lsn < log.start_lsn) continue;
    internal::ParseBounds bounds{slot.region_bytes - kRingHeaderBytes, golden.next_lsn, 0};
    LogAreaHeader header;
    std::memcpy(&header, &sample.image[sample.area], sizeof header);
    bounds.salt = static_cast<uint32_t>(base::mix64(header.area + log.id));
    const std::byte* const from =
        &sample.image[sample.area + log.region + kRingHeaderBytes + golden.lsn % bounds.data_bytes];
    std::vector<std::byte> bytes(from, from + (golden.next_lsn - golden.lsn));
    for (uint64_t strikes = random.below(3); strikes > 0; --strikes) {
      const uint64_t where = random.below(4) == 0 ? random.below(bytes.size()) : random.below(48);
      bytes[where] = static_cast<std::byte>(random.next());
    }
    if (heal) {
      EntryHeader fixed;
      std::memcpy(&fixed, bytes.data(), sizeof fixed);
      const size_t room = bytes.size() - sizeof fixed;
      fixed.crc = entry_crc(
          fixed, {&bytes[sizeof fixed], std::min<size_t>(room, fixed.payload_bytes)}, bounds.salt);
      std::memcpy(bytes.data(), &fixed, sizeof fixed);
    }
    if (random.below(3) == 0) bytes.resize(random.below(bytes.size() + 1));
    if (random.below(4) == 0) bounds.tail_lsn -= random.below(golden.next_lsn - golden.lsn + 1);
    if (random.below(4) == 0) bounds.tail_lsn += random.below(4096);
    const uint64_t lsn = random.below(8) == 0 ? golden.lsn + random.below(64) : golden.lsn;
    if (auto wrong = parse_at_end(region, bytes, lsn, bounds, golden, counts)) {
      return fmt::format("round {}: {}", i, *wrong);
    }
  }
  for (const Kind kind : {Kind::kInvalid, Kind::kPartial, Kind::kEntry}) {
    if (counts[kind] >= count / 20) continue;
    return fmt::format("of {} inputs {} were invalid, {} partial, {} entries", count,
                       counts[Kind::kInvalid], counts[Kind::kPartial], counts[Kind::kEntry]);
  }
  return std::nullopt;
}

TEST(LogParseFuzz, AnEntryIsGivenAsItWasAppendedOrNotAtAll) {
  const auto wrong = fuzz_parse(rounds(200000), false);
  EXPECT_FALSE(wrong) << *wrong;
}

TEST(LogParseFuzz, CanaryDecoderWithoutChecksumsIsCaught) {
  const auto wrong = fuzz_parse(rounds(200000), true);
  ASSERT_TRUE(wrong);
  EXPECT_EQ(wrong->find("of "), std::string::npos) << *wrong;
}

}  // namespace
}  // namespace pmstore::log
