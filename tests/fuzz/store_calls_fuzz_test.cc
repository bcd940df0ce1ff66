// Hostile clients of the store: requests cut short, drawn out, and full of nonsense, for every
// method and under both lock disciplines.
//
// What does not decode costs its sender the connection; what decodes is answered, with an error
// where it makes no sense. Whatever was sent, and however the sender goes: the server goes on,
// nothing stays locked, reserved or allocated, and no record of others changes.
#include <optional>

#include "base/random.h"
#include "pmstore/check.h"
#include "pmstore/client/client_session.h"
#include "pmstore/layout/shard_record.h"
#include "tests/fuzz/fuzzing.h"
#include "tests/unit/pmstore/server_fixture.h"

namespace pmstore {
namespace {

using internal::ClientSession;
using internal::SessionRef;
using Bytes = std::vector<std::byte>;

constexpr uint64_t kHostile = 99;
constexpr uint32_t kReplyRoom = 4096;
constexpr Method kMethods[] = {Method::kPing,      Method::kOpenTable,  Method::kListTables,
                               Method::kGet,       Method::kScan,       Method::kCommit,
                               Method::kOutcome,   Method::kStat,       Method::kReserve,
                               Method::kRelease,   Method::kApply,      Method::kTruncate,
                               Method::kDropTable, Method::kTableUsage, Method::kRangeScan,
                               Method::kLock,      Method::kPrepare,    Method::kDecide,
                               Method::kVote,      Method::kUndecided,  Method::kRegions};

template <typename... Parts>
Bytes message(const Parts&... parts) {
  Bytes all;
  const auto add = [&](const auto& part) {
    const auto* const at = reinterpret_cast<const std::byte*>(&part);
    all.insert(all.end(), at, at + sizeof(part));
  };
  (add(parts), ...);
  return all;
}

Bytes with_text(Bytes head, std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  head.insert(head.end(), bytes.begin(), bytes.end());
  return head;
}

class StoreCalls : public testing::ServerFixture,
                   public ::testing::WithParamInterface<LockDiscipline> {
 protected:
  void SetUp() override {
    ServerFixture::SetUp();
    server_.reset();
    server_options_.discipline = GetParam();
    start();
    good_ = connect(1);
    table_ = *run(good_->open_table("t", true));
    ASSERT_TRUE(run(good_->put(table_, "kept", "value")));
    ordered_ = *run(good_->create_table("ordered", TableKind::kOrdered));
    device_ = std::move(*fabric::open_device(uri_.scheme, executor_, nullptr));
  }
  void TearDown() override {
    session_ = {};
    if (good_ != nullptr) run(good_->close());
    good_.reset();
    ServerFixture::TearDown();
    const auto checked = check_store(*pool_);
    ASSERT_TRUE(checked) << checked.error().to_string();
    EXPECT_TRUE(checked->sound()) << checked->problems.front();
  }

  bool rnic() const { return GetParam() == LockDiscipline::kRnic; }
  ClientSession& hostile() {
    if (session_ && session_->usable()) return *session_;
    session_ = {};
    internal::SessionOptions options;
    options.secret = ClientSecret::of_number(kHostile);
    options.call_timeout_ns = options.connect_timeout_ns = 1'000'000'000;
    auto opened = run(ClientSession::open(device_, book_, uri_, options));
    for (int tries = 0; !opened && tries < 100; ++tries) {  // its last session is being resolved
      let_time_pass(100'000);
      opened = run(ClientSession::open(device_, book_, uri_, options));
    }
    PMSTORE_CHECK(opened.has_value(), opened ? "" : opened.error().message.c_str());
    session_ = std::move(*opened);
    if (rnic()) {
      const Status ring = run(session_->request_ring());
      PMSTORE_CHECK(ring.has_value(), ring ? "" : ring.error().message.c_str());
    }
    return *session_;
  }
  // Without the prefix.
  Result<Bytes> call(Method method, const Bytes& body) {
    ClientSession& at = hostile();
    Bytes request = message(at.prefix());
    request.insert(request.end(), body.begin(), body.end());
    return send(at, static_cast<uint16_t>(method), request);
  }
  Result<Bytes> send(ClientSession& at, uint16_t method, const Bytes& request) {
    auto answer = run(at.rpc().call(method, request, kReplyRoom));
    if (!answer) return std::move(answer.error());
    const auto bytes = answer->bytes();
    return Bytes(bytes.begin(), bytes.end());
  }

  // A request of each method that is answered without an error, where the discipline has it.
  Bytes well_formed(Method method) {
    switch (method) {
      case Method::kOpenTable:
        return with_text(message(OpenTableRequest{0, 1, TableKind::kHash}), "t");
      case Method::kGet: return with_text(message(GetRequest{raw(table_), 4, {}}), "kept");
      case Method::kScan: return message(ScanRequest{0, 2048, raw(table_), 0, {}});
      case Method::kCommit: return message(CommitRequest{next_sequence(), 0, 0, 0, 0});
      case Method::kOutcome:
        return message(OutcomeRequest{numbered::id_of(kHostile), next_sequence()});
      case Method::kReserve:
        return with_text(message(ReserveRequest{1, 10, raw(table_), 1, 0, 0, {}}), "r");
      case Method::kApply: return message(ApplyRequest{log_record(), 0});
      case Method::kTruncate: return message(TruncateRequest{0, 0});
      // Of a table that it has not dropped: nothing is left to be freed.
      case Method::kDropTable: return message(DropTableRequest{0x7000, 0, 0});
      case Method::kTableUsage: return message(TableUsageRequest{0, raw(table_), 0, {}});
      case Method::kRangeScan:
        return with_text(message(RangeScanRequest{9, 2048, raw(ordered_), 1, 2, 0, {}}), "abc");
      case Method::kRegions: return message(RegionsRequest{0, RegionKind::kBuckets, {}, 0});
      case Method::kLock: return lock_request(next_sequence(), 'l');
      case Method::kPrepare: {
        const uint64_t sequence = next_sequence();
        // Of one server: it commits. Else it would wait for a decision.
        const char key = static_cast<char>('m' + sequence % 8);  // others may still be locked
        if (!rnic()) (void)call(Method::kLock, lock_request(sequence, key));
        return message(PrepareRequest{sequence, 0, 0});
      }
      case Method::kDecide:
        return message(
            DecideRequest{numbered::id_of(kHostile), next_sequence(), Decision::kAbort, {}});
      case Method::kVote: return message(VoteRequest{numbered::id_of(kHostile), 1});
      case Method::kUndecided: return message(UndecidedRequest{});
      default: return {};
    }
  }
  Bytes lock_request(uint64_t sequence, char key) {
    Bytes body = message(LockRequest{});
    const Bytes commit = message(CommitRequest{sequence, 0, 0, 1, 0});
    const Bytes write = with_text(message(WriteOp{0, 0, 7, raw(table_), 1, WriteKind::kPut, {}}),
                                  std::string(1, key) + "abc1234");
    for (const Bytes& part : {commit, write}) body.insert(body.end(), part.begin(), part.end());
    return body;
  }
  uint64_t next_sequence() {
    ClientSession& at = hostile();
    const uint64_t first = rnic() ? at.ring().granted().next_sequence : at.hello().next_sequence;
    return first + sequences_++ % 1000;
  }
  // The lsn of a redo record of nothing that was locked.
  uint64_t log_record() {
    if (!rnic()) return 0;
    Bytes room(4096);
    ShardRedoBuilder redo(room, numbered::id_of(kHostile), hostile().prefix().epoch);
    redo.add(SlotOffset{256}, table_, 5, RecordState::kLive, "kept", "forged");
    const auto appended = run(hostile().ring().append(next_sequence(), redo.finish()));
    return appended ? appended->lsn : 0;
  }
  // What it has prepared, and nobody else has part in.
  void abort_undecided() {
    if (rnic()) return;
    const auto listed = call(Method::kUndecided, message(UndecidedRequest{}));
    ASSERT_TRUE(listed) << listed.error().to_string();
    MessageReader reader(*listed);
    const auto reply = reader.get<UndecidedReply>();
    for (uint32_t i = 0; i < reply.count; ++i) {
      const auto item = reader.get<UndecidedItem>();
      for (uint16_t n = 0; n < item.participants; ++n) (void)reader.get<ShardParticipant>();
      for (const Decision decision : {Decision::kAbort, Decision::kForget}) {
        (void)call(Method::kDecide,
                   message(DecideRequest{item.client, item.sequence, decision, {}}));
      }
    }
  }
  // Everybody else works as ever.
  void expect_all_well() {
    EXPECT_EQ(*run(good_->get(table_, "kept")), "value");
    ASSERT_TRUE(run(good_->put(table_, "kept", "value")));
    for (const char* key : {"r", "a", "b"}) {
      const Status inserted = run(good_->insert(table_, key, std::string(10, '1')));
      ASSERT_TRUE(inserted) << key << ": " << inserted.error().to_string();
      ASSERT_TRUE(run(good_->erase(table_, key)));
    }
    Transaction tx = good_->begin();
    TransactionScan scan = tx.scan(ordered_, {});
    const auto page = run(scan.next());
    EXPECT_TRUE(page) << page.error().to_string();
  }
  uint64_t stat(std::string_view name) {
    const std::string text = server_->stat_json();
    const size_t at = text.find("\"" + std::string(name) + "\": ");
    PMSTORE_CHECK(at != std::string::npos, "the server reports it");
    return std::strtoull(text.c_str() + at + name.size() + 4, nullptr, 10);
  }

  std::unique_ptr<Client> good_;
  TableId table_{};
  TableId ordered_{};
  std::shared_ptr<fabric::Device> device_;
  std::shared_ptr<internal::SessionBook> book_ = std::make_shared<internal::SessionBook>();
  SessionRef session_;
  uint64_t sequences_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Locks, StoreCalls,
                         ::testing::Values(LockDiscipline::kCpu, LockDiscipline::kRnic),
                         [](const auto& param) {
                           return std::string(discipline_name(param.param));
                         });

bool needs_rnic(Method method) {
  return method == Method::kReserve || method == Method::kRelease || method == Method::kApply ||
         method == Method::kTruncate;
}

bool needs_cpu(Method method) {
  return method == Method::kLock || method == Method::kPrepare || method == Method::kDecide ||
         method == Method::kVote || method == Method::kUndecided;
}

TEST_P(StoreCalls, WhatIsWellFormedIsAnswered) {
  for (const Method method : kMethods) {
    SCOPED_TRACE(static_cast<int>(method));
    const auto answer = call(method, well_formed(method));
    if ((needs_rnic(method) && !rnic()) || (needs_cpu(method) && rnic())) {
      ASSERT_FALSE(answer);
      EXPECT_EQ(answer.code(), ErrorCode::kUnsupported);
    } else {
      EXPECT_TRUE(answer) << answer.error().to_string();
    }
    EXPECT_TRUE(hostile().usable());
  }
  EXPECT_EQ(stat("malformed"), 0u);
}

TEST_P(StoreCalls, WhatIsCutShortOrDrawnOutCostsTheConnectionAndLeavesNothing) {
  for (const Method method : kMethods) {
    if ((needs_rnic(method) && !rnic()) || (needs_cpu(method) && rnic())) continue;
    const Bytes whole = well_formed(method);
    for (size_t bytes = 0; bytes <= whole.size() + 9; ++bytes) {
      // A list of slots, and one that is longer, are well formed.
      if (bytes == whole.size() || (method == Method::kRelease && bytes % 8 == 0)) continue;
      SCOPED_TRACE(::testing::Message() << "method " << static_cast<int>(method) << " " << bytes);
      if (rnic()) {
        ASSERT_TRUE(call(Method::kReserve, well_formed(Method::kReserve)));
      }
      Bytes body = well_formed(method);
      body.resize(bytes);
      const uint64_t malformed = stat("malformed");
      const auto answer = call(method, body);
      ASSERT_FALSE(answer);
      EXPECT_TRUE(answer.code() == ErrorCode::kProtocol ||
                  answer.code() == ErrorCode::kDisconnected)
          << answer.error().to_string();
      EXPECT_EQ(stat("malformed"), malformed + 1);
      let_time_pass(1'000'000);
      EXPECT_TRUE(session_->connection().broken());
      expect_all_well();
    }
  }
}

TEST_P(StoreCalls, APrefixThatIsNoneOrOfAnotherEpochIsRefused) {
  for (size_t bytes = 0; bytes < sizeof(RequestPrefix); ++bytes) {
    Bytes request = message(hostile().prefix());
    request.resize(bytes);
    EXPECT_FALSE(send(hostile(), static_cast<uint16_t>(Method::kReserve), request));
    let_time_pass(1'000'000);
    EXPECT_TRUE(session_->connection().broken()) << bytes;
  }
  Bytes request = message(RequestPrefix{hostile().prefix().epoch - 1});
  const Bytes body = well_formed(Method::kReserve);
  request.insert(request.end(), body.begin(), body.end());
  EXPECT_EQ(send(hostile(), static_cast<uint16_t>(Method::kReserve), request).code(),
            ErrorCode::kDisconnected);
  expect_all_well();
}

// `commit`: a request for that method.
Bytes random_lock(base::Random& random, const Bytes& commit) {
  const auto participants = static_cast<uint16_t>(random.below(3));
  Bytes body = message(LockRequest{participants, {}});
  for (uint16_t i = 0; i < participants; ++i) {
    const ClientId client{random.next(), random.next()};
    const Bytes other =
        message(ShardParticipant{random.next(), client, random.next(), random.next(), 0, 0, 0});
    body.insert(body.end(), other.begin(), other.end());
  }
  body.insert(body.end(), commit.begin(), commit.end());
  return body;
}

// A well-formed request with other numbers in it.
Bytes random_request(base::Random& random, Method method, const std::vector<uint64_t>& slots,
                     TableId table, uint64_t sequence) {
  const auto key = [&] { return std::string(1, static_cast<char>('a' + random.below(3))); };
  const auto any = [&]() -> uint64_t {
    switch (random.below(5)) {
      case 0: return random.next();
      case 1: return random.below(16) * 256;
      case 2: return UINT64_MAX - random.below(300);
      case 3: return slots.empty() ? 64 : slots[random.below(slots.size())];
      default: return random.below(1 << 16);
    }
  };
  const auto small = static_cast<uint8_t>(random.below(4));
  const auto key_bytes = static_cast<uint16_t>(random.below(16) == 0 ? any() : small);
  const auto of = random.below(8) == 0 ? static_cast<uint16_t>(any()) : raw(table);
  switch (method) {
    case Method::kOpenTable:
      return with_text(message(OpenTableRequest{0, small, static_cast<TableKind>(random.below(3))}),
                       "tuv");
    case Method::kGet: return with_text(message(GetRequest{of, key_bytes, {}}), key());
    case Method::kScan: return message(ScanRequest{any(), static_cast<uint32_t>(any()), of, 0, {}});
    case Method::kCommit: {
      Bytes body = message(CommitRequest{sequence, small % 2u, small / 2u, small, 0});
      for (int i = 0; i < small; ++i) {
        const Bytes part = message(any(), any());
        body.insert(body.end(), part.begin(), part.end());
      }
      const auto kind = static_cast<WriteKind>(random.below(5));
      const Bytes write =
          with_text(message(WriteOp{any(), any(), 3, of, 1, kind, {}}), key() + "abc1234");
      body.insert(body.end(), write.begin(), write.end());
      return body;
    }
    case Method::kOutcome: return message(OutcomeRequest{any(), any()});
    case Method::kReserve:
      return with_text(message(ReserveRequest{any(),
                                              static_cast<uint32_t>(any()),
                                              of,
                                              1,
                                              static_cast<uint8_t>(random.below(2)),
                                              static_cast<uint8_t>(random.below(2)),
                                              {}}),
                       key());
    case Method::kRelease: return random.below(2) == 0 ? message(any()) : message(any(), any());
    case Method::kApply: return message(ApplyRequest{any(), any()});
    case Method::kTruncate: return message(TruncateRequest{any(), any()});
    case Method::kDropTable: return with_text(message(DropTableRequest{of, small, 0}), "uvw");
    case Method::kTableUsage: return message(TableUsageRequest{any(), of, any() % 2 == 0, {}});
    case Method::kRegions: {
      const auto kind = static_cast<RegionKind>(random.below(kRegionKinds + 2));
      return message(RegionsRequest{static_cast<uint32_t>(any()), kind, {}, any()});
    }
    case Method::kRangeScan: {
      const auto backwards = static_cast<uint8_t>(random.below(3));
      const RangeScanRequest request{
          static_cast<uint32_t>(any()), static_cast<uint32_t>(any()), of, small, 1, backwards, {}};
      return with_text(message(request), "abcd");
    }
    case Method::kLock:
      return random_lock(random, random_request(random, Method::kCommit, slots, table, sequence));
    case Method::kPrepare: {
      const uint64_t earlier = sequence - 1 - random.below(3);
      return message(PrepareRequest{earlier, 0, small % 2u}, any(), any());
    }
    case Method::kDecide:
      return message(DecideRequest{{any(), any()}, any(), static_cast<Decision>(small), {}});
    case Method::kVote: return message(VoteRequest{{any(), any()}, any()});
    case Method::kUndecided: return message(UndecidedRequest{{any(), any()}, any()});
    default: return {};
  }
}

void mutate(base::Random& random, Bytes& body) {
  switch (random.below(4)) {
    case 0: body.resize(random.below(body.size() + 1)); break;
    case 1: body.resize(body.size() + random.below(40)); break;
    case 2:
      if (!body.empty()) body[random.below(body.size())] = static_cast<std::byte>(random.next());
      break;
    default:
      for (std::byte& each : body) each = static_cast<std::byte>(random.next());
  }
}

TEST_P(StoreCalls, NonsenseHarmsNobody) {
  base::Random random(31);
  std::vector<uint64_t> slots;
  const uint64_t total = fuzz::rounds(20'000);
  uint64_t answered = 0;
  for (uint64_t round = 0; round < total && !HasFailure(); ++round) {
    const Method method = kMethods[random.below(std::size(kMethods))];
    Bytes body;
    if (random.below(3) == 0) {
      body = well_formed(method);
    } else {
      const TableId of = random.below(2) == 0 ? table_ : ordered_;
      body = random_request(random, method, slots, of, next_sequence());
    }
    // Of nonsense that commits, "kept" must not be part, nor its table of what is dropped.
    const bool harms =
        method == Method::kCommit || method == Method::kDropTable || method == Method::kLock;
    if (random.below(3) == 0 && !harms) mutate(random, body);
    const auto answer = call(method, body);
    answered += answer ? 1 : 0;
    if (answer && method == Method::kReserve && answer->size() == sizeof(ReserveReply)) {
      uint64_t slot = 0;
      std::memcpy(&slot, answer->data(), sizeof slot);
      slots.push_back(slot);
      if (slots.size() > 50) slots.erase(slots.begin());
    }
    if (random.below(20) == 0) session_ = {};
    if (random.below(500) != 0) continue;
    // What it has reserved goes with it; what it has committed itself, and the new table, stay.
    session_ = {};
    let_time_pass(1'000'000);
    abort_undecided();
    for (const char* key : {"r", "a", "b", "c", "l", "m", "n", "o", "p", "q", "s", "t"}) {
      for (const TableId of : {table_, ordered_}) (void)run(good_->erase(of, key));
    }
    expect_all_well();
    EXPECT_EQ(stat("live_records"), 1u);
  }
  EXPECT_GT(answered, total / 10) << "the generator is refused too often to be worth anything";
  EXPECT_GT(stat("malformed"), total / 100);
}

}  // namespace
}  // namespace pmstore
