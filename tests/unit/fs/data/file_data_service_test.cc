// FileDataService against raw messages, and quarantine against a client that ignores everything.
#include "fs/file_data_service.h"

#include <gtest/gtest.h>

#include <cstring>

#include "fabric/local/fault_injection.h"
#include "fabric/message.h"
#include "persist/remote_writer.h"
#include "tests/unit/fs/data/file_data_fixture.h"

namespace pmstore::fs {
namespace {

using service::Link;

class FileDataServiceTest : public FileDataTest {
 protected:
  FileDataServiceTest() : FileDataTest(persist::Domain::kMemoryController) {}

  Result<std::unique_ptr<Link>> try_link(std::span<const std::byte> body, uint64_t client = 1) {
    service::LinkOptions options;
    options.service = service::ServiceId::kFileData;
    options.secret = ClientSecret::of_number(client);
    return run(Link::open(*device_, uri_, options, body));
  }
  std::unique_ptr<Link> link(uint64_t client = 1) {
    const FileDataHello hello{0, client};
    auto made = try_link(service::bytes_of(hello), client);
    EXPECT_TRUE(made) << made.error().to_string();
    return std::move(made.value());
  }
  static DataWritePiece piece_of(const MapExtent& extent, uint64_t offset, uint32_t bytes) {
    return {extent.place.offset + offset, extent.place.offset, extent.generation, bytes, 0};
  }
  static std::vector<std::byte> request(const DataWriteRequest& head,
                                        const std::vector<DataWritePiece>& pieces,
                                        size_t data_bytes) {
    std::vector<std::byte> message(4096);
    fabric::MessageWriter writer(message);
    writer.put(head);
    for (const DataWritePiece& piece : pieces) writer.put(piece);
    message.resize(writer.bytes());
    message.resize(writer.bytes() + data_bytes, std::byte{0xee});
    return message;
  }
  static std::vector<std::byte> request(const std::vector<DataWritePiece>& pieces,
                                        size_t data_bytes) {
    return request({static_cast<uint32_t>(pieces.size()), 0}, pieces, data_bytes);
  }
  Result<DataWriteReply> call(Link& link, const std::vector<std::byte>& body,
                              uint16_t method = kDataWriteMethod) {
    PMSTORE_TRY(const auto reply, run(link.call(method, body, sizeof(DataWriteReply))));
    DataWriteReply said;
    EXPECT_EQ(reply.bytes().size(), sizeof said);
    std::memcpy(&said, reply.bytes().data(), sizeof said);
    return said;
  }
};

TEST_F(FileDataServiceTest, AHelloThatDoesNotDecodeIsRefused) {
  const std::byte few[3] = {};
  EXPECT_EQ(try_link(few).code(), ErrorCode::kProtocol);
  const FileDataHello nobody{0, 0};
  EXPECT_EQ(try_link(service::bytes_of(nobody)).code(), ErrorCode::kProtocol);
  const FileDataHello elsewhere{99, 1};
  EXPECT_EQ(try_link(service::bytes_of(elsewhere)).code(), ErrorCode::kNotFound);
  EXPECT_EQ(service_->sessions(), 0u);
}

TEST_F(FileDataServiceTest, SessionsAreBounded) {
  std::vector<std::unique_ptr<Link>> links;
  for (uint64_t client = 1; client <= kMaxSessions; ++client) links.push_back(link(client));
  const FileDataHello hello{0, 1};
  EXPECT_EQ(try_link(service::bytes_of(hello), 99).code(), ErrorCode::kBackPressure);
  // One that comes back has its place.
  std::vector<ClientId> gone;
  service_->on_client_gone = [&](const ClientId& client) { gone.push_back(client); };
  const auto again = link(1);
  EXPECT_EQ(service_->sessions(), kMaxSessions);
  EXPECT_TRUE(gone.empty()) << "it is not gone in between";
  service_->on_client_gone = nullptr;
}

TEST_F(FileDataServiceTest, ANewSessionOfAnInstanceEndsTheOneBefore) {
  const FileDataHello one{0, 1};
  const FileDataHello other{0, 2};
  const auto first = try_link(service::bytes_of(one));
  const auto second = try_link(service::bytes_of(other));
  EXPECT_EQ(service_->sessions(), 2u);
  const auto again = try_link(service::bytes_of(one));
  EXPECT_EQ(service_->sessions(), 2u);
  let_time_pass(1);
  EXPECT_TRUE((*first)->connection().broken());
  EXPECT_FALSE((*second)->connection().broken());
  EXPECT_FALSE((*again)->connection().broken());
  // Another client's has nothing to do with it, whatever number it draws.
  const auto foreign = try_link(service::bytes_of(one), 2);
  EXPECT_EQ(service_->sessions(), 3u);
}

TEST_F(FileDataServiceTest, AllSessionsOfAClientEnd) {
  std::vector<std::unique_ptr<Link>> links;
  for (uint64_t instance = 1; instance <= 3; ++instance) {
    const FileDataHello hello{0, instance};
    links.push_back(try_link(service::bytes_of(hello)).value());
  }
  const auto other = link(2);
  EXPECT_EQ(service_->clients().size(), 2u);
  EXPECT_EQ(service_->end_sessions(ClientSecret::of_number(1).id(), SessionEnd::kSilent), 3u);
  EXPECT_EQ(service_->clients(), std::vector{ClientSecret::of_number(2).id()});
  EXPECT_EQ(service_->end_sessions(ClientSecret::of_number(1).id(), SessionEnd::kSilent), 0u);
  let_time_pass(1);
  for (const auto& each : links) EXPECT_TRUE(each->connection().broken());
  EXPECT_FALSE(other->connection().broken());
}

TEST_F(FileDataServiceTest, WhatIsMalformedCostsTheConnectionAndStoresNothing) {
  const MapExtent extent = allocate(1);
  const DataWritePiece good = piece_of(extent, 0, 64);
  DataWritePiece empty = good;
  empty.bytes = 0;
  DataWritePiece reserved = good;
  reserved.reserved = 1;
  DataWritePiece crooked = good;
  crooked.extent += 8;
  const std::vector<std::vector<std::byte>> wrong = {
      {},
      request({}, 0),
      request({1, 1}, {good}, 64),
      request({UINT32_MAX, 0}, {good}, 64),
      request(std::vector(kMaxDataPieces + 1, good), 64 * (kMaxDataPieces + 1)),
      request({2, 0}, {good}, 0),
      request({good}, 63),
      request({good}, 65),
      request({empty}, 0),
      request({reserved}, 64),
      request({crooked}, 64),
  };
  for (size_t i = 0; i < wrong.size(); ++i) {
    const auto hostile = link();
    EXPECT_EQ(call(*hostile, wrong[i]).code(), ErrorCode::kProtocol) << i;
    let_time_pass(1);
    EXPECT_TRUE(hostile->connection().broken()) << i;
  }
  const auto hostile = link();
  EXPECT_EQ(call(*hostile, request({good}, 64), kDataWriteMethod + 1).code(), ErrorCode::kProtocol);
  const auto other = link();
  EXPECT_EQ(run(other->rpc().call(persist::kPersistWriteMethod, wrong[3], 0)).code(),
            ErrorCode::kProtocol);
  EXPECT_EQ(service_->counters().malformed, wrong.size() + 2);
  EXPECT_EQ(stored(extent, 0, 64), std::vector<std::byte>(64));
}

TEST_F(FileDataServiceTest, WhatIsOutsideIsRefusedAsAWhole) {
  const MapExtent extent = allocate(2);
  const DataWritePiece good = piece_of(extent, 0, 64);
  DataWritePiece far = good;
  far.offset = space_->total_bytes() - 63;
  DataWritePiece beyond = good;
  beyond.offset = UINT64_MAX - 10;
  DataWritePiece before = good;
  before.extent += kUnitBytes;
  const auto client = link();
  for (const DataWritePiece& bad : {far, beyond, before}) {
    EXPECT_EQ(call(*client, request({good, bad}, 128)).code(), ErrorCode::kAccess);
  }
  EXPECT_FALSE(client->connection().broken());
  EXPECT_EQ(stored(extent, 0, 64), std::vector<std::byte>(64));
  EXPECT_EQ(call(*client, request({good, good}, 128))->stale, 0u);
  EXPECT_EQ(stored(extent, 0, 64), std::vector<std::byte>(64, std::byte{0xee}));
}

TEST_F(FileDataServiceTest, OneStalePieceAndNothingIsStored) {
  const MapExtent extent = allocate(1);
  const MapExtent other = allocate(1);
  change(other);
  const auto client = link();
  const auto body = request({piece_of(extent, 0, 64), piece_of(other, 0, 64)}, 128);
  EXPECT_EQ(call(*client, body)->stale, 1u);
  EXPECT_EQ(stored(extent, 0, 64), std::vector<std::byte>(64));
  EXPECT_EQ(stored(other, 0, 64), std::vector<std::byte>(64));
}

// ---- group commit ----

TEST_F(FileDataServiceTest, MalformedRangesCostTheConnection) {
  const auto made = link();
  const std::vector<std::byte> nothing(16);
  EXPECT_EQ(run(made->call(kDataPersistMethod, nothing, 0)).code(), ErrorCode::kProtocol);
  EXPECT_EQ(service_->counters().malformed, 1u);
}

TEST_F(FileDataServiceTest, RangesOutsideOfTheAreaAreRefused) {
  const auto made = link();
  const struct {
    persist::PersistRangesHeader header;
    persist::RemoteRange range;
  } request{{.ranges = 1}, {space_->total_bytes(), 1}};
  const auto refused = run(made->call(kDataPersistMethod, service::bytes_of(request), 0));
  EXPECT_EQ(refused.code(), ErrorCode::kAccess);
  EXPECT_EQ(service_->clients().size(), 1u);
}

class FileDataGroups : public FileDataTest, public testing::WithParamInterface<persist::Domain> {
 protected:
  FileDataGroups() : FileDataTest(GetParam()) {}
};

INSTANTIATE_TEST_SUITE_P(Domains, FileDataGroups,
                         testing::Values(persist::Domain::kNone,
                                         persist::Domain::kMemoryController),
                         [](const auto& tested) {
                           return std::string(persist::domain_name(tested.param));
                         });

TEST_P(FileDataGroups, WritesOfOneTurnShareTheDrainThatTakesLong) {
  constexpr size_t kWrites = 16;
  const auto data = open();
  const MapExtent extent = allocate(kWrites);
  const auto bytes = some(4096);
  const persist::MemoryStats before = pool_.pool().memory().stats();
  std::vector<Task<Result<DataOutcome>>> tasks;
  for (size_t i = 0; i < kWrites; ++i) {
    std::vector<WritePiece> pieces{{extent, i * kUnitBytes, bytes}};
    tasks.push_back(data->write(data->session(), std::move(pieces)));
    tasks.back().start();
  }
  for (size_t i = 0; i < kWrites; ++i) {
    while (!tasks[i].done()) executor_.run_once();
    EXPECT_EQ(tasks[i].take(), DataOutcome::kDone);
    EXPECT_EQ(stored(extent, i * kUnitBytes, 4096), bytes);
  }
  const uint64_t drains = pool_.pool().memory().stats().drains - before.drains;
  if (GetParam() == persist::Domain::kNone) {
    EXPECT_LE(drains, 2u);
  } else {
    EXPECT_EQ(drains, kWrites);
  }
}

// Its answer comes before the end of the session.
TEST_P(FileDataGroups, RangesAreFlushedAndDrainedBeforeTheAnswer) {
  const auto data = open();
  const MapExtent extent = allocate(2);
  const persist::Memory& memory = space_->area().memory();
  const persist::MemoryStats before = memory.stats();
  const std::vector<persist::RemoteRange> ranges{{extent.place.offset, 4096},
                                                 {extent.place.offset + kUnitBytes, 64}};
  EXPECT_EQ(run(data->persist(data->start_of(data->session()), ranges)), PersistOutcome::kDurable);
  const persist::MemoryStats after = memory.stats();
  EXPECT_EQ(after.drains - before.drains, 1u);
  const bool has_lines = GetParam() == persist::Domain::kMemoryController;
  EXPECT_EQ(after.flushed_lines - before.flushed_lines, has_lines ? 65u : 0u);
  EXPECT_EQ(after.msyncs - before.msyncs, has_lines ? 0u : 1u);
}

TEST_P(FileDataGroups, WhatWaitsForADrainIsAnsweredBeforeItsSessionEnds) {
  const auto data = open();
  const MapExtent extent = allocate(1);
  const auto bytes = some(64);
  std::vector<WritePiece> pieces{{extent, 0, bytes}};
  auto writing = data->write(data->session(), pieces);
  writing.start();
  const uint64_t calls = service_->counters().calls;
  while (service_->counters().calls == calls) executor_.run_once();
  service_->end_sessions(options_.secret.id(), SessionEnd::kSilent);
  EXPECT_EQ(stored(extent, 0, 64), bytes);
  while (!writing.done()) executor_.run_once();
}

// ---- quarantine ----

// The simplest gate: clients that were there confirm, or are ended after two leases.
class ConfirmedGate final : public QuarantineGate {
 public:
  ConfirmedGate(base::Executor& executor, FileDataService& service, uint64_t patience_ns)
      : executor_(executor), service_(service), patience_ns_(patience_ns) {}
  Task<Status> closed(AreaRange) override {
    const uint64_t until_ns = executor_.now_ns() + patience_ns_;
    for (const ClientId& client : service_.clients()) {
      while (service_.has_session(client) && executor_.now_ns() < until_ns) {
        co_await executor_.sleep_for(1'000'000);
      }
      fenced += service_.end_sessions(client, SessionEnd::kSilent);
    }
    co_return Status{};
  }
  size_t fenced = 0;

 private:
  base::Executor& executor_;
  FileDataService& service_;
  const uint64_t patience_ns_;
};

class Quarantine : public FileDataTest {
 protected:
  Quarantine() : gate_(executor_, *service_, 2 * kLeaseMs * 1'000'000) { space_->set_gate(gate_); }
  ConfirmedGate gate_;
};

// It pings, so its lease does not end it, and goes on writing by its old map.
TEST_F(Quarantine, AClientThatIgnoresTheNewsIsFencedBeforeItsUnitsAreFree) {
  const auto data = open();
  const MapExtent extent = allocate(1);
  const auto bytes = some(4096);
  EXPECT_EQ(write(*data, extent, 0, bytes), DataOutcome::kDone);
  change(extent);
  auto cleaning = space_->clean(extent.place);
  cleaning.start();
  for (uint32_t ms = 0; ms < 2 * kLeaseMs - 5; ms += 10) {
    EXPECT_EQ(write(*data, extent, 0, bytes), DataOutcome::kStaleMap)
        << "it lands, and is not acknowledged";
    EXPECT_EQ(stored(extent, 0, 4096), bytes);
    EXPECT_FALSE(cleaning.done());
    let_time_pass(10);
  }
  while (!cleaning.done()) executor_.run_once();
  EXPECT_TRUE(cleaning.take());
  EXPECT_EQ(gate_.fenced, 1u);
  EXPECT_EQ(stored(extent, 0, 4096), std::vector<std::byte>(4096));
  space_->release(extent.place);
  // Its next access is in a new session, where the old map is not used.
  const MapExtent next = allocate(1);
  EXPECT_EQ(next.place, extent.place);
  std::vector<WritePiece> pieces{{extent, 0, bytes}};
  const auto late = run(data->write(data->session(), pieces));
  EXPECT_FALSE(late.has_value() && *late == DataOutcome::kDone);
  EXPECT_EQ(stored(next, 0, 4096), std::vector<std::byte>(4096));
}

TEST_F(Quarantine, AClientThatGoesEndsIt) {
  auto data = open();
  const MapExtent extent = allocate(1);
  auto cleaning = space_->clean(extent.place);
  cleaning.start();
  let_time_pass(10);
  EXPECT_FALSE(cleaning.done());
  data.reset();
  let_time_pass(2);
  EXPECT_TRUE(cleaning.done());
  EXPECT_EQ(gate_.fenced, 0u);
}

class FileDataInAFile : public FileDataTest {
 protected:
  FileDataInAFile() : FileDataTest(persist::Domain::kNone) {}
};

// Of a WRITE, a READ of the word, and the message.
TEST_F(FileDataInAFile, ALargeWriteIsNotSaidToBeDoneWithoutEachOfItsRequests) {
  const auto data = open();
  const MapExtent extent = allocate(20);
  const auto bytes = some(1 << 20);
  for (uint64_t request = 1; request <= 3; ++request) {
    fabric::FailNthRequest breaks(request, fabric::FaultSide::kConnector,
                                  {fabric::Fault::kBreakBefore, 0});
    const fabric::ScopedFaultInjector installed(breaks);
    EXPECT_EQ(write(*data, extent, 0, bytes), DataOutcome::kStaleMap) << request;
    EXPECT_TRUE(breaks.fired());
  }
  EXPECT_EQ(write(*data, extent, 0, bytes), DataOutcome::kDone);
  EXPECT_EQ(stored(extent, 0, bytes.size()), bytes);
}

}  // namespace
}  // namespace pmstore::fs
