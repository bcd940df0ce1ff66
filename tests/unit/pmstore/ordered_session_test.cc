// Lock discipline rnic: a session that is driven by hand inserts into an ordered table, beside a
// client that scans it.
#include <array>

#include "pmstore/client/client_session.h"
#include "pmstore/layout/protocol.h"
#include "tests/unit/pmstore/server_fixture.h"

namespace pmstore {
namespace {

using internal::ClientSession;
using internal::SessionRef;

constexpr uint64_t kCallNs = 1'000'000'000;

class OrderedSession : public testing::ClientFixture {
 protected:
  void SetUp() override {
    ClientFixture::SetUp(LockDiscipline::kRnic);
    ordered_ = *run(client_->create_table("ordered", TableKind::kOrdered));
    ASSERT_TRUE(run(client_->put(ordered_, "a", "1")));
    open_by_hand();
  }
  void open_by_hand() {
    by_hand_ = {};
    internal::SessionOptions options;
    options.secret = ClientSecret::of_number(7);
    options.call_timeout_ns = options.connect_timeout_ns = kCallNs;
    const auto open = [&] {
      return run(
          ClientSession::open(std::move(*fabric::open_device(fabric::Scheme::kLocal, executor_)),
                              std::make_shared<internal::SessionBook>(), uri_, options));
    };
    auto opened = open();
    for (int tries = 0; !opened && tries < 100; ++tries) {  // its last session is being resolved
      let_time_pass(100'000);
      opened = open();
    }
    ASSERT_TRUE(opened) << opened.error().to_string();
    by_hand_ = std::move(*opened);
    ASSERT_TRUE(run(by_hand_->request_ring()));
  }
  uint64_t first_sequence() const { return by_hand_->ring().granted().next_sequence; }
  Result<fabric::RpcReply> send_key(Method method, const std::string& key) {
    std::array<std::byte, 1024> room;
    MessageWriter request(room);
    request.put(by_hand_->prefix());
    const auto bytes = static_cast<uint16_t>(key.size());
    if (method == Method::kGet) {
      request.put(GetRequest{raw(ordered_), bytes, {}});
    } else {
      const uint64_t sequence = first_sequence();
      request.put(ReserveRequest{sequence, 10, raw(ordered_), bytes, 0, 0, {}});
    }
    request.put_bytes(key);
    return send(method, request.message());
  }
  void TearDown() override {
    by_hand_ = {};
    ClientFixture::TearDown();
  }
  Result<fabric::RpcReply> send(Method method, std::span<const std::byte> message) {
    return run(by_hand_->rpc().call(static_cast<uint16_t>(method), message, 4096));
  }
  // In its first transaction.
  Status reserve(std::string_view key) {
    std::array<std::byte, 512> room;
    MessageWriter request(room);
    request.put(by_hand_->prefix());
    request.put(ReserveRequest{
        first_sequence(), 10, raw(ordered_), static_cast<uint16_t>(key.size()), 0, 1, {}});
    request.put_bytes(key);
    const auto reserved = send(Method::kReserve, request.message());
    return reserved ? Status() : Status(reserved.error());
  }
  // Of the whole table, which fits in a page.
  std::vector<LeafSeen> scan_by_hand() {
    std::array<std::byte, 512> room;
    MessageWriter request(room);
    request.put(by_hand_->prefix());
    request.put(RangeScanRequest{100, 4096, raw(ordered_), 0, 0, 0, {}});
    const auto page = send(Method::kRangeScan, request.message());
    EXPECT_TRUE(page) << page.error().to_string();
    std::vector<LeafSeen> leaves;
    if (!page) return leaves;
    MessageReader reader(page->bytes());
    const auto reply = reader.get<RangeScanReply>();
    for (uint32_t i = 0; i < reply.leaves; ++i) leaves.push_back(reader.get<LeafSeen>());
    return leaves;
  }
  Status validate(const std::vector<LeafSeen>& leaves, uint64_t sequence) {
    std::array<std::byte, 512> room;
    MessageWriter request(room);
    request.put(by_hand_->prefix());
    request.put(CommitRequest{sequence, 0, static_cast<uint32_t>(leaves.size()), 0, 0});
    for (const LeafSeen& leaf : leaves) request.put(leaf);
    const auto valid = send(Method::kCommit, request.message());
    return valid ? Status() : Status(valid.error());
  }
  Result<RecordPage> scan(Transaction& tx) {
    TransactionScan records = tx.scan(ordered_, {});
    return run(records.next());
  }

  TableId ordered_{};
  SessionRef by_hand_;
};

TEST_F(OrderedSession, KeyThatIsTooLongCostsTheSenderItsConnection) {
  for (const Method method : {Method::kGet, Method::kReserve}) {
    EXPECT_TRUE(send_key(method, std::string(512, 'k')));
    EXPECT_FALSE(send_key(method, std::string(513, 'k')));
    EXPECT_FALSE(send_key(method, "k")) << "the connection is gone";
    open_by_hand();
  }
}

TEST_F(OrderedSession, ScanGoesOnWhenTheClientThatInsertsIsGone) {
  ASSERT_TRUE(reserve("b"));
  Transaction early = client_->begin();
  EXPECT_EQ(scan(early).code(), ErrorCode::kConflict);
  EXPECT_EQ(run(client_->get(ordered_, "ab")).code(), ErrorCode::kNotFound);
  by_hand_ = {};
  Transaction later = client_->begin();
  const auto records = scan(later);
  ASSERT_TRUE(records) << records.error().to_string();
  EXPECT_EQ(records->size(), 1u);
  EXPECT_TRUE(run(later.commit()));
  EXPECT_TRUE(run(client_->insert(ordered_, "b", "2")));
}

TEST_F(OrderedSession, OfTwoThatScanAndInsertTheFirstOneStaysValid) {
  const auto leaves = scan_by_hand();
  Transaction second = client_->begin();
  ASSERT_TRUE(scan(second));
  second.insert(ordered_, "c", "3");
  ASSERT_TRUE(reserve("b"));
  EXPECT_EQ(run(second.commit()).code(), ErrorCode::kConflict);
  EXPECT_TRUE(validate(leaves, first_sequence()));
  EXPECT_EQ(validate(leaves, first_sequence() + 1).code(), ErrorCode::kConflict)
      << "of another transaction of the client";
}

TEST_F(OrderedSession, CommitBehindAScanOfWhatAnotherInsertsIsAConflict) {
  Transaction tx = client_->begin();
  ASSERT_TRUE(scan(tx));
  tx.put(table_, "elsewhere", "1");
  ASSERT_TRUE(reserve("b"));
  EXPECT_EQ(run(tx.commit()).code(), ErrorCode::kConflict);
}

}  // namespace
}  // namespace pmstore
