// The corpus of the log fuzzer: areas with several logs, made from a seed, whose images are then
// damaged. The pool lies between two pages that cannot be touched, the area at its end.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "log/log_layout.h"
#include "log/log_store.h"
#include "log/ring_layout.h"
#include "tests/fuzz/fuzzing.h"

namespace pmstore::log {

using fuzz::kPage;
using fuzz::rounds;
inline constexpr uint64_t kBytes = 40 * kPage;
inline constexpr uint64_t kLogBytes = 16 * 1024;
inline constexpr uint64_t kSlots = 8;
inline constexpr uint64_t kCopies = 2;

using Guarded = fuzz::Guarded<kBytes>;

inline std::unique_ptr<persist::Pool> pool_in(Guarded& region, bool format = false) {
  return persist::Pool::in_region(region.bytes(), persist::Domain::kCpuCache, format).value();
}

struct SampleEntry {
  uint64_t lsn;
  uint64_t next_lsn;
  std::string payload;
};

struct SampleLog {
  uint64_t id = 0;
  uint64_t identity = 0;
  uint64_t place = 0;
  uint64_t region = 0;  // in the area
  uint64_t start_lsn = 0;
  uint64_t certain_lsn = 0;                 // below it, damage is known to be damage
  std::map<uint64_t, SampleEntry> entries;  // by index; all that there ever were
};

struct Sample {
  std::vector<std::byte> image;
  uint64_t area = 0;  // offset in the pool
  std::map<std::string, SampleLog> logs;
};

// A recording of a log store: logs made, filled, trimmed, sealed, deleted; the store opened again
// now and then.
class Recording {
 public:
  explicit Recording(uint64_t seed) : random_(seed) {
    pool_ = pool_in(region_, true);
    PMSTORE_CHECK(LogStore::format(*pool_, pool_->largest_free_extent(), seed | 1), "it fits");
    reopen();
    for (int i = 0; i < 3; ++i) create(i);
    for (uint64_t steps = 20 + random_.below(120); steps > 0; --steps) step();
    if (random_.below(2) == 0) {
      PMSTORE_CHECK(store_->close(), "memory can be drained");
      for (auto& [name, log] : logs_) log.certain_lsn = store_->info(log.id)->tail_lsn;
    }
  }
  Sample take() {
    Sample sample;
    for (auto& [name, log] : logs_) {
      const LogInfo info = store_->info(log.id).value();
      const auto where = store_->where(log.id).value();
      log.start_lsn = info.start_lsn;
      log.place = where.word;
      log.region = where.region_offset;
      if (info.sealed) log.certain_lsn = info.tail_lsn;
    }
    sample.area = pool_->memory().offset_of(store_->area().data());
    sample.logs = logs_;
    sample.image.assign(region_.bytes().begin(), region_.bytes().end());
    return sample;
  }

 private:
  void reopen() {
    store_.reset();
    store_ = LogStore::open(*pool_).value();
    for (auto& [name, log] : logs_) log.certain_lsn = store_->info(log.id)->tail_lsn;
  }
  void create(uint64_t number) {
    const std::string name = "log" + std::to_string(number);
    LogOptions options;
    options.bytes = kLogBytes + random_.below(3) * 4096;
    options.when_full = random_.below(3) == 0 ? FullPolicy::kBackPressure : FullPolicy::kTrimOldest;
    if (random_.below(3) > 0) options.identity = random_.next();
    const auto made = store_->create(name, options);
    if (!made) return;
    logs_[name].id = made->id;
    logs_[name].identity = options.identity;
  }
  void step() {
    const std::string name = "log" + std::to_string(random_.below(4));
    const auto found = logs_.find(name);
    if (found == logs_.end()) return create(name.back() - '0');
    switch (random_.below(40)) {
      case 0: return reopen();
      case 1: {
        if (!store_->erase(found->second.id)) return;
        logs_.erase(found);
        return;
      }
      case 2: return void(store_->seal(found->second.id));
      case 3:
      case 4: {
        const LogInfo info = store_->info(found->second.id).value();
        if (info.next_index > 5) {
          (void)store_->trim_below_index(info.id, info.next_index - random_.below(5));
        }
        return;
      }
      default: return append(found->second);
    }
  }
  void append(SampleLog& log) {
    std::vector<std::string> payloads(1 + random_.below(3));
    std::vector<std::span<const std::byte>> spans;
    for (std::string& payload : payloads) {
      payload.resize(1 + random_.below(random_.below(6) == 0 ? 3000 : 300));
      for (char& c : payload) c = static_cast<char>(random_.next());
      spans.push_back(std::as_bytes(std::span(payload)));
    }
    // One at a time, to know where each is.
    for (size_t i = 0; i < payloads.size(); ++i) {
      const auto range = store_->append(log.id, std::span(spans).subspan(i, 1));
      if (!range) break;
      log.entries[range->first.index] = {range->first.lsn, range->first.next_lsn, payloads[i]};
    }
    PMSTORE_CHECK(store_->commit_appends(), "memory can be drained");
  }

  Random random_;
  Guarded region_;
  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<LogStore> store_;
  std::map<std::string, SampleLog> logs_;
};

// Changes bytes of an area without knowing how they are protected, and remembers which.
class Damager {
 public:
  Damager(std::span<std::byte> pool, const Sample& sample, Random& random)
      : area_(pool.subspan(sample.area)),
        sample_(sample),
        random_(random),
        touched_(area_.size()) {}
  void strike() {
    const uint64_t at = place();
    const uint64_t bytes =
        1 + random_.below(std::min<uint64_t>(area_.size() - at, 1 + random_.below(400)));
    const uint64_t kind = random_.below(4);
    for (uint64_t i = at; i < at + (kind == 0 ? 1 : bytes); ++i) {
      const std::byte before = area_[i];
      if (kind < 2) area_[i] ^= static_cast<std::byte>(1 + random_.below(255));
      if (kind == 2) area_[i] = std::byte{0};
      if (kind == 3) area_[i] = area_[random_.below(area_.size())];
      if (area_[i] != before) touched_[i] = true;
    }
  }
  bool touched(uint64_t at, uint64_t bytes) const {
    return std::any_of(touched_.begin() + static_cast<ptrdiff_t>(at),
                       touched_.begin() + static_cast<ptrdiff_t>(at + bytes),
                       [](bool one) { return one; });
  }

 private:
  uint64_t place() {
    const uint64_t draw = random_.below(10);
    if (draw == 0) return random_.below(2 * kLogAreaCopyStride);
    if (draw == 1) {
      return kLogSlotsOffset + random_.below(3 * kCopies * kLogSlotBytes);
    }
    if (draw > 7 || sample_.logs.empty()) return random_.below(area_.size());
    auto log = sample_.logs.begin();
    std::advance(log, random_.below(sample_.logs.size()));
    if (draw == 2) return log->second.region + random_.below(kRingHeaderBytes);
    return log->second.region + kRingHeaderBytes + random_.below(kLogBytes);
  }

  std::span<std::byte> area_;
  const Sample& sample_;
  Random& random_;
  std::vector<bool> touched_;
};

}  // namespace pmstore::log
