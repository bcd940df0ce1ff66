#include "log/log_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "log/internal/log_directory.h"
#include "log/internal/log_ring.h"

namespace pmstore::log {
namespace {

using internal::LogDirectory;
using internal::LogRing;

void add_problem(LogCheckReport& report, std::string what) {
  if (report.problems.size() < kMaxLogProblems) report.problems.push_back(std::move(what));
}

void check_log(persist::Memory& memory, const LogDirectory& directory, const LogSlot& slot,
               LogCheckReport& report) {
  const std::string_view name(slot.name, slot.name_bytes);
  auto ring = LogRing::open(memory, directory.region_offset(slot), slot.region_bytes,
                            directory.salt(slot.id));
  const Status surveyed =
      ring ? ring->survey(slot.sealed != 0 ? &slot.sealed_lsn : nullptr) : ring.error();
  if (!surveyed) {
    return add_problem(report, fmt::format("log '{}' is lost: {}", name, surveyed.error().message));
  }
  report.entries += ring->entries_seen();
  for (const DamagedRange& range : ring->damaged()) {
    add_problem(report, fmt::format("log '{}': entries are lost from lsn {} to {}", name,
                                    range.from_lsn, range.to_lsn));
  }
}

}  // namespace

Result<LogCheckReport> check_logs(persist::Pool& pool) {
  PMSTORE_TRY(const LogDirectory directory, LogDirectory::load(pool));
  LogCheckReport report;
  report.epoch = directory.epoch();
  for (const LogExtent& extent : directory.extents()) report.area_bytes += extent.bytes;
  report.largest_free = directory.largest_free_region();
  const auto& places = directory.places();
  const std::vector<bool> overlapped = directory.overlapped();
  for (size_t place = 0; place < places.size(); ++place) {
    if (places[place].damaged) {
      add_problem(report, fmt::format("place {} of the log directory is damaged: whatever log it "
                                      "held is lost",
                                      place));
    }
    if (!places[place].live()) continue;
    ++report.logs;
    const LogSlot& slot = places[place].slot;
    if (overlapped[place]) {
      add_problem(report,
                  fmt::format("log '{}' is lost: another one has its place, or its space is gone",
                              std::string_view(slot.name, slot.name_bytes)));
      continue;
    }
    check_log(pool.memory(), directory, slot, report);
  }
  return report;
}

Status check_log_area(persist::Pool& pool) {
  PMSTORE_TRY(const LogDirectory directory, LogDirectory::load(pool));
  const std::vector<bool> overlapped = directory.overlapped();
  for (size_t place = 0; place < overlapped.size(); ++place) {
    if (!directory.places()[place].live() || overlapped[place]) continue;
    const LogSlot& slot = directory.places()[place].slot;
    const auto ring = LogRing::open(pool.memory(), directory.region_offset(slot), slot.region_bytes,
                                    directory.salt(slot.id));
    if (!ring && ring.code() == ErrorCode::kVersionMismatch) return ring.error();
  }
  return {};
}

}  // namespace pmstore::log
