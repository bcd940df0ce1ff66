// File data at several servers: striped, added, drained; servers that are away or start again.
#include "fs/file_data_protocol.h"
#include "fs/internal/data_server_records.h"
#include "fs/layout/fs_layout.h"
#include "pmstore/client.h"
#include "tests/unit/fs/service/data_servers_fixture.h"

namespace pmstore::fs {
namespace {

TEST_F(DataServersTest, ALargeFileIsStripedOverAllServersAndReadsAsItWasWritten) {
  for (int i = 0; i < 3; ++i) add();
  const auto file = world_.open(client(), "/striped");
  const std::string text = content(3'000'000);
  world_.write(*file, 0, text);
  EXPECT_EQ(world_.read(*file, 0, text.size()), text);
  const auto servers = servers_of(*file);
  ASSERT_GE(servers.size(), 12u);
  for (size_t i = 4; i < servers.size(); ++i) EXPECT_EQ(servers[i], servers[i - 4]) << i;
  for (uint16_t server = 0; server < 4; ++server) EXPECT_GE(extents_at(*file, server), 2u);
  // And by somebody who has no map of it.
  FileSystemOptions by_calls = world_.options();
  by_calls.one_sided_data = false;
  const auto other = world_.connect(by_calls);
  EXPECT_EQ(world_.read(*world_.open(*other, "/striped"), 1000, 2'000'000),
            text.substr(1000, 2'000'000));
}

TEST_F(DataServersTest, SmallFilesGoToOneServerEach) {
  for (int i = 0; i < 3; ++i) add();
  std::vector<size_t> files(4);
  for (int i = 0; i < 8; ++i) {
    const auto file = world_.open(client(), "/small" + std::to_string(i));
    world_.write(*file, 0, kSome);
    const auto servers = servers_of(*file);
    EXPECT_EQ(std::count(servers.begin(), servers.end(), servers.front()),
              static_cast<ptrdiff_t>(servers.size()));
    ++files[servers.front()];
  }
  EXPECT_EQ(files, (std::vector<size_t>{2, 2, 2, 2}));
}

TEST_F(DataServersTest, OneMebibyteAtFourServersIsFourDoorbellsOneRoundTripAndNoMessage) {
  for (int i = 0; i < 3; ++i) add();
  const auto file = world_.open(client(), "/striped");
  std::string text = content(2 << 20);
  world_.write(*file, 0, text);
  const auto measured = [&](auto access) {
    const fabric::Counters before = client().counters();
    access();
    return client().counters() - before;
  };
  world_.read(*file, 0, text.size());  // the map, and sessions
  const auto write = measured([&] { world_.write(*file, 1 << 20, content(1 << 20, 5)); });
  EXPECT_EQ(write.doorbells, 4u);
  EXPECT_EQ(write.round_trips, 1u);
  EXPECT_EQ(write.server_messages, 0u);
  std::string got;
  const auto read = measured([&] { got = world_.read(*file, 1 << 20, 1 << 20); });
  EXPECT_EQ(read.doorbells, 4u);
  EXPECT_EQ(read.round_trips, 1u);
  EXPECT_EQ(read.server_messages, 0u);
  EXPECT_EQ(got, content(1 << 20, 5));
}

TEST_F(DataServersTest, TheListIsThereAfterARestartAndSoIsTheData) {
  add();
  add();
  const std::string text = content(1'500'000);
  {
    const auto file = world_.open(client(), "/kept");
    world_.write(*file, 0, text);
    ASSERT_TRUE(run(file->close()));
  }
  client_.reset();
  world_.crash();
  world_.start();
  EXPECT_EQ(info(1).uri, pools_[0]->uri());
  EXPECT_EQ(info(2).state, DataServerState::kInUse);
  const auto file = world_.open(client(), "/kept");
  EXPECT_EQ(world_.read(*file, 0, text.size()), text);
  EXPECT_EQ(info(1).used_bytes + info(2).used_bytes + info(0).used_bytes,
            file->attributes().data_bytes);
}

TEST_F(DataServersTest, AClientGoesOnWhenADataServerWasStartedAgain) {
  DataServerPool& pool = add();
  drain(0);
  const auto file = world_.open(client(), "/file");
  const std::string text = content(600'000);
  world_.write(*file, 0, text);
  EXPECT_EQ(world_.read(*file, 0, text.size()), text);
  pool.crash();
  pool.start();
  EXPECT_TRUE(pool.owner().file_system == 7 && pool.owner().server == 1);
  EXPECT_EQ(world_.read(*file, 0, text.size()), text);
  world_.write(*file, 1000, content(100'000, 3));
  EXPECT_EQ(world_.read(*file, 1000, 100'000), content(100'000, 3));
  world_.write(*file, text.size(), "more");
  EXPECT_EQ(world_.read(*file, text.size(), 10), "more");
}

TEST_F(DataServersTest, WithADataServerAwayOtherFilesGoOnAndNewDataGoesElsewhere) {
  DataServerPool& pool = add();
  FileSystemOptions impatient = world_.options();
  impatient.reconnect_timeout_ns = 0;
  const auto other = world_.connect(impatient);
  std::vector<std::unique_ptr<File>> files;
  for (int i = 0; i < 2; ++i) {
    files.push_back(world_.open(*other, "/file" + std::to_string(i)));
    world_.write(*files[i], 0, kSome);
    world_.read(*files[i], 0, kSome.size());
  }
  if (extents_at(*files[0], 1) > 0) std::swap(files[0], files[1]);
  ASSERT_EQ(extents_at(*files[0], 1), 0u);
  ASSERT_GT(extents_at(*files[1], 1), 0u);
  pool.crash();
  EXPECT_EQ(world_.read(*files[0], 0, kSome.size()), kSome);
  EXPECT_EQ(world_.read(*files[1], 0, kSome.size()), "errno EIO");
  world_.let_time_pass(FilesWorld::kLeaseNs);
  EXPECT_FALSE(info(1).is_there);
  const auto made = world_.open(*other, "/made-meanwhile");
  world_.write(*made, 0, kMany);
  EXPECT_EQ(extents_at(*made, 1), 0u);
  EXPECT_EQ(world_.read(*made, 0, kMany.size()), kMany);
  pool.start();
  world_.let_time_pass(FilesWorld::kLeaseNs);
  EXPECT_TRUE(info(1).is_there);
  EXPECT_EQ(world_.read(*files[1], 0, kSome.size()), kSome);
}

TEST_F(DataServersTest, WhatIsRemovedIsFreeAndZeroAtItsDataServer) {
  DataServerPool& pool = add();
  drain(0);
  const uint64_t free_bytes = world_.usage(client()).free_bytes;
  {
    const auto file = world_.open(client(), "/file");
    world_.write(*file, 0, kMany);
    world_.read(*file, 0, kMany.size());
    EXPECT_FALSE(pool.is_zero());
    EXPECT_EQ(world_.usage(client()).free_bytes, free_bytes - file->attributes().data_bytes);
  }
  ASSERT_TRUE(run(client().remove("/file")));
  world_.let_time_pass(4 * FilesWorld::kLeaseNs);
  EXPECT_TRUE(pool.is_zero());
  EXPECT_EQ(world_.usage(client()).free_bytes, free_bytes);
}

TEST_F(DataServersTest, ADrainedServerIsGoneAndItsDataElsewhere) {
  DataServerPool& pool = add();
  add();
  const auto file = world_.open(client(), "/file");
  const std::string text = content(1'500'000);
  world_.write(*file, 0, text);
  world_.read(*file, 0, text.size());
  ASSERT_GT(extents_at(*file, 1), 0u);
  drain(1);
  wait_until_gone(1);
  EXPECT_EQ(extents_at(*file, 1), 0u);
  EXPECT_EQ(world_.read(*file, 0, text.size()), text);
  EXPECT_TRUE(pool.is_zero());
  EXPECT_EQ(pool.owner(), AreaOwner{});
  // It may come again, under another index.
  const auto added = run(client().add_data_server(pool.uri()));
  ASSERT_TRUE(added) << added.error().to_string();
  EXPECT_EQ(*added, 3);
}

// As where the start of the store has given up the record of the list.
TEST_F(DataServersTest, AnAreaWhoseRecordIsLostIsZeroedWhenItIsAddedAgain) {
  DataServerPool& pool = add();
  drain(0);
  {
    const auto file = world_.open(client(), "/file");
    world_.write(*file, 0, content(1'500'000));
    ASSERT_TRUE(run(file->close()));
  }
  EXPECT_FALSE(pool.is_zero());
  auto store = run(Client::connect(world_.executor(), world_.uri(), {})).value();
  const auto table = run(store->open_table(".fs.super", false)).value();
  ASSERT_TRUE(run(store->erase(table, internal::data_server_key(1))));
  run(store->close());
  store.reset();
  client_.reset();
  world_.crash();
  world_.start();
  const auto added = run(client().add_data_server(pool.uri()));
  ASSERT_TRUE(added) << added.error().to_string();
  EXPECT_EQ(*added, 2);
  // What is left of it is durable.
  client_.reset();
  world_.crash();
  world_.start();
  world_.let_time_pass(4 * FilesWorld::kLeaseNs);
  EXPECT_TRUE(pool.is_zero());
  EXPECT_EQ(info(2).used_bytes, 0u);
  const auto file = world_.open(client(), "/new");
  world_.write(*file, 0, kMany);
  EXPECT_EQ(world_.read(*file, 0, kMany.size()), kMany);
  EXPECT_GT(extents_at(*file, 2), 0u);
}

TEST_F(DataServersTest, AnAreaWithoutOwnerIsNewWhenItIsAddedAgain) {
  DataServerPool& pool = add();
  const uint64_t area = info(1).area;
  drain(1);
  wait_until_gone(1);
  auto store = run(Client::connect(world_.executor(), world_.uri(), {})).value();
  internal::DataServerRecords records(*store);
  EXPECT_FALSE(run(records.has_secret_of(area)).value());
  ASSERT_TRUE(run(client().add_data_server(pool.uri())));
  EXPECT_TRUE(run(records.has_secret_of(area)).value());
  EXPECT_TRUE(pool.owner().key.is_somebody());
  run(store->close());
}

TEST_F(DataServersTest, WritesWhileAServerIsDrainedAreNotLost) {
  add();
  const auto file = world_.open(client(), "/file");
  std::string text = content(1'500'000);
  world_.write(*file, 0, text);
  world_.read(*file, 0, text.size());
  drain(1);
  for (size_t i = 0; i < 300; ++i) {
    const size_t at = i * 4999;
    const std::string part = content(3000, i);
    world_.write(*file, at, part);
    text.replace(at, part.size(), part);
  }
  EXPECT_EQ(world_.read(*file, 0, text.size()), text);
  wait_until_gone(1);
  EXPECT_EQ(world_.read(*file, 0, text.size()), text);
}

TEST_F(DataServersTest, ADrainGoesOnAfterARestart) {
  DataServerPool& pool = add();
  add();
  {
    const auto file = world_.open(client(), "/file");
    world_.write(*file, 0, content(1'500'000));
    ASSERT_TRUE(run(file->close()));
  }
  drain(1);
  client_.reset();
  world_.crash();
  world_.start();
  wait_until_gone(1);
  const auto file = world_.open(client(), "/file");
  EXPECT_EQ(world_.read(*file, 0, 1'500'000), content(1'500'000));
  EXPECT_EQ(pool.owner(), AreaOwner{});
}

TEST_F(DataServersTest, AClientThatDoesNotListenIsEndedAtTheDataServerBeforeItsSpaceIsFree) {
  DataServerPool& pool = add();
  drain(0);
  const auto file = world_.open(client(), "/file");
  world_.write(*file, 0, kMany);
  RawClient deaf(world_);
  const FilesHello hello{1, 0};
  deaf.connect(service::ServiceId::kFiles, service::bytes_of(hello), deaf.files);
  const FileDataHello data_hello{0, 1};
  auto data = deaf.try_connect(service::ServiceId::kFileData, service::bytes_of(data_hello),
                               *fabric::parse_uri(pool.uri()));
  ASSERT_TRUE(data) << data.error().to_string();
  (*data)->keep_lease();
  deaf.ask(FilesMethod::kMap, MapRequest{raw(file->ino()), 0, 1 << 20, 0, {}});
  EXPECT_TRUE(run(file->close()));
  ASSERT_TRUE(run(client().remove("/file")));
  world_.let_time_pass(FilesWorld::kLeaseNs * 3 / 2);
  EXPECT_FALSE(pool.is_zero()) << "it may write there";
  EXPECT_TRUE((*data)->usable());
  for (int i = 0; i < 100 && !pool.is_zero(); ++i) {
    EXPECT_LT(i, 99);
    world_.let_time_pass(FilesWorld::kLeaseNs / 20);
  }
  EXPECT_FALSE((*data)->usable()) << "its connection is destroyed before";
}

TEST_F(DataServersTest, WhatIsRemovedStaysInQuarantineWhileItsServerIsAway) {
  DataServerPool& pool = add();
  drain(0);
  {
    const auto file = world_.open(client(), "/file");
    world_.write(*file, 0, kMany);
    ASSERT_TRUE(run(file->close()));
  }
  pool.crash();
  ASSERT_TRUE(run(client().remove("/file")));
  world_.let_time_pass(5 * FilesWorld::kLeaseNs);
  EXPECT_GT(info(1).used_bytes, 0u);
  pool.start();
  for (int i = 0; i < 200 && info(1).used_bytes > 0; ++i) {
    world_.let_time_pass(FilesWorld::kLeaseNs);
  }
  EXPECT_EQ(info(1).used_bytes, 0u);
  EXPECT_TRUE(pool.is_zero());
}

TEST_F(DataServersTest, WhileItsDataServerIsAwayAFileIsNotTruncated) {
  DataServerPool& pool = add();
  drain(0);
  const auto file = world_.open(client(), "/file");
  world_.write(*file, 0, kMany);
  pool.crash();
  EXPECT_EQ(number_of(run(file->truncate(10))), EIO);
  EXPECT_EQ(number_of(run(file->allocate(AllocateMode::kPunchHole, 0, kUnitBytes))), EIO);
  EXPECT_EQ(run(client().get_attributes(file->ino()))->size, kMany.size());
  pool.start();
  world_.let_time_pass(FilesWorld::kLeaseNs);
  EXPECT_EQ(world_.read(*file, 0, kMany.size()), kMany);
  EXPECT_TRUE(run(file->truncate(10)));
  EXPECT_EQ(world_.read(*file, 0, 100), kMany.substr(0, 10));
}

TEST_F(DataServersTest, AServerThatIsAwayIsNotFull) {
  DataServerPool& pool = add();
  drain(0);
  const auto file = world_.open(client(), "/file");
  pool.crash();
  world_.let_time_pass(FilesWorld::kLeaseNs);
  EXPECT_EQ(number_of(run(file->pwrite(bytes_of(kSome), 0))), EIO);
  auto waits = file->pwrite(bytes_of(kSome), 0);
  waits.start();
  world_.let_time_pass(FilesWorld::kLeaseNs / 10);
  pool.start();
  world_.let_time_pass(FilesWorld::kLeaseNs);
  ASSERT_TRUE(waits.done());
  EXPECT_TRUE(waits.take());
  EXPECT_EQ(world_.read(*file, 0, kSome.size()), kSome);
}

TEST_F(DataServersTest, ADrainOfAServerThatIsAwayCanBeUndone) {
  DataServerPool& pool = add();
  const auto file = world_.open(client(), "/file");
  const std::string text = content(1'500'000);
  world_.write(*file, 0, text);
  pool.crash();
  world_.let_time_pass(FilesWorld::kLeaseNs);
  drain(1);
  world_.let_time_pass(FilesWorld::kLeaseNs);
  // Nobody holds the file.
  EXPECT_TRUE(run(file->pwrite(bytes_of("x"), 0)) || run(file->pwrite(bytes_of("x"), 256 << 10)));
  EXPECT_TRUE(run(client().drain_data_server(1, true)));
  EXPECT_EQ(info(1).state, DataServerState::kInUse);
  pool.start();
  world_.let_time_pass(5 * FilesWorld::kLeaseNs);
  EXPECT_EQ(info(1).state, DataServerState::kInUse);
  EXPECT_GT(extents_at(*file, 1), 0u);
  EXPECT_EQ(world_.read(*file, 1000, 200'000), text.substr(1000, 200'000));
}

TEST_F(DataServersTest, ADrainThatIsUndoneWhileItMovesStops) {
  add();
  const std::string text = content(1'500'000);
  size_t undone = 0;
  for (size_t turns = 0; turns < 400; turns += 7) {
    const auto file = world_.open(client(), "/file");
    world_.write(*file, 0, text);
    drain(1);
    for (size_t i = 0; i < turns; ++i) world_.executor().run_once();
    const auto tried = run(client().drain_data_server(1, true));
    EXPECT_EQ(world_.read(*file, 0, text.size()), text) << turns;
    if (!tried) break;  // it was empty before
    ++undone;
    world_.let_time_pass(FilesWorld::kLeaseNs);
    EXPECT_EQ(info(1).state, DataServerState::kInUse) << turns;
    EXPECT_TRUE(run(file->truncate(0)));
    world_.let_time_pass(3 * FilesWorld::kLeaseNs);
  }
  EXPECT_GT(undone, 0u);
}

// Every other file's new data would go to the other server.
TEST_F(DataServersTest, ADrainThatIsUndoneMovesAtMostOneMoreExtent) {
  add();
  drain(0);
  constexpr size_t kFiles = 24;
  for (size_t i = 0; i < kFiles; ++i) {
    world_.write(*world_.open(client(), "/file" + std::to_string(i)), 0, kSome);
  }
  const uint64_t one = info(1).used_bytes / kFiles;
  EXPECT_TRUE(run(client().drain_data_server(0, true)));
  ASSERT_EQ(info(0).used_bytes, 0u);
  drain(1);
  for (int i = 0; i < 1000 && info(0).used_bytes == 0; ++i) world_.executor().run_once();
  EXPECT_TRUE(run(client().drain_data_server(1, true)));
  const uint64_t moved = info(0).used_bytes;
  ASSERT_TRUE(moved > 0 && moved < kFiles / 2 * one) << moved / one;
  world_.let_time_pass(FilesWorld::kLeaseNs);
  EXPECT_LE(info(0).used_bytes, moved + one);
}

// The namespace server that comes next knows nothing of this client.
TEST_F(DataServersTest, ASessionFromBeforeARestartOfTheNamespaceServerReachesNothing) {
  DataServerPool& pool = add();
  RawClient old(world_);
  const FileDataHello data_hello{0, 1};
  auto data = old.try_connect(service::ServiceId::kFileData, service::bytes_of(data_hello),
                              *fabric::parse_uri(pool.uri()));
  ASSERT_TRUE(data) << data.error().to_string();
  (*data)->keep_lease();
  client_.reset();
  world_.crash();
  EXPECT_TRUE((*data)->usable());
  world_.start();
  world_.let_time_pass(1000);
  EXPECT_FALSE((*data)->usable());
}

TEST_F(DataServersTest, TheCheckLooksAtTheExtentsOfAllServers) {
  add();
  const auto file = world_.open(client(), "/file");
  world_.write(*file, 0, kMany);
  auto store = run(Client::connect(world_.executor(), world_.uri(), {})).value();
  const auto sound = run(check_namespace(*store, {{0, 0, info(0).end}}, false));
  ASSERT_TRUE(sound) << sound.error().to_string();
  EXPECT_EQ(sound->found, 0u) << sound->damage.front();
  run(store->close());
}

TEST_F(DataServersTest, ARepairKeepsWhatFilesHaveAtAServerWhoseRecordIsLost) {
  add();
  const auto file = world_.open(client(), "/file");
  world_.write(*file, 0, kMany);
  ASSERT_GT(extents_at(*file, 1), 0u);
  auto store = run(Client::connect(world_.executor(), world_.uri(), {})).value();
  const auto table = run(store->open_table(".fs.super", false)).value();
  const auto record = run(store->get(table, "server00001"));
  ASSERT_TRUE(record) << record.error().to_string();
  ASSERT_TRUE(run(store->erase(table, "server00001")));
  const auto damaged = run(check_namespace(*store, {{0, 0, info(0).end}}, true));
  ASSERT_TRUE(damaged) << damaged.error().to_string();
  ASSERT_EQ(damaged->found, 1u) << ::testing::PrintToString(damaged->damage);
  EXPECT_NE(damaged->damage.front().find("record of data server 1 is lost"), std::string::npos);
  EXPECT_EQ(damaged->repairs, 0u) << ::testing::PrintToString(damaged->repaired);
  ASSERT_TRUE(run(store->put(table, "server00001", *record)));
  const auto sound = run(check_namespace(*store, {{0, 0, info(0).end}}, false));
  ASSERT_TRUE(sound) << sound.error().to_string();
  EXPECT_EQ(sound->found, 0u) << ::testing::PrintToString(sound->damage);
  run(store->close());
}

TEST_F(DataServersTest, AnAreaOfAnotherFileSystemIsRefused) {
  DataServerPool& pool = add();
  EXPECT_EQ(number_of(run(client().add_data_server(pool.uri()))), EEXIST);
  DataServerPool& other = make();
  other.stop();
  other.start(false);
  ASSERT_TRUE(other.serves_names());
  const auto refused = run(client().add_data_server(other.uri()));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.number(), EACCES) << refused.error().to_string();
  other.stop();
  EXPECT_EQ(other.try_start(true).code(), ErrorCode::kAlreadyExists);
  other.start(false);
  EXPECT_EQ(number_of(run(client().add_data_server("nowhere"))), EINVAL);
  EXPECT_EQ(number_of(run(client().add_data_server("local://nobody"))), EIO);
}

TEST_F(DataServersTest, ADataServerKnowsWhatItIsWithoutBeingTold) {
  DataServerPool& pool = add();
  pool.stop();
  pool.start(false);
  EXPECT_FALSE(pool.serves_names());
  const auto connected =
      run(FileSystem::connect(world_.executor(), *fabric::parse_uri(pool.uri()), {}));
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.code(), ErrorCode::kUnsupported);
}

TEST_F(DataServersTest, OnlyRootAndTheServersUserChangeTheList) {
  DataServerPool& pool = make();
  FileSystemOptions somebody = world_.options();
  somebody.caller = {.uid = 1000, .gid = 1000, .groups = {}};
  const auto other = world_.connect(somebody);
  EXPECT_EQ(number_of(run(other->add_data_server(pool.uri()))), EPERM);
  EXPECT_EQ(number_of(run(other->drain_data_server(0))), EPERM);
  EXPECT_EQ(number_of(run(client().drain_data_server(0))), EINVAL);  // the last one
  EXPECT_EQ(number_of(run(client().drain_data_server(9))), EINVAL);
}

TEST_F(DataServersByMessageTest, OneMebibyteAtFourServersIsOneMessageToEach) {
  for (int i = 0; i < 3; ++i) add();
  const auto file = world_.open(client(), "/striped");
  world_.write(*file, 0, content(2 << 20));
  world_.read(*file, 0, 2 << 20);
  const fabric::Counters before = client().counters();
  world_.write(*file, 1 << 20, content(1 << 20, 5));
  const fabric::Counters cost = client().counters() - before;
  EXPECT_EQ(cost.server_messages, 4u);
  EXPECT_EQ(cost.round_trips, 1u);
  EXPECT_EQ(world_.read(*file, 1 << 20, 1 << 20), content(1 << 20, 5));
}

}  // namespace
}  // namespace pmstore::fs
