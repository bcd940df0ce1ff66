#include "tests/crash/units_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/random.h"
#include "fs/file_area.h"
#include "fs/local_data_space.h"
#include "model/crash_recorder.h"
#include "model/page_bytes.h"
#include "persist/pool_layout.h"
#include "tests/crash/opened_pool.h"

namespace pmstore::crash {
namespace {

using fs::AreaRange;
using fs::kUnitBytes;

constexpr uint64_t kUnitsAreaBytes = 512 << 10;
constexpr uint64_t kUnitsPoolBytes = persist::kPoolLayoutBytes + (768 << 10);
constexpr uint64_t kFirstLine = 0;  // of a unit

// No client has a map of what is in quarantine.
class OpenGate final : public fs::QuarantineGate {
 public:
  base::Task<Status> closed(AreaRange /*range*/) override { co_return Status{}; }
};

// One process that has the area.
struct AreaProcess {
  explicit AreaProcess(const fs::FileArea& opened) : area(opened), space(executor, area) {
    space.set_gate(gate);
  }
  // As a one-sided write to a line of a unit, which is durable.
  Status client_writes(const AreaRange& unit, uint64_t line) {
    const std::vector<std::byte> bytes(persist::kLineBytes, std::byte{0xc1});
    persist::Memory& memory = area.memory();
    memory.write(space.bytes_at(unit.offset, unit.bytes) + line * persist::kLineBytes, bytes.data(),
                 bytes.size());
    const auto durable = memory.drain();
    return durable ? Status() : Status(durable.error());
  }

  base::VirtualClock clock;
  base::Executor executor{clock};
  OpenGate gate;
  const fs::FileArea area;
  fs::LocalDataSpace space;
};

uint64_t unit_digest(uint64_t unit) { return base::mix64(unit + 1); }

std::vector<uint64_t> written_units(const fs::FileArea& area) {
  std::vector<uint64_t> written;
  for (uint64_t unit = 0; unit < area.units(); ++unit) {
    const auto bytes = area.data().subspan(unit * kUnitBytes, kUnitBytes);
    const bool is_zero =
        std::all_of(bytes.begin(), bytes.end(), [](std::byte each) { return each == std::byte{}; });
    if (!is_zero) written.push_back(unit);
  }
  return written;
}

uint64_t units_digest(const fs::FileArea& area) {
  uint64_t digest = 1;
  for (const uint64_t unit : written_units(area)) digest += unit_digest(unit);
  return digest;
}

class RestartedUnits final : public Restarted {
 public:
  explicit RestartedUnits(std::unique_ptr<persist::Pool> pool) : pool_(std::move(pool)) {}
  std::vector<persist::Memory*> memories() override { return {&pool_->memory()}; }
  uint64_t start_number() const override { return process_ ? process_->area.start() : 0; }

  Result<uint64_t> recover() override {
    PMSTORE_TRY_STATUS(record_opening(*pool_));
    PMSTORE_TRY(const fs::FileArea area, fs::FileArea::open(*pool_));
    process_.emplace(area);
    return units_digest(area);
  }
  // All units are free.
  Result<uint64_t> work() override {
    fs::LocalDataSpace& space = process_->space;
    for (const uint64_t unit : written_units(process_->area)) {
      const AreaRange range{0, unit * kUnitBytes, kUnitBytes};
      PMSTORE_TRY_STATUS(space.claim(range));
      space.release(range);
    }
    PMSTORE_TRY(const AreaRange range, space.allocate(0, kUnitBytes, kUnitBytes));
    PMSTORE_TRY_STATUS(process_->client_writes(range, kFirstLine));
    space.release(range);
    return units_digest(process_->area);
  }

 private:
  std::unique_ptr<persist::Pool> pool_;
  std::optional<AreaProcess> process_;
};

class UnitsRun final : public RecordedRun {
 public:
  UnitsRun(const std::string& scenario, uint64_t seed, persist::Domain domain)
      : RecordedRun(scenario, seed), domain_(domain), random_(seed), region_(kUnitsPoolBytes) {
    pool_ = std::move(*persist::Pool::in_region(region_.bytes(), domain, true));
    PMSTORE_CHECK(fs::FileArea::create(*pool_, kUnitsAreaBytes, seed + 1), "there is room for it");
    open();
    recorder_.emplace(pool_->memory());
    describe(units_digest(process_->area), "no unit with bytes");
    seed == 0 ? script() : draw();
    allow({units_digest(process_->area)});
    trace_ = recorder_->take();
    process_.reset();
    pool_.reset();
  }

  Result<std::unique_ptr<Restarted>> restart(std::span<std::byte> memory) const override {
    PMSTORE_TRY(auto pool, persist::Pool::in_region(memory, domain_, false));
    return std::unique_ptr<Restarted>(std::make_unique<RestartedUnits>(std::move(pool)));
  }
  uint64_t samples() const override { return 64; }

 private:
  void open() { process_.emplace(*fs::FileArea::open(*pool_)); }
  void use_unit(uint64_t line) {
    const auto range = process_->space.allocate(0, kUnitBytes, kUnitBytes);
    PMSTORE_CHECK(range.has_value(), "few units are used at a time");
    const uint64_t unit = range->offset / kUnitBytes;
    const uint64_t before = units_digest(process_->area);
    const uint64_t written = before + unit_digest(unit);
    describe(written, fmt::format("bytes in unit {}", unit));
    allow({before, written});
    PMSTORE_CHECK(process_->client_writes(*range, line), "it is not a file");
    recorder_->mark();
    allow({before, written});
    process_->space.release(*range);
    recorder_->mark();
  }
  void restart_process() {
    allow({units_digest(process_->area)});
    process_.reset();
    recorder_->process_dies();
    open();
    recorder_->mark();
  }
  void script() {
    use_unit(kFirstLine);
    use_unit(16);
    restart_process();
    use_unit(32);
  }
  void draw() {
    for (uint64_t steps = 1 + random_.below(4); steps > 0; --steps) {
      if (random_.below(4) == 0) restart_process();
      use_unit(16 * random_.below(64));  // release() looks at every 16th line
    }
  }

  persist::Domain domain_;
  Random random_;
  model::PageBytes region_;
  std::unique_ptr<persist::Pool> pool_;
  std::optional<AreaProcess> process_;
  std::optional<model::CrashRecorder> recorder_;
};

}  // namespace

std::unique_ptr<RecordedRun> units_run(const std::string& scenario, uint64_t seed,
                                       persist::Domain domain) {
  return std::make_unique<UnitsRun>(scenario, seed, domain);
}

}  // namespace pmstore::crash
