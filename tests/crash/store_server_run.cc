#include "tests/crash/store_server_run.h"

#include <fmt/format.h>

#include <functional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "tests/crash/served_store_steps.h"

namespace pmstore::crash {
namespace {

class StoreServerRun final : public ServedStoreSteps {
 public:
  StoreServerRun(const std::string& scenario, uint64_t seed, persist::Domain domain)
      : ServedStoreSteps(scenario, seed, {.domain = domain, .discipline = LockDiscipline::kCpu}),
        shift_(seed == 0 ? 0 : random().below(60)) {
    script();
    end();
  }
  uint64_t samples() const override { return 16; }
  uint64_t most_exhaustive() const override { return 128; }
  uint64_t death_every() const override { return 64; }

 private:
  void script();
  size_t bytes(size_t of_seed_0) const { return of_seed_0 - shift_; }
  // Both keys get the same value in one transaction of client 0, again and again, while client 1
  // reads them: it never sees two values.
  void read_while_written(uint64_t distance_ns);

  size_t shift_;
};

void StoreServerRun::read_while_written(uint64_t distance_ns) {
  commit_together({{0, {write("a", bytes(140)), write("b", bytes(210))}}});
  bool over = false;
  size_t consistent = 0;
  machine().executor().spawn(
      [](StoreServerRun& run, uint64_t ns, bool& done, size_t& same) -> base::Task<void> {
        for (int i = 0; i < 12; ++i) {
          Transaction transaction = run.client(1).begin();
          const auto a = co_await transaction.get(run.history().table, "a");
          co_await run.machine().executor().sleep_for(ns);
          const auto b = co_await transaction.get(run.history().table, "b");
          const Status valid = co_await transaction.commit();
          if (!a || !b || !valid) continue;
          // Values are numbered, and the two of one transaction follow each other.
          PMSTORE_CHECK(std::stoi(*a) + 1 == std::stoi(*b), "both are written by one transaction");
          ++same;
        }
        done = true;
      }(*this, distance_ns, over, consistent));
  while (!over) commit(0, {write("a", bytes(140)), write("b", bytes(200))});
  PMSTORE_CHECK(consistent > 0, "some reads have met no writer");
}

void StoreServerRun::script() {
  commit_together({{0, {write("a", bytes(140)), write("b", bytes(210))}},
                   {1, {write("c", bytes(500)), write("d", bytes(2900))}}});
  commit_together({{0, {write("a", bytes(140))}},
                   {0, {write("b", bytes(200))}},
                   {1, {write("c", bytes(450))}},
                   {1, {write("d", bytes(2900)), write("e", bytes(90))}}});
  refuse("a", "e", bytes(90));
  commit(0, {erase("c"), write("b", bytes(900))});  // moves a record
  // The rings wrap, with truncation on the way.
  for (int i = 0; i < 5; ++i) {
    commit_together(
        {{0, {write("d", bytes(2900)), write("c", bytes(300))}}, {1, {write("f", bytes(2900))}}});
  }
  die_amid({{0, {write("d", bytes(2800)), erase("c")}}, {1, {write("f", bytes(2800))}}}, 6000);
  commit(1, {write("c", bytes(400)), erase("f")});
  stop_and_start();
  commit_together({{0, {write("g", bytes(900))}}, {1, {write("c", bytes(420)), erase("e")}}});
  read_while_written(300);
}

class VanishServerRun final : public ServedStoreSteps {
 public:
  VanishServerRun(const std::string& scenario, uint64_t seed)
      : ServedStoreSteps(scenario, seed,
                         {.chunks = 8, .discipline = LockDiscipline::kCpu, .reconnects = true}) {
    script(seed == 0 ? 0 : random().below(60));
    end();
  }
  // Few power cuts are new: what there is to find is what the server that survives does.
  uint64_t samples() const override { return 2; }
  uint64_t most_exhaustive() const override { return 16; }
  uint64_t death_every() const override { return 256; }

 private:
  void script(size_t shift);
  void vanish_everywhere(const std::function<Commit()>& make) {
    for (const auto fault : {fabric::Fault::kBreakBefore, fabric::Fault::kBreakAfter}) {
      for (uint64_t request = 1; vanish_amid(make(), request, fault); ++request) {
      }
    }
  }
};

void VanishServerRun::script(size_t shift) {
  commit(0, {write("a", 140 - shift), write("b", 210)});
  commit(1, {write("c", 1500), write("d", 900)});
  vanish_everywhere([&] { return Commit{0, {write("a", 140 - shift), write("b", 200)}}; });
  vanish_everywhere([&] {  // a move, an erase and an insert
    commit(1, {write("e", 90), write("d", 900)});
    if (now().contains("f")) commit(1, {erase("f")});
    return Commit{0, {write("d", 1900), erase("e"), write("f", 100)}};
  });
  for (uint64_t ns = shift; ns < 12'000; ns += 500) {
    come_back_amid({0, {write("a", 140), write("d", 900)}}, ns);
  }
  // The server dies at each moment of two commits; the same clients go on.
  for (uint64_t ns = shift; ns < 12'000; ns += 500) {
    die_amid({{0, {write("a", 140), write("d", 900)}}, {1, {write("c", 1400)}}}, ns);
    commit(0, {write("c", 1500)});
    commit(1, {write("a", 140)});
  }
}

class GroupServerRun final : public ServedStoreSteps {
 public:
  GroupServerRun(const std::string& scenario, uint64_t seed)
      : ServedStoreSteps(scenario, seed,
                         {.domain = persist::Domain::kNone,
                          .chunks = 8,
                          .discipline = LockDiscipline::kCpu,
                          .groups = true}) {
    script(seed == 0 ? 0 : random().below(60));
    end();
  }
  uint64_t samples() const override { return 8; }
  uint64_t most_exhaustive() const override { return 64; }
  uint64_t death_every() const override { return 64; }

 private:
  void script(size_t shift);
};

void GroupServerRun::script(size_t shift) {
  // Both clients have come before either comes again, so the server waits for both.
  const auto four = [&](size_t bytes) {
    return std::vector<Commit>{{0, {write("a", 140 - shift), write("b", bytes)}},
                               {1, {write("d", 900), write("e", 90)}, 60},
                               {0, {write("c", bytes)}, 120},
                               {1, {write("f", bytes - shift)}, 180}};
  };
  // The rings wrap, also amid a group.
  for (const size_t bytes : {200, 500, 2900, 2900, 2900, 900, 2900, 2900}) {
    commit_together(four(bytes));
  }
  PMSTORE_CHECK(stat().find("\"largest\": 1}") == std::string::npos,
                "some transactions have shared an msync");
  // Amid the first group of the four, and behind its msync.
  for (const uint64_t from : {0, 80'000}) {
    for (uint64_t ns = shift; ns < 30'000; ns += 1000) die_amid(four(300), from + ns);
  }
  // Each builds on the one before, in the slot of the record and in a new one. One client's, so
  // that they arrive in this order.
  const auto chain = [&] {
    return std::vector<Commit>{{0, {write("a", 140), write("f", 90)}},
                               {0, {write("a", 130), write("d", 900)}, 60},
                               {0, {write("a", 700 - shift)}, 120},
                               {1, {write("e", 90)}, 180}};
  };
  commit_together(chain());
  for (uint64_t ns = shift; ns < 30'000; ns += 1000) {
    commit(0, {erase("a"), write("b", 90)});
    commit(0, {write("a", 140)});
    die_amid(chain(), ns);
  }
  for (uint64_t ns = shift; ns < 14'000; ns += 500) {
    come_back_amid({0, {write("a", 140), write("g", 900)}}, ns);
  }
  for (uint64_t request = 1; vanish_amid({0, {write("a", 140), write("h", 200)}}, request);
       ++request) {
  }
  stop_and_start();
  commit_together(four(400));
}

}  // namespace

std::unique_ptr<RecordedRun> group_server_run(const std::string& scenario, uint64_t seed) {
  return std::make_unique<GroupServerRun>(scenario, seed);
}
std::unique_ptr<RecordedRun> store_server_run(const std::string& scenario, uint64_t seed,
                                              persist::Domain domain) {
  return std::make_unique<StoreServerRun>(scenario, seed, domain);
}
std::unique_ptr<RecordedRun> vanish_server_run(const std::string& scenario, uint64_t seed) {
  return std::make_unique<VanishServerRun>(scenario, seed);
}

}  // namespace pmstore::crash
