// Rings under power cuts at every moment: exactly the acknowledged entries are there, in order and
// unchanged. Every flush and drain of log/ is needed for that.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "log/ring.h"
#include "persist/pool.h"
#include "tests/crash/crash_image.h"

namespace pmstore::log {
namespace {

using crash::CrashImage;
using crash::CrashSearch;
using crash::Trace;

constexpr uint64_t kPoolBytes = 96 * 1024;
constexpr uint64_t kRingBytes = 16 * 1024;
constexpr uint32_t kSalt = 99;

struct Logged {
  uint64_t sequence;
  std::string payload;
  bool operator==(const Logged&) const = default;
};

// The content that recovery finds.
struct Content {
  bool ring = false;
  uint64_t owner = 0;
  std::vector<Logged> entries;
  bool operator==(const Content&) const = default;

  std::string text() const {
    if (!ring) return "no ring";
    std::string list;
    for (const Logged& entry : entries) {
      list += fmt::format(" {}({})", entry.sequence, entry.payload.size());
    }
    return fmt::format("owner {}, entries{}", owner, list);
  }
};

std::string payload_of(uint64_t sequence, size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>('A' + (sequence * 7 + i) % 58);
  return text;
}

uint64_t ring_offset(persist::Pool& pool) { return pool.info().extents.at(0).offset; }

// The content of the memory, or its error. Leaves the ring walked.
Result<Content> recover(persist::Pool& pool, std::optional<Ring>& ring) {
  auto opened = Ring::open(pool.memory(), ring_offset(pool), kRingBytes, kSalt);
  if (!opened) {
    if (opened.code() == ErrorCode::kBadPool) return Content{};
    return opened.error();
  }
  ring.emplace(std::move(*opened));
  Content content{true, ring->owner(), {}};
  PMSTORE_TRY_STATUS(ring->walk([&](const EntryView& entry) {
    content.entries.push_back(
        {entry.sequence,
         std::string(reinterpret_cast<const char*>(entry.payload.data()), entry.payload.size())});
  }));
  return content;
}

// Runs operations on a ring, and notes what a crash during each of them, and after it, may leave.
class Script {
 public:
  explicit Script(crash::PageBytes& region, Content found = {}, bool format_pool = true)
      : now_(std::move(found)) {
    auto pool =
        persist::Pool::in_region(region.bytes(), persist::Domain::kMemoryController, format_pool);
    PMSTORE_CHECK(pool.has_value(), "the region takes a pool");
    pool_ = std::move(*pool);
    if (format_pool) {
      PMSTORE_CHECK(pool_->allocate_extent(persist::ExtentKind::kRings, kRingBytes).has_value(),
                    "the pool has room");
    }
    recorder_.emplace(pool_->memory());
  }

  void format() {
    begin({now_, Content{}, Content{true, 0, {}}});
    ring_.emplace(Ring::format(pool_->memory(), ring_offset(*pool_), kRingBytes, kSalt).value());
    end(Content{true, 0, {}});
  }
  // Opens what is there, as after a crash.
  void open() { PMSTORE_CHECK(recover(*pool_, ring_).value() == now_, "nothing has crashed here"); }
  // An entry of a one-sided writer has landed in the caches, then the process has died: the next
  // walk sees the entry, and only what takes the ring over can make it durable.
  void land_then_restart(size_t bytes) {
    const Content before = now_;
    const std::string payload = payload_of(next_sequence_, bytes);
    const PlannedEntry plan = plan_entry(ring_->position(), bytes, true).value();
    std::vector<std::byte> buffer(entry_room(bytes));
    std::memcpy(buffer.data() + sizeof(EntryHeader), payload.data(), bytes);
    seal_entry(buffer, plan, ring_->position(), bytes, next_sequence_);
    PMSTORE_CHECK(plan.pad_bytes == 0, "the script leaves room before the wrap");
    Content after = now_;
    after.entries.push_back({next_sequence_++, payload});
    begin({before, after});
    std::byte* const data = pool_->memory().at(ring_->data_offset());
    pool_->memory().store(data + plan.lsn % ring_->position().data_bytes, buffer.data(),
                          plan.bytes);
    ring_.reset();
    PMSTORE_CHECK(recover(*pool_, ring_).value() == after, "the caches have survived");
    landed_ = before;
    end(after);
  }
  // The process has died between storing a header and flushing it; the next one sees it.
  void store_header_then_restart() {
    crash::PageBytes copy(pool_->memory().mapping());
    persist::Memory elsewhere(copy.bytes(), {.domain = persist::Domain::kMemoryController});
    const uint64_t offset = ring_offset(*pool_);
    Ring ring = Ring::open(elsewhere, offset, kRingBytes, kSalt).value();
    PMSTORE_CHECK(ring.walk([](const EntryView&) {}) && ring.take_over(now_.owner), "it is sound");
    begin({now_});
    for (uint64_t line = offset; line < offset + kRingHeaderBytes; line += 64) {
      if (std::memcmp(pool_->memory().at(line), elsewhere.at(line), 64) == 0) continue;
      pool_->memory().store(pool_->memory().at(line), elsewhere.at(line), 64);
    }
    open();
    end(now_);
  }
  void take_over(uint64_t owner) {
    Content after = now_;
    after.owner = owner;
    if (owner != now_.owner) after.entries.clear();
    begin({landed_.value_or(now_), now_, after});
    landed_.reset();
    PMSTORE_CHECK(ring_->take_over(owner).has_value(), "the ring was walked");
    end(after);
  }
  // Appends entries of these sizes; acknowledged together.
  void append(const std::vector<size_t>& sizes) {
    std::vector<Content> possible = {now_};
    Content after = now_;
    for (size_t i = 0; i < sizes.size(); ++i) {
      after.entries.push_back({next_sequence_ + i, payload_of(next_sequence_ + i, sizes[i])});
      possible.push_back(after);
    }
    begin(possible);
    for (size_t i = 0; i < sizes.size(); ++i) {
      const std::string payload = payload_of(next_sequence_, sizes[i]);
      auto lsn = ring_->append(next_sequence_++, std::as_bytes(std::span(payload)));
      PMSTORE_CHECK(lsn.has_value(), "the script fits the ring");
    }
    durable_ = pool_->memory().drain().value();
    end(after);
  }
  // Truncates all but the last `kept` entries.
  void truncate(size_t kept) {
    Content after = now_;
    after.entries.erase(after.entries.begin(), after.entries.end() - static_cast<ptrdiff_t>(kept));
    const uint64_t mark =
        kept == 0 ? ring_->position().tail_lsn : lsn_of(after.entries.front().sequence);
    begin({now_, after});
    PMSTORE_CHECK(ring_->truncate(durable_.value(), mark, next_sequence_ - kept).has_value(),
                  "the mark is an entry");
    end(after);
  }
  // An entry that the next owner would find behind its first one of `bytes`.
  void forge_behind(size_t bytes) {
    const std::string payload = payload_of(666, 40);
    RingPosition position = ring_->position();
    ++position.incarnation;
    position.tail_lsn = plan_entry(position, bytes, false).value().next_lsn();
    const PlannedEntry plan = plan_entry(position, payload.size(), false).value();
    std::vector<std::byte> buffer(entry_room(payload.size()));
    std::memcpy(buffer.data() + sizeof(EntryHeader), payload.data(), payload.size());
    seal_entry(buffer, plan, position, payload.size(), 666);
    begin({now_});
    persist::Memory& memory = pool_->memory();
    std::byte* const data =
        memory.at(ring_->data_offset()) + plan.lsn % ring_->position().data_bytes;
    memory.store(data, buffer.data(), plan.bytes);
    memory.flush(data, plan.bytes);
    PMSTORE_CHECK(memory.drain().has_value(), "memory can always be drained");
    end(now_);
  }
  void erase_leftovers() {
    begin({now_});
    PMSTORE_CHECK(ring_->erase_leftovers().has_value(), "the ring is walked and empty");
    end(now_);
  }
  void set_next_sequence(uint64_t sequence) { next_sequence_ = sequence; }

  Trace take() {
    begin({now_});
    return recorder_->take();
  }
  // What may be found after a crash behind so many marks.
  const std::vector<Content>& possible(size_t marks) const { return possible_.at(marks); }

 private:
  void begin(std::vector<Content> possible) { possible_.push_back(std::move(possible)); }
  void end(Content now) {
    now_ = std::move(now);
    recorder_->mark();
  }
  uint64_t lsn_of(uint64_t sequence) {
    uint64_t found = 0;
    auto reader = Ring::open(pool_->memory(), ring_offset(*pool_), kRingBytes, kSalt);
    PMSTORE_CHECK(reader
                      ->walk([&](const EntryView& entry) {
                        if (entry.sequence == sequence) found = entry.lsn;
                      })
                      .has_value(),
                  "the ring is whole");
    return found;
  }

  std::unique_ptr<persist::Pool> pool_;
  std::optional<crash::CrashRecorder> recorder_;
  std::optional<Ring> ring_;
  std::optional<persist::Persisted> durable_;  // of the last append
  Content now_;
  std::optional<Content> landed_;  // what a power cut may still fall back to
  std::vector<std::vector<Content>> possible_;
  uint64_t next_sequence_ = 1;
};

// Compares what an image holds with what it may hold, and goes on working with it.
std::optional<std::string> check_image(const Script& script, CrashImage& image, size_t marks,
                                       Content* found = nullptr) {
  auto pool = persist::Pool::in_region(image.bytes(), persist::Domain::kMemoryController, false);
  if (!pool) return "pool: " + pool.error().to_string();
  image.watch((*pool)->memory());
  std::optional<Ring> ring;
  const auto content = recover(**pool, ring);
  if (!content) return "recovery: " + content.error().to_string();
  const auto& possible = script.possible(marks);
  if (std::find(possible.begin(), possible.end(), *content) == possible.end()) {
    return fmt::format("found {}; expected {} up to {}", content->text(), possible.front().text(),
                       possible.back().text());
  }
  if (found != nullptr) *found = *content;
  if (!ring) return std::nullopt;
  // It must be usable: a new entry goes behind the others.
  if (Status taken = ring->take_over(ring->owner()); !taken) return taken.error().to_string();
  const std::string payload = payload_of(777, 100);
  const auto lsn = ring->append(777, std::as_bytes(std::span(payload)));
  if (!lsn && lsn.code() != ErrorCode::kBackPressure) return lsn.error().to_string();
  Content extended = *content;
  if (lsn) extended.entries.push_back({777, payload});
  std::optional<Ring> again;
  const auto reread = recover(**pool, again);
  if (!reread || !(*reread == extended)) return "the recovered ring does not take an entry";
  return std::nullopt;
}

// Small entries, entries with pad entries in front, an unaligned batch, truncation, a wrap, a new
// incarnation, a new owner, a new ring over an old one.
void run(Script& script) {
  script.format();
  script.take_over(5);
  script.append({10});
  script.append({70});
  script.append({300});
  script.append({1, 200, 33, 500});
  script.truncate(2);
  script.append({4000});
  script.append({4000, 40});
  script.land_then_restart(60);
  script.take_over(5);
  script.truncate(1);
  script.append({4000, 700});  // wraps
  script.append({90});
  script.truncate(0);
  script.append({20, 20});
  script.store_header_then_restart();
  script.take_over(5);
  script.append({60});
  script.store_header_then_restart();
  script.truncate(1);
  script.take_over(5);
  script.land_then_restart(60);
  script.take_over(6);
  script.append({50});
}

CrashSearch::Check check_of(const Script& script) {
  return [&script](CrashImage& image, size_t marks) { return check_image(script, image, marks); };
}

// Leaves out one barrier after the other; gives those that were not missed.
std::vector<std::string> barriers_not_missed(const Script& script, const Trace& trace) {
  std::vector<std::string> unneeded;
  for (size_t barrier : trace.barriers()) {
    CrashSearch search;
    search.images_per_point = 40;
    search.first_event = barrier;
    if (!search.run(trace.without(barrier), check_of(script))) {
      unneeded.push_back(trace.describe(barrier));
    }
  }
  return unneeded;
}

TEST(RingCrash, NothingAcknowledgedIsLostAndNothingElseAppears) {
  crash::PageBytes region(kPoolBytes);
  Script script(region);
  run(script);
  const Trace trace = script.take();
  CrashSearch search;
  const auto complaint = search.run(trace, check_of(script));
  EXPECT_FALSE(complaint) << *complaint;
  EXPECT_GT(search.images_seen, 2000u);
  RecordProperty("images", static_cast<int>(search.images_seen));
}

TEST(RingCrash, EveryFlushAndDrainIsNeeded) {
  crash::PageBytes region(kPoolBytes);
  Script script(region);
  run(script);
  const Trace trace = script.take();
  EXPECT_GT(trace.barriers().size(), 40u);
  EXPECT_EQ(barriers_not_missed(script, trace), std::vector<std::string>());
}

// The old ring is full of entries of the same size, salt and incarnation: wherever one of them
// outlived the formatting, it would follow the last new one.
TEST(RingCrash, FormattingOverAnOldRingLeavesNothingOfIt) {
  crash::PageBytes region(kPoolBytes);
  Script script(region);
  script.format();
  for (int i = 0; i < 15; ++i) script.append({900});
  script.format();
  script.set_next_sequence(100);
  for (int i = 0; i < 15; ++i) script.append({900});
  const Trace trace = script.take();
  CrashSearch search;
  search.images_per_point = 30;
  const auto complaint = search.run(trace, check_of(script));
  EXPECT_FALSE(complaint) << *complaint;
  EXPECT_EQ(barriers_not_missed(script, trace), std::vector<std::string>());
}

// Both copies of the old header are there, and the one before the last says something else: other
// marks, another owner. While they are erased it must not be the one that counts.
TEST(RingCrash, FormattingNeverBringsBackAnEarlierHeader) {
  for (const bool truncated_last : {false, true}) {
    crash::PageBytes region(kPoolBytes);
    Script script(region);
    script.format();
    script.take_over(5);
    script.append({100, 200, 300});
    if (truncated_last) {
      script.truncate(1);
    } else {
      script.open();
      script.take_over(6);
      script.append({50});
    }
    script.format();
    script.set_next_sequence(100);
    script.take_over(7);
    script.append({100});
    const Trace trace = script.take();
    CrashSearch search;
    const auto complaint = search.run(trace, check_of(script));
    EXPECT_FALSE(complaint) << *complaint;
    EXPECT_EQ(barriers_not_missed(script, trace), std::vector<std::string>());
  }
}

// A crash leaves any mixture of a batch; what comes after recovery must not wake the rest of it.
// The earlier owner could write anywhere in the data area, and guess the next one's incarnation and
// the length of its first entry.
TEST(RingCrash, WhatAnEarlierOwnerHasForgedIsNeverTheNextOnes) {
  for (const bool erased : {true, false}) {
    crash::PageBytes region(kPoolBytes);
    Script script(region);
    script.format();
    script.take_over(5);
    script.append({100, 300});
    script.forge_behind(500);
    script.truncate(0);
    script.open();
    if (erased) script.erase_leftovers();
    script.take_over(6);
    script.append({500});
    const Trace trace = script.take();
    CrashSearch search;
    const auto complaint = search.run(trace, check_of(script));
    EXPECT_EQ(complaint.has_value(), !erased) << complaint.value_or("nothing was forged");
  }
}

TEST(RingCrash, CrashDuringASecondRunNeverBringsBackTheFirst) {
  crash::PageBytes region(kPoolBytes);
  Script first(region);
  first.format();
  first.take_over(5);
  first.append({100, 100, 100, 100, 100, 100});
  const Trace trace = first.take();
  Random random(3);
  uint64_t runs = 0;
  CrashSearch search;
  const auto complaint =
      search.run(trace, [&](CrashImage& image, size_t marks) -> std::optional<std::string> {
        crash::PageBytes copy(image.bytes());
        Content found;
        if (auto wrong = check_image(first, image, marks, &found)) return wrong;
        if (!found.ring || random.below(10) != 0) return std::nullopt;
        ++runs;
        Script second(copy, found, false);
        second.set_next_sequence(50);
        second.open();
        second.take_over(found.owner);
        second.append({100});
        second.append({100, 100});
        const Trace again = second.take();
        CrashSearch inner;
        inner.images_per_point = 10;
        return inner.run(again, check_of(second));
      });
  EXPECT_FALSE(complaint) << *complaint;
  EXPECT_GT(runs, 100u);
}

}  // namespace
}  // namespace pmstore::log
