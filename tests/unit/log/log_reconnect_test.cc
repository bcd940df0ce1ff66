// A client of logs that loses its session: what it and its readers go on with, and that what is in
// flight happens once.
#include <algorithm>
#include <optional>

#include "base/random.h"
#include "fabric/local/fault_injection.h"
#include "log/log_client.h"
#include "log/log_producer.h"
#include "log/log_reader.h"
#include "tests/unit/log/log_service_fixture.h"

namespace pmstore::log {
namespace {

constexpr uint64_t kPatienceNs = 1'000'000'000;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

class LogReconnect : public LogServiceTest {
 protected:
  void SetUp() override {
    LogServiceTest::SetUp();
    connect(kPatienceNs);
    log_ = run(client_->create("l", LogOptions{.bytes = 64 << 10}))->id;
  }
  void TearDown() override { client_.reset(); }
  void connect(uint64_t patience_ns) {
    LogClientOptions options;
    options.reconnect_timeout_ns = patience_ns;
    options.connect_timeout_ns = 10'000'000;
    client_ = std::move(*run(LogClient::connect(executor_, uri_, options)));
  }
  // Its clients see it.
  void kill_server() {
    host_.reset();
    let_time_pass(1);
  }
  void start_server() {
    pool_.reopen();
    pool_.close_store();
    start();
  }
  std::vector<std::string> content() {
    std::vector<std::string> texts;
    auto reader = run(LogReader::open(*client_, log_, {}));
    EXPECT_TRUE(reader) << reader.error().to_string();
    for (auto entry = run((*reader)->next()); entry; entry = run((*reader)->next())) {
      texts.emplace_back(reinterpret_cast<const char*>(entry->payload.data()),
                         entry->payload.size());
    }
    return texts;
  }
  void let_pass(uint64_t ns) {
    run([](base::Executor& executor, uint64_t for_ns) -> Task<void> {
      co_await executor.sleep_for(for_ns);
    }(executor_, ns));
  }
  Task<Result<Appended>> append(std::string text) {
    co_return co_await client_->append(log_, bytes_of(text));
  }
  // What `operation` makes of a session that breaks at each of its requests in turn.
  template <typename Operation>
  void break_at_each_request(Operation operation) {
    using fabric::Fault;
    using fabric::FaultSide;
    for (const FaultSide side : {FaultSide::kConnector, FaultSide::kListener}) {
      for (const Fault fault : {Fault::kBreakBefore, Fault::kBreakAfter}) {
        bool fired = true;
        for (uint64_t n = 1; fired; ++n) {
          ASSERT_LT(n, 50u);
          fabric::FailNthRequest injector(n, side, {fault, 0});
          {
            const fabric::ScopedFaultInjector installed(injector);
            operation();
          }
          fired = injector.fired();
        }
      }
    }
  }

  std::unique_ptr<LogClient> client_;
  uint64_t log_ = 0;
};

TEST_F(LogReconnect, AppendWhoseAnswerIsLostIsExecutedOnce) {
  std::vector<std::string> appended;
  break_at_each_request([&] {
    appended.push_back("entry " + std::to_string(appended.size()));
    const auto done = run(append(appended.back()));
    ASSERT_TRUE(done) << done.error().to_string();
    EXPECT_EQ(done->index, appended.size());
  });
  EXPECT_GT(client_->reconnects(), 2u);
  EXPECT_EQ(content(), appended);
}

// It numbers its appends anew, and the server remembers those of the one before.
TEST_F(LogReconnect, ProgramThatFollowsAsTheSameClientAppendsItsOwn) {
  LogClientOptions options;
  options.secret = ClientSecret::of_number(7);
  for (int program = 0; program < 3; ++program) {
    client_ = std::move(*run(LogClient::connect(executor_, uri_, options)));
    const auto done = run(append(std::to_string(program)));
    ASSERT_TRUE(done) << done.error().to_string();
  }
  EXPECT_EQ(content(), (std::vector<std::string>{"0", "1", "2"}));
}

TEST_F(LogReconnect, BatchWhoseAnswerIsLostIsExecutedOnce) {
  std::vector<std::string> appended;
  break_at_each_request([&] {
    const std::string one = "one of " + std::to_string(appended.size());
    const std::string other = "other of " + std::to_string(appended.size());
    const std::span<const std::byte> both[] = {bytes_of(one), bytes_of(other)};
    const auto done = run(client_->append_batch(log_, both));
    ASSERT_TRUE(done) << done.error().to_string();
    appended.insert(appended.end(), {one, other});
  });
  EXPECT_EQ(content(), appended);
}

TEST_F(LogReconnect, AppendsBesideEachOtherStayInTheirOrder) {
  std::vector<std::string> appended;
  break_at_each_request([&] {
    std::vector<Task<Result<Appended>>> all;
    for (int i = 0; i < 5; ++i) {
      appended.push_back(std::to_string(appended.size()));
      all.push_back(append(appended.back()));
      all.back().start();
    }
    // Those that begin while others wait to be repeated.
    for (int i = 0; i < 5; ++i) {
      let_pass(300'000);
      appended.push_back(std::to_string(appended.size()));
      all.push_back(append(appended.back()));
      all.back().start();
    }
    let_time_pass(100);
    for (auto& each : all) {
      ASSERT_TRUE(each.done());
      const auto done = each.take();
      EXPECT_TRUE(done) << done.error().to_string();
    }
  });
  EXPECT_EQ(content(), appended);
}

TEST_F(LogReconnect, WithoutPatienceAnAppendIsInDoubtAndTheNextOneGoesOn) {
  connect(0);
  uint64_t in_doubt = 0;
  break_at_each_request([&] {
    const auto done = run(append("x"));
    if (done) return;
    EXPECT_EQ(done.code(), ErrorCode::kCommitUnknown);
    ++in_doubt;
    const auto next = run(append("y"));
    EXPECT_TRUE(next) << next.error().to_string();
  });
  EXPECT_GT(in_doubt, 2u);
}

TEST_F(LogReconnect, ServerThatWasRestartedServesTheSameClientAndReader) {
  ASSERT_TRUE(run(append("a")));
  const auto reader = std::move(*run(LogReader::open(*client_, log_, {})));
  EXPECT_TRUE(run(reader->next()));
  kill_server();
  start_server();
  const auto done = run(append("b"));
  ASSERT_TRUE(done) << done.error().to_string();
  EXPECT_EQ(done->index, 2u);
  EXPECT_EQ(client_->reconnects(), 1u);
  const auto next = run(reader->next());
  ASSERT_TRUE(next) << next.error().to_string();
  EXPECT_EQ(next->index, 2u);
  EXPECT_EQ(run(reader->next()).code(), ErrorCode::kNotFound);
}

TEST_F(LogReconnect, ReaderSeesEachEntryOnceHoweverItsSessionBreaks) {
  std::vector<std::string> appended;
  for (int i = 0; i < 20; ++i) {
    appended.push_back(text_of(static_cast<uint64_t>(i), 500));
    ASSERT_TRUE(run(append(appended.back())));
  }
  break_at_each_request([&] { EXPECT_EQ(content(), appended); });
}

TEST_F(LogReconnect, WaitsForAServerThatIsAway) {
  kill_server();
  auto waiting = append("a");
  waiting.start();
  let_time_pass(500);
  EXPECT_FALSE(waiting.done());
  start_server();
  let_time_pass(400);
  ASSERT_TRUE(waiting.done());
  EXPECT_TRUE(waiting.take());
  EXPECT_EQ(content(), std::vector<std::string>{"a"});
}

TEST_F(LogReconnect, PatienceEnds) {
  kill_server();
  const uint64_t began_ns = executor_.now_ns();
  EXPECT_EQ(run(append("a")).code(), ErrorCode::kDisconnected) << "nothing was sent";
  EXPECT_EQ(run(client_->open("l")).code(), ErrorCode::kDisconnected);
  EXPECT_LE(executor_.now_ns() - began_ns, 2 * kPatienceNs + 500'000'000);
}

// What the server before has executed, the one after cannot tell.
TEST_F(LogReconnect, AppendInDoubtOverARestartIsUnknown) {
  for (const fabric::Fault fault : {fabric::Fault::kBreakBefore, fabric::Fault::kBreakAfter}) {
    const auto before = content();
    fabric::FailNthRequest injector(1, fabric::FaultSide::kConnector, {fault, 0});
    const fabric::ScopedFaultInjector installed(injector);
    auto waiting = append("a");
    waiting.start();
    host_.reset();
    let_time_pass(10);
    EXPECT_FALSE(waiting.done());
    start_server();
    let_time_pass(400);
    ASSERT_TRUE(waiting.done());
    const auto done = waiting.take();
    ASSERT_EQ(done.code(), ErrorCode::kCommitUnknown);
    EXPECT_NE(done.error().message.find("started again"), std::string::npos);
    EXPECT_LE(content().size(), before.size() + 1);
    EXPECT_TRUE(run(append("b")));
  }
}

TEST_F(LogReconnect, LogIsMadeAndDeletedOnce) {
  int made = 0;
  break_at_each_request([&] {
    const std::string name = "log-" + std::to_string(++made);
    const auto created = run(client_->create(name, LogOptions{.bytes = 16 << 10}));
    ASSERT_TRUE(created) << created.error().to_string();
    EXPECT_EQ(run(client_->create(name, {})).code(), ErrorCode::kAlreadyExists);
    const Status erased = run(client_->erase(created->id));
    EXPECT_TRUE(erased) << erased.error().to_string();
  });
  EXPECT_EQ(run(client_->list())->size(), 1u);
}

TEST_F(LogReconnect, LogThatWasDeletedMeanwhileIsToldToItsReader) {
  ASSERT_TRUE(run(append("a")));
  const auto reader = std::move(*run(LogReader::open(*client_, log_, {})));
  kill_server();
  pool_.reopen();
  ASSERT_TRUE(pool_.store().erase(log_));
  pool_.close_store();
  start();
  EXPECT_EQ(run(reader->next()).code(), ErrorCode::kInvalidArgument);
}

TEST_F(LogReconnect, AnotherPoolIsNotTakenForTheSame) {
  LogPool other_pool(kTestArea, persist::Domain::kMemoryController, {}, 78);
  other_pool.close_store();
  kill_server();
  auto other = std::move(*LogHost::start(executor_, other_pool.pool(), options_));
  ASSERT_TRUE(run(other->listen({fabric::Scheme::kLocal, "log-service", 0})));
  const uint64_t began_ns = executor_.now_ns();
  const auto done = run(append("a"));
  ASSERT_EQ(done.code(), ErrorCode::kProtocol);
  EXPECT_NE(done.error().message.find("another pool"), std::string::npos);
  EXPECT_LT(executor_.now_ns() - began_ns, 100'000'000u) << "told at once, however patient it is";
  other.reset();
  start_server();
  EXPECT_TRUE(run(append("a")));
}

TEST_F(LogReconnect, SessionThatAnAdministratorEndedIsMadeAgain) {
  ASSERT_TRUE(run(append("a")));
  EXPECT_EQ(host_->host().kick(client_->id()), 1u);
  EXPECT_TRUE(run(append("b")));
  EXPECT_EQ(client_->reconnects(), 1u);
}

// ---- a server that dies again and again ----

struct Worker {
  std::string name;
  std::vector<std::string> acknowledged;
  std::vector<std::string> doubtful;
  std::vector<std::string> refused;
};

Task<void> append_until(LogClient& client, uint64_t log, Worker& worker, const bool& over) {
  for (uint64_t n = 1; !over; ++n) {
    const std::string text = worker.name + " " + std::to_string(n);
    const auto done = co_await client.append(log, bytes_of(text));
    if (done) {
      worker.acknowledged.push_back(text);
    } else if (done.code() == ErrorCode::kCommitUnknown) {
      worker.doubtful.push_back(text);
    } else {
      EXPECT_EQ(done.code(), ErrorCode::kDisconnected) << done.error().to_string();
      worker.refused.push_back(text);
    }
    co_await client.executor().sleep_for(400'000);
  }
}

// A producer is opened again, and says by its next index what became of the entry in doubt.
Task<void> produce_until(LogClient& client, uint64_t log, Worker& worker, const bool& over) {
  std::unique_ptr<LogProducer> producer;
  std::optional<std::string> in_doubt;
  uint64_t expected = 1;  // the index of what comes next
  for (uint64_t n = 1; !over;) {
    if (producer == nullptr) {
      auto opened = co_await LogProducer::open(client, log, {});
      if (!opened) co_await client.executor().sleep_for(500'000);
      if (!opened) continue;
      producer = std::move(*opened);
      if (in_doubt && producer->next_index() == expected + 1) {
        worker.acknowledged.push_back(*in_doubt);
        ++expected;
      } else if (in_doubt) {
        worker.refused.push_back(*in_doubt);
      }
      in_doubt.reset();
      EXPECT_EQ(producer->next_index(), expected) << "an entry is lost, or there twice";
    }
    const std::string text = worker.name + " " + std::to_string(n++);
    const auto done = co_await producer->append(bytes_of(text));
    if (done) {
      worker.acknowledged.push_back(text);
      ++expected;
    } else {
      in_doubt = text;
      producer.reset();
    }
    co_await client.executor().sleep_for(200'000);
  }
  // With its connection the log is given back, and what was appended is published.
  if (in_doubt) worker.doubtful.push_back(*in_doubt);
}

class LogServerDeath : public LogReconnect, public ::testing::WithParamInterface<uint64_t> {
 protected:
  // Each acknowledged entry is there once, each in doubt at most once, others not, in the order in
  // which they were appended.
  static void audit(const std::vector<std::string>& there, const Worker& worker) {
    std::vector<std::string> own;
    for (const std::string& text : there) {
      if (text.starts_with(worker.name + " ")) own.push_back(text);
    }
    std::vector<std::string> known;
    for (const std::string& text : own) {
      const bool doubtful = std::count(worker.doubtful.begin(), worker.doubtful.end(), text) > 0;
      if (!doubtful) known.push_back(text);
    }
    EXPECT_EQ(known, worker.acknowledged) << worker.name;
    std::sort(own.begin(), own.end());
    EXPECT_EQ(std::unique(own.begin(), own.end()), own.end()) << "one is there twice";
  }
};
INSTANTIATE_TEST_SUITE_P(Seeds, LogServerDeath, ::testing::Range(uint64_t{1}, uint64_t{9}));

TEST_P(LogServerDeath, LosesAndDoublesNothing) {
  base::Random random(GetParam());
  const uint64_t produced = run(client_->create("p", LogOptions{.bytes = 64 << 10}))->id;
  std::vector<Worker> workers(5);
  for (size_t i = 0; i < workers.size(); ++i) workers[i].name = "worker" + std::to_string(i);
  bool over = false;
  std::vector<Task<void>> tasks;
  for (size_t i = 0; i < 4; ++i) {
    tasks.push_back(append_until(*client_, log_, workers[i], over));
  }
  tasks.push_back(produce_until(*client_, produced, workers[4], over));
  for (auto& task : tasks) task.start();
  for (int death = 0; death < 12; ++death) {
    let_time_pass(random.below(8));
    // Connections break, and the server goes on; or it dies.
    if (random.below(3) == 0) {
      host_->host().kick(client_->id());
      continue;
    }
    kill_server();
    let_time_pass(random.below(20));
    start_server();
  }
  over = true;
  let_time_pass(2 * kPatienceNs / 1'000'000);
  for (auto& task : tasks) ASSERT_TRUE(task.done());
  const auto there = content();
  size_t acknowledged = 0;
  for (size_t i = 0; i < 4; ++i) {
    audit(there, workers[i]);
    acknowledged += workers[i].acknowledged.size();
  }
  EXPECT_GT(acknowledged, 20u);
  log_ = produced;
  audit(content(), workers[4]);
  EXPECT_GT(workers[4].acknowledged.size(), 5u);
}

}  // namespace
}  // namespace pmstore::log
