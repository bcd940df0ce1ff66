#include "tools/bench/smallbank.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace pmstore::tools::smallbank {
namespace {

// Takes a number off the front of `text`, and one space if it is there.
template <typename T>
bool take_number(std::string_view& text, T& number) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc()) return false;
  text = std::string_view(rest, static_cast<size_t>(end - rest));
  if (text.starts_with(' ')) text.remove_prefix(1);
  return true;
}

// At least so many digits. Formatting by fmt took a quarter of an embedded transaction.
void add_digits(std::string& text, uint64_t number, size_t digits) {
  char backwards[20];  // as many as any number has
  char* const end = backwards + sizeof(backwards);
  char* from = end;
  for (; number != 0; number /= 10) *--from = static_cast<char>('0' + number % 10);
  if (const auto have = static_cast<size_t>(end - from); have < digits) {
    text.append(digits - have, '0');
  }
  text.append(from, end);
}

void add_signed(std::string& text, int64_t number, size_t digits) {
  text.push_back(number < 0 ? '-' : '+');
  const auto bits = static_cast<uint64_t>(number);
  add_digits(text, number < 0 ? -bits : bits, digits);
}

Task<Result<Balance>> read(Transaction& transaction, TableId table, std::string_view key) {
  auto text = co_await transaction.get(table, key);
  if (!text && text.code() != ErrorCode::kNotFound) co_return std::move(text.error());
  const auto balance = text ? decode_balance(*text) : std::nullopt;
  if (!balance) {
    co_return make_error(ErrorCode::kBadPool,
                         fmt::format("account {} is {}", key, text ? "damaged" : "missing"));
  }
  co_return *balance;
}

// The accounts of one order, and how they change.
class Books {
 public:
  Books(Transaction& transaction, const Tables& tables)
      : transaction_(transaction), tables_(tables) {}

  Task<Result<Balance>> savings(std::string_view key) {
    return read(transaction_, tables_.savings, key);
  }
  Task<Result<Balance>> checking(std::string_view key) {
    return read(transaction_, tables_.checking, key);
  }
  void set_savings(std::string_view key, Balance balance, int64_t cents) {
    set(tables_.savings, key, balance, cents);
  }
  void set_checking(std::string_view key, Balance balance, int64_t cents) {
    set(tables_.checking, key, balance, cents);
  }
  Effect effect() const { return effect_; }
  static Effect rolled_back() { return {true, 0, 0}; }

 private:
  void set(TableId table, std::string_view key, Balance balance, int64_t cents) {
    effect_.net_cents += cents - balance.cents;
    ++effect_.writes;
    transaction_.put(table, key, encode(Balance{cents, balance.writes + 1}));
  }
  Transaction& transaction_;
  const Tables& tables_;
  Effect effect_;
};

using Done = Task<Result<Effect>>;

Done amalgamate(Books& books, std::string_view source, std::string_view target) {
  PMSTORE_CO_TRY(const Balance savings, co_await books.savings(source));
  PMSTORE_CO_TRY(const Balance checking, co_await books.checking(source));
  PMSTORE_CO_TRY(const Balance other, co_await books.checking(target));
  books.set_savings(source, savings, 0);
  books.set_checking(source, checking, 0);
  books.set_checking(target, other, other.cents + savings.cents + checking.cents);
  co_return books.effect();
}

Done balance(Books& books, std::string_view account) {
  PMSTORE_CO_TRY(const Balance savings, co_await books.savings(account));
  PMSTORE_CO_TRY(const Balance checking, co_await books.checking(account));
  static_cast<void>(savings.cents + checking.cents);  // what the customer is told
  co_return books.effect();
}

Done deposit_checking(Books& books, std::string_view account, int64_t cents) {
  PMSTORE_CO_TRY(const Balance checking, co_await books.checking(account));
  books.set_checking(account, checking, checking.cents + cents);
  co_return books.effect();
}

Done send_payment(Books& books, std::string_view source, std::string_view target, int64_t cents) {
  PMSTORE_CO_TRY(const Balance payer, co_await books.checking(source));
  if (payer.cents < cents) co_return Books::rolled_back();
  PMSTORE_CO_TRY(const Balance payee, co_await books.checking(target));
  books.set_checking(source, payer, payer.cents - cents);
  books.set_checking(target, payee, payee.cents + cents);
  co_return books.effect();
}

Done transact_savings(Books& books, std::string_view account, int64_t cents) {
  PMSTORE_CO_TRY(const Balance savings, co_await books.savings(account));
  if (savings.cents + cents < 0) co_return Books::rolled_back();
  books.set_savings(account, savings, savings.cents + cents);
  co_return books.effect();
}

Done write_check(Books& books, std::string_view account, int64_t cents) {
  PMSTORE_CO_TRY(const Balance savings, co_await books.savings(account));
  PMSTORE_CO_TRY(const Balance checking, co_await books.checking(account));
  const bool overdrawn = savings.cents + checking.cents < cents;
  books.set_checking(account, checking,
                     checking.cents - cents - (overdrawn ? kOverdraftPenaltyCents : 0));
  co_return books.effect();
}

}  // namespace

std::string_view kind_name(Kind kind) {
  switch (kind) {
    case Kind::kAmalgamate: return "amalgamate";
    case Kind::kBalance: return "balance";
    case Kind::kDepositChecking: return "deposit-checking";
    case Kind::kSendPayment: return "send-payment";
    case Kind::kTransactSavings: return "transact-savings";
    case Kind::kWriteCheck: return "write-check";
  }
  return "unknown";
}

std::string encode(const Balance& balance) {
  std::string text;
  text.reserve(sizeof("+0000001000000 000000001"));
  add_signed(text, balance.cents, 13);
  text.push_back(' ');
  add_digits(text, balance.writes, 9);
  return text;
}

std::optional<Balance> decode_balance(std::string_view text) {
  Balance balance;
  if (!take_number(text, balance.cents) || !take_number(text, balance.writes) || !text.empty()) {
    return std::nullopt;
  }
  return balance;
}

std::string encode(const LedgerEntry& entry) {
  std::string text;
  add_digits(text, entry.transactions, 12);
  text.push_back(' ');
  add_signed(text, entry.net_cents, 15);
  text.push_back(' ');
  add_digits(text, entry.writes, 12);
  return text;
}

std::optional<LedgerEntry> decode_ledger(std::string_view text) {
  LedgerEntry entry;
  if (!take_number(text, entry.transactions) || !take_number(text, entry.net_cents) ||
      !take_number(text, entry.writes) || !text.empty()) {
    return std::nullopt;
  }
  return entry;
}

std::string account_key(uint64_t account) {
  std::string key;
  add_digits(key, account, 8);
  return key;
}

OrderSource::OrderSource(uint64_t seed, uint64_t accounts)
    : random_(seed), accounts_(accounts), hot_(std::max<uint64_t>(1, accounts * 4 / 100)) {}

uint64_t OrderSource::account() {
  if (hot_ == accounts_ || random_.below(100) < 90) return random_.below(hot_);
  return hot_ + random_.below(accounts_ - hot_);
}

Order OrderSource::next() {
  Order order;
  const uint64_t dice = random_.below(100);
  order.kind = dice < 25   ? Kind::kSendPayment
               : dice < 40 ? Kind::kAmalgamate
               : dice < 55 ? Kind::kBalance
               : dice < 70 ? Kind::kDepositChecking
               : dice < 85 ? Kind::kTransactSavings
                           : Kind::kWriteCheck;
  order.first = account();
  do {
    order.second = account();
  } while (order.second == order.first);
  order.cents = 1 + static_cast<int64_t>(random_.below(5000));
  if (order.kind == Kind::kTransactSavings && random_.below(2) == 0) order.cents = -order.cents;
  return order;
}

Task<Result<Effect>> execute(Transaction& transaction, Tables tables, Order order) {
  Books books(transaction, tables);
  const std::string first = account_key(order.first);
  const bool of_two = order.kind == Kind::kAmalgamate || order.kind == Kind::kSendPayment;
  const std::string second = of_two ? account_key(order.second) : std::string();
  switch (order.kind) {
    case Kind::kAmalgamate: co_return co_await amalgamate(books, first, second);
    case Kind::kBalance: co_return co_await balance(books, first);
    case Kind::kDepositChecking: co_return co_await deposit_checking(books, first, order.cents);
    case Kind::kSendPayment: co_return co_await send_payment(books, first, second, order.cents);
    case Kind::kTransactSavings: co_return co_await transact_savings(books, first, order.cents);
    case Kind::kWriteCheck: co_return co_await write_check(books, first, order.cents);
  }
  co_return make_error(ErrorCode::kInvalidArgument, "no such kind of order");
}

}  // namespace pmstore::tools::smallbank
