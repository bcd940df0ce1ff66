#include "fs/internal/area_keeper.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/size_text.h"

namespace pmstore::fs::internal {
namespace {

// A hole of so many bytes takes some 0.2 ms of processor time on tmpfs.
constexpr uint64_t kReleasedAtATime = 1 << 20;

// What file data leaves to records and rings: as much as records take at a time.
uint64_t kept_bytes(uint64_t pool_bytes, const AreaKeeperOptions& options) {
  return std::clamp(pool_bytes / 16, options.least_step_bytes, options.most_step_bytes);
}

}  // namespace

AreaKeeper::AreaKeeper(base::Executor& executor, persist::Pool& pool, FileArea& area,
                       LocalDataSpace& space, FileDataService& data,
                       const AreaKeeperOptions& options)
    : executor_(executor),
      pool_(pool),
      area_(area),
      space_(space),
      data_(data),
      options_(options),
      grown_(executor),
      tasks_(executor) {
  PMSTORE_CHECK(options_.least_section_bytes >= FileArea::least_section() &&
                    options_.least_step_bytes >= options_.least_section_bytes,
                "a section has a unit");
  space_.grow = [this] { return make_room(); };
  space_.growable = [this] { return growable_bytes(); };
  space_.who_has_room = [this] { return who_has_room(); };
  space_.released = [this](uint64_t first_unit) {
    if (first_unit != 0 && space_.is_empty_section(first_unit)) look_for_empty();
  };
}

AreaKeeper::~AreaKeeper() {
  space_.grow = {};
  space_.growable = {};
  space_.who_has_room = {};
  space_.released = {};
}

// ---- more room ----

uint64_t AreaKeeper::next_bytes() const {
  const uint64_t has = area_.bytes();
  if (area_.sections().size() > kMostSections || has >= options_.most_bytes) return 0;
  const uint64_t bytes = std::min(step_bytes(pool_, options_), options_.most_bytes - has);
  return bytes < options_.least_section_bytes ? 0 : bytes;
}

uint64_t AreaKeeper::step_bytes(persist::Pool& pool, const AreaKeeperOptions& options) {
  const uint64_t step = kept_bytes(pool.info().bytes, options);
  const uint64_t free = pool.largest_free_extent();
  const uint64_t left = std::min(free, step);
  const uint64_t bytes = std::min(step, free - left);
  return bytes < options.least_section_bytes ? 0 : bytes;
}

uint64_t AreaKeeper::growable_bytes() const {
  const uint64_t has = area_.bytes();
  if (next_bytes() == 0) return 0;
  const uint64_t free = pool_.largest_free_extent();
  const uint64_t left = std::min(free, kept_bytes(pool_.info().bytes, options_));
  return std::min(free - left, options_.most_bytes - has) / kUnitBytes * kUnitBytes;
}

std::string AreaKeeper::who_has_room() const {
  std::map<persist::ExtentKind, uint64_t> bytes;
  for (const persist::Extent& extent : pool_.info().extents) bytes[extent.kind] += extent.bytes;
  std::string has;
  for (const auto& [kind, all] : bytes) {
    has += fmt::format("{}{} {}", has.empty() ? "" : ", ", persist::extent_name(kind),
                       base::size_text(all));
  }
  return fmt::format("the pool of {} has {}, and {} free together",
                     base::size_text(pool_.info().bytes), has,
                     base::size_text(pool_.largest_free_extent()));
}

base::Task<Status> AreaKeeper::make_room() {
  const uint64_t ended = growths_;
  if (!is_growing_) {
    if (next_bytes() == 0) {
      co_return make_error(ErrorCode::kFull, "file data has all the room that it can have: " +
                                                 who_has_room() + "; remove files");
    }
    is_growing_ = true;
    tasks_.start(grow());
  }
  while (growths_ == ended) co_await grown_.wait();
  co_return last_;
}

base::Task<void> AreaKeeper::grow() {
  PMSTORE_CHECK(is_growing_, "one section is made at a time");
  last_ = co_await add_section(next_bytes());
  is_growing_ = false;
  ++growths_;
  grown_.notify_all();
}

base::Task<Status> AreaKeeper::add_section(uint64_t bytes) {
  PMSTORE_CO_TRY(const AreaSection made, area_.add_section(pool_, bytes));
  space_.add_section(made);
  Status reached;
  for (bool goes_on = true; goes_on;) {
    co_await executor_.yield();  // answers go first
    const auto registered = data_.register_one();
    if (!registered) reached = registered.error();
    goes_on = registered.value_or(false);
  }
  if (reached) {
    space_.open_section(made.first_unit);
    co_return Status{};
  }
  data_.withdraw(made.first_unit);
  space_.drop_section(made.first_unit);
  // Else it is empty at the next start.
  (void)area_.remove_section(pool_, made.first_unit);
  co_return reached;
}

// ---- less ----

std::vector<uint64_t> AreaKeeper::empty_sections() const {
  std::vector<uint64_t> empty;
  for (const AreaSection& section : area_.sections()) {
    if (section.first_unit == 0 || !space_.has_word(section.begin())) continue;
    if (space_.is_empty_section(section.first_unit)) empty.push_back(section.first_unit);
  }
  return empty;
}

void AreaKeeper::look_for_empty() {
  if (gives_back_ || empty_sections().empty()) return;
  gives_back_ = true;
  tasks_.start(give_back_empty());
}

base::Task<void> AreaKeeper::give_back_empty() {
  for (std::vector<uint64_t> empty = empty_sections(); !empty.empty(); empty = empty_sections()) {
    co_await executor_.sleep_for(kKeptNs);
    Status done;
    for (const uint64_t first_unit : empty) {
      const bool is_there = space_.has_word(first_unit * kUnitBytes);
      if (done && is_there && space_.is_empty_section(first_unit)) done = give_back(first_unit);
      co_await executor_.yield();
    }
    if (!done) break;
    while (pool_.release_blocks(kReleasedAtATime).value_or(false)) co_await executor_.yield();
  }
  gives_back_ = false;
}

void AreaKeeper::give_back_now() {
  if (is_growing_) return;
  for (const uint64_t first_unit : empty_sections()) {
    if (!give_back(first_unit)) return;
  }
}

Status AreaKeeper::give_back(uint64_t first_unit) {
  if (!pool_.info().extents_come_back) {
    return make_error(ErrorCode::kUnsupported, "extents of this pool do not come back");
  }
  space_.close_section(first_unit);
  data_.withdraw(first_unit);
  PMSTORE_CHECK(!data_.reaches(first_unit), "no device reaches what is given back");
  space_.drop_section(first_unit);
  return area_.remove_section(pool_, first_unit);
}

}  // namespace pmstore::fs::internal
