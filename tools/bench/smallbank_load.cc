// Making a bank, or finding the one that is there.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "tools/bench/smallbank_bank.h"

namespace pmstore::tools::smallbank {
namespace {

constexpr std::string_view kBankKey = "bank";

std::string encode_bank(uint64_t accounts) {
  return fmt::format("accounts {} cents {}", accounts,
                     2 * static_cast<int64_t>(accounts) * kInitialCents);
}

std::optional<uint64_t> decode_bank(std::string_view text) {
  constexpr std::string_view kStart = "accounts ";
  if (!text.starts_with(kStart)) return std::nullopt;
  uint64_t accounts = 0;
  std::from_chars(text.data() + kStart.size(), text.data() + text.size(), accounts);
  if (accounts < 2 || text != encode_bank(accounts)) return std::nullopt;
  return accounts;
}

// Accounts [first, last) as one transaction.
Task<Status> load_some(Client& client, Tables tables, uint64_t first, uint64_t last) {
  Transaction transaction = client.begin();
  const std::string balance = encode(Balance{kInitialCents, 0});
  for (uint64_t account = first; account < last; ++account) {
    const std::string key = account_key(account);
    transaction.put(tables.savings, key, balance);
    transaction.put(tables.checking, key, balance);
  }
  co_return co_await transaction.commit();
}

}  // namespace

Task<Result<Tables>> open_tables(Client& client, bool create) {
  Tables tables;
  const auto one = [&client, create](std::string_view name) {
    return client.open_table(name, create);
  };
  PMSTORE_CO_TRY(tables.savings, co_await one("smallbank_savings"));
  PMSTORE_CO_TRY(tables.checking, co_await one("smallbank_checking"));
  PMSTORE_CO_TRY(tables.ledger, co_await one("smallbank_ledger"));
  PMSTORE_CO_TRY(tables.meta, co_await one("smallbank_meta"));
  co_return tables;
}

Task<Result<uint64_t>> find_bank(Client& client, Tables tables) {
  auto text = co_await client.get(tables.meta, kBankKey);
  if (!text && text.code() == ErrorCode::kNotFound) co_return uint64_t{0};
  if (!text) co_return std::move(text.error());
  const auto accounts = decode_bank(*text);
  if (!accounts) {
    co_return make_error(ErrorCode::kBadPool,
                         "the record 'bank' of table smallbank_meta is damaged: '" + *text + "'");
  }
  co_return *accounts;
}

Task<Status> load_bank(Client& client, Tables tables, uint64_t accounts,
                       std::atomic<uint64_t>& loaded) {
  constexpr uint64_t kAtATime = 64;
  for (uint64_t first = 0; first < accounts; first += kAtATime) {
    const uint64_t last = std::min(first + kAtATime, accounts);
    PMSTORE_CO_TRY_STATUS(co_await load_some(client, tables, first, last));
    loaded.store(last, std::memory_order_relaxed);
  }
  // Written last: a bank without it was not loaded completely, and is loaded anew.
  const std::string bank = encode_bank(accounts);
  co_return co_await client.put(tables.meta, kBankKey, bank);
}

}  // namespace pmstore::tools::smallbank
