#include "tests/crash/convert_run.h"

#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/crash_recorder.h"
#include "model/page_bytes.h"
#include "persist/pool_layout.h"
#include "pmstore/convert.h"
#include "pmstore/layout/slab_layout.h"
#include "tests/crash/restarted_store.h"
#include "tests/unit/pmstore/shard/earlier_pool.h"
#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::crash {
namespace {

constexpr uint32_t kEarlierRings = 3;  // where there was no log, two of them become it
constexpr uint64_t kEarlierRingBytes = 16 << 10;
constexpr uint64_t kConvertPoolBytes = persist::kPoolLayoutBytes +
                                       (2 * kEarlierRings - 1) * kEarlierRingBytes +
                                       6 * internal::kChunkBytes + 4096;

const std::string kLongKey(kMaxKeyBytes, 'l');  // the earlier format had none

class ConvertRun final : public RecordedRun {
 public:
  ConvertRun(const std::string& scenario, uint64_t seed, persist::Domain domain, uint32_t version)
      : RecordedRun(scenario, seed),
        domain_(domain),
        random_(seed),
        region_(persist::round_up(kConvertPoolBytes, 4096)) {
    pool_ = std::move(*persist::Pool::in_region(region_.bytes(), domain, true));
    history_.keys = {"a", "b", "c", "d", kLongKey, "new"};
    find_earlier(version);
    model::CrashRecorder recorder(pool_->memory());
    expect(now_);
    PMSTORE_CHECK(convert_pool(*pool_).has_value(), "the pool is sound");
    recorder.mark();
    allow({content_digest(now_)});
    store_ = std::move(*internal::Store::open(*pool_));
    first_ = store_->begin_session().value();
    recorder.mark();
    for (const auto& [key, bytes] :
         {std::pair{"c", 300}, {"a", 900}, {"d", 150}, {kLongKey.c_str(), 200}}) {
      const StoreContent before = now_;
      now_[key] = std::string(static_cast<size_t>(bytes), *key);
      allow({content_digest(before), content_digest(now_)});
      describe(content_digest(now_), content_text(now_));
      commit(key);
      recorder.mark();
    }
    allow({content_digest(now_)});
    trace_ = recorder.take();
    store_.reset();
    pool_.reset();
  }

  Result<std::unique_ptr<Restarted>> restart(std::span<std::byte> memory) const override {
    return RestartedStore::open(memory, domain_, history_);
  }
  uint64_t samples() const override { return 16; }
  uint64_t most_exhaustive() const override { return 256; }
  uint64_t death_every() const override { return 16; }

 private:
  void expect(const StoreContent& content) {
    describe(content_digest(content), content_text(content));
    allow({content_digest(content)});
  }
  // Durable, and not recorded. Each ring has a transaction, of which nothing is in place.
  void find_earlier(uint32_t version) {
    const uint32_t rings = version < internal::kFirstVersionWithLog ? 1 : kEarlierRings;
    FormatOptions format{.rings = rings, .ring_bytes = kEarlierRingBytes, .identity = seed() + 1};
    format.shard_log_bytes = (kEarlierRings - 1) * kEarlierRingBytes;
    PMSTORE_CHECK(format_store(*pool_, format).has_value(), "the region is large enough");
    store_ = std::move(*internal::Store::open(*pool_));
    history_.table = store_->catalog().create_table(kStoreTable).value();
    first_ = store_->begin_session().value();
    for (const char* key : {"a", "b", "c"}) {
      // So that with one byte more it fits where it is.
      now_[key] = std::string(100 + random_.below(59), *key);
      commit(key);
    }
    std::vector<internal::EarlierUpdate> updates;
    for (const char* key : {"a", "b", "c"}) {
      const GetReply found = internal::get_from(*store_, history_.table, key)->reply;
      now_[key] += "!";
      updates.push_back(
          {SlotOffset{found.slot}, history_.table, found.version + 1, key, now_[key]});
    }
    PMSTORE_CHECK(store_->close().has_value(), "memory can always be drained");
    store_.reset();
    internal::make_earlier(*pool_, version);
    for (uint32_t ring = 0; ring < kEarlierRings; ++ring) {
      internal::log_in_ring(*pool_, ring, kStoreClient + ring, updates[ring]);
    }
    history_.transactions.clear();
    history_.transactions.push_back({{}, false, content_digest(now_), 0, {}});
  }
  void commit(const char* key) {
    const TxId id{kStoreClient, first_ + history_.transactions.size() + 1};
    PMSTORE_CHECK(commit_writes(*store_, id.client, history_.table, id.sequence, {{key, now_[key]}})
                      .has_value(),
                  "the script's transactions are right");
    const GetReply found = internal::get_from(*store_, history_.table, key)->reply;
    history_.transactions.push_back({id,
                                     true,
                                     content_digest(now_),
                                     store_->catalog().header().epoch,
                                     {{found.slot, found.version}}});
  }

  persist::Domain domain_;
  Random random_;
  model::PageBytes region_;
  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<internal::Store> store_;
  uint64_t first_ = 0;  // transaction number of the session
  StoreContent now_;
  StoreHistory history_;
};

}  // namespace

std::unique_ptr<RecordedRun> convert_run(const std::string& scenario, uint64_t seed,
                                         persist::Domain domain, uint32_t version) {
  return std::make_unique<ConvertRun>(scenario, seed, domain, version);
}

}  // namespace pmstore::crash
