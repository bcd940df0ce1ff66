// RocksDB, with a sync of its log at each write. Otherwise as it is, except that blocks are not
// compressed, and that its cache has room for everything.
#pragma once

#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/table.h>

#include <memory>

#include "pmstore/record_page.h"
#include "tests/compare/ordered_engine.h"

namespace pmstore::compare {

class RocksdbEngine {
 public:
  static constexpr std::string_view kName = "rocksdb";

  RocksdbEngine(const std::string& folder, uint64_t /*records*/) {
    rocksdb::BlockBasedTableOptions table;
    table.block_cache = rocksdb::NewLRUCache(uint64_t{4} << 30);
    rocksdb::Options options;
    options.create_if_missing = true;
    options.error_if_exists = true;
    options.compression = rocksdb::kNoCompression;
    options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
    rocksdb::DB* db = nullptr;
    must("open", rocksdb::DB::Open(options, folder + "/rocksdb", &db));
    db_.reset(db);
    durable_.sync = true;
  }

  Ready<bool> put(std::string_view key, std::string_view value) {
    must("put", db_->Put(durable_, slice(key), slice(value)));
    return {true};
  }
  Ready<bool> get(std::string_view key, std::string& value) {
    const rocksdb::Status got = db_->Get(rocksdb::ReadOptions(), slice(key), &value);
    if (!got.IsNotFound()) must("get", got);
    return {got.ok()};
  }
  Ready<uint64_t> scan(std::string_view from, uint64_t most) {
    const std::unique_ptr<rocksdb::Iterator> at(db_->NewIterator(rocksdb::ReadOptions()));
    copies_.clear();
    uint64_t seen = 0;
    for (at->Seek(slice(from)); at->Valid() && seen < most; at->Next(), ++seen) {
      copies_.add(at->key().ToStringView(), at->value().ToStringView());
    }
    must("scan", at->status());
    return {seen};
  }

 private:
  static rocksdb::Slice slice(std::string_view bytes) { return {bytes.data(), bytes.size()}; }
  static void must(const char* what, const rocksdb::Status& status) {
    if (!status.ok()) give_up(kName, std::string(what) + ": " + status.ToString());
  }

  rocksdb::WriteOptions durable_;
  std::unique_ptr<rocksdb::DB> db_;
  RecordPage copies_;
};

}  // namespace pmstore::compare
