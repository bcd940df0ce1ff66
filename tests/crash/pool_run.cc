#include "tests/crash/pool_run.h"

#include <fmt/format.h>

#include <optional>
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

uint64_t extents_digest(const std::vector<Extent>& extents) {
  uint64_t digest = 1;
  for (const Extent& extent : extents) {
    for (const uint64_t part : {uint64_t{static_cast<uint32_t>(extent.kind)}, extent.offset}) {
      digest = base::mix64(digest ^ part);
    }
    digest = base::mix64(digest ^ extent.bytes);
  }
  return digest;
}

std::string extents_text(const std::vector<Extent>& extents) {
  std::string text = fmt::format("{} extents", extents.size());
  for (const Extent& extent : extents) text += fmt::format(" {}+{}", extent.offset, extent.bytes);
  return text;
}

// Opens the pool; nothing is there until its header is. Work: one more extent, or a new pool.
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
    return extents_digest(pool_->info().extents);
  }
  Result<uint64_t> work() override {
    if (!pool_) {
      PMSTORE_TRY(pool_, open(true));
    } else if (auto made = pool_->allocate_extent(ExtentKind::kLog, kWorkBytes);
               !made && made.code() != ErrorCode::kFull) {
      return made.error();
    }
    return extents_digest(pool_->info().extents);
  }

 private:
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
    const uint64_t before = extents_digest(extents_);
    extents_.push_back({kind, end_, persist::round_up(bytes, persist::kXpLineBytes)});
    end_ += extents_.back().bytes;
    note();
    allow({before, extents_digest(extents_)});
    PMSTORE_CHECK(pool_->allocate_extent(kind, bytes).has_value(), "there is room");
    recorder_->mark();
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
  }
  void draw() {
    for (uint64_t steps = 4 + random_.below(16); steps > 0; --steps) {
      if (random_.below(5) == 0) {
        restart_process();
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
  uint64_t end_ = persist::kPoolLayoutBytes;
};

}  // namespace

std::unique_ptr<RecordedRun> pool_run(const std::string& scenario, uint64_t seed,
                                      persist::Domain domain) {
  return std::make_unique<PoolRun>(scenario, seed, domain);
}

}  // namespace pmstore::crash
