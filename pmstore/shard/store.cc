#include "pmstore/shard/store.h"

#include <utility>

#include "pmstore/shard/recovery.h"

namespace pmstore::internal {

Store::Store(persist::Pool& pool, TableCatalog catalog, SlabArena arena, LockTable words,
             KeyIndex index)
    : latch_(pool.memory()),
      records_(pool, std::move(catalog), std::move(arena), std::move(words), std::move(index)),
      rings_(records_, latch_),
      cpu_(records_, rings_, latch_),
      rnic_(records_, latch_),
      drops_(records_, cpu_, latch_) {}

Result<std::unique_ptr<Store>> Store::open(persist::Pool& pool) {
  PMSTORE_TRY(TableCatalog catalog, TableCatalog::load(pool));
  const CatalogHeader& header = catalog.header();
  PMSTORE_TRY(SlabArena arena,
              SlabArena::open(pool.memory(), header.records_offset, header.records_bytes));
  PMSTORE_TRY_STATUS(arena.make_headers_durable());
  PMSTORE_TRY(LockTable words, LockTable::create(arena.bytes()));
  PMSTORE_TRY(KeyIndex index, KeyIndex::create(arena.bytes()));
  std::unique_ptr<Store> store(
      new Store(pool, std::move(catalog), std::move(arena), std::move(words), std::move(index)));
  PMSTORE_TRY_STATUS(store->recover());
  return store;
}

Status Store::recover() {
  Recovery recovery(records_, rings_);
  PMSTORE_TRY_STATUS(recovery.replay_rings());
  PMSTORE_TRY_STATUS(recovery.rebuild_index());
  recovery_ = recovery.report();
  return catalog().begin_epoch();
}

Result<TableId> Store::create_table(std::string_view name) {
  if (latch_.failed()) return latch_.error();
  auto created = catalog().create_table(name);
  if (!created && created.code() == ErrorCode::kIo) latch_.set();
  return created;
}

Status Store::close() {
  PMSTORE_TRY(const auto in_place, rings_.make_all_durable_in_place());
  return catalog().mark_clean(in_place);
}

}  // namespace pmstore::internal
