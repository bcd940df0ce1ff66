// Log areas under power cuts at every moment: exactly the acknowledged entries are there, in order
// and unchanged, and no id and no index is used twice. Every flush and drain of the log service is
// needed for that. Where nothing is in progress, damage to one copy of everything that has two
// copies loses nothing.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/crash/log_area_script.h"
#include "tests/crash/log_scripts.h"

namespace pmstore::log {
namespace {

using crash::CrashImage;
using crash::CrashSearch;
using crash::Trace;

constexpr uint64_t kSlots = 8;

// Of an extent with logs, in the pool's memory.
uint64_t offset_of(const persist::Pool& pool, uint64_t name) {
  for (const persist::Extent& extent : pool.info().extents) {
    if (name == room_name(extent.entry, extent.generation)) return extent.offset;
  }
  return pool.info().extents.at(0).offset;
}

// Of everything that has two copies, damages one and the same.
void damage_copies(persist::Pool& pool, uint64_t copy) {
  if (!LogStore::is_in(pool)) return;
  persist::Memory& memory = pool.memory();
  const auto area = offset_of(pool, 0);
  const uint64_t garbage[2] = {0xbadbadbadbadbadull, 0xbadbadbadbadbadull};
  const auto damage = [&](uint64_t offset) {
    memory.store(memory.at(area + offset), garbage, sizeof garbage);
  };
  damage(copy * kLogAreaCopyStride);
  for (uint64_t slot = 0; slot < kSlots; ++slot) {
    const uint64_t at = kLogSlotsOffset + (2 * slot + copy) * kLogSlotBytes;
    LogSlot found;
    std::memcpy(&found, memory.at(area + at), sizeof found);
    if (found.generation == 0) continue;
    const uint64_t region = offset_of(pool, found.extent) - area + found.region_offset;
    if (found.state == LogState::kLive) damage(region + copy * kRingHeaderCopyStride);
    damage(at);
  }
}

// Goes on working with what was found, and must find that again.
std::optional<std::string> check_usable(const Script& script, persist::Pool& pool,
                                        std::unique_ptr<LogStore>& store, Content content,
                                        uint64_t highest_id) {
  const auto worked = work_on(*store, std::move(content), highest_id);
  if (!worked) return "work: " + worked.error().to_string();
  const auto again = recover(pool, store, script.new_identity());
  if (!again) return "after work: " + again.error().to_string();
  if (*again == *worked) return std::nullopt;
  return fmt::format("after work found {}; expected {}", again->text(), worked->text());
}

// Compares what an image holds with what it may hold, and goes on working with it.
std::optional<std::string> check_image(const Script& script, CrashImage& image, size_t marks,
                                       Content* found = nullptr) {
  const Expected& expected = script.expected(marks);
  auto pool = persist::Pool::in_region(image.bytes(), persist::Domain::kMemoryController, false);
  if (!pool) return "pool: " + pool.error().to_string();
  image.watch((*pool)->memory());
  if (expected.at_rest) {
    for (uint64_t copy : {0, 1}) {
      crash::PageBytes bytes(image.bytes());
      auto other =
          persist::Pool::in_region(bytes.bytes(), persist::Domain::kMemoryController, false)
              .value();
      damage_copies(*other, copy);
      std::unique_ptr<LogStore> store;
      const auto content = recover(*other, store, script.new_identity());
      if (!content) return "with one copy damaged: " + content.error().to_string();
      if (!(*content == expected.possible.front())) return "one copy is not like the other";
      if (store->epoch() <= expected.epoch) return "with one copy damaged, an epoch comes again";
    }
  }
  std::unique_ptr<LogStore> store;
  const auto content = recover(**pool, store, script.new_identity());
  if (!content) return "recovery: " + content.error().to_string();
  const auto& possible = expected.possible;
  if (std::find(possible.begin(), possible.end(), *content) == possible.end()) {
    return fmt::format("found {}; expected {} up to {}", content->text(), possible.front().text(),
                       possible.back().text());
  }
  if (found != nullptr) *found = *content;
  if (!store) return std::nullopt;
  if (store->epoch() <= expected.epoch) return "an epoch comes again";
  return check_usable(script, **pool, store, *content, expected.highest_id);
}

CrashSearch::Check check_of(const Script& script) {
  return [&script](CrashImage& image, size_t marks) { return check_image(script, image, marks); };
}

bool is_missed(const Script& script, const Trace& mutant, size_t first_event) {
  CrashSearch search;
  search.images_per_point = 64;
  search.first_event = first_event;
  return search.run(mutant, check_of(script)).has_value();
}

// The drain and all that follow until something is acknowledged, left out.
Trace without_drains(const Trace& trace, size_t drain) {
  size_t end = drain;
  while (end < trace.events.size() && trace.events[end].kind != model::EventKind::kMark) ++end;
  Trace mutant = trace;
  for (size_t event = end; event-- > drain;) {
    if (mutant.events[event].kind == model::EventKind::kDrain) mutant = mutant.without(event);
  }
  return mutant;
}

// Leaves out one barrier after the other; gives those that were not missed. Where nothing relies
// on a copy before later drains have come, any of the drains is enough: then all are left out.
std::vector<std::string> barriers_not_missed(const Script& script, const Trace& trace) {
  std::vector<std::string> unneeded;
  const std::vector<size_t> barriers = trace.barriers();
  for (size_t i = 0; i < barriers.size(); ++i) {
    const size_t barrier = barriers[i];
    if (script.others_barriers().contains(i)) continue;
    if (is_missed(script, trace.without(barrier), barrier)) continue;
    const bool drain = trace.events[barrier].kind == model::EventKind::kDrain;
    if (drain && is_missed(script, without_drains(trace, barrier), barrier)) continue;
    unneeded.push_back(trace.describe(barrier));
  }
  return unneeded;
}

class LogStoreCrash : public testing::TestWithParam<void (*)(Script&)> {
 protected:
  LogStoreCrash() { GetParam()(script_); }
  crash::PageBytes region_{kPoolBytes};
  Script script_{region_};
};

void expect_nothing_lost(Script& script) {
  const Trace trace = script.take();
  CrashSearch search;
  search.images_per_point = 60;
  const auto complaint = search.run(trace, check_of(script));
  EXPECT_FALSE(complaint) << *complaint;
  EXPECT_GT(search.images_seen, 500u);
}

TEST_P(LogStoreCrash, NothingAcknowledgedIsLostAndNothingElseAppears) {
  expect_nothing_lost(script_);
}

// Most barriers of extents are the pool's; crash_mutants has the order of the others.
TEST(LogExtentsCrash, NothingAcknowledgedIsLostWhereLogsTakeExtents) {
  crash::PageBytes region(kPoolBytes);
  Script script(region, {.new_identity = kIdentityByNeed});
  by_need_script(script);
  expect_nothing_lost(script);
}

TEST_P(LogStoreCrash, EveryFlushAndDrainIsNeeded) {
  const Trace trace = script_.take();
  EXPECT_EQ(barriers_not_missed(script_, trace), std::vector<std::string>());
}

INSTANTIATE_TEST_SUITE_P(Scripts, LogStoreCrash,
                         testing::Values(directory_script, interrupted_script, entries_script,
                                         version_one_script));

}  // namespace
}  // namespace pmstore::log
