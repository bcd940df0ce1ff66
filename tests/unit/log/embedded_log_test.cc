// Appends in process against appends by messages: the same entries, the same refusals, one drain.
#include "log/embedded_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/random.h"
#include "log/log_client.h"
#include "log/log_producer.h"
#include "log/log_reader.h"
#include "log/log_store.h"
#include "persist/kept_space_rules.h"
#include "persist/space_layout.h"
#include "tests/unit/log/log_pool.h"
#include "tests/unit/persist/scratch.h"

namespace pmstore::log {
namespace {

using base::Task;
using persist::Domain;

constexpr uint64_t kPoolBytes = 16u << 20;
constexpr uint64_t kAreaBytes = 1u << 20;
constexpr uint64_t kLogBytes = 64 * 1024;
constexpr uint64_t kIdentity = 77;

using Payloads = std::vector<std::string>;

std::vector<std::span<const std::byte>> spans_of(const Payloads& payloads) {
  std::vector<std::span<const std::byte>> spans;
  for (const std::string& each : payloads) spans.push_back(std::as_bytes(std::span(each)));
  return spans;
}

std::string said(const Result<Appended>& appended) {
  if (!appended) return appended.error().to_string();
  return fmt::format("{} {} {}", appended->lsn, appended->next_lsn, appended->index);
}

// The logs of a pool file, and a session with them: one that has opened the pool, or one that
// reaches it by messages.
class Session {
 public:
  Session(const std::string& path, bool in_process) : path_(path) {
    const auto fill = [](persist::Pool& pool) {
      return LogStore::format(pool, kAreaBytes, kIdentity);
    };
    EXPECT_TRUE(persist::Pool::create(path, kPoolBytes, {}, false, fill));
    std::string uri = path;
    if (!in_process) {
      embedded_ = run(EmbeddedLog::open(executor_, path, {})).value();
      uri = embedded_->uri().name;
    }
    client_ = run(LogClient::connect(executor_, {fabric::Scheme::kLocal, uri, 0}, {})).value();
  }
  template <typename T>
  T run(Task<T> task) {
    return executor_.run(std::move(task));
  }
  LogClient& client() { return *client_; }
  base::Executor& executor() { return executor_; }
  Result<Appended> append(uint64_t log, const Payloads& payloads) {
    const auto spans = spans_of(payloads);
    auto at_once = client_->append_at_once(log, spans);
    EXPECT_EQ(at_once.has_value(), embedded_ == nullptr);
    if (at_once) return std::move(*at_once);
    return run(client_->append_batch(log, spans));
  }
  // What the pool's log area holds in the end.
  std::vector<std::byte> close() {
    client_.reset();
    embedded_.reset();
    const auto pool = persist::Pool::open(path_, {}).value();
    for (const persist::Extent& extent : pool->info().extents) {
      if (extent.kind != persist::ExtentKind::kLog) continue;
      const std::byte* const from = pool->memory().at(extent.offset);
      return {from, from + extent.bytes};
    }
    ADD_FAILURE() << "no log area";
    return {};
  }

 private:
  std::string path_;
  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  std::unique_ptr<EmbeddedLog> embedded_;
  std::unique_ptr<LogClient> client_;
};

class EmbeddedLogTest : public testing::Test {
 protected:
  persist::Scratch scratch_;
};

// Both ways, the same calls: every answer and every byte.
class BothWaysTest : public EmbeddedLogTest {
 protected:
  template <typename Call>
  std::string both(Call call) {
    const std::string one = call(here_), other = call(there_);
    EXPECT_EQ(one, other);
    return one;
  }
  uint64_t make(std::string name, FullPolicy policy) {
    uint64_t id = 0;
    both([&](Session& at) {
      LogOptions options;
      options.bytes = kLogBytes;
      options.when_full = policy;
      options.identity = kIdentity;  // else drawn, and not the same
      id = at.run(at.client().create(name, options)).value().id;
      return fmt::format("{}", id);
    });
    return id;
  }
  std::string append(uint64_t log, const Payloads& payloads) {
    return both([&](Session& at) { return said(at.append(log, payloads)); });
  }
  void refuses(uint64_t log, const Payloads& payloads, std::string_view begin) {
    const std::string answer = append(log, payloads);
    EXPECT_TRUE(answer.starts_with(begin)) << answer;
  }
  void TearDown() override { EXPECT_EQ(here_.close(), there_.close()); }

  Session here_{scratch_.path("here"), true};
  Session there_{scratch_.path("there"), false};
};

TEST_F(BothWaysTest, TheSameEntriesAndTheSameRoom) {
  const uint64_t logs[] = {make("log0", FullPolicy::kBackPressure),
                           make("log1", FullPolicy::kTrimOldest)};
  Random random(5);
  unsigned refused = 0;
  for (unsigned i = 0; i < 1500; ++i) {
    const uint64_t log = logs[random.below(2)];
    Payloads payloads(random.below(3) == 0 ? 1 + random.below(6) : 1);
    for (std::string& each : payloads) {
      const size_t most = random.below(4) == 0 ? 5000 : 300;
      each = text_of(i, 1 + random.below(most));
    }
    if (append(log, payloads).find("full") == std::string::npos) continue;
    ++refused;
    both([&](Session& at) {
      const auto info = at.run(at.client().open("log0")).value();
      return fmt::format("{}", at.run(at.client().trim(log, info.tail_lsn)).value());
    });
  }
  EXPECT_GT(refused, 10u);
}

TEST_F(BothWaysTest, TheSameRefusals) {
  const uint64_t log = make("log", FullPolicy::kBackPressure);
  refuses(99, {"x"}, "NotFound");
  refuses(log, {}, "InvalidArgument");
  refuses(log, {"x", ""}, "InvalidArgument");
  refuses(log, Payloads(257, "x"), "InvalidArgument");
  refuses(log, {std::string(40'000, 'x')}, "TooLarge");
  refuses(log, Payloads(200, std::string(1000, 'x')), "TooLarge");
  both([&](Session& at) {
    const auto producer = at.run(LogProducer::open(at.client(), log, {})).value();
    const std::string answer = said(at.append(log, {"x"}));
    EXPECT_TRUE(answer.starts_with("Busy")) << answer;
    EXPECT_TRUE(at.run(producer->close()));
    return answer;
  });
  refuses(log, {"after the producer"}, "0 ");
  both([&](Session& at) {
    EXPECT_TRUE(at.run(at.client().seal(log)));
    return std::string();
  });
  refuses(log, {"x"}, "Sealed");
  both([&](Session& at) {
    ReplicaPlace replica;
    replica.replicas = {"tcp://a:1", "tcp://b:1"};
    const auto made =
        at.run(at.client().create_replica("replicated", {.bytes = kLogBytes, .identity = kIdentity},
                                          replica))
            .value();
    const std::string answer = said(at.append(made.id, {"x"}));
    EXPECT_TRUE(answer.starts_with("Unsupported")) << answer;
    return answer;
  });
}

Task<void> append_by_messages(LogClient& client, uint64_t log, unsigned number, unsigned& left,
                              std::vector<uint64_t>& indexes) {
  const std::string text = fmt::format("message {}", number);
  const std::span<const std::byte> payload = std::as_bytes(std::span(text));
  auto appended = co_await client.append(log, payload);
  EXPECT_TRUE(appended);
  if (appended) indexes.push_back(appended->index);
  --left;
}

// Appends that wait for the group's drain are made durable, and published, by one in process that
// comes meanwhile; each is answered once, and readers see all of them in order.
TEST_F(EmbeddedLogTest, AppendsInProcessTakeThoseThatWaitAlong) {
  const std::string path = scratch_.path("pool");
  const auto fill = [](persist::Pool& pool) {
    return LogStore::format(pool, kAreaBytes, kIdentity);
  };
  ASSERT_TRUE(persist::Pool::create(path, kPoolBytes, {}, false, fill));
  base::VirtualClock clock;
  base::Executor executor(clock);
  const auto run = [&](auto task) { return executor.run(std::move(task)); };
  const auto embedded = run(EmbeddedLog::open(executor, path, {})).value();
  auto client = run(LogClient::connect(executor, embedded->uri(), {})).value();
  const uint64_t log = run(client->create("log", {.bytes = kLogBytes})).value().id;
  constexpr unsigned kRounds = 50, kMessages = 8;
  std::vector<uint64_t> indexes;
  for (unsigned round = 0; round < kRounds; ++round) {
    unsigned left = kMessages;
    for (unsigned i = 0; i < kMessages; ++i) {
      executor.spawn(append_by_messages(*client, log, i, left, indexes));
    }
    while (left > 0) {
      executor.run_once();
      const auto direct = embedded->append(log, spans_of({"direct", "and another"}));
      ASSERT_TRUE(direct);
      indexes.push_back(direct->index - 1);
      indexes.push_back(direct->index);
    }
  }
  std::sort(indexes.begin(), indexes.end());
  for (size_t i = 0; i < indexes.size(); ++i) ASSERT_EQ(indexes[i], i + 1);
  const auto info = run(client->open("log")).value();
  EXPECT_EQ(info.next_index, indexes.size() + 1);
  auto reader = run(LogReader::open(*client, log, {})).value();
  uint64_t next = 1;
  while (auto entry = run(reader->next())) EXPECT_EQ(entry->index, next++);
  EXPECT_EQ(next, indexes.size() + 1);
}

TEST_F(EmbeddedLogTest, GoesByTheReservesAndLimitsThatThePoolKeeps) {
  const std::string path = scratch_.path("pool");
  const auto fill = [](persist::Pool& pool) {
    return LogStore::format(pool, kAreaBytes, kIdentity);
  };
  ASSERT_TRUE(persist::Pool::create(path, 4 * kPoolBytes, {}, false, fill));
  base::VirtualClock clock;
  base::Executor executor(clock);
  const auto run = [&](auto task) { return executor.run(std::move(task)); };
  unsigned made = 0;
  const auto full_with = [&](persist::ExtentKind kind, persist::SpaceRule rule) {
    persist::SpaceRules rules;
    rules.of(kind) = rule;
    EXPECT_TRUE(write_space_rules(*persist::Pool::open(path, {}).value(), rules));
    const auto embedded = run(EmbeddedLog::open(executor, path, {})).value();
    auto client = run(LogClient::connect(executor, embedded->uri(), {})).value();
    const LogOptions options{.bytes = 8 << 20};
    while (true) {
      const auto log = run(client->create(fmt::format("log{}", made), options));
      if (!log) return log.error().to_string();
      ++made;
    }
  };
  const std::string limited = full_with(persist::ExtentKind::kLog, {0, 20 << 20});
  EXPECT_NE(limited.find("or raise --log-limit (pmstore pool limit): logs have "),
            std::string::npos)
      << limited;
  const unsigned before = made;
  const std::string reserved = full_with(persist::ExtentKind::kRecords, {25 << 20, UINT64_MAX});
  EXPECT_NE(reserved.find("or lower the reserve (pmstore pool limit)"), std::string::npos)
      << reserved;
  EXPECT_GT(made, before);
  const auto pool = persist::Pool::open(path, {}).value();
  EXPECT_GE(pool->largest_free_extent(), 25u << 20);
}

TEST_F(EmbeddedLogTest, OpensNoPoolWhoseRulesAreDamaged) {
  const std::string path = scratch_.path("pool");
  const auto fill = [](persist::Pool& pool) { return write_space_rules(pool, {}); };
  ASSERT_TRUE(persist::Pool::create(path, kPoolBytes, {}, false, fill));
  {
    const auto pool = persist::Pool::open(path, {}).value();
    for (const uint64_t copy : {0, 1}) {
      pool->root()[persist::kSpaceOffset + copy * persist::kSpaceCopyBytes + 20] ^= std::byte{1};
    }
  }
  base::VirtualClock clock;
  base::Executor executor(clock);
  const auto refused = executor.run(EmbeddedLog::open(executor, path, {}));
  ASSERT_EQ(refused.code(), ErrorCode::kBadPool);
  EXPECT_NE(refused.error().message.find("pmstore pool limit"), std::string::npos);
}

// What one append of each size costs, by domain.
TEST(EmbeddedLogCosts, OneDrainAndNothingFlushedThatIsStreamed) {
  for (const Domain domain : {Domain::kNone, Domain::kMemoryController, Domain::kCpuCache}) {
    model::PageBytes region(kAreaBytes + 256 * 1024);
    auto pool = persist::Pool::in_region(region.bytes(), domain, true).value();
    ASSERT_TRUE(LogStore::format(*pool, kAreaBytes, kIdentity));
    auto store = LogStore::open(*pool).value();
    LogOptions options;
    options.bytes = 512 * 1024;
    const uint64_t log = store->create("log", options).value().id;
    uint64_t tail = 0;
    // Gives whether there is a pad in front. No entries: one, by append_durable().
    const auto append = [&](size_t bytes, size_t entries) {
      const std::string text = text_of(1, bytes);
      if (entries == 0) {
        const auto one = store->append_durable(log, std::as_bytes(std::span(text))).value();
        return one.lsn != std::exchange(tail, one.next_lsn);
      }
      const std::vector<std::span<const std::byte>> batch(entries, std::as_bytes(std::span(text)));
      const auto range = store->append(log, batch).value();
      EXPECT_TRUE(store->commit_appends());
      return range.first.lsn != std::exchange(tail, range.last.next_lsn);
    };
    append(64, 1);  // the first takes the log over
    for (const size_t bytes : {1u, 64u, 160u, 216u, 217u, 480u, 1000u, 4096u, 9000u}) {
      for (const size_t entries : {0u, 1u, 3u}) {
        const auto before = pool->memory().stats();
        const bool pad = append(bytes, entries);
        const auto after = pool->memory().stats();
        const bool flushes = pad && domain == Domain::kMemoryController;
        EXPECT_EQ(after.drains - before.drains, 1u) << bytes;
        EXPECT_EQ(after.msyncs - before.msyncs, domain == Domain::kNone ? 1u : 0u) << bytes;
        EXPECT_EQ(after.flushed_lines - before.flushed_lines, flushes ? 1u : 0u) << bytes;
      }
    }
  }
}

}  // namespace
}  // namespace pmstore::log
