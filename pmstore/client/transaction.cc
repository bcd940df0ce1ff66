#include "base/check.h"
#include "pmstore/client/transaction_state.h"

namespace pmstore {

using internal::TxItem;

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
  PMSTORE_CHECK(state->holders > 0, "a reference is released once");
  if (--state->holders > 0) return;
  std::unique_ptr<State> unused(state);
  std::vector<std::unique_ptr<State>>& spare = state->client.spare;
  if (spare.size() >= kSpare) return;
  if (state->items.capacity_bytes() > kSpareBytes) return;
  if (state->participants.capacity_bytes() > kSpareBytes) return;
  state->reset();
  spare.push_back(std::move(unused));
}

Task<Result<std::string>> Transaction::get(TableId table, std::string_view key) {
  return state_->get(table, key, internal::GivesString{});
}
Task<Result<size_t>> Transaction::get(TableId table, std::string_view key,
                                      std::span<std::byte> into) {
  return state_->get(table, key, internal::FillsBuffer{into});
}
Task<Result<Values>> Transaction::get_many(TableId table, std::span<const std::string_view> keys) {
  return state_->get_many(table, keys);
}
Task<Result<std::string_view>> Transaction::view(TableId table, std::string_view key) {
  return state_->view(table, key);
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

}  // namespace pmstore
