#include "tests/crash/pool_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/crash_recorder.h"
#include "model/page_bytes.h"
#include "persist/padding.h"
#include "persist/pool.h"
#include "persist/pool_layout.h"

namespace pmstore::crash {
namespace {

using persist::Extent;
using persist::ExtentKind;
using persist::Pool;

constexpr uint64_t kExtentRoom = 64 << 10;
constexpr uint64_t kPoolBytes = persist::kPoolLayoutBytes + kExtentRoom;
constexpr uint64_t kWorkBytes = 1024;
static_assert(kPoolBytes % 64 == 0);

// What is put into an extent before the pool has it, and what its owner writes there later.
constexpr uint8_t kFilled = 0x5a;
constexpr uint8_t kWritten = 0xa5;

bool is_filled(ExtentKind kind) { return kind == ExtentKind::kRings; }
bool is_written(ExtentKind kind) { return kind == ExtentKind::kRecords; }

Status fill(persist::Memory& memory, const Extent& extent) {
  const std::vector<uint8_t> bytes(persist::kXpLineBytes, kFilled);
  memory.write(memory.at(extent.offset), bytes.data(), bytes.size());
  PMSTORE_TRY_STATUS(memory.drain());
  return {};
}

// An extent begins with what it was filled with, or is zero but for what its owner writes.
bool content_is_right(persist::Memory& memory, const Extent& extent) {
  if (is_written(extent.kind)) return true;
  const std::span<const std::byte> bytes = memory.mapping().subspan(extent.offset, extent.bytes);
  const size_t filled = is_filled(extent.kind) ? persist::kXpLineBytes : 0;
  const auto all = [](std::span<const std::byte> part, uint8_t value) {
    return std::all_of(part.begin(), part.end(),
                       [value](std::byte each) { return each == std::byte{value}; });
  };
  return all(bytes.first(filled), kFilled) && all(bytes.subspan(filled), 0);
}

uint64_t extents_digest(const std::vector<Extent>& extents) {
  uint64_t digest = 1;
  for (const Extent& extent : extents) {
    const uint64_t place = uint64_t{extent.entry} << 32 | extent.generation;
    for (const uint64_t part :
         {uint64_t{static_cast<uint32_t>(extent.kind)}, extent.offset, extent.bytes, place}) {
      digest = base::mix64(digest ^ part);
    }
  }
  return digest;
}

std::string extents_text(const std::vector<Extent>& extents) {
  std::string text = fmt::format("{} extents", extents.size());
  for (const Extent& extent : extents) {
    text +=
        fmt::format(" {}+{} ({}.{})", extent.offset, extent.bytes, extent.entry, extent.generation);
  }
  return text;
}

// Opens the pool; nothing is there until its header is. Work: an extent less, or one more, or a new
// pool.
class RestartedPool final : public Restarted {
 public:
  RestartedPool(std::span<std::byte> memory, persist::Domain domain)
      : memory_(memory, {.domain = domain}) {}
  std::vector<persist::Memory*> memories() override { return {&memory_}; }
  Result<uint64_t> recover() override {
    auto opened = open(false);
    if (!opened && opened.code() == ErrorCode::kBadPool &&
        opened.error().message.find("damaged catalog header") != std::string::npos) {
      return kNothing;
    }
    if (!opened) return opened.error();
    pool_ = std::move(*opened);
    return content();
  }
  Result<uint64_t> work() override {
    if (!pool_) {
      PMSTORE_TRY(pool_, open(true));
      return content();
    }
    if (const auto& extents = pool_->info().extents; extents.size() % 2 == 1) {
      PMSTORE_TRY_STATUS(pool_->free_extent(extents.front()));
      return content();
    }
    const auto made = pool_->allocate_extent(ExtentKind::kLog, kWorkBytes);
    if (!made && made.code() != ErrorCode::kFull) return made.error();
    return content();
  }

 private:
  Result<uint64_t> content() {
    for (const Extent& extent : pool_->info().extents) {
      if (content_is_right(memory_, extent)) continue;
      return make_error(ErrorCode::kBadPool,
                        fmt::format("the extent at {} is not what it was", extent.offset));
    }
    return extents_digest(pool_->info().extents);
  }
  Result<std::unique_ptr<Pool>> open(bool format) {
    return Pool::in_region(memory_.mapping(), memory_.domain(), format, 256, memory_.observer());
  }
  persist::Memory memory_;
  std::unique_ptr<Pool> pool_;
};

class PoolRun final : public RecordedRun {
 public:
  PoolRun(const std::string& scenario, uint64_t seed, persist::Domain domain)
      : RecordedRun(scenario, seed),
        domain_(domain),
        random_(seed),
        region_(kPoolBytes),
        memory_(region_.bytes(), {.domain = domain}) {
    recorder_.emplace(memory_);
    describe(kNothing, "no pool");
    format();
    seed == 0 ? script() : draw();
    allow({extents_digest(extents_)});
    pool_.reset();
    trace_ = recorder_->take();
  }

  Result<std::unique_ptr<Restarted>> restart(std::span<std::byte> memory) const override {
    return std::make_unique<RestartedPool>(memory, domain_);
  }

 private:
  void format() {
    note();
    allow({kNothing, extents_digest({})});
    open(true);
    recorder_->mark();
  }
  void open(bool format) {
    auto opened = Pool::in_region(region_.bytes(), domain_, format, 256, &*recorder_);
    PMSTORE_CHECK(opened.has_value(), "the pool is whole");
    pool_ = std::move(*opened);
  }
  void allocate(ExtentKind kind, uint64_t bytes) {
    const std::vector<Extent> before = extents_;
    Extent extent{kind, smallest_gap(persist::round_up(bytes, persist::kXpLineBytes)),
                  persist::round_up(bytes, persist::kXpLineBytes)};
    extent.entry = next_entry();
    extent.generation = generations_[extent.entry];
    extents_.insert(std::find_if(extents_.begin(), extents_.end(),
                                 [&](const Extent& e) { return e.entry > extent.entry; }),
                    extent);
    note();
    allow({extents_digest(before), extents_digest(extents_)});
    Pool::ExtentFill filler;
    if (is_filled(kind)) filler = [this](const Extent& e) { return fill(pool_->memory(), e); };
    PMSTORE_CHECK(pool_->allocate_filled(kind, bytes, filler).has_value(), "there is room");
    recorder_->mark();
    allow({extents_digest(extents_)});
    if (is_written(kind)) write(extent);
    recorder_->mark();
  }
  // Leaves in the extent what the next one that lies there must not find.
  void write(const Extent& extent) {
    const std::vector<uint8_t> bytes(extent.bytes, kWritten);
    persist::Memory& memory = pool_->memory();
    memory.write(memory.at(extent.offset), bytes.data(), bytes.size());
    PMSTORE_CHECK(memory.drain().has_value(), "it is not a file");
  }
  void free(size_t index) {
    const std::vector<Extent> before = extents_;
    const Extent extent = pool_->info().extents.at(index);
    ++generations_[extent.entry];
    extents_.erase(extents_.begin() + static_cast<ptrdiff_t>(index));
    note();
    allow({extents_digest(before), extents_digest(extents_)});
    PMSTORE_CHECK(pool_->free_extent(extent).has_value(), "it is not a file");
    recorder_->mark();
  }
  // As the pool does it: the smallest gap, of equal ones the first.
  uint64_t smallest_gap(uint64_t bytes) const {
    std::vector<Extent> in_order = extents_;
    std::sort(in_order.begin(), in_order.end(),
              [](const Extent& a, const Extent& b) { return a.offset < b.offset; });
    in_order.emplace_back().offset = persist::round_down(kPoolBytes, persist::kXpLineBytes);
    uint64_t from = persist::kPoolLayoutBytes, best = 0, best_bytes = UINT64_MAX;
    for (const Extent& extent : in_order) {
      const uint64_t gap = extent.offset - from;
      if (gap >= bytes && gap < best_bytes) {
        best = from;
        best_bytes = gap;
      }
      from = extent.offset + extent.bytes;
    }
    PMSTORE_CHECK(best != 0, "the pool has room");
    return best;
  }
  // As the pool does it: the one with the fewest extents before.
  uint32_t next_entry() {
    std::optional<uint32_t> least;
    for (uint32_t i = 0; i < generations_.size(); ++i) {
      const bool used = std::any_of(extents_.begin(), extents_.end(),
                                    [i](const Extent& extent) { return extent.entry == i; });
      if (!used && (!least || generations_[i] < generations_[*least])) least = i;
    }
    if (least) return *least;
    generations_.push_back(0);
    return static_cast<uint32_t>(generations_.size() - 1);
  }
  void restart_process() {
    allow({extents_digest(extents_)});
    pool_.reset();
    recorder_->process_dies();
    open(false);
    recorder_->mark();
  }
  void note() { describe(extents_digest(extents_), extents_text(extents_)); }

  void script() {
    allocate(ExtentKind::kRings, 4096);
    allocate(ExtentKind::kRecords, 1000);
    restart_process();
    allocate(ExtentKind::kLog, 256);
    allocate(ExtentKind::kLog, 256);
    allocate(ExtentKind::kFileData, 1);
    free(1);  // what was written there is in the way of the next ones
    allocate(ExtentKind::kLog, 300);
    allocate(ExtentKind::kRings, 512);
    free(0);
    restart_process();
    allocate(ExtentKind::kRecords, 700);
    free(0);  // the second extent of its entry, which has a third after a restart
    restart_process();
    allocate(ExtentKind::kRecords, 700);
    free(4);
  }
  void draw() {
    for (uint64_t steps = 4 + random_.below(16); steps > 0; --steps) {
      const uint64_t dice = random_.below(8);
      if (dice == 0) {
        restart_process();
      } else if (dice < 4 && !extents_.empty()) {
        free(random_.below(extents_.size()));
      } else {
        allocate(static_cast<ExtentKind>(1 + random_.below(4)), 1 + random_.below(2000));
      }
    }
  }

  persist::Domain domain_;
  Random random_;
  model::PageBytes region_;
  persist::Memory memory_;  // whose observer has the recorder; the pool has one of its own
  std::optional<model::CrashRecorder> recorder_;
  std::unique_ptr<Pool> pool_;
  std::vector<Extent> extents_;
  std::vector<uint32_t> generations_;  // of the entries that were used
};

}  // namespace

std::unique_ptr<RecordedRun> pool_run(const std::string& scenario, uint64_t seed,
                                      persist::Domain domain) {
  return std::make_unique<PoolRun>(scenario, seed, domain);
}

}  // namespace pmstore::crash
