// What a server says of itself, as JSON.
#include <fmt/format.h>

#include <bit>

#include "base/limit_text.h"
#include "persist/rules.h"
#include "pmstore/server/server_state.h"

namespace pmstore::internal {

namespace {

// A member to go behind others.
std::string limit_of(const ServerCore& core, persist::ExtentKind kind) {
  return base::limit_json(core.pool.space_rules().of(kind).limit_bytes);
}

std::string log_stat_json(const ServerCore& core) {
  const log::LogServiceCounters counters = core.log_service->counters();
  uint64_t entries = 0;
  uint64_t used = 0;
  uint64_t area_bytes = 0;
  for (const log::LogExtent& extent : core.logs->extents()) area_bytes += extent.bytes;
  const std::vector<log::LogInfo> logs = core.logs->list();
  for (const log::LogInfo& info : logs) {
    if (log::is_lost(info)) continue;
    entries += info.next_index - 1;
    used += info.tail_lsn - info.start_lsn;
  }
  return fmt::format(
      R"(, "logs": {{"logs": {}, "sessions_total": {}, "producers_total": {}, "fenced": {}, )"
      R"("shared_appends": {}, "group_commits": {}, "malformed": {}, "entries_total": {}, )"
      R"("used_bytes": {}, "area_bytes": {}, "limit_bytes": {}, )"
      R"("regions": {{"registered": {}, "refused": {}}}}})",
      logs.size(), counters.sessions, counters.producers, counters.fenced, counters.shared_appends,
      counters.group_commits, counters.malformed, entries, used, area_bytes,
      limit_of(core, persist::ExtentKind::kLog), counters.extents_registered,
      counters.extents_refused);
}

std::string redo_stat_json(const ServerCore& core) {
  const Store& store = *core.store;
  size_t owned = 0;
  uint64_t used = 0;
  uint64_t bytes = 0;
  const ClientRings& rings = store.rings();
  for (uint32_t i = 0; i < rings.most(); ++i) {
    if (!rings.has(i)) continue;
    const log::Ring& ring = rings.at(i);
    const log::RingPosition position = ring.position();
    owned += ring.owner() != 0 ? 1 : 0;
    used += position.tail_lsn - position.start_lsn;
    bytes += position.data_bytes;
  }
  const log::RingPosition log = store.log().ring().position();
  return fmt::format(
      R"({{"log_used_bytes": {}, "log_bytes": {}, "rings": {}, "owned": {}, "used_bytes": {}, )"
      R"("bytes": {}, "granted": {}, "refused": {}}})",
      log.tail_lsn - log.start_lsn, log.data_bytes, rings.count(), owned, used, bytes,
      core.rings.counters().granted, core.rings.counters().refused);
}

std::string groups_stat_json(const CommitGroupCounters& groups) {
  return fmt::format(R"({{"groups": {}, "transactions": {}, "largest": {}}})", groups.groups,
                     groups.transactions, groups.largest);
}

std::string two_phase_stat_json(const Store& store) {
  const TwoPhase& two_phase = store.two_phase();
  using State = TwoPhase::State;
  return fmt::format(R"({{"locked": {}, "prepared": {}, "committed": {}, "log_bytes": {}}})",
                     two_phase.count(State::kLocked), two_phase.count(State::kPrepared),
                     two_phase.count(State::kCommitted), store.log().reserved_bytes());
}

std::string views_stat_json(const ViewedSlots& viewed) {
  return fmt::format(R"({{"held": {}, "kept_slots": {}}})", viewed.views(), viewed.kept());
}

// Over all endpoints.
std::string leaves_stat_json(const ServerCore& core) {
  size_t registered = 0;
  size_t refused = 0;
  for (const auto& endpoint : core.host.endpoints()) {
    const LeafRegions& leaves = *core.regions_at(*endpoint).leaves;
    registered += leaves.registered();
    refused += leaves.refused();
  }
  return fmt::format(R"({{"registered": {}, "refused": {}}})", registered, refused);
}

// Regions over all endpoints.
std::string index_stat_json(const ServerCore& core) {
  size_t registered = 0;
  size_t refused = 0;
  for (const auto& endpoint : core.host.endpoints()) {
    const RegionTable& regions = *core.regions_at(*endpoint).growing;
    registered += regions.registered();
    refused += regions.refused();
  }
  const HashIndex& index = core.store->index().hash();
  return fmt::format(R"({{"buckets": {}, "overflowed": {}, "splits": {}, "merges": {}, )"
                     R"("regions": {{"registered": {}, "refused": {}}}}})",
                     index.bucket_count(), index.overflowed(), index.splits(), index.merges(),
                     registered, refused);
}

std::string frames_stat_json(const ServerCore& core) {
  return fmt::format(R"({{"to_go": {}, "freed": {}, "deaf": {}, "holes_failed": {}, )"
                     R"("records_moved": {}}})",
                     std::popcount(core.store->arena().aside()), core.totals.frames_freed,
                     core.totals.frames_deaf, core.totals.holes_failed,
                     core.store->moved_records());
}

// Headers that a start from a checkpoint did not read.
std::string headers_stat_json(const SlabArena::HeaderLook& look, bool from_checkpoint) {
  return fmt::format(R"({{"all_seen": {}, "mended": {}, "lost": {}}})",
                     look.over || !from_checkpoint, look.mended, look.lost);
}

std::string rules_json(const persist::SpaceRules& rules) {
  std::string all;
  for (const persist::ExtentKind kind : persist::SpaceRules::kKinds) {
    const persist::SpaceRule& rule = rules.of(kind);
    all += fmt::format(R"({}{{"kind": "{}", "reserve_bytes": {}, "limit_bytes": {}}})",
                       all.empty() ? "" : ", ", persist::extent_name(kind), rule.reserve_bytes,
                       base::limit_json(rule.limit_bytes));
  }
  return all;
}

std::string pool_json(const persist::Pool& pool) {
  const persist::PoolInfo& info = pool.info();
  std::string extents;
  for (const persist::Extent& extent : info.extents) {
    extents +=
        fmt::format(R"({}{{"kind": "{}", "offset": {}, "bytes": {}}})", extents.empty() ? "" : ", ",
                    persist::extent_name(extent.kind), extent.offset, extent.bytes);
  }
  return fmt::format(
      R"({{"medium": "{}", "format_version": {}, "bytes": {}, "free_bytes": {}, "domain": "{}", )"
      R"("domain_source": "{}", "rules": "{}", "space_rules": [{}], "extents": [{}]}})",
      info.medium, info.format_version, info.bytes, info.free_bytes,
      persist::domain_name(info.detected_domain), json_text(info.domain_source),
      persist::rules_text(persist::Rules::all().with_padding(info.padding)),
      rules_json(pool.space_rules()), extents);
}

}  // namespace

std::string json_text(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '"' || c == '\\') escaped += '\\';
    escaped += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return escaped;
}

std::string server_stat_json(const ServerCore& core) {
  Store& store = *core.store;
  const persist::MemoryStats stats = core.pool.memory().stats();
  const service::ServiceCounters& counters = core.counters();
  std::string others = log_stat_json(core);
  for (const auto& [name, json] : core.more_stat) {
    others += fmt::format(R"(, "{}": {})", name, json());
  }
  return fmt::format(
      R"({{"epoch": {}, "discipline": "{}", "domain": "{}", "sessions": {}, "resolving": {}, )"
      R"("sessions_total": {}, "fenced": {}, "leases_expired": {}, "malformed": {}, "calls": {}, )"
      R"("commits": {}, "conflicts": {}, "live_records": {}, "free_bytes": {}, )"
      R"("records_bytes": {}, "records_limit_bytes": {}, "frames": {}, "index": {}, )"
      R"("flushed_lines": {}, "drains": {}, "msyncs": {}, "failed": {}, "gets": {}, )"
      R"("gets_expected": {}, "scans": {}, "applied": {}, )"
      R"("group_commit": {}, "two_phase": {}, "views": {}, "leaf_chunks": {}, "redo": {}{}}})",
      store.catalog().header().epoch, discipline_name(core.discipline),
      persist::domain_name(core.pool.info().domain), core.sessions(), core.resolving(),
      counters.sessions, core.totals.fenced, counters.silent,
      counters.malformed + core.admin.counters().malformed, counters.calls, core.totals.commits,
      core.totals.conflicts, store.live_records(), store.arena().free_chunks() * kChunkBytes,
      store.arena().bytes(), limit_of(core, persist::ExtentKind::kRecords), frames_stat_json(core),
      index_stat_json(core), stats.flushed_lines, stats.drains, stats.msyncs, store.failed(),
      core.totals.gets, core.totals.gets_expected, core.totals.scans, core.totals.applied,
      groups_stat_json(core.group.counters()), two_phase_stat_json(store),
      views_stat_json(*store.viewed_slots()), leaves_stat_json(core), redo_stat_json(core), others);
}

std::string admin_stat_json(const ServerCore& core) {
  Store& store = *core.store;
  std::string listen;
  for (const auto& endpoint : core.host.endpoints()) {
    listen += fmt::format(R"({}"{}")", listen.empty() ? "" : ", ", json_text(endpoint->name));
  }
  const RecoveryReport& recovery = store.recovery();
  return fmt::format(
      R"({{"time_ns": {}, "listen": [{}], "store": {}, )"
      R"("memory": {{"index_bytes": {}, "lock_word_bytes": {}}}, )"
      R"("recovery": {{"transactions": {}, "records_applied": {}, "damaged_records": {}, )"
      R"("from_checkpoint": {}, "headers": {}, "duration_us": {}}}, "pool": {}}})",
      core.executor.now_ns(), listen, server_stat_json(core), store.index().hash_bytes(),
      store.words().bytes().size(), recovery.transactions_replayed, recovery.records_applied,
      recovery.damaged_records, recovery.from_checkpoint,
      headers_stat_json(store.arena().header_look(), recovery.from_checkpoint),
      recovery.duration_us, pool_json(core.pool));
}

}  // namespace pmstore::internal
