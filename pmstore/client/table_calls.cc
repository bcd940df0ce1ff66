#include "pmstore/client/table_calls.h"

#include <algorithm>
#include <array>

#include "pmstore/layout/protocol.h"
#include "pmstore/scan_repeats.h"

namespace pmstore::internal {
namespace {

constexpr size_t kTableRequest = 128;
// Records of a dropped table are locked for microseconds, or until a client's lease is over.
constexpr uint64_t kFreedWithinNs = 60'000'000'000;
constexpr uint64_t kFirstFreedPauseNs = 20'000;
constexpr uint64_t kLongestFreedPauseNs = 50'000'000;

// Any name that a table may have, also those of earlier releases with control characters.
Status check_opened_name(std::string_view name) {
  if (!name.empty() && name.size() <= kMaxTableNameBytes) return {};
  return check_table_name(name);
}

enum class Creation : uint8_t { kNone = 0, kIfMissing = 1, kNew = 2 };

// Trimmed: begin again.
base::Task<Result<TableUsage>> count_records(Connector& connector, TableId table,
                                             bool records_only) {
  PMSTORE_CO_TRY(const SessionRef session, co_await connector.connected());
  TableUsage usage;
  uint64_t cursor = 0;
  do {
    std::array<std::byte, kTableRequest> room;
    MessageWriter request(room);
    request.put(session->prefix());
    request.put(TableUsageRequest{cursor, raw(table), records_only, {}});
    const auto answer = co_await session->rpc().call(static_cast<uint16_t>(Method::kTableUsage),
                                                     request.message(), sizeof(TableUsageReply));
    if (!answer) co_return Error(answer.error());
    MessageReader reader(answer->bytes());
    const auto reply = reader.get<TableUsageReply>();
    const bool ahead = reply.cursor == 0 || reply.cursor > cursor;
    if (!reader.complete() || !ahead) co_return session->malformed_reply("a count of a table");
    usage.records += reply.records;
    usage.key_bytes += reply.key_bytes;
    usage.value_bytes += reply.value_bytes;
    usage.slot_bytes += reply.slot_bytes;
    cursor = reply.cursor;
  } while (cursor != 0);
  co_return usage;
}

base::Task<Result<TableId>> open_by(SessionRef session, std::string_view name, Creation creation,
                                    TableKind kind) {
  std::array<std::byte, kTableRequest> room;
  MessageWriter request(room);
  request.put(session->prefix());
  request.put(
      OpenTableRequest{static_cast<uint8_t>(creation), static_cast<uint8_t>(name.size()), kind});
  request.put_bytes(name);
  auto answer = co_await session->rpc().call(static_cast<uint16_t>(Method::kOpenTable),
                                             request.message(), sizeof(OpenTableReply));
  if (!answer) co_return std::move(answer.error());
  MessageReader reader(answer->bytes());
  const auto reply = reader.get<OpenTableReply>();
  if (!reader.complete()) co_return session->malformed_reply("an open of a table");
  co_return TableId{reply.table};
}

}  // namespace

base::Task<Result<TableId>> open_table(Connector& connector, Reader& reader, std::string_view name,
                                       bool create) {
  PMSTORE_CO_TRY_STATUS(check_opened_name(name));
  PMSTORE_CO_TRY(const SessionRef session, co_await connector.connected());
  const Creation creation = create ? Creation::kIfMissing : Creation::kNone;
  auto opened = co_await open_by(session, name, creation, TableKind::kHash);
  if (opened) reader.saw_table(*opened);
  co_return opened;
}

base::Task<Result<TableId>> create_table(Connector& connector, Reader& reader,
                                         std::string_view name, TableKind kind) {
  PMSTORE_CO_TRY_STATUS(check_table_name(name));
  PMSTORE_CO_TRY(const SessionRef session, co_await connector.connected());
  auto created = co_await open_by(session, name, Creation::kNew, kind);
  if (created) reader.saw_table(*created);
  co_return created;
}

base::Task<Result<std::vector<TableInfo>>> list_tables(Connector& connector) {
  PMSTORE_CO_TRY(const SessionRef session, co_await connector.connected());
  std::array<std::byte, kTableRequest> room;
  MessageWriter request(room);
  request.put(session->prefix());
  constexpr uint32_t kCapacity =
      sizeof(uint32_t) + kMaxTables * (sizeof(uint16_t) + sizeof(uint8_t) + kMaxTableNameBytes);
  auto answer = co_await session->rpc().call(static_cast<uint16_t>(Method::kListTables),
                                             request.message(), kCapacity);
  if (!answer) co_return std::move(answer.error());
  MessageReader reader(answer->bytes());
  const auto count = reader.get<uint32_t>();
  std::vector<TableInfo> tables;
  for (uint32_t i = 0; i < count && !reader.failed(); ++i) {
    const auto id = reader.get<uint16_t>();
    const auto name_bytes = reader.get<uint8_t>();
    tables.push_back({TableId{id}, std::string(reader.get_bytes(name_bytes))});
  }
  if (!reader.complete()) co_return session->malformed_reply("a list of tables");
  co_return std::move(tables);
}

base::Task<Status> drop_table(Connector& connector, Executor& executor, std::string_view name) {
  PMSTORE_CO_TRY_STATUS(check_opened_name(name));
  PMSTORE_CO_TRY(SessionRef session, co_await connector.connected());
  const uint64_t give_up_ns = executor.now_ns() + kFreedWithinNs;
  uint64_t pause_ns = kFirstFreedPauseNs;
  uint16_t table = 0;
  while (true) {
    std::array<std::byte, kTableRequest> room;
    MessageWriter request(room);
    request.put(session->prefix());
    const std::string_view by_name = table == 0 ? name : std::string_view();
    request.put(DropTableRequest{table, static_cast<uint8_t>(by_name.size()), 0});
    request.put_bytes(by_name);
    const auto answer = co_await session->rpc().call(static_cast<uint16_t>(Method::kDropTable),
                                                     request.message(), sizeof(DropTableReply));
    if (!answer) {
      // It is dropped already; a server that has started again has nothing left to free.
      if (table == 0 || answer.code() != ErrorCode::kDisconnected) co_return Error(answer.error());
      PMSTORE_CO_TRY(session, co_await connector.connected());
      continue;
    }
    MessageReader reader(answer->bytes());
    const auto reply = reader.get<DropTableReply>();
    const bool same = table == 0 || reply.table == table;
    if (!reader.complete() || reply.table == 0 || !same) {
      co_return session->malformed_reply("a drop of a table");
    }
    table = reply.table;
    if (reply.freed != 0) co_return Status{};
    if (executor.now_ns() >= give_up_ns) {
      co_return make_error(ErrorCode::kTimeout,
                           "the table is dropped, but after 60 s records of it are still locked "
                           "by another client; their room is free when that client has ended");
    }
    co_await executor.sleep_for(pause_ns);
    pause_ns = std::min(2 * pause_ns, kLongestFreedPauseNs);
  }
}

base::Task<Result<TableUsage>> table_usage(Connector& connector, Executor& executor, TableId table,
                                           bool records_only) {
  ScanRepeats repeats(executor);
  auto usage = co_await count_records(connector, table, records_only);
  while (!usage && usage.code() == ErrorCode::kTrimmed) {
    const bool again = co_await repeats.pause();
    if (!again) {
      co_return make_error(ErrorCode::kConflict,
                           "the server has moved records during each count of this table in 3 "
                           "minutes; count them again");
    }
    usage = co_await count_records(connector, table, records_only);
  }
  co_return usage;
}

}  // namespace pmstore::internal
