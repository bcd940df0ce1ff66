#include "pmstore/client/transaction_state.h"

namespace pmstore {

using internal::TxItem;

namespace {

Error over_error() {
  return make_error(ErrorCode::kInvalidArgument, "the transaction is over; begin() another one");
}

}  // namespace

Error Transaction::State::stale_error() {
  return make_error(ErrorCode::kConflict,
                    "the connection on which the transaction began is gone; run it again");
}

// ---- the public face ----

Transaction::Transaction(Ref state) : state_(std::move(state)) {}
Transaction::Transaction(Transaction&&) noexcept = default;
Transaction& Transaction::operator=(Transaction&& other) noexcept {
  std::swap(state_, other.state_);
  return *this;
}

Transaction::~Transaction() = default;

void Transaction::Release::operator()(State* state) const {
  constexpr size_t kSpare = 64;
  constexpr size_t kSpareBytes = 64 * 1024;  // an unusually large one gives its memory back
  if (--state->holders > 0) return;
  std::unique_ptr<State> unused(state);
  std::vector<std::unique_ptr<State>>& spare = state->client.spare;
  if (spare.size() >= kSpare) return;
  if (state->bytes.capacity() > kSpareBytes || state->redo.capacity() > kSpareBytes) return;
  state->reset();
  spare.push_back(std::move(unused));
}

Task<Result<std::string>> Transaction::get(TableId table, std::string_view key) {
  return state_->get(table, key);
}

void Transaction::put(TableId table, std::string_view key, std::string_view value) {
  state_->write(TxItem::Need::kAnything, TxItem::Leave::kValue, table, key, value);
}
void Transaction::insert(TableId table, std::string_view key, std::string_view value) {
  state_->write(TxItem::Need::kAbsent, TxItem::Leave::kValue, table, key, value);
}
void Transaction::erase(TableId table, std::string_view key) {
  state_->write(TxItem::Need::kPresent, TxItem::Leave::kNothing, table, key, {});
}

Task<Status> Transaction::commit() { return State::commit(state_->hold()); }

void Transaction::abort() {
  if (state_->over) return;  // what commit() has begun, it ends
  state_->reset();
  state_->over = true;
}

TxId Transaction::id() const { return state_->id; }

// ---- items ----

void Transaction::State::reset() {
  session = {};
  items.clear();
  bytes.clear();
  failure.reset();
  over = false;
  id = {};
}

TxItem* Transaction::State::find(TableId table, std::string_view with_key, KeyHash hash) {
  for (Item& item : items) {
    if (item.hash.value == hash.value && item.table == table && key(item) == with_key) return &item;
  }
  return nullptr;
}

TxItem& Transaction::State::find_or_add(TableId table, std::string_view with_key, KeyHash hash) {
  if (Item* item = find(table, with_key, hash)) return *item;
  Item& item = items.emplace_back();
  item.hash = hash;
  item.table = table;
  item.key_at = static_cast<uint32_t>(bytes.size());
  item.key_bytes = static_cast<uint8_t>(with_key.size());
  bytes.append(with_key);
  return item;
}

void Transaction::State::set_value(Item& item, std::string_view to) {
  if (to.size() <= item.value_bytes) {
    bytes.replace(item.value_at, to.size(), to);
  } else {
    item.value_at = static_cast<uint32_t>(bytes.size());
    bytes.append(to);
  }
  item.value_bytes = static_cast<uint32_t>(to.size());
}

void Transaction::State::write(TxItem::Need need, TxItem::Leave leave, TableId table,
                               std::string_view with_key, std::string_view with_value) {
  if (over) return fail(over_error());
  if (Status sizes = check_sizes(with_key, with_value); !sizes) {
    return fail(std::move(sizes.error()));
  }
  // Nothing larger than a request can be committed; so this bounds the memory, not the user.
  if (bytes.size() + with_key.size() + with_value.size() > client.scratch_bytes) {
    return fail(make_error(ErrorCode::kTooLarge, "a transaction's keys and values may take " +
                                                     std::to_string(client.scratch_bytes) +
                                                     " bytes; split it"));
  }
  Item& item = find_or_add(table, with_key, hash_key(table, with_key));
  if (!item.writes()) {
    item.need = need;  // later writes see this one's effect, so only the first demands anything
  } else if (need == TxItem::Need::kAbsent && item.leave == TxItem::Leave::kValue) {
    return fail(make_error(ErrorCode::kAlreadyExists, "inserted twice in one transaction"));
  } else if (need == TxItem::Need::kPresent && item.leave == TxItem::Leave::kNothing) {
    return fail(make_error(ErrorCode::kNotFound, "erased twice in one transaction"));
  }
  item.leave = leave;
  set_value(item, with_value);  // nothing, when nothing is left behind
}

// ---- reading ----

Task<Result<internal::SessionRef>> Transaction::State::bind() {
  if (session) {
    if (session->usable()) co_return session;
    co_return stale_error();
  }
  PMSTORE_CO_TRY(internal::SessionRef now, co_await client.connected());
  // Another read of the same transaction may have come first.
  if (!session) session = now;
  if (!session->usable()) co_return stale_error();
  co_return session;
}

Task<Result<std::string>> Transaction::State::get(TableId table, std::string_view with_key) {
  if (over) co_return over_error();
  if (Status sizes = check_key(with_key); !sizes) co_return std::move(sizes.error());
  const KeyHash hash = hash_key(table, with_key);
  if (const Item* item = find(table, with_key, hash); item != nullptr && item->writes()) {
    if (item->leave == Item::Leave::kNothing) co_return make_error(ErrorCode::kNotFound);
    co_return std::string(value(*item));
  }
  internal::SessionRef at = session;
  if (!at || !at->usable()) {
    auto bound = co_await bind();
    if (!bound) {
      fail(bound.error());
      co_return std::move(bound.error());
    }
    at = std::move(*bound);
  }
  std::string found;
  auto located = co_await client.locate(std::move(at), table, with_key, &found);
  if (!located) {
    fail(located.error());
    co_return std::move(located.error());
  }
  if (over) co_return over_error();
  if (Status same = remember(table, with_key, hash, *located); !same) {
    co_return std::move(same.error());
  }
  if (!located->found) co_return make_error(ErrorCode::kNotFound);
  co_return std::move(found);
}

Status Transaction::State::remember(TableId table, std::string_view with_key, KeyHash hash,
                                    const internal::Located& seen) {
  Item& item = find_or_add(table, with_key, hash);
  const bool again = item.seen == Item::Seen::kFound || item.seen == Item::Seen::kAbsent;
  const bool same =
      seen.found ? item.seen == Item::Seen::kFound && item.slot == seen.slot &&
                       item.version == seen.version
                 : item.seen == Item::Seen::kAbsent && item.bucket_version == seen.bucket_version;
  if (again && !same) {
    Error changed = make_error(ErrorCode::kConflict, "read twice, and changed in between");
    fail(changed);
    return changed;
  }
  item.seen = seen.found ? Item::Seen::kFound : Item::Seen::kAbsent;
  item.size_class = seen.size_class;
  item.slot = seen.slot;
  item.version = seen.version;
  item.bucket = seen.bucket;
  item.bucket_version = seen.bucket_version;
  return {};
}

}  // namespace pmstore
