#include "fs/internal/area_keeper.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/size_text.h"
#include "persist/zero_ahead.h"

namespace pmstore::fs::internal {
namespace {

// A hole of so many bytes takes some 0.2 ms of processor time on tmpfs.
constexpr uint64_t kReleasedAtATime = 1 << 20;

// What file data leaves to records and rings: as much as records take at a time.
uint64_t kept_bytes(uint64_t pool_bytes, const AreaKeeperOptions& options) {
  return std::clamp(pool_bytes / 16, options.least_step_bytes, options.most_step_bytes);
}

// Of a section, in a pool that has so much room for file data. What file data has reserved it does
// not leave to others.
uint64_t step_of(uint64_t pool_bytes, AreaRoom room, const AreaKeeperOptions& options) {
  const uint64_t step = kept_bytes(pool_bytes, options);
  const uint64_t left = std::min(room.bytes, step);
  const uint64_t bytes =
      std::min(step, std::max(room.bytes - left, std::min(room.bytes, room.reserved)));
  return bytes < options.least_section_bytes ? 0 : bytes;
}

// What a section of so many bytes has at least.
uint64_t units_of(uint64_t section_bytes) {
  return 1 + (section_bytes - FileArea::least_section()) / kUnitBytes;
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
  space_.grow_beside = [this] { grow_beside(); };
  space_.who_has_room = [this] { return who_has_room(); };
  space_.released = [this](uint64_t first_unit) {
    if (first_unit == 0 || !space_.is_empty_section(first_unit)) return;
    empty_since_[first_unit] = executor_.now_ns();
    look_for_empty();
  };
}

AreaKeeper::~AreaKeeper() {
  space_.grow = {};
  space_.growable = {};
  space_.grow_beside = {};
  space_.who_has_room = {};
  space_.released = {};
}

void AreaKeeper::begin() {
  PMSTORE_CHECK(!has_begun_, "a keeper begins once");
  has_begun_ = true;
  const uint64_t now_ns = executor_.now_ns();
  for (const AreaSection& section : area_.sections()) {
    if (section.first_unit != 0) empty_since_.emplace(section.first_unit, now_ns);
  }
  look_for_empty();
}

// ---- more room ----

size_t AreaKeeper::sections_left() const {
  const persist::PoolInfo& info = pool_.info();
  const size_t later = area_.sections().size() - 1;
  // What does not come back would be taken from records for ever.
  if (!has_begun_ || !info.extents_come_back || later >= kMostSections) return 0;
  PMSTORE_CHECK(info.extents.size() <= persist::kMaxExtents, "the table has all extents");
  return std::min(kMostSections - later, persist::kMaxExtents - info.extents.size());
}

AreaRoom AreaKeeper::room_in(persist::Pool& pool) {
  constexpr auto kKind = persist::ExtentKind::kFileData;
  return {pool.room_for(kKind), pool.space_rules().unused_reserve(kKind, pool.info().extents)};
}

uint64_t AreaKeeper::section_bytes(uint64_t has, AreaRoom room) const {
  if (has >= options_.most_bytes) return 0;
  const uint64_t step = step_of(pool_.info().bytes, room, options_);
  const uint64_t bytes = std::min(step, options_.most_bytes - has);
  return bytes < options_.least_section_bytes ? 0 : bytes;
}

uint64_t AreaKeeper::next_bytes() const {
  if (sections_left() == 0) return 0;
  return section_bytes(area_.bytes(), room_in(pool_));
}

uint64_t AreaKeeper::step_bytes(persist::Pool& pool, const AreaKeeperOptions& options) {
  return step_of(pool.info().bytes, room_in(pool), options);
}

// What the sections would have that can be made one after the other.
uint64_t AreaKeeper::growable_bytes() const {
  const size_t left = sections_left();
  AreaRoom room = left == 0 ? AreaRoom{} : room_in(pool_);
  uint64_t made = 0;
  for (size_t i = 0; i < left; ++i) {
    const uint64_t bytes = section_bytes(area_.bytes() + made, room);
    if (bytes == 0) break;
    made += units_of(bytes) * kUnitBytes;
    room.bytes -= bytes;
    room.reserved -= std::min(room.reserved, bytes);
  }
  return coming_bytes_ + made;
}

std::string AreaKeeper::who_has_room() const {
  std::map<persist::ExtentKind, uint64_t> bytes;
  for (const persist::Extent& extent : pool_.info().extents) bytes[extent.kind] += extent.bytes;
  std::string has;
  for (const auto& [kind, all] : bytes) {
    has += fmt::format("{}{} {}", has.empty() ? "" : ", ", persist::extent_name(kind),
                       base::size_text(all));
  }
  const std::string reserved = pool_.reserved_for_others(persist::ExtentKind::kFileData);
  return fmt::format("the pool of {} has {}, and {} free together{}",
                     base::size_text(pool_.info().bytes), has,
                     base::size_text(pool_.largest_free_extent()),
                     reserved.empty() ? "" : "; of what is free is reserved " + reserved);
}

base::Task<Status> AreaKeeper::make_room() {
  const uint64_t ended = growths_;
  if (!is_growing_) {
    if (next_bytes() == 0) co_return is_full();
    start_growing();
  }
  asked_ns_ = executor_.now_ns();
  while (growths_ == ended) co_await grown_.wait();
  co_return last_;
}

void AreaKeeper::grow_beside() {
  if (!is_growing_ && next_bytes() > 0) start_growing();
}

void AreaKeeper::start_growing() {
  is_growing_ = true;
  tasks_.start(grow());
}

base::Task<void> AreaKeeper::grow() {
  PMSTORE_CHECK(is_growing_, "one section is made at a time");
  last_ = co_await add_section();
  is_growing_ = false;
  ++growths_;
  grown_.notify_all();
  // The call that has asked for it may be gone, or may do without it.
  look_for_empty();
}

// The space of the next section, one part in each turn. It may have become smaller, or gone, while
// others took space.
base::Task<Status> AreaKeeper::zero_ahead() {
  const uint64_t part_bytes = persist::zeroed_at_a_time(pool_.info().domain);
  for (;;) {
    const uint64_t bytes = next_bytes();
    if (bytes == 0) co_return Status{};
    PMSTORE_CO_TRY(const bool more, area_.zero_ahead(pool_, bytes, part_bytes));
    if (!more) co_return Status{};
    ++zeroed_parts_;
    co_await executor_.yield();  // answers go first
  }
}

Error AreaKeeper::is_full() const {
  return make_error(ErrorCode::kFull, "file data has all the room that it can have: " +
                                          who_has_room() + "; remove files");
}

base::Task<Status> AreaKeeper::add_section() {
  PMSTORE_CO_TRY_STATUS(co_await zero_ahead());
  const uint64_t bytes = next_bytes();
  if (bytes == 0) co_return is_full();
  PMSTORE_CO_TRY(const AreaSection made, area_.add_section(pool_, bytes));
  space_.add_section(made);
  coming_bytes_ = made.bytes();
  Status reached;
  for (bool goes_on = true; goes_on;) {
    co_await executor_.yield();  // answers go first
    const auto registered = data_.register_one();
    if (!registered) reached = registered.error();
    goes_on = registered.value_or(false);
  }
  coming_bytes_ = 0;
  if (reached) {
    space_.open_section(made.first_unit);
    empty_since_[made.first_unit] = executor_.now_ns();
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
  if (!has_begun_ || gives_back_ || empty_sections().empty()) return;
  gives_back_ = true;
  tasks_.start(give_back_empty());
}

uint64_t AreaKeeper::kept_until_ns(uint64_t first_unit) const {
  if (is_growing_) return executor_.now_ns() + kKeptNs;
  return std::max(empty_since_.at(first_unit), asked_ns_) + kKeptNs;
}

base::Task<void> AreaKeeper::give_back_empty() {
  for (std::vector<uint64_t> empty = empty_sections(); !empty.empty(); empty = empty_sections()) {
    uint64_t until_ns = UINT64_MAX;
    for (const uint64_t each : empty) until_ns = std::min(until_ns, kept_until_ns(each));
    co_await executor_.sleep_until(until_ns);
    Status done;
    for (const uint64_t first_unit : empty) {
      const bool is_empty =
          space_.has_word(first_unit * kUnitBytes) && space_.is_empty_section(first_unit);
      const bool is_due = is_empty && kept_until_ns(first_unit) <= executor_.now_ns();
      if (done && is_due) done = give_back(first_unit);
      co_await executor_.yield();
    }
    if (!done) break;
    while (pool_.release_blocks(kReleasedAtATime).value_or(false)) co_await executor_.yield();
  }
  gives_back_ = false;
}

void AreaKeeper::give_back_now() {
  if (!has_begun_ || is_growing_) return;
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
  empty_since_.erase(first_unit);
  return area_.remove_section(pool_, first_unit);
}

}  // namespace pmstore::fs::internal
