// A server of a pool with a log area: logs beside tables, on the same listener.
#include <cstring>

#include "fabric/message.h"
#include "log/log_check.h"
#include "log/log_protocol.h"
#include "log/log_store.h"
#include "service/link.h"
#include "tests/unit/pmstore/server_fixture.h"

namespace pmstore {
namespace {

using testing::ServerFixture;

class ServerLogs : public ServerFixture {
 protected:
  void SetUp() override {
    format_.log_bytes = 1 << 20;
    ServerFixture::SetUp();
  }

  struct LogSession {
    std::unique_ptr<fabric::Device> device;
    std::unique_ptr<service::Link> link;
  };
  Task<Result<std::unique_ptr<LogSession>>> open_session(uint64_t client = 5) {
    auto session = std::make_unique<LogSession>();
    PMSTORE_CO_TRY(session->device, fabric::open_device(fabric::Scheme::kLocal, executor_));
    service::LinkOptions options;
    options.service = service::ServiceId::kLog;
    options.secret = ClientSecret::of_number(client);
    const log::SessionHello hello{1};
    PMSTORE_CO_TRY(session->link, co_await service::Link::open(*session->device, uri_, options,
                                                               service::bytes_of(hello)));
    log::LogSessionAnswer answer;
    EXPECT_GE(session->link->body().size(), sizeof answer);
    std::memcpy(&answer, session->link->body().data(), sizeof answer);
    EXPECT_EQ(session->link->body().size(),
              sizeof answer + answer.extents * sizeof(log::NamedExtent));
    EXPECT_EQ(answer.extents, format_.log_bytes == 0 ? 0u : 1u);
    co_return std::move(session);
  }
  Result<uint64_t> create_log(LogSession& session, std::string_view name,
                              uint64_t bytes = 64 << 10) {
    std::vector<std::byte> request(sizeof(service::RequestPrefix) + sizeof(log::CreateRequest) +
                                   name.size());
    fabric::MessageWriter writer(request);
    writer.put(session.link->prefix());
    writer.put(log::CreateRequest{
        bytes, log::FullPolicy::kBackPressure, static_cast<uint8_t>(name.size()), 0, 0, {}});
    writer.put_bytes(name);
    PMSTORE_TRY(auto reply,
                run(session.link->rpc().call(static_cast<uint16_t>(log::LogMethod::kCreate),
                                             request, sizeof(log::LogReply))));
    log::LogReply made{};
    std::memcpy(&made, reply.bytes().data(), sizeof made);
    return made.id;
  }
  Task<Status> delete_log(LogSession& session, uint64_t log) {
    std::vector<std::byte> request(sizeof(service::RequestPrefix) + sizeof(log::LogRequest));
    fabric::MessageWriter writer(request);
    writer.put(session.link->prefix());
    writer.put(log::LogRequest{log});
    const auto reply = co_await session.link->rpc().call(
        static_cast<uint16_t>(log::LogMethod::kDelete), request, 0);
    co_return reply ? Status{} : Status(reply.error());
  }
  Status append(LogSession& session, uint64_t log, std::string_view payload) {
    std::vector<std::byte> request(256);
    fabric::MessageWriter writer(request);
    writer.put(session.link->prefix());
    writer.put(log::AppendRequest{log, ++appends_, 1, 0});
    writer.put(log::AppendItem{static_cast<uint32_t>(payload.size())});
    writer.put_bytes(payload);
    request.resize(writer.bytes());
    auto reply = run(session.link->rpc().call(static_cast<uint16_t>(log::LogMethod::kAppend),
                                              request, sizeof(log::AppendReply)));
    return reply ? Status{} : reply.error();
  }
  uint64_t appends_ = 0;
};

class ServerLogsManyClients : public ServerLogs {
 protected:
  static constexpr uint32_t kClients = 300;
  ServerLogsManyClients() { server_options_.most_clients = kClients; }
};

TEST_F(ServerLogsManyClients, LogsHaveAsManyClientsAsTheServerAllows) {
  std::vector<std::unique_ptr<LogSession>> open;
  for (uint64_t client = 1; client <= kClients; ++client) {
    auto session = run(open_session(client));
    ASSERT_TRUE(session) << client << ": " << session.error().to_string();
    open.push_back(std::move(*session));
  }
  EXPECT_EQ(run(open_session(kClients + 1)).code(), ErrorCode::kBackPressure);
  open.pop_back();
  let_time_pass(1'000'000);
  EXPECT_TRUE(run(open_session(kClients + 1)));
}

TEST_F(ServerLogs, LogsAndTablesAreServedTogether) {
  auto client = connect(1);
  const TableId table = *run(client->open_table("t", true));
  ASSERT_TRUE(run(client->put(table, "key", "value")));
  auto session = run(open_session());
  ASSERT_TRUE(session) << session.error().to_string();
  const auto log = create_log(**session, "orders");
  ASSERT_TRUE(log) << log.error().to_string();
  ASSERT_TRUE(append(**session, *log, "one"));
  EXPECT_NE(server_->stat_json().find(R"("logs": {"logs": 1, "sessions_total": 1, )"
                                      R"("producers_total": 0, "fenced": 0, "shared_appends": 1, )"
                                      R"("group_commits": 1, "malformed": 0, )"),
            std::string::npos)
      << server_->stat_json();
  EXPECT_TRUE(server_->damaged_logs().empty());
  session->reset();
  client.reset();
  ASSERT_TRUE(run(server_->stop()));
  restart();
  const auto checked = log::check_logs(*pool_);
  ASSERT_TRUE(checked);
  EXPECT_EQ(checked->logs, 1u);
  EXPECT_EQ(checked->entries, 1u);
  client = connect(1);
  EXPECT_EQ(run(client->get(*run(client->open_table("t", false)), "key")), "value");
  client.reset();
}

TEST_F(ServerLogs, CrashedServerKeepsWhatWasAcknowledged) {
  auto session = run(open_session());
  ASSERT_TRUE(session);
  const auto log = create_log(**session, "orders");
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(append(**session, *log, "entry"));
  server_.reset();
  session->reset();
  restart();
  EXPECT_EQ(log::check_logs(*pool_)->entries, 5u);
}

TEST_F(ServerLogs, StopEndsTheSessions) {
  auto session = run(open_session());
  ASSERT_TRUE(session);
  ASSERT_TRUE(run(server_->stop()));
  let_time_pass(1'000'000);
  EXPECT_TRUE((*session)->link->connection().broken());
  EXPECT_EQ(run(open_session()).code(), ErrorCode::kDisconnected);
  session->reset();
}

class ServerWithoutLogs : public ServerLogs {
 protected:
  void SetUp() override { ServerFixture::SetUp(); }
};

TEST_F(ServerWithoutLogs, TheFirstLogIsMadeWhenAClientAsks) {
  EXPECT_FALSE(log::LogStore::is_in(*pool_));
  const auto area = [this] { return server_->stat_json().find(R"("area_bytes": 0)"); };
  EXPECT_NE(area(), std::string::npos) << server_->stat_json();
  auto session = run(open_session());
  ASSERT_TRUE(session) << session.error().to_string();
  const auto log = create_log(**session, "orders");
  ASSERT_TRUE(log) << log.error().to_string();
  ASSERT_TRUE(append(**session, *log, "one"));
  EXPECT_EQ(area(), std::string::npos);
  session->reset();
  ASSERT_TRUE(run(server_->stop()));
  restart();
  EXPECT_EQ(log::check_logs(*pool_)->entries, 1u);
}

// In records and logs, by turns.
TEST_F(ServerWithoutLogs, RecordsUseTheSpaceOfADeletedLog) {
  auto client = connect(1);
  const TableId table = *run(client->open_table("t", true));
  auto session = run(open_session());
  ASSERT_TRUE(session);
  const uint64_t bytes = pool_->largest_free_extent() - (128 << 10);
  const auto log = create_log(**session, "all", bytes);
  ASSERT_TRUE(log) << log.error().to_string();
  const std::string value(8 << 10, 'v');
  Status put;
  size_t puts = 0;
  while (put) put = run(client->put(table, "key" + std::to_string(puts++), value));
  EXPECT_EQ(put.code(), ErrorCode::kFull) << put.error().to_string();
  ASSERT_TRUE(append(**session, *log, "the log goes on"));
  ASSERT_TRUE(run(delete_log(**session, *log)));
  const size_t beside_the_log = puts;
  put = run(client->put(table, "again", value));
  while (put) put = run(client->put(table, "key" + std::to_string(puts++), value));
  EXPECT_GT((puts - beside_the_log) * value.size(), bytes / 2);
  session->reset();
  client.reset();
}

// What a pool of `bytes` gives to logs.
uint64_t log_area_of(uint64_t bytes, const FormatOptions& format) {
  crash::PageBytes region(bytes);
  auto pool =
      persist::Pool::in_region(region.bytes(), persist::Domain::kMemoryController, true).value();
  const Status formatted = format_store(*pool, format);
  EXPECT_TRUE(formatted) << formatted.error().to_string();
  for (const persist::Extent& extent : pool->info().extents) {
    if (extent.kind == persist::ExtentKind::kLog) return extent.bytes;
  }
  return 0;
}

TEST(FormatLogs, APoolGivesLogsWhatItIsToldTo) {
  FormatOptions format;
  format.rings = 2;
  EXPECT_EQ(log_area_of(64u << 20, format), 0u);
  format.log_bytes = 3u << 20;
  EXPECT_EQ(log_area_of(16u << 20, format), 3u << 20);
}

TEST(FormatLogs, WhatDoesNotFitIsRefused) {
  crash::PageBytes region(16u << 20);
  FormatOptions format;
  format.rings = 2;
  for (const auto& [bytes, code] :
       {std::pair<uint64_t, ErrorCode>{4096, ErrorCode::kInvalidArgument},
        {64u << 20, ErrorCode::kFull}}) {
    auto pool =
        persist::Pool::in_region(region.bytes(), persist::Domain::kMemoryController, true).value();
    format.log_bytes = bytes;
    const Status formatted = format_store(*pool, format);
    ASSERT_FALSE(formatted);
    EXPECT_EQ(formatted.code(), code) << formatted.error().to_string();
  }
}

}  // namespace
}  // namespace pmstore
