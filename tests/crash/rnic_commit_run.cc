#include "tests/crash/rnic_commit_run.h"

#include <fmt/format.h>

#include <functional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "tests/crash/served_store_steps.h"

namespace pmstore::crash {
namespace {

class CommitRnicRun final : public ServedStoreSteps {
 public:
  CommitRnicRun(const std::string& scenario, uint64_t seed)
      : ServedStoreSteps(scenario, seed, {}), shift_(seed == 0 ? 0 : random().below(60)) {
    script();
    end();
  }

 private:
  void script();
  size_t bytes(size_t of_seed_0) const { return of_seed_0 - shift_; }
  // Three transactions of one client at the same time, which half fill its ring, while a move of
  // the other one keeps the server's core busy.
  void burst(size_t moved_bytes) {
    commit_together({{0, {write("d", bytes(2900))}},
                     {0, {write("e", bytes(2900))}},
                     {0, {write("f", bytes(1400)), write("a", bytes(140))}},
                     {1, {write("g", bytes(moved_bytes))}}});
  }

  size_t shift_;
};

void CommitRnicRun::script() {
  commit(0, {write("a", bytes(140)), write("b", bytes(210))});
  commit_together({{0, {write("d", bytes(2900)), write("e", bytes(2900))}},
                   {1, {write("f", bytes(1400)), write("g", bytes(300))}}});
  commit(0, {write("a", bytes(140)), write("b", bytes(200))});  // in place
  // Truncated in the middle of others' commits; the ring wraps.
  for (int i = 0; i < 4; ++i) burst(i % 2 == 0 ? 900 : 300);
  commit(1, {write("b", bytes(210)), erase("g")});
  commit(1, {write("b", bytes(900)), write("a", bytes(130))});  // moves a record
  refuse("a", "f", bytes(1300));
  commit(1, {write("g", bytes(300))});
  burst(900);
  die_amid({{0, {write("d", bytes(2800)), write("a", bytes(130))}}, {1, {write("b", bytes(800))}}},
           10'000);
  refuse("d", "b", bytes(850));
  commit(0, {write("g", bytes(300)), erase("f")});
}

class VanishRnicRun final : public ServedStoreSteps {
 public:
  VanishRnicRun(const std::string& scenario, uint64_t seed, TableKind kind)
      : ServedStoreSteps(scenario, seed, {.chunks = 8, .kind = kind}) {
    const size_t shift = seed == 0 ? 0 : random().below(60);
    script(shift);
    end();
  }
  // What the client has left is recovered by the server that survives; few of its power cuts are
  // new.
  uint64_t samples() const override { return 4; }
  uint64_t death_every() const override { return 256; }

 private:
  void script(size_t shift);
  // Before each of its requests.
  void vanish_everywhere(const std::function<Commit()>& make) {
    for (uint64_t request = 1; vanish_amid(make(), request); ++request) {
    }
  }
};

void VanishRnicRun::script(size_t shift) {
  commit(0, {write("a", 140 - shift), write("b", 210)});
  commit(1, {write("c", 1500), write("d", 900)});
  vanish_everywhere([&] { return Commit{0, {write("a", 140 - shift), write("b", 200)}}; });
  bool large = false;
  vanish_everywhere([&] {  // a move, and an insert
    if (now().contains("e")) commit(1, {erase("e")});
    large = !large;
    return Commit{0, {write("d", large ? 1900 : 900), write("e", 90)}};
  });
  vanish_everywhere([&] {
    commit(1, {write("e", 90)});
    return Commit{0, {erase("e"), write("c", 1400)}};
  });
}

// Each commit on a connection that the server ends, since the client is there again.
class ReturnRnicRun final : public ServedStoreSteps {
 public:
  ReturnRnicRun(const std::string& scenario, uint64_t seed)
      : ServedStoreSteps(scenario, seed, {.chunks = 8}) {
    const uint64_t shift = seed == 0 ? 0 : random().below(300);
    commit(0, {write("a", 140), write("b", 210), write("d", 900)});
    for (uint64_t ns = shift; ns < 9'000; ns += 300) {
      come_back_amid({0, {write("a", 140), write("b", 200)}}, ns);
      come_back_amid({0, {write("d", 900), write("e", 1500)}}, ns);
      commit(1, {erase("e"), write("a", 140)});
    }
    end();
  }
  uint64_t samples() const override { return 2; }
  uint64_t most_exhaustive() const override { return 8; }
  uint64_t death_every() const override { return 512; }
};

// ---- what waits ----

// A client whose send queue is small, and whose memory is slow in runs of even seeds, so that what
// must wait does wait. The times are those of seed 0.
class QueueRnicRun final : public ServedStoreSteps {
 public:
  enum class Full : uint8_t { kSendQueue, kRing };
  QueueRnicRun(const std::string& scenario, uint64_t seed, Full full)
      : ServedStoreSteps(scenario, seed, {.send_queue = kSendQueue}),
        shift_(seed == 0 ? 0 : random().below(60)) {
    commit(0, {write("a", bytes(140)), write("b", bytes(800)), write("d", bytes(2900)),
               write("e", bytes(2900))});
    commit(0, {write("f", bytes(2900)), write("g", bytes(900)), write("h", bytes(900))});
    full == Full::kRing ? full_ring_of_a_busy_server() : full_send_queue();
    end();
  }

 private:
  static constexpr uint32_t kSendQueue = 8;
  size_t bytes(size_t of_seed_0) const { return of_seed_0 - shift_; }
  void full_ring_of_a_busy_server();
  void full_send_queue();
  void keep_server_busy(uint64_t after_ns);

  size_t shift_;
};

// Calls that change nothing, of about a microsecond each.
void QueueRnicRun::keep_server_busy(uint64_t after_ns) {
  constexpr int kCalls = 64;
  for (int i = 0; i < kCalls; ++i) {
    machine().executor().spawn([](QueueRnicRun& run, uint64_t ns) -> base::Task<void> {
      co_await run.machine().executor().sleep_for(ns);
      const auto table = co_await run.client(1).open_table(kStoreTable, false);
      PMSTORE_CHECK(table.has_value(), "it is there");
    }(*this, after_ns));
  }
}

// An append comes that needs the room of a truncation, while the server has not got to that yet.
// What the server has put in place of "c" is only in its caches until then.
void QueueRnicRun::full_ring_of_a_busy_server() {
  commit(1, {write("c", bytes(140))});
  commit(1, {erase("c")});
  commit(0, {write("d", bytes(2900)), write("e", bytes(2900))});
  commit(0, {write("c", bytes(140))});
  commit(0, {write("f", bytes(2900)), write("b", bytes(800))});
  keep_server_busy(55'000);
  commit_together(
      {{0, {write("f", bytes(2900)), write("b", bytes(800))}},
       {0, {write("d", bytes(2900)), write("e", bytes(2900)), write("h", bytes(900))}, 50'000}});
  machine().pass(100'000);
}

// The commit phase of the first one needs all of the send queue, and those behind it, which need
// little, pass it: their entries must not go before its own, which is not in place yet.
void QueueRnicRun::full_send_queue() {
  commit_together({{0,
                    {write("a", bytes(140)), write("b", bytes(800)), write("d", bytes(2000)),
                     write("e", bytes(2000))}},
                   {0, {write("g", bytes(900))}, 20'000},
                   {0, {write("f", bytes(2900))}, 40'000},
                   {0, {write("h", bytes(900))}, 60'000}});
  machine().pass(100'000);
}

// ---- who sees what, while nobody dies ----

class RacesRun final : public ServedStoreSteps {
 public:
  RacesRun(const std::string& scenario, uint64_t seed, LockDiscipline discipline, TableKind kind)
      : ServedStoreSteps(scenario, seed, {.discipline = discipline, .kind = kind}) {
    const bool ordered = kind == TableKind::kOrdered;
    if (ordered) set_leaves_apart();
    distance_ns_ = seed == 0 ? 150 : 100 + random().below(150);
    set("x", "0");
    set("y", "0");
    for (uint64_t i = 0; i < 30; ++i) {
      const uint64_t ns = i * distance_ns_;
      write_skew(ns);
      three_increments(ns, random().below(4000));
      two_absences(ns);
      a_reader(ns);
      a_large_record(ns);
      if (!ordered) continue;
      two_ranges(ns);
      a_range_and_a_record(ns);
      a_scanning_reader(ns);
    }
    a_contradiction();
    end();
    trace_.events.clear();
  }

 private:
  using Found = std::vector<std::optional<std::string>>;
  // A transaction that reads, waits until all have read and some time more, writes and commits.
  struct Part {
    uint32_t client = 0;
    std::vector<std::string> reads;
    std::function<void(Transaction&, const Found&)> write;
    uint64_t wait_ns = 0;
    std::string scans = {};  // of an ordered table, the keys that begin so
    Found found = {};
    std::optional<Status> over = std::nullopt;
    bool committed() const { return over->has_value(); }
  };
  static constexpr uint64_t kReadingNs = 20'000;

  base::Task<void> take_part(Part& part);
  void race(std::vector<Part>& parts);
  void set(const std::string& key, const std::optional<std::string>& value);
  std::string value_of(const std::string& key) {
    const auto value = read(1, key);
    PMSTORE_CHECK(value.has_value(), "it was put, and never erased");
    return *value;
  }

  void write_skew(uint64_t ns);
  void three_increments(uint64_t ns, uint64_t more_ns);
  void two_absences(uint64_t ns);
  void a_reader(uint64_t ns);
  void a_large_record(uint64_t ns);
  void a_contradiction();
  // Of an ordered table. Keys that begin with "p", "q" and "x" are then in different leaves.
  void set_leaves_apart();
  void two_ranges(uint64_t ns);
  void a_range_and_a_record(uint64_t ns);
  void a_scanning_reader(uint64_t ns);

  uint64_t distance_ns_ = 0;
};

base::Task<void> RacesRun::take_part(Part& part) {
  const uint64_t go_ns = machine().executor().now_ns() + kReadingNs + part.wait_ns;
  Transaction transaction = client(part.client).begin();
  for (const std::string& key : part.reads) {
    auto got = co_await transaction.get(history().table, key);
    PMSTORE_CHECK(got || got.code() == ErrorCode::kNotFound, "nobody writes yet");
    part.found.push_back(got ? std::optional(std::move(*got)) : std::nullopt);
  }
  if (!part.scans.empty()) {
    auto scan = transaction.scan(history().table, KeyRange::with_prefix(part.scans));
    const auto page = co_await scan.next();
    PMSTORE_CHECK(page.has_value(), "nobody writes yet");
    for (const RecordRef record : *page) part.found.emplace_back(record.key);
  }
  const uint64_t now_ns = machine().executor().now_ns();
  PMSTORE_CHECK(now_ns < go_ns, "reading takes less");
  co_await machine().executor().sleep_for(go_ns - now_ns);
  if (part.write) part.write(transaction, part.found);
  part.over = co_await transaction.commit();
}

void RacesRun::race(std::vector<Part>& parts) {
  for (Part& part : parts) machine().executor().spawn(take_part(part));
  machine().pass(3 * kReadingNs);
  for (const Part& part : parts) {
    while (!part.over) machine().pass(kReadingNs);
    PMSTORE_CHECK(part.committed() || part.over->code() == ErrorCode::kConflict,
                  part.committed() ? "" : part.over->error().message.c_str());
  }
}

void RacesRun::set(const std::string& key, const std::optional<std::string>& value) {
  if (!value && !read(0, key)) return;
  const Status done = machine().run(value ? client(0).put(history().table, key, *value)
                                          : client(0).erase(history().table, key));
  PMSTORE_CHECK(done.has_value(), done ? "" : done.error().message.c_str());
}

void RacesRun::write_skew(uint64_t ns) {
  const auto one_more = [this](const char* key) {
    return [this, key](Transaction& transaction, const Found& found) {
      transaction.put(history().table, key, std::to_string(std::stoi(*found[0]) + 1));
    };
  };
  set("x", "0");
  set("y", "0");
  std::vector<Part> parts = {{0, {"x"}, one_more("y")}, {1, {"y"}, one_more("x"), ns}};
  race(parts);
  PMSTORE_CHECK(!parts[0].committed() || !parts[1].committed(),
                "each has read what the other writes");
  PMSTORE_CHECK(value_of("y") == (parts[0].committed() ? "1" : "0"), "as its writer was told");
  PMSTORE_CHECK(value_of("x") == (parts[1].committed() ? "1" : "0"), "as its writer was told");
}

void RacesRun::three_increments(uint64_t ns, uint64_t more_ns) {
  const auto increment = [this](Transaction& transaction, const Found& found) {
    transaction.put(history().table, "x", std::to_string(std::stoi(*found[0]) + 1));
  };
  set("x", "0");
  std::vector<Part> parts = {
      {0, {"x"}, increment}, {0, {"x"}, increment, ns}, {1, {"x"}, increment, more_ns}};
  race(parts);
  int committed = 0;
  for (const Part& part : parts) committed += part.committed() ? 1 : 0;
  PMSTORE_CHECK(committed <= 1, "two have read the same and changed it");
  PMSTORE_CHECK(value_of("x") == std::to_string(committed), "as its writers were told");
}

void RacesRun::two_absences(uint64_t ns) {
  const auto insert = [this](const char* key) {
    return [this, key](Transaction& transaction, const Found& found) {
      PMSTORE_CHECK(!found[0], "both were erased");
      transaction.insert(history().table, key, "new");
    };
  };
  set("k", std::nullopt);
  set("l", std::nullopt);
  std::vector<Part> parts = {{0, {"k"}, insert("l")}, {1, {"l"}, insert("k"), ns}};
  race(parts);
  PMSTORE_CHECK(!parts[0].committed() || !parts[1].committed(),
                "each has found absent what the other inserts");
  PMSTORE_CHECK(read(1, "l").has_value() == parts[0].committed(), "as its writer was told");
  PMSTORE_CHECK(read(1, "k").has_value() == parts[1].committed(), "as its writer was told");
}

// One that only reads, in the middle of another's commit.
void RacesRun::a_reader(uint64_t ns) {
  const auto both = [this](Transaction& transaction, const Found& found) {
    const std::string next = std::to_string(std::stoi(*found[0]) + 1);
    transaction.put(history().table, "x", next);
    transaction.put(history().table, "y", next);
  };
  set("x", "0");
  set("y", "0");
  std::vector<Part> parts = {{0, {"x"}, both, ns}};
  std::optional<std::string> x;
  std::optional<std::string> y;
  std::optional<Status> over;
  machine().executor().spawn(
      [](RacesRun& run, auto& seen_x, auto& seen_y, auto& how) -> base::Task<void> {
        co_await run.machine().executor().sleep_for(kReadingNs);
        Transaction transaction = run.client(1).begin();
        auto got = co_await transaction.get(run.history().table, "x");
        if (got) seen_x = std::move(*got);
        got = co_await transaction.get(run.history().table, "y");
        if (got) seen_y = std::move(*got);
        how = co_await transaction.commit();
      }(*this, x, y, over));
  race(parts);
  while (!over) machine().pass(kReadingNs);
  PMSTORE_CHECK(!over->has_value() || (x && x == y), "both are written by one transaction");
}

// Of more than one packet.
void RacesRun::a_large_record(uint64_t ns) {
  const auto another = [this](Transaction& transaction, const Found& found) {
    transaction.put(history().table, "z", std::string(6000, found[0]->front() == 'o' ? 'n' : 'o'));
  };
  if (!read(0, "z")) set("z", std::string(6000, 'o'));
  std::vector<Part> parts = {{0, {"z"}, another}};
  bool seen = false;
  machine().executor().spawn([](RacesRun& run, uint64_t after_ns, bool& over) -> base::Task<void> {
    co_await run.machine().executor().sleep_for(kReadingNs + 2000 + after_ns);
    const auto got = co_await run.client(1).get(run.history().table, "z");
    PMSTORE_CHECK(!got || got->find_first_not_of(got->front()) == std::string::npos,
                  "half of one value, half of another");
    over = true;
  }(*this, ns, seen));
  race(parts);
  while (!seen) machine().pass(kReadingNs);
}

void RacesRun::set_leaves_apart() {
  for (const char* between : {"o", "pz", "qz", "r"}) {
    for (int i = 0; i < 30; ++i) set(fmt::format("{}{}", between, i) + std::string(200, '.'), "");
  }
}

void RacesRun::two_ranges(uint64_t ns) {
  const auto insert = [this](const char* key) {
    return [this, key](Transaction& transaction, const Found& found) {
      PMSTORE_CHECK(found.empty(), "both ranges are empty");
      transaction.insert(history().table, key, "new");
    };
  };
  set("p5", std::nullopt);
  set("q5", std::nullopt);
  std::vector<Part> parts = {{0, {}, insert("q5"), 0, "p5"}, {1, {}, insert("p5"), ns, "q5"}};
  race(parts);
  PMSTORE_CHECK(!parts[0].committed() || !parts[1].committed(),
                "each has found a range empty in which the other inserts");
  PMSTORE_CHECK(read(1, "q5").has_value() == parts[0].committed(), "as its writer was told");
  PMSTORE_CHECK(read(1, "p5").has_value() == parts[1].committed(), "as its writer was told");
}

// One scans what the other inserts, and writes what the other reads.
void RacesRun::a_range_and_a_record(uint64_t ns) {
  set("x", "0");
  set("p5", std::nullopt);
  const auto put = [this](Transaction& transaction, const Found&) {
    transaction.put(history().table, "x", "1");
  };
  const auto insert = [this](Transaction& transaction, const Found&) {
    transaction.insert(history().table, "p5", "new");
  };
  constexpr uint64_t kLaterNs = 2000;  // the other one begins earlier, or later
  std::vector<Part> parts = {{0, {}, put, kLaterNs, "p5"}, {1, {"x"}, insert, ns}};
  race(parts);
  PMSTORE_CHECK(!parts[0].committed() || !parts[1].committed(),
                "each has read what the other writes");
  PMSTORE_CHECK(value_of("x") == (parts[0].committed() ? "1" : "0"), "as its writer was told");
  PMSTORE_CHECK(read(1, "p5").has_value() == parts[1].committed(), "as its writer was told");
}

// One that only reads, in the middle of a commit that inserts into one leaf, erases from another.
void RacesRun::a_scanning_reader(uint64_t ns) {
  set("p5", std::nullopt);
  set("q5", "old");
  std::vector<Part> parts(1);
  parts[0].write = [this](Transaction& transaction, const Found&) {
    transaction.insert(history().table, "p5", "new");
    transaction.erase(history().table, "q5");
  };
  parts[0].wait_ns = ns;
  std::optional<size_t> p;
  std::optional<size_t> q;
  std::optional<Status> over;
  machine().executor().spawn(
      [](RacesRun& run, auto& seen_p, auto& seen_q, auto& how) -> base::Task<void> {
        co_await run.machine().executor().sleep_for(kReadingNs);
        Transaction transaction = run.client(1).begin();
        for (auto* seen : {&seen_q, &seen_p}) {
          const char* const prefix = seen == &seen_p ? "p5" : "q5";
          auto scan = transaction.scan(run.history().table, KeyRange::with_prefix(prefix));
          const auto page = co_await scan.next();
          if (page) *seen = page->size();
        }
        how = co_await transaction.commit();
      }(*this, p, q, over));
  race(parts);
  while (!over) machine().pass(kReadingNs);
  PMSTORE_CHECK(parts[0].committed(), "who only reads is in nobody's way");
  PMSTORE_CHECK(!over->has_value() || (p && q && *p != *q), "the key is in one of the leaves");
}

// What it reads and what it meets when it inserts were never true at one moment.
void RacesRun::a_contradiction() {
  set("x", "0");
  set("m", std::nullopt);
  const auto first = [this](Transaction& transaction, const Found&) {
    transaction.put(history().table, "x", "1");
    transaction.insert(history().table, "m", "new");
  };
  const auto second = [this](Transaction& transaction, const Found&) {
    transaction.insert(history().table, "m", "newer");
  };
  // Behind the whole commit of the first one: in the middle of it m is only reserved.
  std::vector<Part> parts = {{1, {}, first}, {0, {"x"}, second, 3 * kReadingNs}};
  race(parts);
  PMSTORE_CHECK(parts[0].committed() && !parts[1].committed(), "m is there, and x has changed");
}

}  // namespace

std::unique_ptr<RecordedRun> commit_rnic_run(const std::string& scenario, uint64_t seed) {
  return std::make_unique<CommitRnicRun>(scenario, seed);
}
std::unique_ptr<RecordedRun> queue_rnic_run(const std::string& scenario, uint64_t seed) {
  return std::make_unique<QueueRnicRun>(scenario, seed, QueueRnicRun::Full::kSendQueue);
}
std::unique_ptr<RecordedRun> room_rnic_run(const std::string& scenario, uint64_t seed) {
  return std::make_unique<QueueRnicRun>(scenario, seed, QueueRnicRun::Full::kRing);
}
std::unique_ptr<RecordedRun> vanish_rnic_run(const std::string& scenario, uint64_t seed,
                                             TableKind kind) {
  return std::make_unique<VanishRnicRun>(scenario, seed, kind);
}
std::unique_ptr<RecordedRun> return_rnic_run(const std::string& scenario, uint64_t seed) {
  return std::make_unique<ReturnRnicRun>(scenario, seed);
}
std::unique_ptr<RecordedRun> races_run(const std::string& scenario, uint64_t seed,
                                       LockDiscipline discipline, TableKind kind) {
  return std::make_unique<RacesRun>(scenario, seed, discipline, kind);
}

}  // namespace pmstore::crash
