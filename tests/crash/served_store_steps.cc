#include "tests/crash/served_store_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "persist/pool_layout.h"
#include "pmstore/layout/slab_layout.h"
#include "tests/unit/pmstore/shard/store_fixture.h"

namespace pmstore::crash {
namespace {

constexpr uint64_t kStoreRingBytes = 16 << 10;
constexpr uint64_t kStoreLogBytes = 32 << 10;
// The work behind an acknowledged commit takes less.
constexpr uint64_t kBehindNs = 60'000;
// A group waits for company for a sixteenth of it: longer than the network holds an effect back.
constexpr uint64_t kMsyncNs = 80'000;
constexpr uint64_t kReconnectNs = 1'000'000'000;
constexpr unsigned kMostLooks = 40;  // at a record that is locked, of 100 us each

uint64_t pool_bytes(uint32_t chunks) {
  return persist::round_up(persist::kPoolLayoutBytes + 2 * kStoreRingBytes + kStoreLogBytes +
                               chunks * internal::kChunkBytes + 4096,
                           4096);
}

StoreContent with(StoreContent content, const std::vector<KeyWrite>& writes) {
  for (const KeyWrite& write : writes) {
    if (write.value) {
      content[write.key] = *write.value;
    } else {
      content.erase(write.key);
    }
  }
  return content;
}

}  // namespace

ServedStoreSteps::ServedStoreSteps(const std::string& scenario, uint64_t seed,
                                   const ServedStore& what)
    : RecordedRun(scenario, seed), what_(what), random_(seed), region_(pool_bytes(what.chunks)) {
  static constexpr double kHoldNs[] = {4000, 0, 700};
  machine_.emplace(CrashMachine::Options{.ddio = what.ddio,
                                         .hold_ns = kHoldNs[seed % 3],
                                         .slow_memory = seed % 2 == 0,
                                         .msync_ns = what.groups ? kMsyncNs : 0,
                                         .send_queue = what.send_queue,
                                         .seed = seed + 1});
  pool_ = std::move(*persist::Pool::in_region(region_.bytes(), what.domain, true));
  for (const char* key : {"a", "b", "c", "d", "e", "f", "g", "h"}) history_.keys.emplace_back(key);
  history_.keys.emplace_back(kMaxKeyBytes, 'l');  // of runs that are drawn
  history_.keys.emplace_back("new");
  machine_->record(pool_->memory());
  format();
}

void ServedStoreSteps::end() {
  trace_ = machine_->take();
  clients_ = {};
  server_.reset();
  // The work behind the last commit has a connection, and so a device, until it ends.
  machine_->pass(kBehindNs);
  pool_.reset();
  machine_.reset();
}

void ServedStoreSteps::promise() {
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

void ServedStoreSteps::format() {
  describe(0, "no store");
  describe(content_digest({}), "no records");
  allow({0, content_digest({})});
  const FormatOptions options{.rings = kClients,
                              .ring_bytes = kStoreRingBytes,
                              .identity = seed() + 1,
                              .log_bytes = 0,
                              .shard_log_bytes = kStoreLogBytes};
  PMSTORE_CHECK(format_store(*pool_, options).has_value(), "the region is large enough");
  server_options_.discipline = what_.discipline;
  server_options_.device_landing = machine_->server().landing();
  server_options_.one_sided_commit = true;
  if (what_.groups) server_options_.group_above_ns = 0;
  server_options_.devices = &machine_->server();
  start();
  auto table = machine_->run(clients_[0]->create_table(kStoreTable, what_.kind));
  PMSTORE_CHECK(table.has_value(), "a new store has room for a table");
  history_.table = *table;
  history_.transactions.push_back({{}, false, content_digest({}), 0, {}});
  promise();
}

void ServedStoreSteps::start() {
  start_server();
  for (uint32_t i = 0; i < kClients; ++i) connect(i);
}

void ServedStoreSteps::start_server() {
  auto started = machine_->run(Server::start(machine_->executor(), *pool_, server_options_));
  PMSTORE_CHECK(started.has_value(), started ? "" : started.error().message.c_str());
  server_ = std::move(*started);
  auto at = machine_->run(server_->listen({fabric::Scheme::kLocal, "crash-store", 0}));
  PMSTORE_CHECK(at.has_value(), at ? "" : at.error().message.c_str());
}

void ServedStoreSteps::connect(uint32_t client) {
  static constexpr persist::WriteStrategy kStrategies[] = {persist::WriteStrategy::kAuto,
                                                           persist::WriteStrategy::kTwoSided};
  ClientOptions options;
  options.secret = ClientSecret::of_number(kStoreClient + client);
  const bool one_sided = what_.discipline == LockDiscipline::kRnic;
  options.log_strategy = kStrategies[one_sided && seed() % 4 == 3 ? client : 0];
  if (what_.reconnects) options.reconnect_timeout_ns = kReconnectNs;
  options.devices = &machine_->client(client);
  const fabric::Uri uri{fabric::Scheme::kLocal, "crash-store", 0};
  auto made = machine_->run(Client::connect(machine_->executor(), uri, options));
  PMSTORE_CHECK(made.has_value(), made ? "" : made.error().message.c_str());
  clients_[client] = std::move(*made);
}

void ServedStoreSteps::stop_and_start() {
  for (auto& client : clients_) {
    machine_->run(client->close());
    client.reset();
  }
  PMSTORE_CHECK(machine_->run(server_->stop()).has_value(), "memory can always be drained");
  server_.reset();
  machine_->recorder().process_dies();
  start();
}

Outcome ServedStoreSteps::outcome_of(const Commit& commit) {
  if (!commit.id.client.is_somebody()) return Outcome::kAborted;
  auto asked = machine_->run(clients_[commit.client]->outcome(commit.id));
  PMSTORE_CHECK(asked.has_value(), asked ? "" : asked.error().message.c_str());
  PMSTORE_CHECK(*asked != Outcome::kCommitted || commit.over->code() == ErrorCode::kCommitUnknown,
                "what nobody is in doubt about did not happen");
  return *asked;
}

void ServedStoreSteps::die_amid(std::vector<Commit> commits, uint64_t ns) {
  begin(commits);
  machine_->pass(ns);
  server_.reset();
  machine_->recorder().process_dies();
  if (what_.reconnects) {
    start_server();
    orphaned_.fill(true);
  }
  finish(commits);
  if (!what_.reconnects) {
    clients_ = {};
    start();
  }
  for (const Commit& commit : commits) {
    if (commit.over->has_value()) continue;
    settle(commit, outcome_of(commit) == Outcome::kCommitted);
  }
}

bool ServedStoreSteps::vanish_amid(const Commit& commit, uint64_t request, fabric::Fault how) {
  std::vector<Commit> commits = {commit};
  fabric::FailNthRequest fault(request, fabric::FaultSide::kConnector, {how});
  {
    const fabric::ScopedFaultInjector injected(fault);
    begin(commits);
    finish(commits);
    machine_->pass(kBehindNs);
  }
  clients_[commit.client].reset();
  const uint32_t other = 1 - commit.client;
  const bool acknowledged = commits[0].over->has_value();
  const bool is_there = find_whole(commits[0]);
  Writes again;
  for (const KeyWrite& each : commit.writes) {
    if (each.value) again.push_back(write(each.key.c_str(), each.value->size()));
  }
  if (!again.empty()) {
    std::vector<Commit> next = {{other, again}};
    begin(next);
    finish(next);
    PMSTORE_CHECK(next[0].over->has_value(),
                  next[0].over->has_value() ? "" : next[0].over->error().message.c_str());
  }
  connect(commit.client);
  if (!acknowledged) {
    PMSTORE_CHECK((outcome_of(commits[0]) == Outcome::kCommitted) == is_there,
                  "the outcome is what others have seen");
  }
  return fault.fired();
}

bool ServedStoreSteps::find_whole(const Commit& commit) {
  const StoreContent found = read_all(1 - commit.client);
  if (commit.over->has_value()) {
    PMSTORE_CHECK(found == now_, "what was acknowledged is there");
    return true;
  }
  const bool is_there = found != now_;
  PMSTORE_CHECK(!is_there || found == with(now_, commit.writes),
                "a transaction is there as a whole or not at all");
  settle(commit, is_there);
  return is_there;
}

void ServedStoreSteps::come_back_amid(const Commit& commit, uint64_t ns) {
  std::vector<Commit> commits = {commit};
  begin(commits);
  machine_->pass(ns);
  const auto old = std::move(clients_[commit.client]);
  connect(commit.client);
  finish(commits);
  machine_->pass(kBehindNs);
  const bool acknowledged = commits[0].over->has_value();
  const bool is_there = find_whole(commits[0]);
  PMSTORE_CHECK(acknowledged || (outcome_of(commits[0]) == Outcome::kCommitted) == is_there,
                "the outcome is what others have seen");
}

// ---- transactions ----

KeyWrite ServedStoreSteps::write(const char* key, size_t bytes) {
  std::string value = fmt::format("{}.", ++values_);
  value.resize(std::max(bytes, value.size()), key[0]);
  return {key, std::move(value)};
}

ServedStoreSteps::Places ServedStoreSteps::places_of(const Writes& writes) const {
  model::PageBytes copy(pool_->memory().mapping());
  const auto pool = persist::Pool::in_region(copy.bytes(), what_.domain, false);
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

std::optional<std::string> ServedStoreSteps::read(uint32_t client, const std::string& key) {
  auto got = machine_->run(clients_[client]->get(history_.table, key));
  for (unsigned look = 1; !got && got.code() == ErrorCode::kConflict; ++look) {
    PMSTORE_CHECK(look < kMostLooks, "a lock does not outlive its owner's session");
    machine_->pass(100'000);
    got = machine_->run(clients_[client]->get(history_.table, key));
  }
  if (got) return std::move(*got);
  PMSTORE_CHECK(got.code() == ErrorCode::kNotFound, got.error().message.c_str());
  return std::nullopt;
}

StoreContent ServedStoreSteps::scan_all(uint32_t client) {
  StoreContent content;
  Transaction transaction = clients_[client]->begin();
  TransactionScan scan = transaction.scan(history_.table, {});
  const auto page = machine_->run(scan.next());
  PMSTORE_CHECK(page.has_value(), page ? "" : page.error().message.c_str());
  for (const RecordRef record : *page) content[std::string(record.key)] = record.value;
  const auto rest = machine_->run(scan.next());
  PMSTORE_CHECK(rest && rest->empty(), "all fit in a page");
  return content;
}

StoreContent ServedStoreSteps::read_all(uint32_t client) {
  if (what_.kind == TableKind::kOrdered) return scan_all(client);
  StoreContent content;
  for (const std::string& key : history_.keys) {
    if (auto value = read(client, key)) content[key] = std::move(*value);
  }
  return content;
}

void ServedStoreSteps::settle(const Commit& commit, bool committed) {
  std::erase(under_way_, &commit);
  if (committed) now_ = with(std::move(now_), commit.writes);
  Places places = places_of(commit.writes);
  // An erased or moved record leaves a tombstone, one version higher.
  if (committed) {
    for (const auto& [slot, version] : commit.before) places.emplace_back(slot, version + 1);
  }
  history_.transactions.push_back(
      {commit.id, committed, content_digest(now_), commit.epoch, std::move(places)});
  promise();
}

base::Task<void> ServedStoreSteps::run(Commit& commit) {
  if (commit.after_ns > 0) co_await machine_->executor().sleep_for(commit.after_ns);
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

void ServedStoreSteps::begin(std::vector<Commit>& commits) {
  for (Commit& commit : commits) {
    under_way_.push_back(&commit);
    commit.before = places_of(commit.writes);
    commit.epoch = clients_[commit.client]->session().epoch;
    machine_->executor().spawn(run(commit));
  }
  promise();
}

void ServedStoreSteps::finish(const std::vector<Commit>& commits) {
  machine_->run([](base::Executor& executor, const std::vector<Commit>& all) -> base::Task<void> {
    for (const Commit& commit : all) {
      uint64_t pause_ns = 500;
      for (; !commit.over; pause_ns *= 2) co_await executor.sleep_for(pause_ns);
    }
  }(machine_->executor(), commits));
}

void ServedStoreSteps::refuse(const char* read, const char* written, size_t bytes) {
  Transaction transaction = clients_[0]->begin();
  const auto found = machine_->run(transaction.get(history_.table, read));
  PMSTORE_CHECK(found.has_value(), "nobody has it locked");
  commit(1, {write(read, found->size())});
  const KeyWrite refused = write(written, bytes);
  Commit attempt{0, {refused}};
  attempt.before = places_of(attempt.writes);
  attempt.epoch = clients_[0]->session().epoch;
  transaction.put(history_.table, refused.key, *refused.value);
  attempt.over = machine_->run(transaction.commit());
  PMSTORE_CHECK(!*attempt.over && attempt.over->code() == ErrorCode::kConflict,
                "what it has read was changed");
  attempt.id = transaction.id();
  settle(attempt, false);
}

void ServedStoreSteps::commit_together(std::vector<Commit> commits) {
  begin(commits);
  finish(commits);
  for (const Commit& commit : commits) {
    const bool orphaned = std::exchange(orphaned_[commit.client], false);
    if (commit.over->has_value()) continue;
    const ErrorCode code = commit.over->code();
    if (orphaned && code == ErrorCode::kCommitUnknown) {
      settle(commit, outcome_of(commit) == Outcome::kCommitted);
      continue;
    }
    PMSTORE_CHECK(
        code == ErrorCode::kFull || code == ErrorCode::kNotFound || code == ErrorCode::kConflict,
        commit.over->error().message.c_str());
    settle(commit, false);
  }
}

}  // namespace pmstore::crash
