// ServerCore's calls about tables as a whole. See pmstore/shard/table_drop.h.

#include <algorithm>
#include <string>

#include "pmstore/server/server_state.h"

namespace pmstore::internal {

namespace {

constexpr uint64_t kBusyPauseNs = 1'000'000;
constexpr uint64_t kFreeAgainNs = 1'000'000'000;

}  // namespace

// A request is copied: the client can write its request ring meanwhile.
void ServerCore::serve_range_scan(Session& session, fabric::RpcCall& call,
                                  std::span<const std::byte> body) {
  MessageReader reader(body);
  const auto request = reader.get<RangeScanRequest>();
  const std::string from(reader.get_bytes(request.from_bytes));
  const std::string to(reader.get_bytes(request.to_bytes));
  if (!reader.complete()) return drop_malformed(session, call);
  ++totals.scans;
  auto got = store->range_scan(request, {from, to}, call.reply_room());
  if (!got && got.code() == ErrorCode::kConflict && group.finish()) {
    got = store->range_scan(request, {from, to}, call.reply_room());
  }
  if (!got) return call.reply_error(got.error());
  if (request.routes == 0) return call.reply_filled(*got);
  LeafRegions& leaves = *regions_at(*session.endpoint).leaves;
  call.reply_filled(
      leaves.add_routes(static_cast<TableId>(request.table), call.reply_room(), *got));
  if (leaves.needs_work()) run(leaves.work());
}

void ServerCore::serve_drop_table(Session& session, fabric::RpcCall& call,
                                  std::span<const std::byte> body) {
  MessageReader reader(body);
  const auto request = reader.get<DropTableRequest>();
  const std::string name(reader.get_bytes(request.name_bytes));  // see serve_commit()
  if (!reader.complete() || (request.table == 0) == name.empty()) {
    return drop_malformed(session, call);
  }
  auto table = static_cast<TableId>(request.table);
  if (request.table == 0) {
    const auto dropped = drop_table(name);
    if (!dropped) return call.reply_error(dropped.error());
    table = *dropped;
  }
  const bool freed = std::find(freeing.begin(), freeing.end(), table) == freeing.end();
  const DropTableReply reply{raw(table), freed, 0};
  call.reply(std::as_bytes(std::span(&reply, 1)));
}

Result<TableId> ServerCore::drop_table(std::string_view name) {
  group.finish();
  const auto table = store->catalog().find(name);
  if (!table) {
    return make_error(ErrorCode::kUnknownTable,
                      "no table '" + std::string(name) + "' in this pool");
  }
  PMSTORE_TRY_STATUS(store->drop_table(*table));
  freeing.push_back(*table);
  run(free_dropped(*table));
  return *table;
}

// Ends when the slots of the table's records are free, or when the server stops: the next start
// frees them as well.
base::Task<void> ServerCore::free_dropped(TableId table) {
  TableDrop::Cursor cursor;
  while (!cursor.done && !host.stopped()) {
    WordChanger* const words = discipline == LockDiscipline::kRnic ? changer() : nullptr;
    const bool can = discipline == LockDiscipline::kCpu || words != nullptr;
    Status freed;
    if (can) freed = co_await store->free_dropped(words, table, cursor);
    if (cursor.done) break;
    if (!can || !freed) {
      co_await executor.sleep_for(kFreeAgainNs);
    } else if (cursor.position == 0) {
      co_await executor.sleep_for(kBusyPauseNs);  // a transaction is about to write to the table
    } else {
      co_await executor.yield();
    }
  }
  PMSTORE_CHECK(std::erase(freeing, table) == 1, "the slots of a dropped table are freed once");
}

void ServerCore::serve_table_usage(Session& session, fabric::RpcCall& call,
                                   std::span<const std::byte> body) {
  MessageReader reader(body);
  const auto request = reader.get<TableUsageRequest>();
  if (!reader.complete()) return drop_malformed(session, call);
  const auto table = static_cast<TableId>(request.table);
  const auto usage = request.records_only == 1 && is_ordered(table)
                         ? store->ordered_usage(table)
                         : store->table_usage(table, request.cursor);
  if (!usage) return call.reply_error(usage.error());
  call.reply(std::as_bytes(std::span(&*usage, 1)));
}

}  // namespace pmstore::internal
