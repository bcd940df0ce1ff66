#include "tests/crash/store_rnic_life.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/page_bytes.h"
#include "persist/pool_layout.h"
#include "pmstore/client.h"
#include "pmstore/internal/slab_layout.h"
#include "tests/crash/crash_machine.h"
#include "tests/crash/restarted_store.h"
#include "tests/unit/store/store_fixture.h"

namespace pmstore::crash {
namespace {

constexpr uint32_t kClients = 2;
constexpr uint32_t kChunks = 5;
constexpr uint64_t kRingBytes = 16 << 10;
constexpr uint64_t kPoolBytes = persist::round_up(
    persist::kPoolLayoutBytes + kClients * kRingBytes + kChunks * internal::kChunkBytes + 4096,
    4096);

using Writes = std::vector<KeyWrite>;
using Places = std::vector<std::pair<uint64_t, uint64_t>>;  // slot, version

StoreContent with(StoreContent content, const Writes& writes) {
  for (const KeyWrite& write : writes) {
    if (write.value) {
      content[write.key] = *write.value;
    } else {
      content.erase(write.key);
    }
  }
  return content;
}

// Invariant: `now_` must be there after a power cut, with or without each of `under_way_`, whose
// keys are different ones.
class StoreRnicLife final : public Life {
 public:
  StoreRnicLife(const std::string& scenario, uint64_t seed, persist::Domain domain, bool ddio)
      : Life(scenario, seed), domain_(domain), random_(seed), region_(kPoolBytes) {
    static constexpr double kHoldNs[] = {4000, 0, 700};
    machine_.emplace(CrashMachine::Options{.ddio = ddio,
                                           .hold_ns = kHoldNs[seed % 3],
                                           .slow_memory = seed % 2 == 0,
                                           .seed = seed + 1});
    pool_ = std::move(*persist::Pool::in_region(region_.bytes(), domain, true));
    for (const char* key : {"a", "b", "c", "d", "e", "f", "g", "h", "new"}) {
      history_.keys.emplace_back(key);
    }
    machine_->record(pool_->memory());
    format();
    seed == 0 ? script() : draw();
    trace_ = machine_->take();
    clients_ = {};
    server_.reset();
    pool_.reset();
    machine_.reset();
  }

  Result<std::unique_ptr<Restarted>> restart(std::span<std::byte> memory) const override {
    return RestartedStore::open(memory, domain_, history_);
  }
  // A start of a store takes about 100 us.
  uint64_t samples() const override { return 64; }
  uint64_t death_every() const override { return 16; }

 private:
  struct Commit {
    uint32_t client = 0;
    Writes writes = {};
    TxId id{};
    uint64_t epoch = 0;  // of the server, when it began
    Places before = {};  // of its keys
    std::optional<Status> over = std::nullopt;
  };

  // ---- what a life consists of ----

  void script();
  void draw();
  void draw_one();

  void format();
  void start();
  void connect(uint32_t client);
  // Of one client, acknowledged on return, or refused.
  void commit(uint32_t client, const Writes& writes) { commit_together({{client, writes}}); }
  // At the same time.
  void commit_together(std::vector<Commit> commits);
  // The server's process dies that long after the commits have begun, and another one starts.
  void die_amid(std::vector<Commit> commits, uint64_t ns);
  // The same, when it was stopped in order.
  void stop_and_start();

  // ---- the pieces of them ----

  // From here on this is right, until it is said again.
  void promise();
  void begin(std::vector<Commit>& commits);
  void finish(const std::vector<Commit>& commits);
  base::Task<void> run(Commit& commit);
  void settle(const Commit& commit, bool committed);
  // Of the keys of these, as a start on a copy of the memory finds them.
  Places places_of(const Writes& writes) const;
  KeyWrite write(const char* key, size_t bytes) {
    std::string value = fmt::format("{}.", ++values_);  // different each time
    value.resize(std::max(bytes, value.size()), key[0]);
    return {key, std::move(value)};
  }
  static KeyWrite erase(const char* key) { return {key, std::nullopt}; }

  persist::Domain domain_;
  Random random_;
  model::PageBytes region_;
  std::optional<CrashMachine> machine_;
  std::unique_ptr<persist::Pool> pool_;
  ServerOptions server_options_;
  std::unique_ptr<Server> server_;
  std::array<std::unique_ptr<Client>, kClients> clients_;
  StoreContent now_;
  std::vector<const Commit*> under_way_;
  uint64_t values_ = 0;
  StoreHistory history_;
};

void StoreRnicLife::promise() {
  machine_->recorder().mark();
  std::vector<uint64_t> digests;
  for (uint64_t subset = 0; subset < uint64_t{1} << under_way_.size(); ++subset) {
    StoreContent content = now_;
    for (size_t i = 0; i < under_way_.size(); ++i) {
      if ((subset >> i & 1) != 0) content = with(std::move(content), under_way_[i]->writes);
    }
    digests.push_back(content_digest(content));
    describe(digests.back(), content_text(content));
  }
  allow(std::move(digests));
}

// ---- servers and clients that come and go ----

void StoreRnicLife::format() {
  describe(0, "no store");
  describe(content_digest({}), "no records");
  allow({0, content_digest({})});
  const FormatOptions options{
      .rings = kClients, .ring_bytes = kRingBytes, .identity = seed() + 1, .log_bytes = 0};
  PMSTORE_CHECK(format_store(*pool_, options).has_value(), "the region is large enough");
  server_options_.discipline = LockDiscipline::kRnic;
  server_options_.device_landing = machine_->server().landing();
  server_options_.one_sided_commit = true;
  server_options_.devices = &machine_->server();
  start();
  auto table = machine_->run(clients_[0]->open_table(kStoreTable, true));
  PMSTORE_CHECK(table.has_value(), "a new store has room for a table");
  history_.table = *table;
  history_.transactions.push_back({{}, false, content_digest({}), 0, {}});
  promise();
}

void StoreRnicLife::start() {
  auto started = machine_->run(Server::start(machine_->executor(), *pool_, server_options_));
  PMSTORE_CHECK(started.has_value(), started ? "" : started.error().message.c_str());
  server_ = std::move(*started);
  auto at = machine_->run(server_->listen({fabric::Scheme::kLocal, "crash-store", 0}));
  PMSTORE_CHECK(at.has_value(), at ? "" : at.error().message.c_str());
  for (uint32_t i = 0; i < kClients; ++i) connect(i);
}

void StoreRnicLife::connect(uint32_t client) {
  static constexpr persist::WriteStrategy kStrategies[] = {persist::WriteStrategy::kAuto,
                                                           persist::WriteStrategy::kTwoSided};
  ClientOptions options;
  options.client = kStoreClient + client;
  options.log_strategy = kStrategies[seed() % 4 == 3 ? client : 0];
  options.devices = &machine_->client(client);
  const fabric::Uri uri{fabric::Scheme::kLocal, "crash-store", 0};
  auto made = machine_->run(Client::connect(machine_->executor(), uri, options));
  PMSTORE_CHECK(made.has_value(), made ? "" : made.error().message.c_str());
  clients_[client] = std::move(*made);
}

void StoreRnicLife::stop_and_start() {
  for (auto& client : clients_) {
    machine_->run(client->close());
    client.reset();
  }
  PMSTORE_CHECK(machine_->run(server_->stop()).has_value(), "memory can always be drained");
  server_.reset();
  machine_->recorder().process_dies();
  start();
}

void StoreRnicLife::die_amid(std::vector<Commit> commits, uint64_t ns) {
  begin(commits);
  machine_->pass(ns);
  server_.reset();
  machine_->recorder().process_dies();
  finish(commits);
  clients_ = {};
  start();
  for (const Commit& commit : commits) {
    if (commit.over->has_value()) continue;
    Outcome outcome = Outcome::kAborted;
    if (commit.id.client != 0) {
      auto asked = machine_->run(clients_[commit.client]->outcome(commit.id));
      PMSTORE_CHECK(asked.has_value(), asked ? "" : asked.error().message.c_str());
      outcome = *asked;
    }
    PMSTORE_CHECK(
        outcome != Outcome::kCommitted || commit.over->code() == ErrorCode::kCommitUnknown,
        "what nobody is in doubt about did not happen");
    settle(commit, outcome == Outcome::kCommitted);
  }
}

// ---- transactions ----

Places StoreRnicLife::places_of(const Writes& writes) const {
  model::PageBytes copy(pool_->memory().mapping());
  const auto pool = persist::Pool::in_region(copy.bytes(), domain_, false);
  PMSTORE_CHECK(pool.has_value(), "it is a copy");
  const auto store = internal::Store::open(**pool);
  PMSTORE_CHECK(store.has_value(), store ? "" : store.error().message.c_str());
  Places places;
  for (const KeyWrite& write : writes) {
    const auto got = internal::get_from(**store, history_.table, write.key);
    if (got && got->found()) places.emplace_back(got->reply.slot, got->reply.version);
  }
  return places;
}

void StoreRnicLife::settle(const Commit& commit, bool committed) {
  std::erase(under_way_, &commit);
  if (committed) now_ = with(std::move(now_), commit.writes);
  Places places = places_of(commit.writes);
  // What was erased, or moved away, leaves a tombstone, one version higher.
  if (committed) {
    for (const auto& [slot, version] : commit.before) places.emplace_back(slot, version + 1);
  }
  history_.transactions.push_back(
      {commit.id, committed, content_digest(now_), commit.epoch, std::move(places)});
  promise();
}

base::Task<void> StoreRnicLife::run(Commit& commit) {
  Transaction transaction = clients_[commit.client]->begin();
  for (const KeyWrite& write : commit.writes) {
    if (write.value) {
      transaction.put(history_.table, write.key, *write.value);
    } else {
      transaction.erase(history_.table, write.key);
    }
  }
  Status status = co_await transaction.commit();
  commit.id = transaction.id();
  if (status) settle(commit, true);
  commit.over = std::move(status);
}

void StoreRnicLife::begin(std::vector<Commit>& commits) {
  for (Commit& commit : commits) {
    under_way_.push_back(&commit);
    commit.before = places_of(commit.writes);
    commit.epoch = clients_[commit.client]->session().epoch;
    machine_->executor().spawn(run(commit));
  }
  promise();
}

void StoreRnicLife::finish(const std::vector<Commit>& commits) {
  machine_->run([](base::Executor& executor, const std::vector<Commit>& all) -> base::Task<void> {
    for (const Commit& commit : all) {
      uint64_t pause_ns = 500;
      for (; !commit.over; pause_ns *= 2) co_await executor.sleep_for(pause_ns);
    }
  }(machine_->executor(), commits));
}

void StoreRnicLife::commit_together(std::vector<Commit> commits) {
  begin(commits);
  finish(commits);
  for (const Commit& commit : commits) {
    if (commit.over->has_value()) continue;
    const ErrorCode code = commit.over->code();
    PMSTORE_CHECK(
        code == ErrorCode::kFull || code == ErrorCode::kNotFound || code == ErrorCode::kConflict,
        commit.over->error().message.c_str());
    settle(commit, false);
  }
}

// ---- whole lives ----

void StoreRnicLife::script() {
  commit(0, {write("a", 140), write("b", 210)});
  commit(1, {write("c", 500)});
  commit(0, {write("a", 140), write("b", 210)});  // in place
  commit_together({{0, {write("a", 140), write("b", 200)}}, {1, {write("c", 450)}}});
  commit(1, {write("b", 210), erase("c")});
  commit(0, {write("c", 500), write("a", 210)});  // moves a record
  die_amid({{0, {write("a", 200), write("c", 480)}}, {1, {write("b", 200), write("e", 90)}}}, 9000);
  commit(0, {erase("a"), write("b", 140)});
  stop_and_start();
  commit(1, {write("d", 1500), write("c", 400)});
  // The rings wrap, with truncation on the way.
  for (uint32_t i = 0; i < 12; ++i) {
    commit_together({{0, {write("d", 1500), write("c", 400)}}, {1, {write("b", 140)}}});
  }
  commit(1, {write("e", 140), write("f", 140)});
  die_amid({{0, {write("c", 300), write("d", 1400)}}}, 12'000);
  commit(0, {write("g", 900), erase("d")});
  die_amid({{1, {write("e", 130), write("f", 130)}}}, 6000);
  commit(1, {write("e", 140), write("f", 140)});
  commit(0, {erase("g"), write("c", 350)});
}

void StoreRnicLife::draw() {
  for (uint64_t steps = 12 + random_.below(16); steps > 0; --steps) draw_one();
}

void StoreRnicLife::draw_one() {
  if (random_.below(25) == 0) return stop_and_start();
  std::vector<Commit> commits(1 + random_.below(2));
  const size_t first = random_.below(history_.keys.size() - 1);
  static constexpr size_t kBytes[] = {100, 150, 210, 500, 900, 1500, 3000};
  const size_t largest = 1 + random_.below(std::size(kBytes));
  size_t next = first;
  for (size_t i = 0; i < commits.size(); ++i) {
    commits[i].client = static_cast<uint32_t>(commits.size() == 1 ? random_.below(kClients) : i);
    for (size_t count = 1 + random_.below(3); count > 0; --count) {
      const std::string& key = history_.keys[next++ % (history_.keys.size() - 1)];
      const bool erases = random_.below(4) == 0 && now_.contains(key);
      commits[i].writes.push_back(erases ? erase(key.c_str())
                                         : write(key.c_str(), kBytes[random_.below(largest)]));
    }
  }
  if (random_.below(6) == 0) return die_amid(std::move(commits), random_.below(20'000));
  commit_together(std::move(commits));
}

}  // namespace

std::unique_ptr<Life> store_rnic_life(const std::string& scenario, uint64_t seed,
                                      persist::Domain domain, bool ddio) {
  return std::make_unique<StoreRnicLife>(scenario, seed, domain, ddio);
}

}  // namespace pmstore::crash
