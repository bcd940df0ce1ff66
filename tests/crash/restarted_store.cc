#include "tests/crash/restarted_store.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/checksum.h"
#include "base/random.h"
#include "pmstore/check.h"
#include "tests/unit/store/store_fixture.h"

namespace pmstore::crash {
namespace {

constexpr size_t kWorkBytes = 500;

}  // namespace

uint64_t content_digest(const StoreContent& content) {
  uint64_t digest = 1;
  for (const auto& [key, value] : content) {
    for (const std::string& part : {key, value}) {
      digest = base::checksum64(std::as_bytes(std::span(part)), digest);
    }
  }
  return digest;
}

std::string content_text(const StoreContent& content) {
  std::string text = fmt::format("{} records", content.size());
  for (const auto& [key, value] : content) {
    text += fmt::format(" {}={}({})", key, value.substr(0, 4), value.size());
  }
  return text;
}

Status commit_writes(internal::Store& store, log::Ring& ring, TableId table, uint64_t sequence,
                     const std::vector<KeyWrite>& writes) {
  internal::TransactionMessage message(sequence);
  for (const KeyWrite& write : writes) {
    message.write(write.value ? WriteKind::kPut : WriteKind::kErase, table, write.key,
                  write.value.value_or(""));
  }
  const auto bytes = message.message();
  const auto request = internal::decode_commit(ring.owner(), bytes);
  if (!request) return make_error(ErrorCode::kProtocol, "the message is malformed");
  return store.commit(ring, *request);
}

Result<StoreContent> read_store(const internal::Store& store, TableId table,
                                const std::vector<std::string>& keys) {
  StoreContent content;
  for (const std::string& key : keys) {
    PMSTORE_TRY(internal::Got got, internal::get_from(store, table, key));
    if (got.found()) content.emplace(key, std::move(got.value));
  }
  return content;
}

Result<std::unique_ptr<Restarted>> RestartedStore::open(std::span<std::byte> memory,
                                                        persist::Domain domain,
                                                        const StoreHistory& history) {
  std::unique_ptr<RestartedStore> process(new RestartedStore(history));
  PMSTORE_TRY(process->pool_, persist::Pool::in_region(memory, domain, false));
  return process;
}

Status RestartedStore::check_pool() {
  PMSTORE_TRY(const CheckReport report, check_store(*pool_));
  if (report.sound()) return {};
  return make_error(ErrorCode::kBadPool, "check: " + report.problems.front());
}

Result<uint64_t> RestartedStore::recover() {
  // Its catalog is written last: until then there is no store.
  const auto catalog = internal::Catalog::load(*pool_);
  if (!catalog && catalog.code() == ErrorCode::kBadPool) return kNothing;
  PMSTORE_TRY_STATUS(check_pool());
  PMSTORE_TRY(store_, internal::Store::open(*pool_));
  if (store_->recovery().damaged_records != 0) {
    return make_error(ErrorCode::kBadPool, "recovery counts damaged records");
  }
  if (store_->catalog().tables().empty()) return kNothing;
  PMSTORE_TRY(content_, read_store(*store_, history_.table, history_.keys));
  if (store_->live_records() != content_.size()) {
    return make_error(ErrorCode::kBadPool, fmt::format("{} records of which nobody knows",
                                                       store_->live_records() - content_.size()));
  }
  const uint64_t digest = content_digest(content_);
  PMSTORE_TRY_STATUS(check_outcomes(digest));
  return digest;
}

Status RestartedStore::check_outcomes(uint64_t digest) {
  bool known = false;
  for (size_t last = history_.transactions.size(); last-- > 0;) {
    if (history_.transactions[last].digest_after != digest) continue;
    if (outcomes_fit(last)) return {};
    known = true;
  }
  if (!known) return {};  // the explorer says so
  return make_error(ErrorCode::kBadPool, "outcomes that do not fit the records");
}

// Asks for the last few.
bool RestartedStore::outcomes_fit(size_t last) const {
  const size_t end = std::min(last + 3, history_.transactions.size());
  for (size_t i = last > 3 ? last - 3 : 1; i < end; ++i) {
    const auto& transaction = history_.transactions[i];
    const auto outcome = store_->outcome(transaction.id, false, 0);
    if (!outcome && outcome.code() != ErrorCode::kOutcomeExpired) return false;
    const bool should = i <= last && transaction.committed;
    if (outcome && (*outcome == Outcome::kCommitted) != should) return false;
  }
  return true;
}

Result<uint64_t> RestartedStore::work() {
  if (!store_ || store_->catalog().tables().empty()) return kNothing;
  log::Ring& ring = store_->rings()[0];
  PMSTORE_TRY_STATUS(store_->take_ring(0, kStoreClient, 0, 0));
  const std::string& key = history_.keys.front();
  const std::string value(kWorkBytes, 'W');
  PMSTORE_TRY_STATUS(
      commit_writes(*store_, ring, history_.table, store_->session_sequence(0), {{key, value}}));
  content_[key] = value;
  PMSTORE_TRY(const StoreContent read, read_store(*store_, history_.table, history_.keys));
  if (read != content_) return make_error(ErrorCode::kBadPool, "other records have changed");
  return content_digest(content_);
}

}  // namespace pmstore::crash
