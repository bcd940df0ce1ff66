// Every awaitable of pmstore/ is destroyed at each of its points. tests/structure/awaitables.py
// looks for their names here.
#include <gtest/gtest.h>

#include <array>

#include "pmstore/indexed_table.h"
#include "pmstore/joint_commit.h"
#include "pmstore/scan_repeats.h"
#include "tests/unit/cancellation/store_world.h"

namespace pmstore::cancellation {
namespace {

using base::Task;

struct Case {
  const char* name;
  StoreWorld::Operation operation;
  Records effect;
};

template <typename Outcome>
void expect_ok(const Outcome& outcome) {
  EXPECT_TRUE(outcome) << outcome.error().to_string();
}

std::string unused_name(StoreWorld& world) {
  return "new" + std::to_string(world.executor().now_ns());
}

const std::string kLarge(1000, 'n');
const std::string kLeftOut(9000, 'l');  // of the first answer to a read
const Records kTransactionEffect{
    {"update", "new"}, {"move", kLarge}, {"erase", ""}, {"insert", "new"}};

Task<Status> change(StoreWorld& world, Transaction& tx) {
  const auto read = co_await tx.get(world.table, "read");
  if (!read) co_return Error(read.error());
  tx.put(world.table, "update", "new");
  tx.put(world.table, "move", kLarge);
  tx.erase(world.table, "erase");
  tx.insert(world.table, "insert", "new");
  co_return Status{};
}

// Reads one record of an ordered table, which is empty.
template <typename Read>
Task<void> in_ordered_table(StoreWorld& world, Read read) {
  const std::string name = unused_name(world);
  const auto table = co_await world.client->create_table(name, TableKind::kOrdered);
  expect_ok(table);
  world.transaction.emplace(world.client->begin());
  const auto one = co_await read(*world.transaction, *table);
  EXPECT_EQ(one.code(), ErrorCode::kNotFound);
  expect_ok(co_await world.transaction->commit());
}

// Works with a table that has one index, in a transaction that is not committed. Both are empty.
template <typename Work>
Task<void> in_indexed_table(StoreWorld& world, Work work,
                            IndexState state = IndexState::kComplete) {
  const std::string name = unused_name(world);
  const auto base = co_await world.client->create_table(name + "base", TableKind::kOrdered);
  // Under lock discipline rnic.
  if (!base && base.code() == ErrorCode::kUnsupported) co_return;
  expect_ok(base);
  const auto index = co_await world.client->create_table(name + "index", TableKind::kOrdered);
  expect_ok(index);
  std::vector<SecondaryIndex> indexes{{*index, {IndexKind::kMany, key_of_field({0, 4})}, state}};
  const IndexedTable indexed(*base, std::move(indexes));
  world.transaction.emplace(world.client->begin());
  co_await work(*world.transaction, indexed);
  world.transaction->abort();
}

Task<void> find_one(Transaction& tx, const IndexedTable& indexed, bool scan) {
  expect_ok(co_await indexed.put(tx, "key", "fieldvalue"));
  KeyRange range;
  if (scan) {
    IndexScan all = indexed.scan(tx, 0, std::move(range));
    const auto page = co_await all.next(10);
    expect_ok(page);
    EXPECT_EQ(page->size(), 1u);
  } else {
    const auto found = co_await indexed.find(tx, 0, "fiel");
    expect_ok(found);
    EXPECT_EQ(found->size(), 1u);
  }
}

const Case kCases[] = {
    {"Client::connect",
     [](StoreWorld& world) -> Task<void> {
       auto connected = co_await world.connect();
       // It tries once.
       if (world.weather() != Weather::kServerGone) expect_ok(connected);
     },
     {}},
    {"Client::close",
     [](StoreWorld& world) -> Task<void> {
       world.closes();
       co_await world.client->close();
     },
     {}},
    {"Client::open_table",
     [](StoreWorld& world) -> Task<void> {
       expect_ok(co_await world.client->open_table("another", true));
     },
     {}},
    {"Client::create_table",
     [](StoreWorld& world) -> Task<void> {
       expect_ok(co_await world.client->create_table(unused_name(world)));
     },
     {}},
    // The last one may have been dropped, or not.
    {"Client::drop_table",
     [](StoreWorld& world) -> Task<void> {
       const auto table = co_await world.client->open_table("dropped", true);
       expect_ok(table);
       expect_ok(co_await world.client->drop_table("dropped"));
       const auto gone = co_await world.client->put(*table, "key", "value");
       EXPECT_EQ(gone.code(), ErrorCode::kUnknownTable);
     },
     {}},
    {"Client::table_usage",
     [](StoreWorld& world) -> Task<void> {
       const auto usage = co_await world.client->table_usage(world.table);
       expect_ok(usage);
       EXPECT_GE(usage->records, records_before().size());
     },
     {}},
    {"Client::count_records",
     [](StoreWorld& world) -> Task<void> {
       const auto records = co_await world.client->count_records(world.table);
       expect_ok(records);
       EXPECT_GE(*records, records_before().size());
     },
     {}},
    {"Client::list_tables",
     [](StoreWorld& world) -> Task<void> { expect_ok(co_await world.client->list_tables()); },
     {}},
    {"Client::get",
     [](StoreWorld& world) -> Task<void> {
       expect_ok(co_await world.client->get(world.table, "read"));
     },
     {}},
    {"Client::get, of a large value",
     [](StoreWorld& world) -> Task<void> {
       expect_ok(co_await world.client->put(world.table, "update", kLeftOut));
       const auto value = co_await world.client->get(world.table, "update");
       expect_ok(value);
       EXPECT_EQ(*value, kLeftOut);
     },
     {{"update", kLeftOut}}},
    // More of them than there are buffers.
    {"Client::get, many",
     [](StoreWorld& world) -> Task<void> {
       std::vector<Task<Result<std::string>>> gets;
       for (int i = 0; i < 130; ++i) {
         gets.push_back(world.client->get(world.table, "read"));
         gets.back().start();
       }
       for (const auto& get : gets) {
         while (!get.done()) co_await world.executor().sleep_for(kMillisecond);
       }
     },
     {}},
    {"Client::put",
     [](StoreWorld& world) -> Task<void> {
       expect_ok(co_await world.client->put(world.table, "update", "new"));
     },
     {{"update", "new"}}},
    {"Client::insert",
     [](StoreWorld& world) -> Task<void> {
       expect_ok(co_await world.client->insert(world.table, "insert", "new"));
     },
     {{"insert", "new"}}},
    {"Client::erase",
     [](StoreWorld& world) -> Task<void> {
       expect_ok(co_await world.client->erase(world.table, "erase"));
     },
     {{"erase", ""}}},
    {"Client::scan",
     [](StoreWorld& world) -> Task<void> {
       expect_ok(co_await world.client->scan(world.table, 0));
     },
     {}},
    {"Client::outcome",
     [](StoreWorld& world) -> Task<void> {
       Transaction tx = world.client->begin();
       tx.put(world.table, "update", "new");
       expect_ok(co_await tx.commit());
       const auto outcome = co_await world.client->outcome(tx.id());
       expect_ok(outcome);
       EXPECT_EQ(*outcome, Outcome::kCommitted);
     },
     {{"update", "new"}}},
    {"Client::probe",
     [](StoreWorld& world) -> Task<void> { expect_ok(co_await world.client->probe()); },
     {}},
    {"Client::server_stat",
     [](StoreWorld& world) -> Task<void> { expect_ok(co_await world.client->server_stat()); },
     {}},
    {"Client::get, into a buffer",
     [](StoreWorld& world) -> Task<void> {
       std::array<std::byte, 64> into;
       expect_ok(co_await world.client->get(world.table, "read", into));
     },
     {}},
    {"Transaction::get, into a buffer",
     [](StoreWorld& world) -> Task<void> {
       world.transaction.emplace(world.client->begin());
       std::array<std::byte, 64> into;
       expect_ok(co_await world.transaction->get(world.table, "read", into));
     },
     {}},
    {"Transaction::get",
     [](StoreWorld& world) -> Task<void> {
       world.transaction.emplace(world.client->begin());
       expect_ok(co_await world.transaction->get(world.table, "read"));
     },
     {}},
    // Two participants of one server.
    {"commit_together",
     [](StoreWorld& world) -> Task<void> {
       std::vector<Transaction> both;
       both.push_back(world.client->begin());
       both.push_back(world.client->begin());
       expect_ok(co_await both[0].get(world.table, "read"));
       both[0].put(world.table, "update", "new");
       both[0].put(world.table, "move", kLarge);
       both[1].erase(world.table, "erase");
       both[1].insert(world.table, "insert", "new");
       const Status done = co_await commit_together(std::move(both));
       if (done || done.code() != ErrorCode::kUnsupported) {
         if (!breaks_sessions(world.weather())) expect_ok(done);
         co_return;
       }
       Transaction one = world.client->begin();  // lock discipline rnic
       expect_ok(co_await change(world, one));
       expect_ok(co_await one.commit());
     },
     kTransactionEffect},
    {"settle",
     [](StoreWorld& world) -> Task<void> {
       std::vector<Client*> clients{world.client.get()};
       const auto settled = co_await settle(std::move(clients));
       if (!breaks_sessions(world.weather())) expect_ok(settled);
     },
     {}},
    {"open_transactions",
     [](StoreWorld& world) -> Task<void> {
       std::vector<Client*> clients{world.client.get()};
       const auto open = co_await open_transactions(std::move(clients));
       if (!breaks_sessions(world.weather())) expect_ok(open);
     },
     {}},
    {"force_decision",
     [](StoreWorld& world) -> Task<void> {
       std::vector<Client*> clients{world.client.get()};
       std::vector<uint64_t> lost{1};
       const auto forced = co_await force_decision(std::move(clients), TxId{{1, 1}, 1},
                                                   ForcedDecision::kAbort, std::move(lost));
       EXPECT_FALSE(forced) << "there is no such transaction";
     },
     {}},
    {"ScanRepeats::pause",
     [](StoreWorld& world) -> Task<void> {
       ScanRepeats repeats(world.executor());
       const bool again = co_await repeats.pause();
       EXPECT_TRUE(again);
     },
     {}},
    {"TransactionScan::next",
     [](StoreWorld& world) -> Task<void> {
       const std::string name = unused_name(world);
       const auto table = co_await world.client->create_table(name, TableKind::kOrdered);
       expect_ok(table);
       world.transaction.emplace(world.client->begin());
       TransactionScan scan = world.transaction->scan(*table, {});
       expect_ok(co_await scan.next());
       expect_ok(co_await world.transaction->commit());
     },
     {}},
    // Under lock discipline rnic the last page is READ one-sided.
    {"TransactionScan::next, of a leaf that is known",
     [](StoreWorld& world) -> Task<void> {
       const std::string name = unused_name(world);
       const auto table = co_await world.client->create_table(name, TableKind::kOrdered);
       expect_ok(table);
       for (int page = 0; page < 3; ++page) {
         world.transaction.emplace(world.client->begin());
         TransactionScan scan = world.transaction->scan(*table, {});
         expect_ok(co_await scan.next());
         expect_ok(co_await world.transaction->commit());
       }
     },
     {}},
    {"Transaction::first",
     [](StoreWorld& world) {
       return in_ordered_table(world, [](auto& tx, TableId in) { return tx.first(in); });
     },
     {}},
    {"Transaction::last",
     [](StoreWorld& world) {
       return in_ordered_table(world, [](auto& tx, TableId in) { return tx.last(in); });
     },
     {}},
    {"Transaction::first, of a range",
     [](StoreWorld& world) {
       return in_ordered_table(world, [](auto& tx, TableId in) {
         return tx.first(in, {"a", "b"});
       });
     },
     {}},
    {"Transaction::last, of a range",
     [](StoreWorld& world) {
       return in_ordered_table(world, [](auto& tx, TableId in) { return tx.last(in, {"a", "b"}); });
     },
     {}},
    {"Transaction::next",
     [](StoreWorld& world) {
       return in_ordered_table(world, [](auto& tx, TableId in) { return tx.next(in, "a"); });
     },
     {}},
    {"Transaction::previous",
     [](StoreWorld& world) {
       return in_ordered_table(world, [](auto& tx, TableId in) { return tx.previous(in, "b"); });
     },
     {}},
    {"Transaction::commit, behind a scan",
     [](StoreWorld& world) -> Task<void> {
       // Of another table: a bystander inserts into this one.
       const std::string name = unused_name(world);
       const auto scanned = co_await world.client->create_table(name, TableKind::kOrdered);
       expect_ok(scanned);
       world.transaction.emplace(world.client->begin());
       Transaction& tx = *world.transaction;
       TransactionScan scan = tx.scan(*scanned, {});
       expect_ok(co_await scan.next());
       const Status changed = co_await change(world, tx);
       expect_ok(changed);
       expect_ok(co_await tx.commit());
     },
     kTransactionEffect},
    {"Transaction::erase_range",
     [](StoreWorld& world) -> Task<void> {
       const std::string name = unused_name(world);
       const auto table = co_await world.client->create_table(name, TableKind::kOrdered);
       expect_ok(table);
       world.transaction.emplace(world.client->begin());
       Transaction& tx = *world.transaction;
       tx.put(*table, "a", "1");
       tx.put(*table, "b", "2");
       KeyRange all;
       const auto erased = co_await tx.erase_range(*table, std::move(all), 10);
       expect_ok(erased);
       EXPECT_EQ(erased->erased, 2u);
       expect_ok(co_await tx.commit());
     },
     {}},
    {"IndexedTable::put",
     [](StoreWorld& world) {
       return in_indexed_table(world, [](auto& tx, const IndexedTable& in) -> Task<void> {
         expect_ok(co_await in.put(tx, "key", "fieldvalue"));
       });
     },
     {}},
    {"IndexedTable::put of an index that is being built",
     [](StoreWorld& world) {
       return in_indexed_table(
           world,
           [](auto& tx, const IndexedTable& in) -> Task<void> {
             tx.put(in.base(), "key", "fieldvalue");
             expect_ok(co_await in.put(tx, "key", "movedvalue"));
           },
           IndexState::kBeingBuilt);
     },
     {}},
    {"IndexedTable::insert",
     [](StoreWorld& world) {
       return in_indexed_table(world, [](auto& tx, const IndexedTable& in) -> Task<void> {
         expect_ok(co_await in.insert(tx, "key", "fieldvalue"));
       });
     },
     {}},
    {"IndexedTable::erase",
     [](StoreWorld& world) {
       return in_indexed_table(world, [](auto& tx, const IndexedTable& in) -> Task<void> {
         expect_ok(co_await in.erase(tx, "key"));
       });
     },
     {}},
    {"IndexedTable::add_entry",
     [](StoreWorld& world) {
       return in_indexed_table(world, [](auto& tx, const IndexedTable& in) -> Task<void> {
         tx.put(in.base(), "key", "fieldvalue");
         expect_ok(co_await in.add_entry(tx, 0, "key"));
       });
     },
     {}},
    {"IndexedTable::find",
     [](StoreWorld& world) {
       return in_indexed_table(world,
                               [](auto& tx, const auto& in) { return find_one(tx, in, false); });
     },
     {}},
    {"IndexScan::next",
     [](StoreWorld& world) {
       return in_indexed_table(world,
                               [](auto& tx, const auto& in) { return find_one(tx, in, true); });
     },
     {}},
    {"Transaction::commit",
     [](StoreWorld& world) -> Task<void> {
       world.transaction.emplace(world.client->begin());
       Transaction& tx = *world.transaction;
       const Status changed = co_await change(world, tx);
       expect_ok(changed);
       expect_ok(co_await tx.commit());
     },
     kTransactionEffect},
    {"retry",
     [](StoreWorld& world) -> Task<void> {
       const auto body = [&world](Transaction& tx) { return change(world, tx); };
       expect_ok(co_await retry(*world.client, body, 10));
     },
     kTransactionEffect},
};

struct Setting {
  const char* name;
  LockDiscipline discipline;
  persist::Domain domain;
  Weather weather;
  TableKind kind = TableKind::kHash;
};

const Setting kSettings[] = {
    {"cpu", LockDiscipline::kCpu, persist::Domain::kCpuCache, Weather::kCalm},
    {"cpu_slow", LockDiscipline::kCpu, persist::Domain::kCpuCache, Weather::kSlow},
    {"cpu_broken", LockDiscipline::kCpu, persist::Domain::kCpuCache, Weather::kBroken},
    {"cpu_server_gone", LockDiscipline::kCpu, persist::Domain::kCpuCache, Weather::kServerGone},
    {"rnic", LockDiscipline::kRnic, persist::Domain::kCpuCache, Weather::kCalm},
    {"rnic_slow", LockDiscipline::kRnic, persist::Domain::kCpuCache, Weather::kSlow},
    {"rnic_broken", LockDiscipline::kRnic, persist::Domain::kCpuCache, Weather::kBroken},
    {"rnic_server_gone", LockDiscipline::kRnic, persist::Domain::kCpuCache, Weather::kServerGone},
    {"rnic_ordered", LockDiscipline::kRnic, persist::Domain::kCpuCache, Weather::kCalm,
     TableKind::kOrdered},
    {"rnic_ordered_broken", LockDiscipline::kRnic, persist::Domain::kCpuCache, Weather::kBroken,
     TableKind::kOrdered},
    {"rnic_two_sided", LockDiscipline::kRnic, persist::Domain::kMemoryController, Weather::kCalm},
    {"rnic_two_sided_slow", LockDiscipline::kRnic, persist::Domain::kMemoryController,
     Weather::kSlow},
};

class StoreCancellation : public ::testing::TestWithParam<std::tuple<const Case*, const Setting*>> {
 protected:
  void destroy_everywhere(Aftermath aftermath) {
    const auto& [operation, setting] = GetParam();
    StoreWorld world(setting->discipline, setting->domain, setting->kind);
    world.destroy_everywhere(operation->operation, operation->effect, setting->weather, aftermath);
  }
};

std::vector<const Case*> cases() {
  std::vector<const Case*> all;
  for (const Case& each : kCases) all.push_back(&each);
  return all;
}
std::vector<const Setting*> settings() {
  std::vector<const Setting*> all;
  for (const Setting& each : kSettings) all.push_back(&each);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Store, StoreCancellation,
                         ::testing::Combine(::testing::ValuesIn(cases()),
                                            ::testing::ValuesIn(settings())),
                         [](const auto& param) {
                           return test_name(std::get<0>(param.param)->name,
                                            std::get<1>(param.param)->name);
                         });

TEST_P(StoreCancellation, LeavesNothingBehind) { destroy_everywhere(Aftermath::kUse); }

TEST_P(StoreCancellation, OfAClientThatGoesRightAfter) { destroy_everywhere(Aftermath::kDestroy); }

}  // namespace
}  // namespace pmstore::cancellation
