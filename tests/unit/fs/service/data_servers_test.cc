// File data at several servers: striped, added, drained; servers that are away or start again.
#include <algorithm>
#include <vector>

#include "fs/file_data_protocol.h"
#include "fs/layout/fs_layout.h"
#include "pmstore/client.h"
#include "tests/unit/fs/service/data_server_pool.h"

namespace pmstore::fs {
namespace {

// Each part of 1,000 bytes is another one.
std::string content(size_t bytes, size_t seed = 0) {
  std::string made(bytes, 'a');
  for (size_t i = 0; i < bytes; ++i) made[i] = static_cast<char>('a' + (i / 1000 + seed) % 26);
  return made;
}

class DataServersTest : public testing::Test {
 protected:
  explicit DataServersTest(persist::Domain domain = persist::Domain::kCpuCache)
      : world_(domain), domain_(domain) {}

  DataServerPool& make(uint64_t bytes = 4 << 20) {
    const std::string name = "data-" + std::to_string(pools_.size() + 1);
    pools_.push_back(std::make_unique<DataServerPool>(world_, name, bytes, domain_));
    return *pools_.back();
  }
  DataServerPool& add(uint64_t bytes = 4 << 20) {
    DataServerPool& pool = make(bytes);
    const auto added = run(client().add_data_server(pool.uri()));
    EXPECT_TRUE(added) << added.error().to_string();
    return pool;
  }
  void drain(uint16_t index) {
    const auto drained = run(client().drain_data_server(index));
    EXPECT_TRUE(drained) << drained.error().to_string();
  }
  DataServerInfo info(uint16_t index) {
    const auto servers = run(client().data_servers());
    EXPECT_TRUE(servers) << servers.error().to_string();
    for (const DataServerInfo& server : *servers) {
      if (server.index == index) return server;
    }
    ADD_FAILURE() << "there is no server " << index;
    return {};
  }
  // The servers of the file's extents, in order.
  std::vector<uint16_t> servers_of(File& file) {
    const auto map = run(file.map(0, uint64_t{1} << 30));
    EXPECT_TRUE(map) << map.error().to_string();
    std::vector<uint16_t> servers;
    for (const MapExtent& extent : map->extents) servers.push_back(extent.place.server);
    return servers;
  }
  size_t extents_at(File& file, uint16_t server) {
    const auto servers = servers_of(file);
    return static_cast<size_t>(std::count(servers.begin(), servers.end(), server));
  }
  FileSystem& client() {
    if (client_ == nullptr) client_ = world_.connect();
    return *client_;
  }
  template <typename T>
  T run(base::Task<T> task) {
    return world_.run(std::move(task));
  }
  void wait_until_gone(uint16_t index) {
    for (int i = 0; i < 100 && info(index).state != DataServerState::kGone; ++i) {
      world_.let_time_pass(FilesWorld::kLeaseNs / 2);
    }
    EXPECT_EQ(info(index).state, DataServerState::kGone);
  }

  FilesWorld world_;
  persist::Domain domain_;
  std::vector<std::unique_ptr<DataServerPool>> pools_;
  std::unique_ptr<FileSystem> client_;
};

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
  const auto sound = run(check_namespace(*store, info(0).bytes, false));
  ASSERT_TRUE(sound) << sound.error().to_string();
  EXPECT_EQ(sound->found, 0u) << sound->damage.front();
  // A server that the list does not have.
  const auto table = run(store->open_table(".fs.super", false)).value();
  ASSERT_TRUE(run(store->erase(table, "server00001")));
  const auto damaged = run(check_namespace(*store, info(0).bytes, false));
  ASSERT_TRUE(damaged) << damaged.error().to_string();
  EXPECT_GT(damaged->found, 0u);
  EXPECT_NE(damaged->damage.front().find("not in the list"), std::string::npos);
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

// ---- the owner's secret, and fences ----

TEST_F(DataServersTest, ANamespaceServerThatIsFencedStopsServingFiles) {
  DataServerPool& pool = add();
  const auto file = world_.open(client(), "/file");
  world_.write(*file, 0, kMany);
  // What a server on a copy of the pool has.
  auto store = run(Client::connect(world_.executor(), world_.uri(), {})).value();
  const auto table = run(store->open_table(".fs.super", false)).value();
  const uint64_t area = info(1).area;
  const auto secret =
      internal::decode_secret(run(store->get(table, internal::owner_secret_key(area))).value());
  ASSERT_TRUE(secret);
  run(store->close());
  AreaOwnerHello hello;
  hello.area = area;
  hello.instance = 1;
  hello.file_system = 7;
  hello.epoch = 100;
  hello.server = 1;
  auto device = std::move(*fabric::open_device(fabric::Scheme::kLocal, world_.executor()));
  service::LinkOptions with;
  with.service = service::ServiceId::kFileData;
  with.secret = ClientSecret::of_number(5);
  const auto uri = *fabric::parse_uri(pool.uri());
  EXPECT_EQ(run(service::Link::open(*device, uri, with, service::bytes_of(hello))).code(),
            ErrorCode::kAccess);
  world_.let_time_pass(FilesWorld::kLeaseNs);
  EXPECT_TRUE(world_.fenced().empty()) << "a stranger fences nothing";
  EXPECT_EQ(world_.read(*file, 0, kMany.size()), kMany);
  with.secret = *secret;
  const auto later = run(service::Link::open(*device, uri, with, service::bytes_of(hello)));
  ASSERT_TRUE(later) << later.error().to_string();
  world_.let_time_pass(FilesWorld::kLeaseNs);
  ASSERT_EQ(world_.fenced().size(), 1u);
  EXPECT_NE(world_.fenced().front().find("epoch 100"), std::string::npos);
  EXPECT_EQ(number_of(run(client().get_attributes(kRootIno))), ESTALE);
  EXPECT_EQ(number_of(run(file->pwrite(bytes_of("x"), 0))), ESTALE);
  const auto connected = run(FileSystem::connect(world_.executor(), world_.uri(), {}));
  EXPECT_EQ(connected.code(), ErrorCode::kFenced);
  RawClient other(world_);
  const FileDataHello data_hello{0, 1};
  EXPECT_EQ(other.try_connect(service::ServiceId::kFileData, service::bytes_of(data_hello)).code(),
            ErrorCode::kFenced);
}

TEST_F(DataServersTest, TheSecretOfADataServerIsKeptOverStarts) {
  DataServerPool& pool = add();
  const ClientId key = pool.owner().key;
  EXPECT_TRUE(key.is_somebody());
  client_.reset();
  world_.crash();
  world_.start();
  EXPECT_TRUE(info(1).is_there);
  EXPECT_EQ(pool.owner().key, key);
  // One that lost its pool, and has the identity and the place, is refused.
  DataServerPool& second = add();
  EXPECT_NE(second.owner().key, key) << "one data server does not tell the secret of another one";
}

// ---- drains that cannot go on ----

TEST_F(DataServersTest, ADrainThatFindsNoRoomSaysSoInTheList) {
  add(8 << 20);
  const auto file = world_.open(client(), "/file");
  world_.write(*file, 0, content(7'000'000));
  EXPECT_EQ(info(1).problem, "");
  drain(1);
  world_.let_time_pass(FilesWorld::kLeaseNs);
  EXPECT_NE(info(1).problem.find("free for file data"), std::string::npos) << info(1).problem;
  EXPECT_NE(info(1).problem.find("inode " + std::to_string(raw(file->ino()))), std::string::npos);
  add(8 << 20);
  wait_until_gone(1);
  EXPECT_EQ(info(1).problem, "");
  EXPECT_EQ(world_.read(*file, 0, 7'000'000), content(7'000'000));
}

TEST_F(DataServersTest, ADrainOfAServerThatIsAwaySaysSoInTheList) {
  DataServerPool& pool = add();
  const auto file = world_.open(client(), "/file");
  world_.write(*file, 0, kMany);
  pool.crash();
  world_.let_time_pass(FilesWorld::kLeaseNs);
  drain(1);
  world_.let_time_pass(FilesWorld::kLeaseNs);
  EXPECT_NE(info(1).problem.find("away"), std::string::npos) << info(1).problem;
  EXPECT_TRUE(run(client().drain_data_server(1, true)));
  world_.let_time_pass(FilesWorld::kLeaseNs);
  EXPECT_EQ(info(1).problem, "");
  pool.start();
  world_.let_time_pass(FilesWorld::kLeaseNs);
}

// ---- clients that lose a server ----

// Who waits for a data server, to which it has no session yet, keeps no room for an answer.
TEST_F(DataServersTest, AWaitForADataServerHoldsUpNothingElseOfItsClient) {
  DataServerPool& pool = add();
  drain(0);
  const auto file = world_.open(client(), "/file");
  world_.write(*file, 0, kSome);
  const auto other = world_.connect();
  const auto same = world_.open(*other, "/file");
  pool.crash();
  std::string text(100, ' ');
  auto waits = same->pread(std::as_writable_bytes(std::span(text)), 0);
  waits.start();
  world_.let_time_pass(FilesWorld::kLeaseNs / 10);
  ASSERT_FALSE(waits.done());
  const uint64_t begun_ns = world_.executor().now_ns();
  for (int i = 0; i < 3000; ++i) ASSERT_TRUE(run(other->get_attributes(kRootIno)));
  EXPECT_LT(world_.executor().now_ns() - begun_ns, FilesWorld::kLeaseNs / 10);
  EXPECT_FALSE(waits.done());
  pool.start();
  world_.let_time_pass(FilesWorld::kLeaseNs);
  ASSERT_TRUE(waits.done());
  EXPECT_TRUE(waits.take());
  EXPECT_EQ(text, kSome.substr(0, 100));
}

TEST_F(DataServersTest, LocksOfAClientThatDiedAreFreeWhileADataServerIsAway) {
  DataServerPool& pool = add();
  const auto file = world_.open(client(), "/file");
  world_.write(*file, 0, kMany);
  FileLock lock;
  lock.type = LockType::kWrite;
  {
    RawClient dies(world_);
    const FilesHello hello{1, 0};
    dies.connect(service::ServiceId::kFiles, service::bytes_of(hello), dies.files);
    dies.ask(FilesMethod::kMap, MapRequest{raw(file->ino()), 0, 1 << 20, 0, {}});
    dies.ask(FilesMethod::kLock, request_of(file->ino(), lock, false));
  }
  pool.crash();
  EXPECT_EQ(number_of(run(file->lock(lock, false))), EAGAIN);
  auto waits = file->lock(lock, true);
  waits.start();
  world_.let_time_pass(2 * FilesWorld::kLeaseNs);
  EXPECT_FALSE(waits.done()) << "what it has posted may land";
  world_.let_time_pass(3 * FilesWorld::kLeaseNs);
  ASSERT_TRUE(waits.done());
  EXPECT_TRUE(waits.take());
}

// Its locks may be others' by then.
TEST_F(DataServersTest, AClientThatMayHaveBeenForgottenWritesNothing) {
  add();
  drain(0);
  const auto file = world_.open(client(), "/file");
  world_.write(*file, 0, kMany);
  EXPECT_EQ(world_.read(*file, 0, kMany.size()), kMany);
  world_.crash();
  world_.write(*file, 0, "by its clock it is known");
  world_.let_time_pass(2 * FilesWorld::kLeaseNs);
  auto waits = file->pwrite(bytes_of("late"), 0);
  waits.start();
  world_.let_time_pass(FilesWorld::kLeaseNs / 10);
  EXPECT_FALSE(waits.done());
  world_.start();
  world_.let_time_pass(3 * FilesWorld::kLeaseNs);
  ASSERT_TRUE(waits.done());
  EXPECT_TRUE(waits.take());
  EXPECT_EQ(world_.read(*file, 0, 24), "latets clock it is known");
}

class DataServersByMessageTest : public DataServersTest {
 protected:
  DataServersByMessageTest() : DataServersTest(persist::Domain::kNone) {}
};

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

// A write is under way at the one that goes; the writer waits for it, as `hard` mounts do.
TEST_F(DataServersByMessageTest, AWriterWhoseServerIsAwayHearsOfTheOthers) {
  DataServerPool& goes = add();
  drain(0);
  const auto stuck = world_.open(client(), "/stuck");
  world_.write(*stuck, 0, kMany);
  EXPECT_EQ(world_.read(*stuck, 0, 10), kMany.substr(0, 10));
  add();
  drain(1);
  drain(1);
  EXPECT_TRUE(run(client().drain_data_server(1, true)));
  const auto other = world_.connect();
  std::vector<std::unique_ptr<File>> files;
  for (int i = 0; i < 4; ++i) {
    const std::string path = "/file" + std::to_string(i);
    const auto made = world_.open(*other, path);
    world_.write(*made, 0, kSome);
    files.push_back(world_.open(client(), path));
    EXPECT_EQ(world_.read(*files.back(), 0, kSome.size()), kSome);  // it has the map
  }
  auto waits = stuck->pwrite(bytes_of(kMany), 0);
  waits.start();
  goes.crash();
  world_.let_time_pass(FilesWorld::kLeaseNs / 10);
  ASSERT_FALSE(waits.done());
  // News about files at the server that is there.
  const uint64_t clients = world_.stat("clients");
  const uint64_t used_bytes = info(2).used_bytes;
  ASSERT_GT(used_bytes, 0u);
  for (size_t i = 0; i < files.size(); ++i) {
    if (extents_at(*files[i], 1) > 0) continue;
    EXPECT_TRUE(run(files[i]->close()));
    ASSERT_TRUE(run(other->remove("/file" + std::to_string(i))));
  }
  world_.let_time_pass(FilesWorld::kLeaseNs);
  EXPECT_LT(info(2).used_bytes, used_bytes) << "it has confirmed them";
  world_.let_time_pass(6 * FilesWorld::kLeaseNs);
  EXPECT_EQ(world_.stat("deaf"), 0u);
  EXPECT_EQ(world_.stat("clients"), clients);
  EXPECT_FALSE(waits.done());
  goes.start();
  world_.let_time_pass(2 * FilesWorld::kLeaseNs);
  ASSERT_TRUE(waits.done());
  EXPECT_TRUE(waits.take());
  EXPECT_EQ(world_.read(*stuck, 0, kMany.size()), kMany);
}

}  // namespace
}  // namespace pmstore::fs
