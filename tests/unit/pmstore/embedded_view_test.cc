// Views: values that a transaction looks at where they lie in the pool.
#include <algorithm>
#include <array>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "pmstore/admin_client.h"
#include "tests/unit/pmstore/embedded_fixture.h"

namespace pmstore {
namespace {

class EmbeddedView : public testing::EmbeddedFixture {
 protected:
  std::string_view view(Transaction& transaction, std::string_view key) {
    auto viewed = run(transaction.view(table_, key));
    EXPECT_TRUE(viewed) << viewed.error().to_string();
    return viewed ? *viewed : std::string_view();
  }
  std::string get(std::string_view key) {
    auto got = run(client_->get(table_, key));
    return got ? *got : got.error().to_string();
  }
  void put(std::string_view key, std::string_view value) {
    const Status done = run(client_->put(table_, key, value));
    ASSERT_TRUE(done) << done.error().to_string();
  }
  uint64_t held() { return stat().at("views").at("held"); }
  uint64_t kept() { return stat().at("views").at("kept_slots"); }
  // So many new records that a slot of their size that is free is used.
  void use_free_slots(size_t value_bytes) {
    const std::string value(value_bytes, 'n');
    for (int i = 0; i < 200; ++i) put("new " + std::to_string(i), value);
    for (int i = 0; i < 200; ++i) {
      ASSERT_TRUE(run(client_->erase(table_, "new " + std::to_string(i))));
    }
  }
};

TEST_F(EmbeddedView, ShowsTheValueWhereItLies) {
  put("k", "value");
  Transaction one = client_->begin();
  Transaction other = client_->begin();
  EXPECT_EQ(view(one, "k"), "value");
  EXPECT_EQ(view(one, "k").data(), view(other, "k").data());
  EXPECT_EQ(held(), 3u);
  put("empty", "");
  EXPECT_EQ(view(one, "empty"), "");
  EXPECT_EQ(run(one.view(table_, "absent")).code(), ErrorCode::kNotFound);
  EXPECT_EQ(run(one.view(table_, "")).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(run(one.view(TableId{99}, "k")).code(), ErrorCode::kUnknownTable);
}

TEST_F(EmbeddedView, EndsWithItsTransaction) {
  put("k", "value");
  {
    Transaction destroyed = client_->begin();
    view(destroyed, "k");
  }
  EXPECT_EQ(held(), 0u);
  Transaction transaction = client_->begin();
  view(transaction, "k");
  transaction.abort();
  EXPECT_EQ(held(), 0u);
  EXPECT_EQ(run(transaction.view(table_, "k")).code(), ErrorCode::kInvalidArgument);
  transaction = client_->begin();
  view(transaction, "k");
  EXPECT_TRUE(run(transaction.commit()));
  EXPECT_EQ(held(), 0u);
  EXPECT_EQ(run(transaction.view(table_, "k")).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(held(), 0u);
}

// Long keys have tombstones that are written past the caches; so have large values.
TEST_F(EmbeddedView, StaysWhenOthersChangeEraseAndDrop) {
  for (const size_t key_bytes : {size_t{1}, size_t{30}, size_t{230}, kMaxKeyBytes}) {
    for (const size_t value_bytes : {1u, 40u, 300u, 5000u, 20'000u}) {
      const std::string key(key_bytes, 'k');
      const std::string value(value_bytes, 'v');
      const TableId other = *run(client_->open_table("other", true));
      put(key, value);
      ASSERT_TRUE(run(client_->put(other, key, value)));
      Transaction transaction = client_->begin();
      const std::string_view changed = view(transaction, key);
      const auto dropped = run(transaction.view(other, key));
      ASSERT_TRUE(dropped);
      put(key, std::string(value_bytes, 'w'));
      EXPECT_EQ(changed, value);
      EXPECT_EQ(kept(), 1u);
      EXPECT_EQ(get(key), std::string(value_bytes, 'w'));
      ASSERT_TRUE(run(client_->drop_table("other")));
      for (int i = 0; i < 1000; ++i) executor_.run_once();  // its slots are freed meanwhile
      EXPECT_EQ(kept(), 2u);
      ASSERT_TRUE(run(client_->erase(table_, key)));
      use_free_slots(value_bytes);
      EXPECT_EQ(changed, value);
      EXPECT_EQ(*dropped, value);
      transaction.abort();
      EXPECT_EQ(kept(), 0u);
      Transaction erasing = client_->begin();
      put(key, value);
      const std::string_view erased = view(erasing, key);
      ASSERT_TRUE(run(client_->erase(table_, key)));
      EXPECT_EQ(kept(), 1u);
      use_free_slots(value_bytes);
      EXPECT_EQ(erased, value);
      EXPECT_EQ(get(key), "NotFound");
    }
  }
}

TEST_F(EmbeddedView, KeepsOneSlotHoweverOftenTheRecordIsWritten) {
  put("k", "value 0");
  const uint64_t live = stat().at("live_records");
  Transaction transaction = client_->begin();
  const std::string_view seen = view(transaction, "k");
  for (int i = 1; i < 5000; ++i) put("k", "value " + std::to_string(i));
  EXPECT_EQ(seen, "value 0");
  EXPECT_EQ(kept(), 1u);
  EXPECT_EQ(get("k"), "value 4999");
  EXPECT_EQ(stat().at("live_records"), live);
}

TEST_F(EmbeddedView, OutlastsOtherViewsOfItsRecord) {
  put("k", "value");
  Transaction one = client_->begin();
  Transaction other = client_->begin();
  const std::string_view seen = view(one, "k");
  view(other, "k");
  view(one, "k");
  put("k", "other");
  other.abort();
  EXPECT_EQ(kept(), 1u);
  use_free_slots(5);
  EXPECT_EQ(seen, "value");
  one.abort();
  EXPECT_EQ(kept(), 0u);
}

TEST_F(EmbeddedView, OfNoTransactionEndsWithItsObject) {
  put("k", "value");
  {
    auto viewed = run(client_->view(table_, "k"));
    ASSERT_TRUE(viewed) << viewed.error().to_string();
    EXPECT_EQ(held(), 1u);
    ValueView other = std::move(*viewed);
    EXPECT_EQ(held(), 1u);
    EXPECT_EQ(other.value(), "value");
    EXPECT_EQ(viewed->value(), "");
    other = *run(client_->view(table_, "k"));
    EXPECT_EQ(held(), 1u) << "it ends what it held before";
    put("k", "other");
    EXPECT_EQ(other.value(), "value");
    EXPECT_EQ(kept(), 1u);
    use_free_slots(5);
    EXPECT_EQ(other.value(), "value");
  }
  EXPECT_EQ(held(), 0u);
  EXPECT_EQ(kept(), 0u);
  EXPECT_EQ(run(client_->view(table_, "absent")).code(), ErrorCode::kNotFound);
  EXPECT_EQ(run(client_->view(table_, "")).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(run(client_->view(TableId{99}, "k")).code(), ErrorCode::kUnknownTable);
  EXPECT_EQ(held(), 0u);
}

TEST_F(EmbeddedView, OfNoTransactionMayEndBehindTheClient) {
  put("k", "value");
  ValueView view = *run(client_->view(table_, "k"));
  put("k", "other");
  run(client_->close());
  client_.reset();
  view = {};
  connect();
  EXPECT_EQ(get("k"), "other");
}

TEST_F(EmbeddedView, ThereAreSoManyAndNotOneMore) {
  constexpr uint64_t kMost = 65'536;
  for (int i = 0; i < 8; ++i) put(std::to_string(i), "value");
  std::vector<Transaction> transactions;
  const auto view_all = [&](Transaction& transaction, uint64_t count) -> Task<Status> {
    for (uint64_t i = 0; i < count; ++i) {
      const auto seen = co_await transaction.view(table_, std::to_string(i % 8));
      if (!seen) co_return seen.error();
    }
    co_return Status{};
  };
  for (int i = 0; i < 2; ++i) {
    transactions.push_back(client_->begin());
    ASSERT_TRUE(run(view_all(transactions.back(), kMost / 2)));
  }
  Transaction refused = client_->begin();
  EXPECT_EQ(run(refused.view(table_, "1")).code(), ErrorCode::kBackPressure);
  EXPECT_EQ(held(), kMost);
  EXPECT_EQ(get("1"), "value") << "others go on";
  put("1", "other");
  transactions.pop_back();
  EXPECT_EQ(view(refused = client_->begin(), "1"), "other");
}

TEST_F(EmbeddedView, OfAMovedRecordShowsItsNewPlace) {
  put("k", "old");
  Transaction one = client_->begin();
  const std::string_view before = view(one, "k");
  put("k", "new");
  Transaction other = client_->begin();
  const std::string_view behind = view(other, "k");
  EXPECT_EQ(before, "old");
  EXPECT_EQ(behind, "new");
  put("k", "newer");
  EXPECT_EQ(before, "old");
  EXPECT_EQ(behind, "new");
  EXPECT_EQ(kept(), 2u);
  EXPECT_EQ(run(one.view(table_, "k")).code(), ErrorCode::kConflict) << "it has seen another one";
  EXPECT_EQ(before, "old");
}

TEST_F(EmbeddedView, TheTransactionsOwnCommitNeedsNoMove) {
  put("k", "1111");
  Transaction transaction = client_->begin();
  const std::string_view seen = view(transaction, "k");
  const char* const place = seen.data();
  transaction.put(table_, "k", std::string(seen.rbegin(), seen.rend()) + "2");
  EXPECT_TRUE(run(transaction.commit()));
  Transaction again = client_->begin();
  EXPECT_EQ(view(again, "k"), "11112");
  EXPECT_EQ(view(again, "k").data(), place);
  EXPECT_EQ(kept(), 0u);
}

TEST_F(EmbeddedView, IsValidatedLikeARead) {
  put("k", "1");
  Transaction transaction = client_->begin();
  view(transaction, "k");
  EXPECT_EQ(run(transaction.view(table_, "absent")).code(), ErrorCode::kNotFound);
  transaction.put(table_, "sum", "2");
  put("k", "3");
  EXPECT_EQ(run(transaction.commit()).code(), ErrorCode::kConflict);
  EXPECT_EQ(kept(), 0u);
}

TEST_F(EmbeddedView, ShowsTheTransactionsOwnWritesAsCopies) {
  put("k", "old");
  Transaction transaction = client_->begin();
  const std::string_view old = view(transaction, "k");
  transaction.put(table_, "k", "first");
  const std::string_view first = view(transaction, "k");
  transaction.put(table_, "k", std::string(10'000, 's'));
  for (int i = 0; i < 100; ++i) transaction.put(table_, std::to_string(i), std::string(1000, 'x'));
  EXPECT_EQ(old, "old");
  EXPECT_EQ(first, "first");
  EXPECT_EQ(view(transaction, "k"), std::string(10'000, 's'));
  transaction.erase(table_, "k");
  EXPECT_EQ(run(transaction.view(table_, "k")).code(), ErrorCode::kNotFound);
  EXPECT_EQ(held(), 1u);
  // Copies are bounded.
  transaction.put(table_, "large", std::string(kMaxValueBytes, 'l'));
  ErrorCode last{};
  int copies = 0;
  for (; copies < 100 && last == ErrorCode{}; ++copies) {
    const auto viewed = run(transaction.view(table_, "large"));
    if (!viewed) last = viewed.code();
  }
  EXPECT_EQ(last, ErrorCode::kTooLarge);
  EXPECT_EQ(old, "old");
  EXPECT_TRUE(run(transaction.commit()));
}

TEST_F(EmbeddedView, IsRefusedWhenTheTransactionHasHeldViewsForTooLong) {
  run(client_->close());
  options_.longest_view_ns = 1'000'000;
  connect();
  const auto wait = [](Executor& executor, uint64_t ns) -> Task<void> {
    co_await executor.sleep_for(ns);
  };
  put("k", "value");
  put("other", "value");
  Transaction transaction = client_->begin();
  const std::string_view seen = view(transaction, "k");
  view(transaction, "other");
  run(wait(executor_, 1'000'000));
  for (int i = 0; i < 16; ++i) view(transaction, "other");
  run(wait(executor_, 1));
  ErrorCode refused{};
  for (int i = 0; i < 16 && refused == ErrorCode{}; ++i) {
    const auto viewed = run(transaction.view(table_, "other"));
    if (!viewed) refused = viewed.code();
  }
  EXPECT_EQ(refused, ErrorCode::kTimeout);
  EXPECT_EQ(run(transaction.view(table_, "other")).code(), ErrorCode::kTimeout);
  EXPECT_EQ(seen, "value") << "views that there are stay good";
  EXPECT_TRUE(run(transaction.commit()));
  transaction = client_->begin();
  for (int i = 0; i < 40; ++i) EXPECT_EQ(view(transaction, "other"), "value");
}

TEST_F(EmbeddedView, IsRefusedWhereItsBytesWereDamaged) {
  for (const size_t bytes : {40u, 600u, 5000u, 20'000u}) {
    put("k", std::string(bytes, 'v'));
    {
      Transaction transaction = client_->begin();
      const std::string_view seen = view(transaction, "k");
      const_cast<char&>(seen.back()) = 'w';  // as the medium may do
    }
    std::vector<std::byte> into(bytes);
    EXPECT_EQ(run(client_->get(table_, "k", into)).code(), ErrorCode::kDamaged);
    Transaction transaction = client_->begin();
    EXPECT_EQ(run(transaction.view(table_, "k")).code(), ErrorCode::kDamaged);
    EXPECT_EQ(run(client_->view(table_, "k")).code(), ErrorCode::kDamaged);
    EXPECT_EQ(run(client_->get_many(table_, std::array{std::string_view("k")})).code(),
              ErrorCode::kDamaged);
    EXPECT_EQ(held(), 0u);
  }
}

TEST_F(EmbeddedView, NeedsTheServerInItsProcess) {
  put("k", "value");
  const auto uri = run(client_->local_server()->listen({fabric::Scheme::kLocal, "others", 0}));
  ASSERT_TRUE(uri);
  auto remote = run(Client::connect(executor_, *uri, {}));
  ASSERT_TRUE(remote);
  {
    Transaction transaction = (*remote)->begin();
    const auto viewed = run(transaction.view(table_, "k"));
    EXPECT_EQ(viewed.code(), ErrorCode::kUnsupported);
    EXPECT_EQ(run((*remote)->view(table_, "k")).code(), ErrorCode::kUnsupported);
    EXPECT_EQ(*run(transaction.get(table_, "k")), "value") << "the transaction goes on";
    EXPECT_TRUE(run(transaction.commit()));
    // It meets the views of others.
    Transaction viewing = client_->begin();
    const std::string_view seen = view(viewing, "k");
    EXPECT_TRUE(run((*remote)->put(table_, "k", "other")));
    EXPECT_EQ(seen, "value");
    EXPECT_EQ(kept(), 1u);
  }
  run((*remote)->close());
  remote->reset();
  run(client_->close());
  options_.local_discipline = LockDiscipline::kRnic;
  connect();
  Transaction transaction = client_->begin();
  EXPECT_EQ(run(transaction.view(table_, "k")).code(), ErrorCode::kUnsupported);
  EXPECT_EQ(run(client_->view(table_, "k")).code(), ErrorCode::kUnsupported);
}

TEST_F(EmbeddedView, OutlastsTheSession) {
  put("k", "value");
  const auto uri = run(client_->local_server()->listen({fabric::Scheme::kLocal, "admins", 0}));
  ASSERT_TRUE(uri);
  auto admin = run(AdminClient::connect(executor_, *uri, {}));
  ASSERT_TRUE(admin);
  Transaction transaction = client_->begin();
  const std::string_view seen = view(transaction, "k");
  ASSERT_TRUE(run((*admin)->kick(client_->id())));
  put("k", "other");
  use_free_slots(5);
  EXPECT_EQ(seen, "value");
  EXPECT_EQ(kept(), 1u);
  EXPECT_EQ(run(transaction.commit()).code(), ErrorCode::kConflict);
  EXPECT_EQ(kept(), 0u);
  admin->reset();
}

TEST_F(EmbeddedView, MayEndBehindTheStore) {
  put("k", "value");
  put("same", "value");
  {
    Transaction transaction = client_->begin();
    view(transaction, "k");
    view(transaction, "same");
    put("k", "other");
    ASSERT_EQ(kept(), 1u);
    run(client_->close());
    EXPECT_EQ(run(transaction.view(table_, "k")).code(), ErrorCode::kConflict);
    transaction.abort();
  }
  connect();
  EXPECT_TRUE(client_->local_server()->recovery().from_checkpoint);
  EXPECT_EQ(get("k"), "other");
  EXPECT_EQ(get("same"), "value");
}

TEST_F(EmbeddedView, LeavesOneRecordBehindACrash) {
  put("moved", "old");
  put("erased", "old");
  {
    Transaction transaction = client_->begin();
    view(transaction, "moved");
    view(transaction, "erased");
    put("moved", "new");
    ASSERT_TRUE(run(client_->erase(table_, "erased")));
  }
  for (int restarts = 0; restarts < 2; ++restarts) {
    client_.reset();  // as after the end of its process
    connect();
    const auto page = run(client_->scan(table_, 0));
    ASSERT_TRUE(page) << page.error().to_string();
    ASSERT_EQ(page->records.size(), 1u);
    EXPECT_EQ(page->records[0].value, "new");
  }
}

// Transactions that view while others write and erase: no view ever changes.
class EmbeddedViews : public EmbeddedView, public ::testing::WithParamInterface<persist::Domain> {
 protected:
  struct Viewing {
    Transaction transaction;
    std::vector<std::pair<std::string_view, std::string>> seen;  // with what it must stay
  };
  void SetUp() override {
    EmbeddedView::SetUp();
    run(client_->close());
    options_.assume_domain = GetParam();
    connect();
  }
};
INSTANTIATE_TEST_SUITE_P(Domains, EmbeddedViews,
                         ::testing::Values(persist::Domain::kNone,
                                           persist::Domain::kMemoryController,
                                           persist::Domain::kCpuCache),
                         [](const auto& param) {
                           return std::string(persist::domain_name(param.param));
                         });

TEST_P(EmbeddedViews, NeverChange) {
  Random random(3);
  std::map<std::string, std::string> expected;
  std::list<Viewing> viewing;
  const auto key_of = [](uint64_t number) {
    return std::string(number % 7 == 0 ? 300 : 5, 'k') + std::to_string(number);
  };
  for (int step = 0; step < 20'000; ++step) {
    const std::string key = key_of(random.below(50));
    switch (random.below(8)) {
      case 0:
      case 1:
      case 2: {
        const size_t bytes = random.below(10) == 0 ? random.below(9000) : random.below(300);
        const std::string value(bytes, static_cast<char>('a' + random.below(26)));
        put(key, value);
        expected[key] = value;
        break;
      }
      case 3:
        if (expected.erase(key) > 0) {
          ASSERT_TRUE(run(client_->erase(table_, key)));
        }
        break;
      case 4: viewing.push_back({client_->begin(), {}}); break;
      case 5:
        if (viewing.size() > 10) viewing.pop_front();
        break;
      default:
        for (Viewing& each : viewing) {
          const auto seen = run(each.transaction.view(table_, key));
          if (seen) {
            ASSERT_EQ(*seen, expected.at(key));
            each.seen.emplace_back(*seen, expected.at(key));
          } else if (seen.code() == ErrorCode::kNotFound) {
            ASSERT_FALSE(expected.contains(key));
          } else {
            ASSERT_EQ(seen.code(), ErrorCode::kConflict);
          }
        }
    }
    if (step % 16 != 0) continue;
    for (const Viewing& each : viewing) {
      for (const auto& [bytes, value] : each.seen) ASSERT_EQ(bytes, value);
    }
  }
  viewing.clear();
  EXPECT_EQ(held() + kept(), 0u);
  for (const auto& [key, value] : expected) EXPECT_EQ(get(key), value);
}

}  // namespace
}  // namespace pmstore
