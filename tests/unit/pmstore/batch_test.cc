// Many keys at a time: get_many(), and records that are written in batches.
#include <string>
#include <string_view>
#include <vector>

#include "pmstore/admin_client.h"
#include "pmstore/batch_writer.h"
#include "tests/unit/pmstore/embedded_fixture.h"

namespace pmstore {
namespace {

// A client of the pool in its process, and one that sends messages.
class Batches : public testing::EmbeddedFixture, public ::testing::WithParamInterface<bool> {
 protected:
  void SetUp() override {
    EmbeddedFixture::SetUp();
    if (GetParam()) return;
    const auto uri = run(client_->local_server()->listen({fabric::Scheme::kLocal, "others", 0}));
    ASSERT_TRUE(uri);
    ClientOptions options;
    options.one_sided_reads = false;
    auto connected = run(Client::connect(executor_, *uri, options));
    ASSERT_TRUE(connected) << connected.error().to_string();
    remote_ = std::move(*connected);
  }
  void TearDown() override {
    if (remote_ != nullptr) run(remote_->close());
    remote_.reset();
    EmbeddedFixture::TearDown();
  }
  Client& client() { return remote_ != nullptr ? *remote_ : *client_; }

  static std::vector<std::string> keys(int count) {
    std::vector<std::string> names;
    for (int i = 0; i < count; ++i) names.push_back("key " + std::to_string(i));
    return names;
  }
  static std::vector<std::string_view> views(const std::vector<std::string>& names) {
    return {names.begin(), names.end()};
  }
  Status write(BatchWriter& writer, std::string_view key, std::string_view value) {
    return run(writer.put(key, value));
  }

  std::unique_ptr<Client> remote_;
};
INSTANTIATE_TEST_SUITE_P(Clients, Batches, ::testing::Bool(), [](const auto& param) {
  return std::string(param.param ? "Embedded" : "Remote");
});

TEST_P(Batches, ManyKeysAreReadInTheirOrder) {
  const auto names = keys(100);
  for (int i = 0; i < 100; i += 3) {
    ASSERT_TRUE(run(client_->put(table_, names[i], "value " + std::to_string(i))));
  }
  std::vector<std::string_view> wanted = views(names);
  wanted.push_back(names[3]);  // once more
  wanted.push_back(names[4]);
  const auto values = run(client().get_many(table_, wanted));
  ASSERT_TRUE(values) << values.error().to_string();
  ASSERT_EQ(values->size(), 102u);
  for (int i = 0; i < 100; ++i) {
    if (i % 3 == 0) {
      EXPECT_EQ((*values)[i], "value " + std::to_string(i));
    } else {
      EXPECT_FALSE((*values)[i]) << i;
    }
  }
  EXPECT_EQ((*values)[100], "value 3");
  EXPECT_FALSE((*values)[101]);
  EXPECT_TRUE(run(client().get_many(table_, {}))->empty());
}

TEST_P(Batches, RequestsOfManyKeysAreUnderWayTogether) {
  const auto names = keys(32);
  for (const std::string& name : names) ASSERT_TRUE(run(client_->put(table_, name, "v")));
  const auto wanted = views(names);
  const fabric::Counters before = client().counters();
  Task<Result<Values>> reading = client().get_many(table_, wanted);
  reading.start();
  const uint64_t sent = (client().counters() - before).doorbells;
  EXPECT_EQ(sent, GetParam() ? 0u : 16u);
  while (!reading.done()) executor_.run_once();
  EXPECT_TRUE(reading.take());
}

TEST_P(Batches, AKeyThatIsThereSeveralTimesIsLookedUpOnce) {
  ASSERT_TRUE(run(client_->put(table_, "k", "v")));
  const std::vector<std::string_view> wanted{"k", "absent", "k", "k", "absent"};
  const fabric::Counters before = client().counters();
  Task<Result<Values>> reading = client().get_many(table_, wanted);
  reading.start();
  EXPECT_EQ((client().counters() - before).doorbells, GetParam() ? 0u : 2u);
  while (!reading.done()) executor_.run_once();
  const auto values = reading.take();
  ASSERT_TRUE(values) << values.error().to_string();
  EXPECT_EQ(*values, (Values{"v", std::nullopt, "v", "v", std::nullopt}));
}

// At each of its turns.
TEST_P(Batches, AConnectionThatBreaksBetweenPartsIsNoConflict) {
  const auto names = keys(320);
  const auto wanted = views(names);
  const auto uri = run(client_->local_server()->listen({fabric::Scheme::kLocal, "admins", 0}));
  ASSERT_TRUE(uri);
  auto admin = run(AdminClient::connect(executor_, *uri, {}));
  ASSERT_TRUE(admin);
  int broken = 0;
  bool ended = false;
  for (int turns = 0; !ended; ++turns) {
    ASSERT_LT(turns, 10'000);
    // The first one may find out that the session was ended.
    if (run(client().get(table_, "absent")).code() != ErrorCode::kNotFound) {
      ASSERT_EQ(run(client().get(table_, "absent")).code(), ErrorCode::kNotFound);
    }
    Task<Result<Values>> reading = client().get_many(table_, wanted);
    reading.start();
    Task<Result<uint32_t>> kicking = (*admin)->kick(client().id());
    for (int i = 0; i < turns; ++i) executor_.run_once();
    ended = reading.done();
    kicking.start();
    while (!reading.done() || !kicking.done()) executor_.run_once();
    EXPECT_TRUE(kicking.take());
    const auto values = reading.take();
    if (values) continue;
    EXPECT_EQ(values.code(), ErrorCode::kDisconnected) << values.error().to_string();
    ++broken;
  }
  EXPECT_EQ(broken > 0, !GetParam());
  admin->reset();
}

TEST_P(Batches, ManyKeysOfATransactionAreValidated) {
  const auto names = keys(40);
  for (const std::string& name : names) ASSERT_TRUE(run(client_->put(table_, name, "v")));
  const auto wanted = views(names);
  for (const char* const changed : {"key 39", "another", ""}) {
    Transaction transaction = client().begin();
    transaction.put(table_, "key 7", "own");
    std::vector<std::string_view> with_absent = wanted;
    with_absent.push_back("another");
    const auto values = run(transaction.get_many(table_, with_absent));
    ASSERT_TRUE(values) << values.error().to_string();
    EXPECT_EQ((*values)[7], "own") << "it sees its own writes";
    EXPECT_FALSE(values->back());
    if (*changed != '\0') {
      ASSERT_TRUE(run(client_->put(table_, changed, "w")));
    }
    const Status done = run(transaction.commit());
    EXPECT_EQ(done.code(), *changed != '\0' ? ErrorCode::kConflict : ErrorCode{}) << changed;
    if (std::string_view(changed) == "another") {
      ASSERT_TRUE(run(client_->erase(table_, changed)));
    }
  }
}

TEST_P(Batches, AnErrorOfOneKeyIsThatOfAll) {
  ASSERT_TRUE(run(client_->put(table_, "a", "1")));
  const std::string too_long(kMaxKeyBytes + 1, 'k');
  const std::vector<std::string_view> wanted{"a", too_long};
  EXPECT_FALSE(run(client().get_many(table_, wanted)));
  EXPECT_EQ(run(client().get_many(TableId{99}, {&wanted[0], 1})).code(), ErrorCode::kUnknownTable);
}

TEST_P(Batches, OrderedTablesTakeThemToo) {
  const TableId ordered = *run(client_->create_table("ordered", TableKind::kOrdered));
  BatchWriter writer(client(), ordered);
  const auto names = keys(500);
  for (const std::string& name : names) ASSERT_TRUE(write(writer, name, name));
  BatchWriter other(client(), ordered);
  ASSERT_TRUE(run(writer.flush()));
  for (const std::string& name : names) ASSERT_TRUE(run(other.put(name, name + "!")));
  ASSERT_TRUE(run(other.flush()));
  const auto wanted = views(names);
  const auto values = run(client().get_many(ordered, wanted));
  ASSERT_TRUE(values);
  for (size_t i = 0; i < names.size(); ++i) EXPECT_EQ((*values)[i], names[i] + "!");
}

// Whatever the size of the records: hardly less than the redo log takes, and hardly a transaction
// more than that.
TEST_P(Batches, FillTheRedoLog) {
  const uint64_t limit = client().session().max_redo_bytes;
  ASSERT_GT(limit, 0u);
  for (const size_t value_bytes : {16u, 400u, 20'000u}) {
    BatchWriter writer(client(), table_);
    const std::string value(value_bytes, 'v');
    uint64_t bytes = 0;
    uint64_t records = 0;
    for (; bytes < 3 * limit; ++records, bytes += 40 + value_bytes) {
      ASSERT_TRUE(write(writer, std::to_string(records % 5000), value));
    }
    ASSERT_TRUE(run(writer.flush()));
    EXPECT_EQ(writer.written(), records);
    EXPECT_GE(writer.transactions(), 3u);
    EXPECT_LE(writer.transactions(), GetParam() ? 12u : 40u) << value_bytes;
    EXPECT_EQ(*run(client_->get(table_, "7")), value);
  }
}

TEST_P(Batches, NothingIsThereBeforeItsBatchIsWritten) {
  BatchWriter writer(client(), table_);
  ASSERT_TRUE(write(writer, "a", "1"));
  ASSERT_TRUE(write(writer, "b", "2"));
  ASSERT_TRUE(write(writer, "a", "3"));
  EXPECT_EQ(writer.written(), 0u);
  EXPECT_EQ(run(client_->get(table_, "a")).code(), ErrorCode::kNotFound);
  ASSERT_TRUE(run(writer.flush()));
  EXPECT_EQ(writer.written(), 3u);
  EXPECT_EQ(writer.transactions(), 1u);
  EXPECT_EQ(*run(client_->get(table_, "a")), "3") << "the last one counts";
  EXPECT_TRUE(run(writer.flush()));
  EXPECT_EQ(writer.transactions(), 1u) << "an empty batch is not written";
}

TEST_P(Batches, ARecordThatCanNotBeIsRefusedAlone) {
  BatchWriter writer(client(), table_);
  ASSERT_TRUE(write(writer, "a", "1"));
  EXPECT_FALSE(write(writer, "", "1"));
  EXPECT_EQ(write(writer, "k", std::string(kMaxValueBytes + 1, 'v')).code(), ErrorCode::kTooLarge);
  ASSERT_TRUE(write(writer, "b", std::string(kMaxValueBytes, 'v')));
  ASSERT_TRUE(run(writer.flush()));
  EXPECT_EQ(writer.written(), 2u);
  EXPECT_EQ(*run(client_->get(table_, "a")), "1");
}

// Records that must move take more of the redo log than new ones.
TEST_P(Batches, ThatGrowWhileTheyAreWrittenBecomeTwo) {
  const uint64_t limit = client().session().max_redo_bytes;
  const std::string small(1, 's');
  const std::string large(200, 'l');
  uint64_t count = 0;
  {
    BatchWriter writer(client(), table_);
    for (; count * 250 < limit * 2; ++count) {
      ASSERT_TRUE(write(writer, std::to_string(count), small));
    }
    ASSERT_TRUE(run(writer.flush()));
  }
  BatchWriter writer(client(), table_);
  for (uint64_t i = 0; i < count; ++i) ASSERT_TRUE(write(writer, std::to_string(i), large));
  ASSERT_TRUE(run(writer.flush()));
  EXPECT_EQ(writer.written(), count);
  EXPECT_EQ(*run(client_->get(table_, "0")), large);
  EXPECT_EQ(*run(client_->get(table_, std::to_string(count - 1))), large);
}

// The log takes them as new records, and not as records that move.
using EmbeddedBatch = testing::EmbeddedFixture;
TEST_F(EmbeddedBatch, WhoseFlushIsDestroyedAmidItIsCountedOnce) {
  const std::string large(200, 'l');
  const uint64_t count = client_->session().max_redo_bytes / 290;
  BatchWriter writer(*client_, table_);
  for (uint64_t i = 0; i < count; ++i) {
    ASSERT_TRUE(run(client_->put(table_, std::to_string(i), "s")));
    ASSERT_TRUE(run(writer.put(std::to_string(i), large)));
  }
  ASSERT_EQ(writer.transactions(), 0u) << "they are one batch";
  {
    Task<Status> flushing = writer.flush();
    flushing.start();
    while (!flushing.done() && writer.written() == 0) executor_.run_once();
    ASSERT_FALSE(flushing.done()) << "it has become two";
  }
  EXPECT_LT(writer.written(), count);
  ASSERT_TRUE(run(writer.put("one more", large)));
  ASSERT_TRUE(run(writer.flush()));
  EXPECT_EQ(writer.written(), count + 1);
  for (const uint64_t i : {uint64_t{0}, count / 2, count - 1}) {
    EXPECT_EQ(*run(client_->get(table_, std::to_string(i))), large);
  }
  EXPECT_EQ(*run(client_->get(table_, "one more")), large);
}

TEST_P(Batches, AnErrorEmptiesTheWriterAndCountsWhatIsWritten) {
  BatchWriter writer(client(), table_);
  ASSERT_TRUE(write(writer, "a", "1"));
  ASSERT_TRUE(run(writer.flush()));
  ASSERT_TRUE(write(writer, "b", "2"));
  ASSERT_TRUE(run(client_->drop_table("t")));
  EXPECT_EQ(run(writer.flush()).code(), ErrorCode::kUnknownTable);
  EXPECT_EQ(writer.written(), 1u);
  EXPECT_TRUE(run(writer.flush())) << "nothing is left in it";
}

}  // namespace
}  // namespace pmstore
