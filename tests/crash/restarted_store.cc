#include "tests/crash/restarted_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/checksum.h"
#include "base/random.h"
#include "pmstore/check.h"
#include "pmstore/convert.h"
#include "tests/crash/opened_pool.h"
#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::crash {
namespace {

constexpr size_t kWorkValueBytes = 500;
constexpr size_t kNewRecordBytes = 1500;

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

Status commit_writes(internal::Store& store, ClientId client, TableId table, uint64_t sequence,
                     const std::vector<KeyWrite>& writes) {
  internal::TransactionMessage message(sequence);
  for (const KeyWrite& write : writes) {
    message.write(write.value ? WriteKind::kPut : WriteKind::kErase, table, write.key,
                  write.value.value_or(""));
  }
  const auto bytes = message.message();
  const auto request = internal::decode_commit(client, bytes);
  if (!request) return make_error(ErrorCode::kProtocol, "the message is malformed");
  return store.commit(*request);
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

uint64_t StoreHistory::version_at(uint64_t slot, size_t last) const {
  uint64_t highest = 0;
  for (size_t i = 0; i <= last; ++i) {
    for (const auto& [place, version] : transactions[i].places) {
      if (place == slot) highest = std::max(highest, version);
    }
  }
  return highest;
}

Status RestartedStore::check_pool() {
  PMSTORE_TRY(const CheckReport report, check_store(*pool_));
  if (report.sound()) return {};
  return make_error(ErrorCode::kBadPool, "check: " + report.problems.front());
}

Result<uint64_t> RestartedStore::recover() {
  PMSTORE_TRY_STATUS(record_opening(*pool_));
  // Of an earlier release: what its user does with it.
  const auto found_catalog = internal::TableCatalog::load_any(*pool_);
  if (found_catalog && found_catalog->is_earlier()) {
    if (internal::TableCatalog::load(*pool_)) {
      return make_error(ErrorCode::kBadPool, "a pool that must be converted is opened");
    }
    PMSTORE_TRY_STATUS(convert_pool(*pool_));
  }
  // Its catalog is written last: until then there is no store.
  const auto catalog = internal::TableCatalog::load(*pool_);
  const bool never_written =
      !catalog && catalog.error().message.find("never written") != std::string::npos;
  if (never_written) return kNothing;
  if (!catalog) return catalog.error();
  const bool closed_in_order = catalog->header().clean != 0;
  // Else the next extent would be given the same place.
  const std::vector<persist::Extent>& extents = pool_->info().extents;
  for (const uint64_t place : {catalog->header().log_offset, catalog->header().records_offset}) {
    const bool in_table = std::any_of(extents.begin(), extents.end(), [&](const auto& extent) {
      return extent.offset <= place && place < extent.offset + extent.bytes;
    });
    if (in_table) continue;
    return make_error(ErrorCode::kBadPool, "extents that the catalog names are in no table");
  }
  PMSTORE_TRY_STATUS(check_pool());
  PMSTORE_TRY(store_, internal::Store::open(*pool_));
  if (store_->recovery().damaged_records != 0) {
    return make_error(ErrorCode::kBadPool, "recovery counts damaged records");
  }
  if (closed_in_order && store_->recovery().records_applied != 0) {
    return make_error(ErrorCode::kBadPool, "it was closed in order, and recovery had work to do");
  }
  const bool stopped = closed_in_order && catalog->header().epoch > 0;
  if (history_.leaves_checkpoints && stopped && !store_->recovery().from_checkpoint) {
    return make_error(ErrorCode::kBadPool, "it was closed in order, and its checkpoint not used: " +
                                               store_->recovery().checkpoint_refused);
  }
  if (store_->catalog().tables().empty()) return kNothing;
  const auto found = store_->catalog().find(kStoreTable);
  const std::vector<TableId>& earlier = history_.earlier_tables;
  const bool known = found && (*found == history_.table ||
                               std::find(earlier.begin(), earlier.end(), *found) != earlier.end());
  if (!known) return make_error(ErrorCode::kBadPool, "a table that nobody has made");
  table_ = *found;
  PMSTORE_TRY(content_, read_store(*store_, table_, history_.keys));
  if (store_->live_records() != content_.size()) {
    return make_error(ErrorCode::kBadPool, fmt::format("{} records of which nobody knows",
                                                       store_->live_records() - content_.size()));
  }
  const uint64_t digest = content_digest(content_);
  PMSTORE_TRY_STATUS(check_outcomes(digest));
  return digest;
}

// Finds the transaction after which this is the content: the first one, if the content came back.
Status RestartedStore::check_outcomes(uint64_t digest) {
  bool known = false;
  bool fit = false;
  for (size_t last = history_.transactions.size(); last-- > 0;) {
    if (history_.transactions[last].digest_after != digest) continue;
    last_ = last;
    known = true;
    fit = fit || outcomes_fit(last);
  }
  if (!known) return {};  // the explorer says so
  if (!fit) return make_error(ErrorCode::kBadPool, "outcomes that do not fit the records");
  if (store_->catalog().header().epoch <= history_.transactions[last_].epoch) {
    return make_error(ErrorCode::kBadPool, "an epoch that there was before");
  }
  return {};
}

// Asks for the last few.
bool RestartedStore::outcomes_fit(size_t last) const {
  const size_t end = std::min(last + 3, history_.transactions.size());
  for (size_t i = last > 3 ? last - 3 : 1; i < end; ++i) {
    const auto& transaction = history_.transactions[i];
    const auto outcome = store_->outcome(transaction.id, false, 0);
    if (!outcome && outcome.code() != ErrorCode::kOutcomeExpired) {
      // Or of a session that was not there yet.
      if (i > last && outcome.code() == ErrorCode::kInvalidArgument) continue;
      return false;
    }
    const bool should = i <= last && transaction.committed;
    if (outcome && (*outcome == Outcome::kCommitted) != should) return false;
  }
  return true;
}

Result<uint64_t> RestartedStore::work() {
  if (!store_ || store_->catalog().tables().empty()) return kNothing;
  const std::string& key = history_.keys.front();
  const std::string value(kWorkValueBytes, 'W');
  const std::string large(kNewRecordBytes, 'L');
  const std::string& new_key = history_.keys.back();
  PMSTORE_TRY(const uint64_t sequence, store_->begin_session());
  const Status inserted =
      commit_writes(*store_, kStoreClient, table_, sequence, {{key, value}, {new_key, large}});
  if (!inserted && inserted.code() != ErrorCode::kFull) return inserted.error();
  Status written = inserted;
  if (!inserted) {
    written = commit_writes(*store_, kStoreClient, table_, sequence + 1, {{key, value}});
    // A pool may be too full for the key to get a record of another size.
    if (!written && written.code() != ErrorCode::kFull) return written.error();
  }
  if (written) content_[key] = value;
  if (inserted && !content_.contains(new_key)) {
    PMSTORE_TRY(const internal::Got got, internal::get_from(*store_, table_, new_key));
    if (got.reply.version <= history_.version_at(got.reply.slot, last_)) {
      return make_error(ErrorCode::kBadPool, "a slot has a version that it had before");
    }
  }
  if (inserted) content_[new_key] = large;
  PMSTORE_TRY(const StoreContent read, read_store(*store_, table_, history_.keys));
  if (read != content_) return make_error(ErrorCode::kBadPool, "other records have changed");
  return content_digest(content_);
}

}  // namespace pmstore::crash
