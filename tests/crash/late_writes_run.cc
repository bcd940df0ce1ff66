#include "tests/crash/late_writes_run.h"

#include <fmt/format.h>

#include <optional>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/checksum.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/random.h"
#include "fs/local_data_space.h"
#include "model/crash_recorder.h"
#include "model/page_bytes.h"
#include "tests/crash/opened_pool.h"

namespace pmstore::crash {
namespace {

using fs::kUnitBytes;

constexpr uint64_t kMostLateUnits = 2;  // of a range
constexpr uint64_t kLatePoolBytes = 512 << 10;
// A release looks at so many lines of a range.
constexpr uint64_t kLooksOfRelease = 64;

// It believes each client at once.
class CredulousGate final : public fs::QuarantineGate {
 public:
  base::Task<Status> closed(fs::AreaRange) override { co_return Status{}; }
};

// A started data server, without its service.
class OpenedUnits {
 public:
  explicit OpenedUnits(fs::FileArea area) : area_(std::move(area)), space_(executor_, area_) {
    space_.set_gate(gate_);
  }
  fs::LocalDataSpace& space() { return space_; }
  uint64_t start() const { return area_.start(); }
  uint64_t digest() const { return base::checksum64(area_.data(), 1); }
  std::byte* at(const fs::AreaRange& range) { return space_.bytes_at(range.offset, range.bytes); }
  fs::AreaRange take(uint64_t units) {
    auto range =
        space_.allocate(fs::LocalDataSpace::kServer, units * kUnitBytes, units * kUnitBytes);
    PMSTORE_CHECK(range.has_value(), "all units are free");
    return *range;
  }
  // The last word of it, so that nothing tears.
  Status write(const fs::AreaRange& range, uint64_t word) {
    const fs::AreaRange last{range.server, range.offset + range.bytes - sizeof word, sizeof word};
    return executor_.run(space_.write(last, std::as_bytes(std::span(&word, 1))));
  }
  Status clean(const fs::AreaRange& range) { return executor_.run(space_.clean(range)); }

 private:
  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  CredulousGate gate_;
  fs::FileArea area_;
  fs::LocalDataSpace space_;
};

class RestartedUnits final : public Restarted {
 public:
  explicit RestartedUnits(std::unique_ptr<persist::Pool> pool) : pool_(std::move(pool)) {}
  std::vector<persist::Memory*> memories() override { return {&pool_->memory()}; }
  uint64_t start_number() const override { return units_ ? units_->start() : 0; }

  Result<uint64_t> recover() override {
    PMSTORE_TRY_STATUS(record_opening(*pool_));
    PMSTORE_TRY(auto area, fs::FileArea::open(*pool_));
    units_.emplace(std::move(area));
    // What was there may be in the caches only.
    const std::span<std::byte> data = units_->space().area().data();
    pool_->memory().flush(data.data(), data.size());
    if (auto durable = pool_->memory().drain(); !durable) return durable.error();
    return units_->digest();
  }
  // A unit gets data.
  Result<uint64_t> work() override {
    PMSTORE_TRY_STATUS(units_->write(units_->take(1), units_->start()));
    return units_->digest();
  }

 private:
  std::unique_ptr<persist::Pool> pool_;
  std::optional<OpenedUnits> units_;
};

// Invariant: between two steps `now_` is the digest, and the recorder has a mark behind it.
class LateWritesRun final : public RecordedRun {
 public:
  LateWritesRun(const std::string& scenario, uint64_t seed, persist::Domain domain)
      : RecordedRun(scenario, seed), domain_(domain), random_(seed), region_(kLatePoolBytes) {
    pool_ = std::move(*persist::Pool::in_region(region_.bytes(), domain, true));
    const Status made = fs::FileArea::create(*pool_, (kMostLateUnits + 2) * kUnitBytes, seed + 1);
    PMSTORE_CHECK(made, made ? "" : made.error().message.c_str());
    open();
    zero_ = now_ = units_->digest();
    describe(zero_, "units that are zero");
    recorder_.emplace(pool_->memory());
    seed == 0 ? script() : draw();
    allow({now_});
    trace_ = recorder_->take();
    units_.reset();
    pool_.reset();
  }

  Result<std::unique_ptr<Restarted>> restart(std::span<std::byte> memory) const override {
    PMSTORE_TRY(auto pool, persist::Pool::in_region(memory, domain_, false));
    return std::make_unique<RestartedUnits>(std::move(pool));
  }

 private:
  void open() {
    auto area = fs::FileArea::open(*pool_);
    PMSTORE_CHECK(area, area ? "" : area.error().message.c_str());
    units_.emplace(std::move(*area));
    PMSTORE_CHECK(units_->space().end() >= kMostLateUnits * kUnitBytes, "there are some units");
  }
  void ended(const char* what) {
    const uint64_t after = units_->digest();
    describe(after, what);
    allow({now_, after});
    recorder_->mark();
    now_ = after;
  }
  void restart_process() {
    units_.reset();
    recorder_->process_dies();
    open();
    ended("units after a start");
  }
  // A range has data and is freed. Its client, which has said that it has no map of the range, goes
  // on writing. `landed`: that is durable before the range is released.
  void free_under_a_client(uint64_t units, uint64_t look, bool landed) {
    const fs::AreaRange range = units_->take(units);
    PMSTORE_CHECK(units_->write(range, ++words_).has_value(), "it is not a file");
    ended("units with data");
    PMSTORE_CHECK(units_->clean(range).has_value(), "as above");
    PMSTORE_CHECK(units_->digest() == zero_, "a range is cleaned before it is free");
    ended("units that are cleaned");
    const uint64_t word = ++words_;
    persist::Memory& memory = pool_->memory();
    std::byte* const late = units_->at(range) + look * (range.bytes / kLooksOfRelease);
    memory.store(late, &word, sizeof word);
    if (landed) {
      memory.flush(late, sizeof word);
      PMSTORE_CHECK(memory.drain().has_value(), "as above");
    }
    ended("units with what came late");
    units_->space().release(range);
    PMSTORE_CHECK(units_->digest() == zero_, "a free unit is zero");
    ended("units that are free");
  }

  void script() {
    free_under_a_client(1, 0, true);
    free_under_a_client(2, kLooksOfRelease - 1, false);
    restart_process();
    free_under_a_client(2, 1, true);
  }
  void draw() {
    for (uint64_t steps = 2 + random_.below(3); steps > 0; --steps) {
      if (random_.below(4) == 0) restart_process();
      const uint64_t units = 1 + random_.below(kMostLateUnits);
      const uint64_t look = random_.below(kLooksOfRelease);
      free_under_a_client(units, look, random_.below(2) == 0);
    }
  }

  persist::Domain domain_;
  Random random_;
  model::PageBytes region_;
  std::unique_ptr<persist::Pool> pool_;
  std::optional<OpenedUnits> units_;
  std::optional<model::CrashRecorder> recorder_;
  uint64_t words_ = 0;
  uint64_t zero_ = 0;
  uint64_t now_ = 0;
};

}  // namespace

std::unique_ptr<RecordedRun> late_writes_run(const std::string& scenario, uint64_t seed,
                                             persist::Domain domain) {
  return std::make_unique<LateWritesRun>(scenario, seed, domain);
}

}  // namespace pmstore::crash
