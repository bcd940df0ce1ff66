#include "tests/crash/two_phase_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/checksum.h"
#include "base/random.h"
#include "model/crash_recorder.h"
#include "model/page_bytes.h"
#include "persist/pool_layout.h"
#include "pmstore/check.h"
#include "pmstore/shard/slab_arena.h"
#include "tests/crash/opened_pool.h"
#include "tests/crash/restarted_store.h"
#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::crash {
namespace {

using internal::TwoPhase;
using State = TwoPhase::State;

constexpr uint64_t kLogBytes = 48 << 10;
constexpr uint64_t kPoolBytes = persist::round_up(
    persist::kPoolLayoutBytes + kLogBytes + 8 * internal::kChunkBytes + 8192, 4096);
constexpr char kLocked[] = "?";

// What there is, with the values that locked records have before and after the decision.
struct Model {
  StoreContent content;
  std::map<TxId, State> open;  // without those that are only locked
};

uint64_t digest_of(const Model& model) {
  uint64_t digest = content_digest(model.content);
  for (const auto& [id, state] : model.open) {
    const std::string part = fmt::format("{} {}", id.sequence, static_cast<int>(state));
    digest = base::checksum64(std::as_bytes(std::span(part)), digest);
  }
  return digest;
}

struct Shared {
  TxId id;
  std::vector<KeyWrite> writes;
  StoreContent before;  // of the keys that it writes
};

struct History {
  TableId table{};
  std::vector<std::string> keys;
  std::vector<Shared> shared;
};

void put_back(StoreContent& content, const Shared& shared, bool committed) {
  for (const KeyWrite& write : shared.writes) {
    content.erase(write.key);
    if (committed && write.value) content[write.key] = *write.value;
    const auto old = shared.before.find(write.key);
    if (!committed && old != shared.before.end()) content[write.key] = old->second;
  }
}

Result<Model> read_model(internal::Store& store, const History& history) {
  Model model;
  for (const std::string& key : history.keys) {
    auto got = internal::get_from(store, history.table, key);
    if (!got && got.code() == ErrorCode::kConflict) {
      model.content[key] = kLocked;
    } else if (!got) {
      return got.error();
    } else if (got->found()) {
      model.content[key] = std::move(got->value);
    }
  }
  for (const TxId id : store.two_phase().open_transactions()) {
    model.open[id] = *store.two_phase().state(id);
  }
  return model;
}

// What the last step has logged.
Status finish(internal::Store& store) {
  if (store.group_size() == 0) return {};
  const auto durable = store.finish_group();
  return durable ? Status() : Status(durable.error());
}

class RestartedTwoPhase final : public Restarted {
 public:
  RestartedTwoPhase(std::unique_ptr<persist::Pool> pool, const History& history)
      : history_(history), pool_(std::move(pool)) {}
  std::vector<persist::Memory*> memories() override { return {&pool_->memory()}; }
  uint64_t start_number() const override { return store_ ? store_->catalog().header().epoch : 0; }

  Result<uint64_t> recover() override {
    PMSTORE_TRY_STATUS(record_opening(*pool_));
    PMSTORE_TRY(const CheckReport report, check_store(*pool_));
    if (!report.sound()) return make_error(ErrorCode::kBadPool, report.problems.front());
    PMSTORE_TRY(store_, internal::Store::open(*pool_));
    PMSTORE_TRY(model_, read_model(*store_, history_));
    return digest_of(model_);
  }

  Result<uint64_t> work() override {
    const auto waits = std::find_if(model_.open.begin(), model_.open.end(), [](const auto& each) {
      return each.second == State::kPrepared;
    });
    if (waits == model_.open.end()) {
      PMSTORE_TRY_STATUS(write_alone());
    } else {
      PMSTORE_TRY_STATUS(decide(waits->first));
    }
    PMSTORE_TRY(const Model now, read_model(*store_, history_));
    if (digest_of(now) != digest_of(model_)) {
      return make_error(ErrorCode::kBadPool, "not what was written: " + content_text(now.content) +
                                                 "; expected " + content_text(model_.content));
    }
    return digest_of(now);
  }

 private:
  Status decide(TxId id) {
    const auto shared = std::find_if(history_.shared.begin(), history_.shared.end(),
                                     [&](const Shared& each) { return each.id == id; });
    PMSTORE_CHECK(shared != history_.shared.end(), "only the script prepares");
    const bool commits = id.sequence % 2 == 0;
    TwoPhase& two_phase = store_->two_phase();
    PMSTORE_TRY_STATUS(commits ? two_phase.commit(id, 0) : two_phase.abort(id, 0));
    PMSTORE_TRY_STATUS(finish(*store_));
    put_back(model_.content, *shared, commits);
    commits ? void(model_.open[id] = State::kCommitted) : void(model_.open.erase(id));
    return {};
  }
  Status write_alone() {
    PMSTORE_TRY(const uint64_t sequence, store_->begin_session());
    const std::string value(300, 'W');
    const Status written = commit_writes(*store_, kStoreClient, history_.table, sequence,
                                         {{history_.keys.front(), value}});
    if (written) model_.content[history_.keys.front()] = value;
    return written;
  }

  const History& history_;
  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<internal::Store> store_;
  Model model_;
};

class TwoPhaseRun final : public RecordedRun {
 public:
  TwoPhaseRun(const std::string& scenario, uint64_t seed, persist::Domain domain)
      : RecordedRun(scenario, seed), domain_(domain), random_(seed), region_(kPoolBytes) {
    pool_ = std::move(*persist::Pool::in_region(region_.bytes(), domain, true));
    for (const char* key : {"a", "b", "c", "d", "e", "f"}) history_.keys.emplace_back(key);
    const FormatOptions options{
        .rings = 0, .identity = seed + 1, .tables = {"t"}, .shard_log_bytes = kLogBytes};
    PMSTORE_CHECK(format_store(*pool_, options).has_value(), "the region is large enough");
    recorder_.emplace(pool_->memory());
    allow_now({now_});
    open();
    history_.table = store_->catalog().find("t").value();
    recorder_->mark();
    seed == 0 ? script() : draw();
    allow_now({now_});
    trace_ = recorder_->take();
    store_.reset();
    pool_.reset();
  }

  Result<std::unique_ptr<Restarted>> restart(std::span<std::byte> memory) const override {
    PMSTORE_TRY(auto pool, persist::Pool::in_region(memory, domain_, false));
    return std::unique_ptr<Restarted>(
        std::make_unique<RestartedTwoPhase>(std::move(pool), history_));
  }
  uint64_t samples() const override { return 32; }
  uint64_t most_exhaustive() const override {
    return domain_ == persist::Domain::kNone ? 256 : UINT64_MAX;
  }
  uint64_t death_every() const override { return 16; }

 private:
  void script();
  void draw();
  void open() {
    auto opened = internal::Store::open(*pool_);
    PMSTORE_CHECK(opened.has_value(), opened ? "" : opened.error().message.c_str());
    store_ = std::move(*opened);
    next_ = store_->begin_session().value();
  }
  // A forgotten transaction may be found again, or not.
  void allow_now(const std::vector<Model>& models) {
    std::vector<uint64_t> digests;
    for (const Model& model : models) {
      const uint64_t digest = digest_of(model);
      describe(digest,
               fmt::format("{} with {} open", content_text(model.content), model.open.size()));
      digests.push_back(digest);
      if (!forgotten_ || model.open.contains(*forgotten_)) continue;
      Model with = model;
      with.open[*forgotten_] = State::kCommitted;
      describe(digest_of(with), content_text(model.content) + " with one that is forgotten");
      digests.push_back(digest_of(with));
    }
    allow(std::move(digests));
  }
  void restart_process() {
    allow_now({now_});
    store_.reset();
    recorder_->process_dies();
    open();
    forget_found();
    recorder_->mark();
  }
  // A start has found it, or it never will be found.
  void forget_found() {
    if (forgotten_ && store_->two_phase().state(*forgotten_)) {
      now_.open[*forgotten_] = State::kCommitted;
    }
    forgotten_.reset();
  }
  static KeyWrite erase(const char* key) { return {key, std::nullopt}; }
  KeyWrite write(const char* key, size_t bytes) {
    std::string value = fmt::format("{}.", ++values_);
    value.resize(std::max(bytes, value.size()), key[0]);
    return {key, std::move(value)};
  }

  void put(const std::vector<KeyWrite>& writes);
  // Gives its number among the shared ones.
  size_t prepare(const std::vector<KeyWrite>& writes);
  void commit(size_t number, bool knows_the_last);
  void abort(size_t number);
  void forget(size_t number);

  persist::Domain domain_;
  Random random_;
  model::PageBytes region_;
  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<internal::Store> store_;
  std::optional<model::CrashRecorder> recorder_;
  Model now_;
  std::optional<TxId> forgotten_;
  uint64_t next_ = 0;
  int values_ = 0;
  History history_;
};

void TwoPhaseRun::put(const std::vector<KeyWrite>& writes) {
  Model after = now_;
  put_back(after.content, {{}, writes, {}}, true);
  allow_now({now_, after});
  const Status done = commit_writes(*store_, kStoreClient, history_.table, next_++, writes);
  PMSTORE_CHECK(done.has_value(), done ? "" : done.error().message.c_str());
  now_ = std::move(after);
  recorder_->mark();
}

size_t TwoPhaseRun::prepare(const std::vector<KeyWrite>& writes) {
  Shared shared{{kStoreClient, next_++}, writes, {}};
  Model after = now_;
  internal::TransactionMessage message(shared.id.sequence);
  for (const KeyWrite& each : writes) {
    const auto old = now_.content.find(each.key);
    if (old != now_.content.end()) shared.before.insert(*old);
    after.content[each.key] = kLocked;
    message.write(each.value ? WriteKind::kPut : WriteKind::kErase, history_.table, each.key,
                  each.value.value_or(""));
  }
  after.open[shared.id] = State::kPrepared;
  allow_now({now_, after});
  const auto bytes = message.message();
  const auto view = internal::decode_commit(kStoreClient, bytes);
  PMSTORE_CHECK(view.has_value(), "the script's transactions are right");
  const ShardParticipant other{9, {8, 7}, shared.id.sequence, 6, 0, 0, 0};
  const Status locked = store_->two_phase().lock(*view, std::span(&other, 1), 0);
  PMSTORE_CHECK(locked.has_value(), locked ? "" : locked.error().message.c_str());
  const Status prepared = store_->two_phase().prepare(shared.id, {}, {});
  PMSTORE_CHECK(prepared && finish(*store_), "no other client writes");
  now_ = std::move(after);
  history_.shared.push_back(std::move(shared));
  recorder_->mark();
  return history_.shared.size() - 1;
}

void TwoPhaseRun::commit(size_t number, bool knows_the_last) {
  const Shared& shared = history_.shared[number];
  Model after = now_;
  put_back(after.content, shared, true);
  after.open[shared.id] = State::kCommitted;
  allow_now({now_, after});
  // Of another session a decision says nothing.
  const bool knows =
      knows_the_last && forgotten_ &&
      internal::session_of(forgotten_->sequence) == internal::session_of(shared.id.sequence);
  const uint64_t known = knows ? forgotten_->sequence : 0;
  PMSTORE_CHECK(store_->two_phase().commit(shared.id, known) && finish(*store_), "it is prepared");
  now_ = std::move(after);
  if (known != 0) forgotten_.reset();
  recorder_->mark();
}

void TwoPhaseRun::abort(size_t number) {
  const Shared& shared = history_.shared[number];
  Model after = now_;
  put_back(after.content, shared, false);
  after.open.erase(shared.id);
  allow_now({now_, after});
  PMSTORE_CHECK(store_->two_phase().abort(shared.id, 0) && finish(*store_), "it is prepared");
  now_ = std::move(after);
  recorder_->mark();
}

void TwoPhaseRun::forget(size_t number) {
  PMSTORE_CHECK(!forgotten_, "one at a time, so that there are few possible contents");
  const TxId id = history_.shared[number].id;
  store_->two_phase().forget(id);
  now_.open.erase(id);
  forgotten_ = id;
}

void TwoPhaseRun::script() {
  put({write("a", 140), write("b", 210)});
  put({write("c", 500)});
  // An update in place, a move, an insert, an erase: committed.
  size_t one = prepare({write("a", 140), write("b", 900), write("d", 140), erase("c")});
  put({write("e", 140)});
  commit(one, false);
  put({write("a", 140)});
  // The same again, aborted; what comes behind has the aborted versions.
  one = prepare({write("a", 140), write("b", 300), write("c", 140), erase("d")});
  abort(one);
  put({write("a", 140), write("b", 900)});
  put({write("c", 140)});
  // Undecided over restarts, while others go on.
  one = prepare({write("a", 140), write("f", 500), erase("d")});
  restart_process();
  put({write("b", 900)});
  restart_process();
  commit(one, false);
  restart_process();
  forget(one);
  // The log wraps with one that is undecided, one that is remembered, and one that is forgotten.
  one = prepare({write("a", 140), write("d", 900)});
  const size_t two = prepare({write("c", 300)});
  commit(two, false);
  for (int i = 0; i < 40; ++i) put({write("e", 1500)});
  restart_process();
  for (int i = 0; i < 8; ++i) put({write("e", 1500)});
  abort(one);
  put({write("a", 140), write("d", 140)});
  forget(two);
  put({write("a", 140)});
  restart_process();
  one = prepare({write("b", 140)});
  commit(one, false);
  forget(one);
  one = prepare({write("b", 140), write("c", 140)});
  commit(one, true);
  for (int i = 0; i < 30; ++i) put({write("e", 1500)});
  restart_process();
  put({write("c", 140)});
}

void TwoPhaseRun::draw() {
  static constexpr size_t kBytes[] = {100, 210, 500, 1500};
  std::vector<size_t> open;
  for (uint64_t steps = 20 + random_.below(20); steps > 0; --steps) {
    if (random_.below(12) == 0) {
      restart_process();
      continue;
    }
    if (!open.empty() && random_.below(3) == 0) {
      const size_t at = random_.below(open.size());
      const size_t number = open[at];
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(at));
      const bool commits = random_.below(2) == 0;
      commits ? commit(number, random_.below(2) == 0) : abort(number);
      if (commits && !forgotten_) forget(number);
      continue;
    }
    std::vector<KeyWrite> writes;
    for (const std::string& key : history_.keys) {
      const auto old = now_.content.find(key);
      const bool locked = old != now_.content.end() && old->second == kLocked;
      if (locked || random_.below(3) != 0 || writes.size() == 2) continue;
      const bool erases = old != now_.content.end() && random_.below(4) == 0;
      writes.push_back(erases ? erase(key.c_str()) : write(key.c_str(), kBytes[random_.below(4)]));
    }
    if (writes.empty()) continue;
    if (open.size() < 2 && random_.below(3) == 0) {
      open.push_back(prepare(writes));
    } else {
      put(writes);
    }
  }
}

}  // namespace

std::unique_ptr<RecordedRun> two_phase_run(const std::string& scenario, uint64_t seed,
                                           persist::Domain domain) {
  return std::make_unique<TwoPhaseRun>(scenario, seed, domain);
}

}  // namespace pmstore::crash
