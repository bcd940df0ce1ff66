#include "fs/internal/space_claims.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "fs/internal/table_records.h"

namespace pmstore::fs::internal {
namespace {

bool have_common_units(const AreaRange& a, const AreaRange& b) {
  return a.server == b.server && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

}  // namespace

void SpaceClaims::note(std::string line) {
  if (++found_ <= kMostLines && core_.options().on_damage) core_.options().on_damage(line);
}

void SpaceClaims::space_is_unknown(std::string line) {
  core_.space_is_unknown = true;
  note(std::move(line) + "; until then no space for data is given out");
}

// An error: it is somebody else's, or not there.
void SpaceClaims::claim_units(const AreaRange& range) {
  for (uint64_t done = 0; done < range.bytes; done += kUnitBytes) {
    (void)core_.space().claim({range.server, range.offset + done, kUnitBytes});
  }
}

void SpaceClaims::claim_piece(const RecordRef& record) {
  const auto ino = ino_of_key(record.key);
  const auto place = decode_place(record.value);
  const auto piece = decode_piece(record.key, record.value);
  const std::string owner = ino ? fmt::format("inode {}", raw(*ino)) : std::string("a file");
  if (!piece && ino) core_.damaged.insert(*ino);
  if (!place) return space_is_unknown(fmt::format("{}: {}", owner, place.error().message));
  const Status claimed = core_.space().claim(*place);
  if (claimed && piece) return;
  note(fmt::format("{}: {}", owner, claimed ? piece.error().message : claimed.error().message));
  if (claimed) return;
  if (ino) core_.damaged.insert(*ino);
  refused_.push_back(*place);
  claim_units(*place);
}

void SpaceClaims::claim_freed(const RecordRef& record) {
  const auto id = freed_id_of_key(record.key);
  const auto range = decode_place(record.value);
  if (id) core_.next_freed_id = std::max(core_.next_freed_id, *id + 1);
  if (!range) return space_is_unknown("quarantine: " + range.error().message);
  const Status claimed = core_.space().claim(*range);
  if (!claimed) claim_units(*range);
  if (claimed && id) {
    core_.quarantined_bytes += range->bytes;
    return;
  }
  note("quarantine: " + (claimed ? id.error().message : claimed.error().message));
  if (!id) return;
  ReclaimQueue::Held held(core_.queue);
  held.hold(*id);
  held.keep();
}

// The other file is not to free what two have.
void SpaceClaims::note_piece(const RecordRef& record) {
  const auto ino = ino_of_key(record.key);
  const auto place = decode_place(record.value);
  if (!ino || !place) return;
  const auto is_shared = [&](const AreaRange& range) { return have_common_units(range, *place); };
  if (std::any_of(refused_.begin(), refused_.end(), is_shared)) core_.damaged.insert(*ino);
}

void SpaceClaims::tell() {
  if (found_ <= kMostLines || !core_.options().on_damage) return;
  core_.options().on_damage(
      fmt::format("{} records of where files have their data are damaged; the first {} are above: "
                  "run pmstore fs check",
                  found_, kMostLines));
}

Task<Status> SpaceClaims::run() {
  const auto each = [this](auto see) {
    return [this, see](const RecordRef& record) { (this->*see)(record); };
  };
  const NamespaceTables& tables = core_.tables;
  PMSTORE_CO_TRY(uint64_t illegible, co_await see_records(core_.client(), tables.maps,
                                                          each(&SpaceClaims::claim_piece)));
  PMSTORE_CO_TRY(const uint64_t more, co_await see_records(core_.client(), tables.freed,
                                                           each(&SpaceClaims::claim_freed)));
  illegible += more;
  if (illegible > 0) {
    space_is_unknown(
        fmt::format("{} records have a wrong checksum: run pmstore fs check", illegible));
  }
  // What cannot be claimed is little, or the whole table is wrong.
  constexpr size_t kMostRefused = 4096;
  if (refused_.size() > kMostRefused) {
    co_return make_error(ErrorCode::kDamaged,
                         fmt::format("{} extents of files lie outside of their areas or belong to "
                                     "two files: run pmstore fs check",
                                     refused_.size()));
  }
  if (!refused_.empty()) {
    PMSTORE_CO_TRY_STATUS(
        co_await see_records(core_.client(), tables.maps, each(&SpaceClaims::note_piece)));
  }
  tell();
  co_return Status{};
}

Task<Status> SpaceClaims::quarantine(std::span<const AreaRange> ranges) {
  ReclaimQueue::Held held(core_.queue);
  const uint64_t first = core_.next_freed_id;
  core_.next_freed_id += ranges.size();
  for (size_t i = 0; i < ranges.size(); ++i) held.hold(first + i);
  const auto body = [&](Transaction& transaction) -> Task<Status> {
    for (size_t i = 0; i < ranges.size(); ++i) {
      transaction.put(core_.tables.freed, freed_key(first + i), encode(ranges[i]));
    }
    co_return Status{};
  };
  const Status done = co_await retry(core_.client(), body);
  if (!done) {  // some may be recorded nevertheless
    held.keep();
    co_return done.error();
  }
  for (const AreaRange& range : ranges) core_.quarantined_bytes += range.bytes;
  co_return Status{};
}

Task<Status> SpaceClaims::quarantine_server(uint16_t server) {
  constexpr size_t kAtOnce = 64;
  std::vector<AreaRange> ranges;
  while (const auto range = core_.space().take_unclean(server)) ranges.push_back(*range);
  for (size_t done = 0; done < ranges.size(); done += kAtOnce) {
    const auto left = std::span(ranges).subspan(done);
    PMSTORE_CO_TRY_STATUS(co_await quarantine(left.first(std::min(left.size(), kAtOnce))));
  }
  co_return Status{};
}

Task<Status> SpaceClaims::quarantine_all_free() {
  for (uint16_t server = 0; server < core_.space().servers(); ++server) {
    PMSTORE_CO_TRY_STATUS(co_await quarantine_server(server));
  }
  co_return Status{};
}

// Whatever a crash leaves undone of it is done by the next start: the number comes last.
Task<Status> SpaceClaims::quarantine_free(uint32_t given_up, bool was_left) {
  Status done;
  if (given_up > 0 || was_left) done = co_await quarantine_all_free();
  if (!done && done.code() == ErrorCode::kFull) {
    space_is_unknown(
        "free space may not be zero, and the pool has no room to note which is to be zeroed: "
        "remove records or files, and start again");
    co_return Status{};
  }
  if (!done) co_return done.error();
  const auto body = [&](Transaction& transaction) -> Task<Status> {
    PMSTORE_CO_TRY(const std::string value,
                   co_await transaction.get(core_.tables.super, kSuperKey));
    PMSTORE_CO_TRY(SuperRecord super, decode_super(value));
    super.given_up = given_up;
    transaction.put(core_.tables.super, kSuperKey, encode(super));
    co_return Status{};
  };
  PMSTORE_CO_TRY_STATUS(co_await retry(core_.client(), body));
  if (given_up > 0 && core_.options().on_damage) {
    core_.options().on_damage(
        fmt::format("{} records of the pool were given up; what they named may not be zero, so all "
                    "free space is zeroed before it is given out",
                    given_up));
  } else if (was_left && core_.options().on_damage) {
    core_.options().on_damage(
        "a data server with old data was being added when the server stopped, so all free space is "
        "zeroed before it is given out");
  }
  co_return Status{};
}

}  // namespace pmstore::fs::internal
