// LMDB, with a sync at each write, which is a transaction of its own. Readers keep their
// transaction and renew it.
#pragma once

#include <lmdb.h>
#include <sys/stat.h>

#include "pmstore/record_page.h"
#include "tests/compare/ordered_engine.h"

namespace pmstore::compare {

class LmdbEngine {
 public:
  static constexpr std::string_view kName = "lmdb";

  LmdbEngine(const std::string& folder, uint64_t records) {
    const std::string path = folder + "/lmdb";
    if (mkdir(path.c_str(), 0700) != 0) give_up(kName, "cannot make " + path);
    must("create", mdb_env_create(&env_));
    // At random a page is half full, and freed pages come back later.
    must("map", mdb_env_set_mapsize(env_, (uint64_t{256} << 20) + records * 1024));
    must("open", mdb_env_open(env_, path.c_str(), 0, 0600));
    MDB_txn* txn = nullptr;
    must("begin", mdb_txn_begin(env_, nullptr, 0, &txn));
    must("open", mdb_dbi_open(txn, nullptr, 0, &dbi_));
    must("commit", mdb_txn_commit(txn));
    must("begin", mdb_txn_begin(env_, nullptr, MDB_RDONLY, &reader_));
    mdb_txn_reset(reader_);
  }
  LmdbEngine(const LmdbEngine&) = delete;
  LmdbEngine& operator=(const LmdbEngine&) = delete;
  ~LmdbEngine() {
    mdb_txn_abort(reader_);
    mdb_env_close(env_);
  }

  Ready<bool> put(std::string_view key, std::string_view value) {
    MDB_txn* txn = nullptr;
    must("begin", mdb_txn_begin(env_, nullptr, 0, &txn));
    MDB_val k = val(key);
    MDB_val v = val(value);
    must("put", mdb_put(txn, dbi_, &k, &v, 0));
    must("commit", mdb_txn_commit(txn));
    return {true};
  }
  Ready<bool> get(std::string_view key, std::string& value) {
    must("renew", mdb_txn_renew(reader_));
    MDB_val k = val(key);
    MDB_val v{};
    const int got = mdb_get(reader_, dbi_, &k, &v);
    if (got == 0) value.assign(text(v));
    mdb_txn_reset(reader_);
    if (got != 0 && got != MDB_NOTFOUND) must("get", got);
    return {got == 0};
  }
  Ready<uint64_t> scan(std::string_view from, uint64_t most) {
    must("renew", mdb_txn_renew(reader_));
    MDB_cursor* cursor = nullptr;
    must("cursor", mdb_cursor_open(reader_, dbi_, &cursor));
    copies_.clear();
    MDB_val k = val(from);
    MDB_val v{};
    uint64_t seen = 0;
    int at = mdb_cursor_get(cursor, &k, &v, MDB_SET_RANGE);
    for (; at == 0 && seen < most; at = mdb_cursor_get(cursor, &k, &v, MDB_NEXT), ++seen) {
      copies_.add(text(k), text(v));
    }
    if (at != 0 && at != MDB_NOTFOUND) must("scan", at);
    mdb_cursor_close(cursor);
    mdb_txn_reset(reader_);
    return {seen};
  }

 private:
  static MDB_val val(std::string_view bytes) {
    return {bytes.size(), const_cast<char*>(bytes.data())};
  }
  static std::string_view text(const MDB_val& value) {
    return {static_cast<const char*>(value.mv_data), value.mv_size};
  }
  static void must(const char* what, int error) {
    if (error != 0) give_up(kName, std::string(what) + ": " + mdb_strerror(error));
  }

  MDB_env* env_ = nullptr;
  MDB_dbi dbi_ = 0;
  MDB_txn* reader_ = nullptr;
  RecordPage copies_;
};

}  // namespace pmstore::compare
