// Transactions of one write under lock discipline cpu, and requests outside transactions.
#include "tests/unit/pmstore/client_fixture.h"

namespace pmstore {
namespace {

class ClientWrite : public testing::FakeServerFixture {
 protected:
  void fail_commits_with(ErrorCode code) {
    server_->answer = [code](const auto& request, fabric::RpcCall call) {
      if (request.method == Method::kCommit) return call.reply_error(make_error(code, "because"));
      testing::FakeServer::answer_plainly(request, std::move(call));
    };
  }
};

TEST_F(ClientWrite, IsOneDoorbellOneRoundTripOneMessage) {
  connect();
  ASSERT_TRUE(put("warm", "up"));
  for (const int kind : {0, 1, 2}) {
    const auto spent = cost([&] {
      Status status = kind == 0   ? put("alice", "90")
                      : kind == 1 ? run(client_->insert(kTable, "alice", "90"))
                                  : run(client_->erase(kTable, "alice"));
      ASSERT_TRUE(status);
    });
    EXPECT_EQ(spent.doorbells, 1u);
    EXPECT_EQ(spent.work_requests, 1u);
    EXPECT_EQ(spent.round_trips, 1u);
    EXPECT_EQ(spent.server_messages, 1u);
  }
}

TEST_F(ClientWrite, RequestSaysWhatToDo) {
  connect();
  ASSERT_TRUE(put("alice", "ninety"));
  ASSERT_TRUE(run(client_->insert(kTable, "bob", "")));
  ASSERT_TRUE(run(client_->erase(kTable, "carol")));
  const WriteKind kinds[] = {WriteKind::kPut, WriteKind::kInsert, WriteKind::kErase};
  const char* keys[] = {"alice", "bob", "carol"};
  const char* values[] = {"ninety", "", ""};
  for (size_t i = 0; i < 3; ++i) {
    const testing::DecodedCommit commit(server_->requests[i].body);
    EXPECT_TRUE(commit.complete);
    EXPECT_EQ(server_->requests[i].body.size() % 8, 0u);
    EXPECT_EQ(commit.counts.sequence, 1 + i);
    ASSERT_EQ(commit.writes.size(), 1u);
    EXPECT_EQ(commit.writes[0].op.kind, kinds[i]);
    EXPECT_EQ(commit.writes[0].op.table, raw(kTable));
    EXPECT_EQ(commit.writes[0].op.expected_version, 0u);
    EXPECT_EQ(commit.writes[0].key, keys[i]);
    EXPECT_EQ(commit.writes[0].value, values[i]);
  }
}

TEST_F(ClientWrite, LargestRecordFits) {
  connect();
  ASSERT_TRUE(put(std::string(512, 'k'), std::string(1 << 20, 'v')));
  const testing::DecodedCommit commit(server_->requests[0].body);
  EXPECT_TRUE(commit.complete);
  EXPECT_EQ(commit.writes[0].value.size(), 1u << 20);
}

TEST_F(ClientWrite, ServersErrorsSayThatNothingHappened) {
  for (const ErrorCode code :
       {ErrorCode::kConflict, ErrorCode::kAlreadyExists, ErrorCode::kNotFound, ErrorCode::kFull,
        ErrorCode::kTooLarge, ErrorCode::kUnknownTable}) {
    fail_commits_with(code);
    connect();
    EXPECT_EQ(put("a", "1").code(), code);
    EXPECT_EQ(client_->session().reconnects, 0u);
  }
}

TEST_F(ClientWrite, LostConnectionLeavesTheCommitUnknownAndNamesIt) {
  options_.secret = ClientSecret::of_number(0xabc);
  server_->hello.next_sequence = 42;
  connect();
  server_->answer = [&](const auto&, fabric::RpcCall) { server_->break_connections(); };
  const Status status = put("a", "1");
  ASSERT_EQ(status.code(), ErrorCode::kCommitUnknown);
  EXPECT_NE(status.error().message.find(TxId{numbered::id_of(0xabc), 42}.to_string()),
            std::string::npos)
      << status.error().message;
}

TEST_F(ClientWrite, SilenceLeavesTheCommitUnknownAndEndsTheSession) {
  options_.call_timeout_ns = 100'000'000;
  connect();
  std::vector<fabric::RpcCall> kept;
  server_->answer = [&](const auto&, fabric::RpcCall call) { kept.push_back(std::move(call)); };
  EXPECT_EQ(put("a", "1").code(), ErrorCode::kCommitUnknown);
  server_->answer = nullptr;
  EXPECT_TRUE(put("b", "2"));
  EXPECT_EQ(server_->hellos.size(), 2u) << "the old session must be fenced before anything else";
}

TEST_F(ClientWrite, MalformedAnswerLeavesTheCommitUnknown) {
  connect();
  server_->answer = [](const auto&, fabric::RpcCall call) {
    const std::byte three[3] = {};
    call.reply(three);
  };
  EXPECT_EQ(put("a", "1").code(), ErrorCode::kCommitUnknown);
  server_->answer = nullptr;
  EXPECT_TRUE(put("b", "2"));
  EXPECT_EQ(server_->hellos.size(), 2u);
}

TEST_F(ClientWrite, UnknownOutcomeThatTheServerTellsEndsTheSession) {
  connect();
  server_->answer = [](const auto&, fabric::RpcCall call) {
    call.reply_error(make_error(ErrorCode::kCommitUnknown, "the log is not durable"));
  };
  EXPECT_EQ(put("a", "1").code(), ErrorCode::kCommitUnknown);
  server_->answer = nullptr;
  EXPECT_TRUE(put("b", "2"));
  EXPECT_EQ(server_->hellos.size(), 2u) << "only of an earlier session it can be asked about";
}

TEST_F(ClientWrite, OutcomeOfARunningTransactionIsUnknown) {
  options_.secret = ClientSecret::of_number(0xabc);
  connect();
  std::vector<fabric::RpcCall> kept;
  server_->answer = [&](const auto&, fabric::RpcCall call) { kept.push_back(std::move(call)); };
  Task<Status> writing = client_->put(kTable, "a", "1");
  writing.start();
  let_time_pass(1000);
  EXPECT_EQ(run(client_->outcome({numbered::id_of(0xabc), 1})).code(), ErrorCode::kCommitUnknown);
  EXPECT_EQ(server_->count(Method::kOutcome), 0u);
  const CommitReply committed{};
  kept[0].reply(std::as_bytes(std::span(&committed, 1)));
  let_time_pass(1000);
  ASSERT_TRUE(writing.done());
  EXPECT_TRUE(writing.take());
}

TEST_F(ClientWrite, OutcomeIsAskedOnANewConnection) {
  options_.secret = ClientSecret::of_number(0xabc);
  connect();
  server_->answer = [&](const auto&, fabric::RpcCall) { server_->break_connections(); };
  ASSERT_EQ(put("a", "1").code(), ErrorCode::kCommitUnknown);
  server_->answer = [&](const auto& request, fabric::RpcCall call) {
    ASSERT_EQ(request.method, Method::kOutcome);
    MessageReader reader(request.body);
    const auto asked = reader.get<OutcomeRequest>();
    EXPECT_EQ(asked.client, numbered::id_of(0xabc));
    EXPECT_EQ(asked.sequence, 1u);
    const OutcomeReply reply{Outcome::kAborted};
    call.reply(std::as_bytes(std::span(&reply, 1)));
  };
  EXPECT_EQ(*run(client_->outcome({numbered::id_of(0xabc), 1})), Outcome::kAborted);
  EXPECT_EQ(server_->hellos.size(), 2u);
}

TEST_F(ClientWrite, AnsweredOutcomeIsNeverUsedAgainAsANumber) {
  options_.secret =
      ClientSecret::of_number(0xabc);  // an earlier program of this name had used up to 50
  connect();
  server_->answer = [&](const auto& request, fabric::RpcCall call) {
    if (request.method != Method::kOutcome) {
      return testing::FakeServer::answer_plainly(request, std::move(call));
    }
    const OutcomeReply reply{Outcome::kAborted};
    call.reply(std::as_bytes(std::span(&reply, 1)));
  };
  EXPECT_EQ(*run(client_->outcome({numbered::id_of(0xabc), 50})), Outcome::kAborted);
  ASSERT_TRUE(put("a", "1"));
  EXPECT_EQ(testing::DecodedCommit(server_->requests.back().body).counts.sequence, 51u);
}

TEST_F(ClientWrite, ImpossibleOutcomeIsAProtocolError) {
  connect();
  server_->answer = [&](const auto&, fabric::RpcCall call) {
    const OutcomeReply reply{static_cast<Outcome>(9)};
    call.reply(std::as_bytes(std::span(&reply, 1)));
  };
  EXPECT_EQ(run(client_->outcome({1, 1})).code(), ErrorCode::kProtocol);
}

TEST_F(ClientWrite, TablesAreOpenedAndListed) {
  connect();
  server_->answer = [&](const auto& request, fabric::RpcCall call) {
    std::byte room[64];
    MessageWriter reply(room);
    if (request.method == Method::kOpenTable) {
      MessageReader reader(request.body);
      const auto open = reader.get<OpenTableRequest>();
      EXPECT_EQ(open.create, 1);
      EXPECT_EQ(reader.get_bytes(open.name_bytes), "accounts");
      EXPECT_TRUE(reader.complete());
      reply.put(OpenTableReply{9, 1});
    } else {
      reply.put(uint32_t{2});
      for (const std::string_view name : {"accounts", "b"}) {
        reply.put(static_cast<uint16_t>(name.size()));
        reply.put(static_cast<uint8_t>(name.size()));
        reply.put_bytes(name);
      }
    }
    call.reply(reply.message());
  };
  EXPECT_EQ(*run(client_->open_table("accounts", true)), TableId{9});
  const auto tables = *run(client_->list_tables());
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(tables[0].name, "accounts");
  EXPECT_EQ(tables[0].id, TableId{8});
  EXPECT_EQ(tables[1].name, "b");
  EXPECT_EQ(run(client_->open_table("")).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(run(client_->open_table(std::string(48, 't'))).code(), ErrorCode::kInvalidArgument);
}

TEST_F(ClientWrite, ScanGivesAPageAndWhereToGoOn) {
  connect();
  server_->answer = [&](const auto& request, fabric::RpcCall call) {
    MessageReader reader(request.body);
    EXPECT_EQ(reader.get<ScanRequest>().cursor, 77u);
    EXPECT_GE(call.reply_room().size(), kMaxValueBytes) << "the largest record must get through";
    std::byte room[128];
    MessageWriter reply(room);
    reply.put(ScanReply{78, 2, 0});
    for (const std::string_view key : {"a", "bc"}) {
      reply.put(ScanItem{3, static_cast<uint16_t>(key.size()), {}});
      reply.put_bytes(key);
      reply.put_bytes("val");
    }
    call.reply(reply.message());
  };
  const auto page = *run(client_->scan(kTable, 77));
  EXPECT_EQ(page.cursor, 78u);
  ASSERT_EQ(page.records.size(), 2u);
  EXPECT_EQ(page.records[1].key, "bc");
  EXPECT_EQ(page.records[1].value, "val");
}

TEST_F(ClientWrite, ScanWaitsForALockedRecord) {
  int locked = 3;
  server_->answer = [&](const auto&, fabric::RpcCall call) {
    if (locked-- > 0) return call.reply_error(make_error(ErrorCode::kConflict));
    const ScanReply reply{0, 0, 0};
    call.reply(std::as_bytes(std::span(&reply, 1)));
  };
  connect();
  const auto page = run(client_->scan(kTable, 0));
  ASSERT_TRUE(page) << page.error().to_string();
  EXPECT_LT(locked, 0);
}

TEST_F(ClientWrite, MalformedPagesAndListsAreProtocolErrors) {
  server_->answer = [&](const auto& request, fabric::RpcCall call) {
    const std::byte bytes[20] = {std::byte{9}, {}, {}, {}, {}, {}, {}, {}, std::byte{9}};
    const size_t count = request.method == Method::kOpenTable ? 3 : sizeof(bytes);
    call.reply(std::span(bytes).first(count));
  };
  connect();
  EXPECT_EQ(run(client_->scan(kTable, 0)).code(), ErrorCode::kProtocol);
  EXPECT_EQ(run(client_->list_tables()).code(), ErrorCode::kProtocol);
  EXPECT_EQ(run(client_->open_table("t")).code(), ErrorCode::kProtocol);
  EXPECT_EQ(client_->session().reconnects, 2u);
}

}  // namespace
}  // namespace pmstore
