// Runs of a log area for the crash tests: a Script runs operations on a LogStore while everything
// is recorded, and knows what a crash during each of them, and after it, may leave. Threads: one.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "log/log_layout.h"
#include "log/log_store.h"
#include "persist/pool.h"
#include "tests/crash/crash_image.h"
#include "tests/crash/log_content.h"
#include "tests/crash/version_one.h"

namespace pmstore::log {

// After so many marks: what may be found, what certainly was given out, and is all at rest?
struct Expected {
  std::vector<Content> possible;
  uint64_t epoch = 0;
  uint64_t highest_id = 0;
  bool at_rest = false;
};

// The stores up to the first drain.
class FirstStores final : public persist::Observer {
 public:
  explicit FirstStores(persist::Memory& memory) : memory_(memory) { memory.set_observer(this); }
  ~FirstStores() override { memory_.set_observer(nullptr); }
  void on_store(const void* to, const void* from, size_t bytes, bool) override {
    const auto* const data = static_cast<const std::byte*>(from);
    if (!drained_) stores.push_back({memory_.offset_of(to), {data, data + bytes}});
  }
  void on_flush(const void*, size_t) override {}
  void on_drain() override { drained_ = true; }

  struct Store {
    uint64_t offset;
    std::vector<std::byte> data;
  };
  std::vector<Store> stores;

 private:
  persist::Memory& memory_;
  bool drained_ = false;
};

// The writer of an exclusive producer's entries.
enum class LogWriter : uint8_t {
  kCpu,     // a CPU, into the caches: acknowledged to nobody before the log is settled
  kDevice,  // one-sided WRITEs, acknowledged by the READ behind them: into memory (DDIO off) under
            // ADR, into the caches under eADR
};

// The version of the area that a run begins with.
enum class LogVersion : uint8_t {
  kNone,  // the area is made in the run
  kOne,
  kByNeed,  // there is no area before the first log, and each log has an extent of its own
};

struct ScriptOptions {
  persist::Domain domain = persist::Domain::kMemoryController;
  LogWriter writer = LogWriter::kCpu;
  uint64_t new_identity = 0;  // as LogStore::open()
  bool rests = true;          // between operations there are moments where nothing is in progress
};

// Runs operations on a log area, and notes what a crash during each of them, and after it, may
// leave.
class Script {
 public:
  explicit Script(crash::PageBytes& region, const ScriptOptions& options = {}) : options_(options) {
    pool_ = persist::Pool::in_region(region.bytes(), options_.domain, true).value();
    recorder_.emplace(pool_->memory());
  }

  void format() {
    begin({now_, Content{true, {}}});
    const size_t first = recorder_->trace().barriers().size();
    PMSTORE_CHECK(LogStore::format(*pool_, kAreaBytes, 77).has_value(), "the pool has room");
    // All but the last four, two for each copy of the header, are the extent's: the pool's matter.
    not_ours(first, 4);
    end(Content{true, {}});
  }
  // Instead of format(): the first log makes the area.
  void begin_without_area() {
    PMSTORE_CHECK(options_.new_identity != 0 && expected_.empty(), "nothing was recorded yet");
    now_.area = true;
    begin({now_});
    store_ = LogStore::open(*pool_, options_.new_identity).value();
    end(now_);
  }
  // Instead of format(), in front of everything: an area that version 1 has left, with these logs
  // of one entry each, and places of two that it has deleted. Durable, and not recorded.
  void find_version_one(const std::vector<std::string>& names) {
    PMSTORE_CHECK(expected_.empty(), "nothing was recorded yet");
    recorder_.reset();
    PMSTORE_CHECK(LogStore::format(*pool_, kAreaBytes, 77).has_value(), "the pool has room");
    store_ = LogStore::open(*pool_).value();
    now_.area = true;
    const auto make = [&](const std::string& name) {
      const LogInfo made =
          store_->create(name, {kScriptLogBytes, FullPolicy::kTrimOldest, 0}).value();
      highest_id_ = made.id;
      return made.id;
    };
    for (const std::string& name : names) {
      LogContent& log = now_.logs[name];
      log.id = make(name);
      PMSTORE_CHECK(append_to(*store_, log.id, {log.append(40)}).has_value(), "it fits");
    }
    for (const uint64_t deleted : {make("deleted"), make("deleted-too")}) {
      PMSTORE_CHECK(store_->erase(deleted).has_value(), "it is there");
    }
    PMSTORE_CHECK(store_->close().has_value(), "memory can always be drained");
    store_.reset();
    make_version_one(*pool_);
    recorder_.emplace(pool_->memory());
  }
  // The process ends; another one goes on with what the caches hold.
  void restart() {
    begin(doubtful());
    store_.reset();
    recorder_->process_dies();
    const auto found = recover(*pool_, store_, options_.new_identity);
    PMSTORE_CHECK(found.has_value() && *found == now_, "the caches have survived");
    unsure_.clear();
    end(now_);
  }
  void create(const std::string& name) {
    Content after = now_;
    const uint64_t identity = identity_behind(highest_id_);
    after.logs[name] = {highest_id_ + 1, false, 1, {}, identity};
    begin({now_, after});
    const size_t first = recorder_->trace().barriers().size();
    const LogOptions shape{kScriptLogBytes, FullPolicy::kTrimOldest, identity};
    // As a server does it, of every second log.
    while (highest_id_ % 2 == 0 && store_->prepare(name, shape, {}, kScriptLogBytes / 4).value()) {
    }
    const auto made = store_->create(name, shape);
    PMSTORE_CHECK(made.has_value() && made->id == highest_id_ + 1, "there is room");
    ++highest_id_;
    // All but the last eight, for both copies of the ring's header and of the place, erase what was
    // there: ring_crash_test's matter.
    not_ours(first, 8);
    end(after);
  }
  void erase(const std::string& name) {
    Content after = now_;
    after.logs.erase(name);
    begin({now_, after});
    PMSTORE_CHECK(store_->erase(id_of(name)).has_value(), "it is there");
    end(after);
  }
  void seal(const std::string& name) {
    Content after = now_;
    after.logs[name].sealed = true;
    begin({now_, after});
    PMSTORE_CHECK(store_->seal(id_of(name)).has_value(), "it is there");
    end(after);
  }
  // Entries of these sizes, acknowledged together.
  void append(const std::string& name, const std::vector<size_t>& sizes) {
    std::vector<Content> possible = {now_};
    std::vector<std::string> payloads;
    for (size_t bytes : sizes) {
      possible.push_back(possible.back());
      payloads.push_back(possible.back().logs[name].append(bytes));
    }
    begin(possible);
    PMSTORE_CHECK(append_to(*store_, id_of(name), payloads).has_value(), "it fits");
    end(possible.back());
  }
  // The same, where the oldest entries have to go first.
  void append_over_oldest(const std::string& name, const std::vector<size_t>& sizes) {
    std::vector<std::string> payloads;
    LogContent log = now_.logs.at(name);
    for (size_t bytes : sizes) payloads.push_back(log.append(bytes));
    const auto append = [&](LogStore& store) { return append_to(store, id_of(name), payloads); };
    const size_t kept = elsewhere(append).logs.at(name).entries.size() - sizes.size();
    std::vector<Content> possible = {now_, now_};
    possible.back().logs[name].trim(kept);
    for (size_t bytes : sizes) {
      possible.push_back(possible.back());
      possible.back().logs[name].append(bytes);
    }
    begin(possible);
    PMSTORE_CHECK(append(*store_).has_value(), "it has succeeded elsewhere");
    end(possible.back());
  }
  // Keeps the last ones.
  void trim(const std::string& name, size_t kept) {
    Content after = now_;
    after.logs[name].trim(kept);
    begin({now_, after});
    PMSTORE_CHECK(
        store_->trim_below_index(id_of(name), after.logs[name].next_index - kept).has_value(),
        "they are there");
    end(after);
  }
  // Appends a producer's entries. The producer acquires the log first, unless it has it.
  void land(const std::string& name, const std::vector<size_t>& sizes) {
    const LogInfo info = store_->find(name).value();
    RingPosition position{info.bytes, info.start_lsn, landed_lsn_[name], info.incarnation,
                          store_->where(info.id)->salt};
    if (!info.exclusive) position = acquire(name);
    std::vector<Content> possible = doubtful();
    for (size_t bytes : sizes) {
      possible.push_back(possible.back());
      const std::string payload = possible.back().logs[name].append(bytes);
      plans_.push_back({position, possible.back().logs[name].next_index - 1, payload});
      position.tail_lsn = plan_entry(position, sizeof(LogEntryPrefix) + bytes, true)->next_lsn();
    }
    begin(possible);
    for (const Plan& plan : plans_) store_entry(info.id, plan);
    plans_.clear();
    landed_lsn_[name] = position.tail_lsn;
    if (options_.writer == LogWriter::kCpu) {
      PMSTORE_CHECK(unsure_.empty() || unsure_log_ == name, "one log at a time is in doubt");
      unsure_.assign(possible.begin(), possible.end() - 1);
      unsure_log_ = name;
    } else {
      acknowledge_writes();
    }
    end(possible.back());
  }
  // A producer gets the log. The earlier producer is fenced, and its landed entries count.
  RingPosition acquire(const std::string& name) {
    begin(doubtful());
    const auto grant = store_->acquire(id_of(name), 1);
    PMSTORE_CHECK(grant.has_value() && holds_now(name), "all of it has landed");
    landed_lsn_[name] = grant->position.tail_lsn;
    settled(name);
    end(now_);
    return grant->position;
  }
  // Fences the producer; its landed entries count.
  void release(const std::string& name) {
    begin(doubtful());
    PMSTORE_CHECK(store_->release(id_of(name)).has_value(), "it is there");
    PMSTORE_CHECK(holds_now(name), "all of it has landed");
    settled(name);
    end(now_);
  }
  // An entry that the next incarnation would find at its beginning.
  void forge(const std::string& name) {
    const LogInfo info = store_->find(name).value();
    Plan plan{{info.bytes, info.start_lsn, info.tail_lsn, info.incarnation + 1,
               store_->where(info.id)->salt},
              info.next_index,
              "forged"};
    begin({now_});
    store_entry(info.id, plan);
    recorder_
        ->mark();  // not at rest: beside damage to a header, a forged entry looks like a later one
  }
  // The process dies just before the first drain of `operation` on a log; the next process sees the
  // content of the caches. `change` is the effect of the operation on the log; none: the log is
  // gone.
  void interrupted(const std::string& name,
                   const std::function<Status(LogStore&, uint64_t)>& operation,
                   const std::function<void(LogContent&)>& change) {
    Content after = now_;
    if (change) {
      change(after.logs.at(name));
    } else {
      after.logs.erase(name);
    }
    std::vector<FirstStores::Store> stores;
    elsewhere([&](LogStore& store) {
      FirstStores first(store.memory());
      const Status done = operation(store, id_of(name));
      stores = std::move(first.stores);
      return done;
    });
    begin({now_, after});
    persist::Memory& memory = pool_->memory();
    for (const auto& [offset, data] : stores) {
      memory.store(memory.at(offset), data.data(), data.size());
    }
    unsure_ = {now_};
    unsure_log_ = name;
    end(after);
  }
  void close() {
    begin(doubtful());
    PMSTORE_CHECK(store_->close().has_value(), "memory can always be drained");
    unsure_.clear();
    end(now_);
  }
  crash::Trace take() {
    begin(doubtful());
    return recorder_->take();
  }
  const Expected& expected(size_t marks) const { return expected_.at(marks); }
  size_t marks() const { return expected_.size() - 1; }
  uint64_t new_identity() const { return options_.new_identity; }
  const Content& now() const { return now_; }
  // Has something landed that a power cut may still take back?
  bool in_doubt() const { return !unsure_.empty(); }
  // Of which log; the others' entries are certain.
  const std::string& log_in_doubt() const { return unsure_log_; }
  bool is_exclusive(const std::string& name) const { return store_->find(name)->exclusive; }
  // Is there room for all of them behind the tail, as the server or a producer places them?
  bool fits(const std::string& name, const std::vector<size_t>& sizes) const {
    const LogInfo info = store_->find(name).value();
    RingPosition position{info.bytes, info.start_lsn,
                          info.exclusive ? landed_lsn_.at(name) : info.tail_lsn, info.incarnation,
                          0};
    for (const size_t bytes : sizes) {
      const auto plan = plan_entry(position, sizeof(LogEntryPrefix) + bytes, info.exclusive);
      if (!plan) return false;
      position.tail_lsn = plan->next_lsn();
    }
    return true;
  }
  uint64_t id_of(const std::string& name) const { return now_.logs.at(name).id; }
  // Those of the trace's barriers that another test is about.
  const std::set<size_t>& others_barriers() const { return others_barriers_; }

 private:
  struct Plan {
    RingPosition position;
    uint64_t index;
    std::string payload;
  };
  // Others may have entries that only their producers know of.
  bool holds_now(const std::string& name) const {
    return content_of(*store_)->logs.at(name) == now_.logs.at(name);
  }
  // Barriers from `first` on, but the last ones.
  void not_ours(size_t first, size_t ours) {
    const size_t end = recorder_->trace().barriers().size();
    for (size_t i = first; i + ours < end; ++i) others_barriers_.insert(i);
  }
  void begin(std::vector<Content> possible) {
    expected_.push_back({std::move(possible), start_of(store_), highest_id_, false});
  }
  void end(Content now) {
    now_ = std::move(now);
    recorder_->mark();
    // A store that has reached a surviving cache is no longer in doubt.
    if (options_.domain == persist::Domain::kCpuCache) unsure_.clear();
    if (unsure_.empty() && options_.rests) rest();
  }
  // The content of the logs after an operation on a copy of the memory.
  Content elsewhere(const std::function<Status(LogStore&)>& operation) {
    crash::PageBytes copy(pool_->memory().mapping());
    auto pool = persist::Pool::in_region(copy.bytes(), options_.domain, false).value();
    auto store = LogStore::open(*pool, options_.new_identity).value();
    PMSTORE_CHECK(operation(*store).has_value(), "it can be done");
    return content_of(*store).value();
  }
  // Nothing is in progress: a moment for the checks.
  void rest() {
    begin({now_});
    expected_.back().at_rest = true;
    const uint64_t last = kPoolBytes - 64;
    pool_->memory().store64(reinterpret_cast<uint64_t*>(pool_->memory().at(last)),
                            expected_.size());
    recorder_->mark();
  }
  // The landed entries of its producer are durable.
  void settled(const std::string& name) {
    if (name == unsure_log_) unsure_.clear();
  }
  std::vector<Content> doubtful() const {
    std::vector<Content> possible = unsure_;
    possible.push_back(now_);
    return possible;
  }
  void store_entry(uint64_t id, const Plan& plan) {
    const LogEntryPrefix prefix{plan.position.start_lsn};
    const uint64_t bytes = sizeof prefix + plan.payload.size();
    const PlannedEntry place = plan_entry(plan.position, bytes, true).value();
    PMSTORE_CHECK(place.pad_bytes == 0 || plan.payload != "forged", "no pad there");
    std::vector<std::byte> buffer(entry_room(bytes));
    std::memcpy(buffer.data() + sizeof(EntryHeader), &prefix, sizeof prefix);
    std::memcpy(buffer.data() + sizeof(EntryHeader) + sizeof prefix, plan.payload.data(),
                plan.payload.size());
    if (place.pad_bytes > 0) {
      std::byte pad[kMaxPadWriteBytes];
      const uint64_t count = seal_pad(pad, place, plan.position);
      put(data_in_store(*store_, id, place.pad_lsn), {pad, count});
    }
    seal_entry(buffer, place, plan.position, bytes, plan.index);
    put(data_in_store(*store_, id, place.lsn), std::span(buffer).first(place.bytes));
  }
  void put(std::byte* to, std::span<const std::byte> bytes) {
    if (options_.writer == LogWriter::kCpu) {
      pool_->memory().store(to, bytes.data(), bytes.size());
      return;
    }
    const bool ddio = options_.domain == persist::Domain::kCpuCache;
    recorder_->on_packet(model::Packet::kArrived, 1, bytes.size());
    recorder_->on_dma_write(to, bytes.data(), bytes.size(),
                            ddio ? model::Landing::kLastLevelCache : model::Landing::kMemory);
    std::memcpy(to, bytes.data(), bytes.size());
  }
  // The READ behind them.
  void acknowledge_writes() {
    recorder_->on_packet(model::Packet::kArrived, 1, 0);
    recorder_->on_packet(model::Packet::kCompleted, 1, 8);
  }

  const ScriptOptions options_;
  std::unique_ptr<persist::Pool> pool_;
  std::optional<crash::CrashRecorder> recorder_;
  std::unique_ptr<LogStore> store_;
  Content now_;
  std::vector<Content> unsure_;  // what a power cut may still fall back to
  std::string unsure_log_;       // the log in which that differs from now_
  std::vector<Plan> plans_;
  std::map<std::string, uint64_t> landed_lsn_;  // by log
  uint64_t highest_id_ = 0;
  std::vector<Expected> expected_;
  std::set<size_t> others_barriers_;
};

}  // namespace pmstore::log
