// Creating, opening, listing, trimming, sealing and deleting logs, and appends of shared producers.
#include "tests/scenario/log/log_scenario.h"

namespace pmstore::scenario {
namespace {

using log::FullPolicy;

class LogCalls : public LogScenario {
 protected:
  void SetUp() override {
    LogScenario::SetUp();
    start_server();
  }
};
PMSTORE_LOGS_SCENARIOS(LogCalls);

TEST_P(LogCalls, CreatedLogsAreFoundByNameAndListed) {
  const auto one = make("one", 32 << 10);
  const auto two = make("dir/two", 64 << 10, FullPolicy::kTrimOldest);
  EXPECT_NE(one.id, two.id);
  EXPECT_EQ(run(client_->create("one", {})).code(), ErrorCode::kAlreadyExists);
  const auto found = run(client_->open("dir/two"));
  ASSERT_TRUE(found) << found.error().to_string();
  EXPECT_EQ(found->id, two.id);
  EXPECT_EQ(found->when_full, FullPolicy::kTrimOldest);
  EXPECT_EQ(found->bytes, two.bytes);
  EXPECT_EQ(found->next_index, 1u);
  EXPECT_EQ(found->start_lsn, found->tail_lsn);
  const auto all = run(client_->list());
  ASSERT_TRUE(all) << all.error().to_string();
  ASSERT_EQ(all->size(), 2u);
  std::vector<std::string> names = {(*all)[0].name, (*all)[1].name};
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"dir/two", "one"}));
}

TEST_P(LogCalls, ManyLogsAreListedPageByPage) {
  std::vector<std::string> names;
  for (int i = 0; i < 40; ++i) {
    names.push_back("log-" + std::string(100, 'x') + std::to_string(100 + i));
    make(names.back(), 16 << 10);
  }
  const auto all = run(client_->list());
  ASSERT_TRUE(all) << all.error().to_string();
  std::vector<std::string> listed;
  for (const auto& info : *all) listed.push_back(info.name);
  std::sort(listed.begin(), listed.end());
  EXPECT_EQ(listed, names);
}

TEST_P(LogCalls, SharedAppendIsThereForEveryReader) {
  const auto log = make("log");
  auto other = connect();
  ASSERT_NE(other, nullptr);
  const auto first = share(*client_, log.id, "first");
  ASSERT_TRUE(first) << first.error().to_string();
  EXPECT_EQ(first->index, 1u);
  const auto second = share(*other, log.id, "second");
  ASSERT_TRUE(second);
  EXPECT_EQ(second->index, 2u);
  EXPECT_EQ(second->lsn, first->next_lsn);
  const std::vector<Read> both = {{1, "first"}, {2, "second"}};
  EXPECT_EQ(read_all(*client_, log.id), both);
  EXPECT_EQ(read_all(*other, log.id), both);
}

TEST_P(LogCalls, SharedBatchStaysTogether) {
  const auto log = make("log");
  const std::vector<std::string> payloads = {"one", text(2, 700), "three"};
  std::vector<std::span<const std::byte>> spans;
  for (const auto& each : payloads) spans.push_back(std::as_bytes(std::span(each)));
  const auto last = run(client_->append_batch(log.id, spans));
  ASSERT_TRUE(last) << last.error().to_string();
  EXPECT_EQ(last->index, 3u);
  EXPECT_EQ(read_all(*client_, log.id),
            (std::vector<Read>{{1, "one"}, {2, payloads[1]}, {3, "three"}}));
}

TEST_P(LogCalls, TrimmedEntriesAreGoneForReaders) {
  const auto log = make("log");
  std::vector<log::Appended> at;
  for (uint64_t i = 1; i <= 10; ++i) at.push_back(*share(*client_, log.id, text(i, 300)));
  auto from = reader(*client_, log.id);
  ASSERT_NE(from, nullptr);
  ASSERT_TRUE(read(*from));
  const auto start = run(client_->trim(log.id, at[4].lsn));
  ASSERT_TRUE(start) << start.error().to_string();
  EXPECT_EQ(*start, at[4].lsn);
  EXPECT_EQ(run(client_->trim(log.id, at[4].lsn + 8)).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(*run(client_->trim(log.id, 0)), at[4].lsn) << "below the start there is nothing";
  const auto by_index = run(client_->trim_below_index(log.id, 8));
  ASSERT_TRUE(by_index);
  EXPECT_EQ(*by_index, at[7].lsn);
  EXPECT_EQ(read_all(*client_, log.id),
            (std::vector<Read>{{8, text(8, 300)}, {9, text(9, 300)}, {10, text(10, 300)}}));
  // A new window, not what was READ before.
  from->seek(at[1].lsn);
  EXPECT_EQ(read(*from).code(), ErrorCode::kTrimmed);
  EXPECT_EQ(from->start_lsn(), at[7].lsn);
  from->seek(from->start_lsn());
  EXPECT_EQ(read(*from)->index, 8u);
}

TEST_P(LogCalls, SealedLogTakesNothingMoreAndEnds) {
  const auto log = make("log");
  ASSERT_TRUE(share(*client_, log.id, "last"));
  ASSERT_TRUE(run(client_->seal(log.id)));
  ASSERT_TRUE(run(client_->seal(log.id))) << "twice is no error";
  EXPECT_EQ(share(*client_, log.id, "too late").code(), ErrorCode::kSealed);
  EXPECT_EQ(run(log::LogProducer::open(*client_, log.id, {})).code(), ErrorCode::kSealed);
  auto from = reader(*client_, log.id);
  ASSERT_NE(from, nullptr);
  EXPECT_EQ(read(*from)->payload, "last");
  EXPECT_EQ(read(*from).code(), ErrorCode::kSealed);
  EXPECT_EQ(run(from->follow(1'000'000'000)).code(), ErrorCode::kSealed);
}

TEST_P(LogCalls, DeletedLogIsGoneForEverybody) {
  const auto log = make("log");
  ASSERT_TRUE(share(*client_, log.id, "entry"));
  auto from = reader(*client_, log.id);
  ASSERT_NE(from, nullptr);
  ASSERT_TRUE(run(client_->erase(log.id)));
  EXPECT_EQ(run(client_->open("log")).code(), ErrorCode::kNotFound);
  EXPECT_EQ(run(client_->erase(log.id)).code(), ErrorCode::kNotFound);
  EXPECT_EQ(share(*client_, log.id, "entry").code(), ErrorCode::kNotFound);
  EXPECT_EQ(run(log::LogProducer::open(*client_, log.id, {})).code(), ErrorCode::kNotFound);
  EXPECT_EQ(run(log::LogReader::open(*client_, log.id, {})).code(), ErrorCode::kNotFound);
  EXPECT_EQ(read(*from).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(run(from->follow(1'000'000'000)).code(), ErrorCode::kInvalidArgument);
  const auto again = make("log");
  EXPECT_NE(again.id, log.id);
  EXPECT_TRUE(read_all(*client_, again.id).empty()) << "nothing of the old one";
  EXPECT_EQ(read(*from).code(), ErrorCode::kInvalidArgument) << "the place is another log's";
}

TEST_P(LogCalls, WrongInputIsRefusedAndHarmsNothing) {
  const auto log = make("log");
  for (const char* name : {"", "a b", "tab\t", "\xc3\xa4"}) {
    EXPECT_EQ(run(client_->create(name, {})).code(), ErrorCode::kInvalidArgument) << name;
    EXPECT_EQ(run(client_->open(name)).code(), ErrorCode::kInvalidArgument) << name;
  }
  EXPECT_EQ(run(client_->create(std::string(121, 'x'), {})).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(run(client_->open("nobody's")).code(), ErrorCode::kNotFound);
  log::LogOptions large;
  large.bytes = 20 << 20;  // more than the area
  EXPECT_EQ(run(client_->create("large", large)).code(), ErrorCode::kInvalidArgument);
  large.bytes = 9 << 20;
  ASSERT_TRUE(run(client_->create("large", large)));
  EXPECT_EQ(run(client_->create("another", large)).code(), ErrorCode::kFull);
  EXPECT_EQ(share(*client_, log.id, "").code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(share(*client_, log.id, std::string(log::kMaxEntryBytes + 1, 'x')).code(),
            ErrorCode::kTooLarge);
  EXPECT_EQ(share(*client_, log.id, std::string(40'000, 'x')).code(), ErrorCode::kTooLarge)
      << "over half of the log";
  EXPECT_EQ(run(client_->append_batch(log.id, {})).code(), ErrorCode::kInvalidArgument);
  const std::vector<std::span<const std::byte>> many(log::kMaxBatchEntries + 1,
                                                     std::as_bytes(std::span("x", 1)));
  EXPECT_EQ(run(client_->append_batch(log.id, many)).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(share(*client_, 4711, "x").code(), ErrorCode::kNotFound);
  EXPECT_EQ(run(client_->trim(4711, 64)).code(), ErrorCode::kNotFound);
  EXPECT_EQ(run(client_->seal(4711)).code(), ErrorCode::kNotFound);
  EXPECT_EQ(run(log::LogReader::open(*client_, 4711, {})).code(), ErrorCode::kNotFound);
  EXPECT_EQ(run(log::LogProducer::open(*client_, 4711, {})).code(), ErrorCode::kNotFound);
  EXPECT_TRUE(read_all(*client_, log.id).empty());
  EXPECT_TRUE(share(*client_, log.id, "the session still works"));
}

TEST_P(LogCalls, MalformedHelloIsRefused) {
  auto device = fabric::open_device(scheme(), executor_, TestMachine::test_host());
  ASSERT_TRUE(device);
  auto rpc = fabric::RpcClient::create(**device, {});
  ASSERT_TRUE(rpc);
  service::Hello good;
  good.secret = ClientSecret::of_number(7);
  good.client = good.secret.id();
  good.service = service::ServiceId::kLog;
  good.reply_region = (*rpc)->reply_region();
  const log::SessionHello body{1};
  constexpr size_t kWhole = sizeof(service::Hello) + sizeof(log::SessionHello);
  const auto try_hello = [&](const service::Hello& hello, size_t bytes) {
    const auto message = service::encode(hello, service::bytes_of(body));
    fabric::ConnectOptions options;
    options.hello = std::span(message).first(bytes);
    const auto connected = run((*device)->connect(target_->uri(), options));
    return connected ? std::string("accepted") : std::string(base::error_name(connected.code()));
  };
  service::Hello bad = good;
  bad.version = 99;
  EXPECT_EQ(try_hello(bad, kWhole), "VersionMismatch");
  EXPECT_EQ(try_hello(good, sizeof good - 1), "Protocol");
  EXPECT_EQ(try_hello(good, kWhole - 1), "Protocol");
  EXPECT_EQ(try_hello(good, 12), "Protocol");
  bad = good;
  bad.secret = ClientSecret::of_number(8);
  EXPECT_EQ(try_hello(bad, kWhole), "Access");
  bad = good;
  bad.service = service::ServiceId{999};
  EXPECT_EQ(try_hello(bad, kWhole), "Unsupported");
  bad = good;
  bad.reply_region.bytes = 17;
  EXPECT_EQ(try_hello(bad, kWhole), "InvalidArgument");
  EXPECT_EQ(try_hello(good, kWhole), "accepted");
}

TEST_P(LogCalls, IdleSessionKeepsItsLease) {
  for (uint32_t lease_ms = 150;; lease_ms *= 2) {
    ASSERT_LT(lease_ms, 60'000u) << "this machine never lets a client renew its lease";
    ASSERT_NO_FATAL_FAILURE(restart_server(lease_ms));
    const StallWatch watch(executor_);
    auto made = run(client_->create("log", {}));
    let_time_pass(uint64_t{lease_ms} * 4'000'000);
    if (made) made = run(client_->open("log"));
    if (made) break;
    ASSERT_GT(watch.longest_ns(), uint64_t{lease_ms} * 1'000'000 / 3) << made.error().to_string();
  }
}

}  // namespace
}  // namespace pmstore::scenario
