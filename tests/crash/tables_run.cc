#include "tests/crash/tables_run.h"

#include <fmt/format.h>

#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/checksum.h"
#include "base/random.h"
#include "model/crash_recorder.h"
#include "model/page_bytes.h"
#include "pmstore/shard/table_catalog.h"
#include "tests/crash/opened_pool.h"

namespace pmstore::crash {
namespace {

using internal::TableCatalog;

constexpr uint64_t kTablesPoolBytes = 16 << 20;
// One of them lies behind the root area.
constexpr size_t kTablesBefore = internal::kRootTableEntries + 1;

// What a table of this name adds to the digest: in any order, since dropped entries are used again.
uint64_t name_digest(std::string_view name) {
  return base::mix64(base::checksum64(std::as_bytes(std::span(name)), 1));
}

uint64_t tables_digest(const TableCatalog& catalog) {
  uint64_t digest = 1;
  for (const TableInfo& table : catalog.tables()) digest += name_digest(table.name);
  return digest;
}

Status begin_epoch(TableCatalog& catalog) {
  const auto begun = catalog.begin_epoch();
  return begun ? Status() : Status(begun.error());
}

class RestartedTables final : public Restarted {
 public:
  explicit RestartedTables(std::unique_ptr<persist::Pool> pool) : pool_(std::move(pool)) {}
  std::vector<persist::Memory*> memories() override { return {&pool_->memory()}; }
  uint64_t start_number() const override { return catalog_ ? catalog_->header().epoch : 0; }

  Result<uint64_t> recover() override {
    PMSTORE_TRY_STATUS(record_opening(*pool_));
    PMSTORE_TRY(auto loaded, TableCatalog::load(*pool_));
    catalog_.emplace(std::move(loaded));
    PMSTORE_TRY_STATUS(begin_epoch(*catalog_));
    return tables_digest(*catalog_);
  }
  // Another table.
  Result<uint64_t> work() override {
    const auto made = catalog_->create_table(fmt::format("of start {}", start_number()));
    if (!made) return made.error();
    return tables_digest(*catalog_);
  }

 private:
  std::unique_ptr<persist::Pool> pool_;
  std::optional<TableCatalog> catalog_;
};

class TablesRun final : public RecordedRun {
 public:
  TablesRun(const std::string& scenario, uint64_t seed, persist::Domain domain)
      : RecordedRun(scenario, seed), domain_(domain), random_(seed), region_(kTablesPoolBytes) {
    pool_ = std::move(*persist::Pool::in_region(region_.bytes(), domain, true));
    const FormatOptions options{.rings = 0, .identity = seed + 1, .shard_log_bytes = 64 << 10};
    PMSTORE_CHECK(format_store(*pool_, options).has_value(), "the region is large enough");
    open();
    PMSTORE_CHECK(catalog_->most_tables() > kTablesBefore + 100, "there is room for more tables");
    while (names_.size() < kTablesBefore) create();
    recorder_.emplace(pool_->memory());
    seed == 0 ? script() : draw();
    allow({note()});
    trace_ = recorder_->take();
    catalog_.reset();
    pool_.reset();
  }

  Result<std::unique_ptr<Restarted>> restart(std::span<std::byte> memory) const override {
    PMSTORE_TRY(auto pool, persist::Pool::in_region(memory, domain_, false));
    return std::unique_ptr<Restarted>(std::make_unique<RestartedTables>(std::move(pool)));
  }

 private:
  void open() {
    catalog_.emplace(std::move(*TableCatalog::load(*pool_)));
    PMSTORE_CHECK(begin_epoch(*catalog_).has_value(), "it is not a file");
  }
  uint64_t note() {
    const uint64_t digest = tables_digest(*catalog_);
    describe(digest, fmt::format("{} tables", catalog_->tables().size()));
    return digest;
  }
  void create() {
    const std::string name = fmt::format("table {}", made_++);
    if (recorder_) {
      const uint64_t before = note();
      const uint64_t after = before + name_digest(name);
      describe(after, fmt::format("{} tables", names_.size() + 1));
      allow({before, after});
    }
    PMSTORE_CHECK(catalog_->create_table(name).has_value(), "there is room for it");
    names_.insert(name);
    if (recorder_) recorder_->mark();
  }
  void drop(const std::string& name) {
    const uint64_t before = note();
    const uint64_t after = before - name_digest(name);
    describe(after, fmt::format("{} tables", names_.size() - 1));
    allow({before, after});
    PMSTORE_CHECK(catalog_->drop_table(catalog_->find(name).value()).has_value(), "as above");
    names_.erase(name);
    recorder_->mark();
  }
  void restart_process() {
    allow({note()});
    catalog_.reset();
    recorder_->process_dies();
    open();
    recorder_->mark();
  }

  void script() {
    create();
    create();
    restart_process();
    drop("table 1008");  // behind the root area
    create();            // in its entry
    drop("table 3");
    restart_process();
    create();
    create();
  }
  void draw() {
    for (uint64_t steps = 4 + random_.below(12); steps > 0; --steps) {
      const uint64_t dice = random_.below(8);
      if (dice == 0) {
        restart_process();
      } else if (dice < 4) {
        drop(*std::next(names_.begin(), static_cast<ptrdiff_t>(random_.below(names_.size()))));
      } else {
        create();
      }
    }
  }

  persist::Domain domain_;
  Random random_;
  model::PageBytes region_;
  std::unique_ptr<persist::Pool> pool_;
  std::optional<TableCatalog> catalog_;
  std::optional<model::CrashRecorder> recorder_;
  std::set<std::string> names_;
  uint64_t made_ = 0;
};

}  // namespace

std::unique_ptr<RecordedRun> tables_run(const std::string& scenario, uint64_t seed,
                                        persist::Domain domain) {
  return std::make_unique<TablesRun>(scenario, seed, domain);
}

}  // namespace pmstore::crash
