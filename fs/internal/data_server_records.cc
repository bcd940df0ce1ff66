#include "fs/internal/data_server_records.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pmstore::fs::internal {

base::Task<Result<TableId>> DataServerRecords::table() {
  co_return co_await client_.open_table(".fs.super", false);
}

base::Task<Result<DataServerRecords::Loaded>> DataServerRecords::load() {
  Loaded loaded;
  const auto super_table = co_await table();
  if (!super_table && super_table.code() == ErrorCode::kUnknownTable) co_return loaded;
  if (!super_table) co_return super_table.error();
  const auto body = [&](Transaction& transaction) -> base::Task<Status> {
    loaded = {};
    const auto value = co_await transaction.get(*super_table, kSuperKey);
    if (!value && value.code() == ErrorCode::kNotFound) co_return Status{};
    if (!value) co_return value.error();
    PMSTORE_CO_TRY(const SuperRecord super, decode_super(*value));
    loaded.identity = super.identity;
    loaded.next_index = super.servers;
    const KeyRange keys = data_server_keys();
    TransactionScan scan = transaction.scan(*super_table, keys);
    while (true) {
      PMSTORE_CO_TRY(const RecordPage page, co_await scan.next());
      if (page.empty()) co_return Status{};
      for (const RecordRef record : page) {
        PMSTORE_CO_TRY(DataServerEntry server, decode_data_server(record.key, record.value));
        loaded.servers.push_back(std::move(server));
      }
    }
  };
  PMSTORE_CO_TRY_STATUS(co_await retry(client_, body));
  co_return loaded;
}

base::Task<Status> DataServerRecords::add(DataServerEntry server) {
  PMSTORE_CO_TRY(const TableId super_table, co_await table());
  const auto body = [&](Transaction& transaction) -> base::Task<Status> {
    PMSTORE_CO_TRY(const std::string value, co_await transaction.get(super_table, kSuperKey));
    PMSTORE_CO_TRY(SuperRecord super, decode_super(value));
    if (super.servers != server.index) {
      co_return make_error(ErrorCode::kAlreadyExists,
                           "another data server was added at the same time; run it again");
    }
    ++super.servers;
    super.features |= kHasDataServers;
    transaction.put(super_table, kSuperKey, encode(super));
    transaction.insert(super_table, data_server_key(server.index), encode(server));
    co_return Status{};
  };
  co_return co_await retry(client_, body);
}

base::Task<Result<ClientSecret>> DataServerRecords::secret_of(uint64_t area) {
  PMSTORE_CO_TRY(const TableId super_table, co_await table());
  const ClientSecret drawn = ClientSecret::random();
  ClientSecret secret;
  const auto body = [&](Transaction& transaction) -> base::Task<Status> {
    const auto value = co_await transaction.get(super_table, owner_secret_key(area));
    if (value) {
      PMSTORE_CO_TRY(secret, decode_secret(*value));
      co_return Status{};
    }
    if (value.code() != ErrorCode::kNotFound) co_return value.error();
    secret = drawn;
    transaction.insert(super_table, owner_secret_key(area), encode(drawn));
    co_return Status{};
  };
  PMSTORE_CO_TRY_STATUS(co_await retry(client_, body));
  PMSTORE_CHECK(!secret.empty(), "an area's owner has a secret");
  co_return secret;
}

base::Task<Result<bool>> DataServerRecords::has_secret_of(uint64_t area) {
  PMSTORE_CO_TRY(const TableId super_table, co_await table());
  const auto found = co_await client_.get(super_table, owner_secret_key(area));
  if (!found && found.code() != ErrorCode::kNotFound) co_return found.error();
  co_return found.has_value();
}

base::Task<Status> DataServerRecords::forget_secret_of(uint64_t area) {
  PMSTORE_CO_TRY(const TableId super_table, co_await table());
  co_return co_await client_.erase(super_table, owner_secret_key(area));
}

base::Task<Result<uint32_t>> DataServerRecords::exchange_given_up(uint32_t given_up) {
  PMSTORE_CO_TRY(const TableId super_table, co_await table());
  uint32_t before = 0;
  const auto body = [&](Transaction& transaction) -> base::Task<Status> {
    PMSTORE_CO_TRY(const std::string value, co_await transaction.get(super_table, kSuperKey));
    PMSTORE_CO_TRY(SuperRecord super, decode_super(value));
    before = std::exchange(super.given_up, given_up);
    transaction.put(super_table, kSuperKey, encode(super));
    co_return Status{};
  };
  PMSTORE_CO_TRY_STATUS(co_await retry(client_, body));
  co_return before;
}

base::Task<Status> DataServerRecords::change(DataServerEntry server) {
  PMSTORE_CO_TRY(const TableId super_table, co_await table());
  const auto body = [&](Transaction& transaction) -> base::Task<Status> {
    transaction.put(super_table, data_server_key(server.index), encode(server));
    co_return Status{};
  };
  co_return co_await retry(client_, body);
}

}  // namespace pmstore::fs::internal
