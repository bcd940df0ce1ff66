// Maps that go stale, and freed space that waits for everybody who may have one.
#include "fs/file_data_protocol.h"
#include "fs/internal/files_clients.h"
#include "tests/unit/fs/service/files_world.h"

namespace pmstore::fs {
namespace {

class FilesNews : public testing::Test {
 protected:
  uint64_t stat(const char* name) { return world_.stat(name); }
  bool all_is_free(FileSystem& client) {
    const FileSystemUsage usage = world_.usage(client);
    return usage.free_bytes == usage.data_bytes;
  }

  FilesWorld world_;
};

TEST_F(FilesNews, WhatAnotherClientHasTruncatedIsNotRead) {
  const auto one = world_.connect();
  const auto two = world_.connect();
  const auto file = world_.open(*one, "/file");
  world_.write(*file, 0, kMany);
  const auto same = world_.open(*two, "/file", O_RDWR);
  EXPECT_EQ(world_.read(*same, 0, 2'000'000), kMany);
  ASSERT_TRUE(world_.run(file->truncate(10)));
  EXPECT_EQ(world_.read(*same, 0, 2'000'000), kMany.substr(0, 10));
  // What lies there by now is another file's.
  const auto other = world_.open(*one, "/other");
  world_.let_time_pass(10 * FilesWorld::kLeaseNs);
  world_.write(*other, 0, std::string(3'000'000, 'O'));
  EXPECT_EQ(world_.read(*same, 0, 2'000'000), kMany.substr(0, 10));
  world_.write(*same, 10, "xyz");
  EXPECT_EQ(world_.read(*file, 5, 100), "LLLLLxyz");
  EXPECT_EQ(world_.read(*other, 0, 3'000'000), std::string(3'000'000, 'O'));
  world_.run(one->close());
  world_.run(two->close());
}

TEST_F(FilesNews, FreedSpaceComesBackSoonWhenEverybodyHears) {
  const auto one = world_.connect();
  const auto two = world_.connect();
  {
    const auto file = world_.open(*one, "/file");
    world_.write(*file, 0, kMany);
    const auto same = world_.open(*two, "/file", O_RDWR);
    EXPECT_EQ(world_.read(*same, 0, 2'000'000), kMany);
    EXPECT_TRUE(world_.run(same->close()));
    EXPECT_TRUE(world_.run(file->close()));
  }
  ASSERT_TRUE(world_.run(one->remove("/file")));
  EXPECT_FALSE(all_is_free(*one));
  // `two` calls nothing: it hears of the news by itself, within a part of its lease.
  world_.let_time_pass(FilesWorld::kLeaseNs);
  EXPECT_TRUE(all_is_free(*one));
  EXPECT_EQ(stat("deaf"), 0u);
  world_.run(one->close());
  world_.run(two->close());
}

TEST_F(FilesNews, ClientThatDoesNotListenIsEndedAfterTwoLeases) {
  const auto client = world_.connect();
  {
    const auto file = world_.open(*client, "/file");
    world_.write(*file, 0, kMany);
    RawClient deaf(world_);
    const FilesHello hello{1, 0};
    deaf.connect(service::ServiceId::kFiles, service::bytes_of(hello), deaf.files);
    const FileDataHello data_hello{0, 1};
    deaf.connect(service::ServiceId::kFileData, service::bytes_of(data_hello), deaf.data);
    deaf.ask(FilesMethod::kMap, MapRequest{raw(file->ino()), 0, 1 << 20, 0, {}});
    EXPECT_TRUE(world_.run(file->close()));
    ASSERT_TRUE(world_.run(client->remove("/file")));
    world_.let_time_pass(FilesWorld::kLeaseNs * 3 / 2);
    EXPECT_FALSE(all_is_free(*client)) << "it may write there";
    EXPECT_TRUE(deaf.data->usable());
    world_.let_time_pass(FilesWorld::kLeaseNs * 3 / 2);
    EXPECT_TRUE(all_is_free(*client));
    EXPECT_FALSE(deaf.data->usable()) << "its connection is destroyed before";
    EXPECT_FALSE(deaf.files->usable());
    EXPECT_EQ(stat("deaf"), 1u);
  }
  world_.run(client->close());
}

TEST_F(FilesNews, ClientThatHasNeverAskedForAMapIsNotWaitedFor) {
  const auto client = world_.connect();
  RawClient deaf(world_);
  const FilesHello hello{1, 0};
  deaf.connect(service::ServiceId::kFiles, service::bytes_of(hello), deaf.files);
  {
    const auto file = world_.open(*client, "/file");
    world_.write(*file, 0, kSome);
    EXPECT_TRUE(world_.run(file->close()));
  }
  ASSERT_TRUE(world_.run(client->remove("/file")));
  world_.let_time_pass(FilesWorld::kLeaseNs / 2);
  EXPECT_TRUE(all_is_free(*client));
  EXPECT_TRUE(deaf.files->usable());
  world_.run(client->close());
}

TEST_F(FilesNews, ManyChangesAreConfirmedTogether) {
  const auto client = world_.connect();
  const auto file = world_.open(*client, "/file");
  for (int i = 0; i < 50; ++i) {
    world_.write(*file, 0, std::string(200'000, 'a'));
    EXPECT_EQ(world_.read(*file, 1000, 10), "aaaaaaaaaa");
    ASSERT_TRUE(world_.run(file->truncate(0)));
  }
  world_.let_time_pass(FilesWorld::kLeaseNs);
  EXPECT_TRUE(all_is_free(*client));
  EXPECT_GE(stat("news"), 50u);
  world_.run(client->close());
}

TEST_F(FilesNews, SpaceIsFreedWhileOthersAreTold) {
  const auto one = world_.connect();
  const auto busy = world_.connect();
  RawClient slow(world_);
  const FilesHello hello{1, 0};
  slow.connect(service::ServiceId::kFiles, service::bytes_of(hello), slow.files);
  const auto freed = world_.open(*one, "/freed");
  const auto churns = world_.open(*busy, "/churns");
  world_.write(*freed, 0, std::string(2'000'000, 'f'));
  slow.ask(FilesMethod::kMap, MapRequest{raw(freed->ino()), 0, 1 << 20, 0, {}});
  ASSERT_TRUE(world_.run(freed->truncate(0)));
  const uint64_t told = stat("news");
  const auto change = [&] {
    world_.write(*churns, 0, std::string(100'000, 'c'));
    ASSERT_TRUE(world_.run(churns->truncate(0)));
  };
  for (int i = 0; i < 5; ++i) change();
  // It has heard of the first change only, and there are later ones.
  RequestHead head;
  head.confirmed = told;
  const auto news = static_cast<uint16_t>(FilesMethod::kNews);
  ASSERT_TRUE(world_.run(slow.files->call(news, service::bytes_of(head), 4096)));
  world_.let_time_pass(100'000'000);
  EXPECT_GE(world_.usage(*one).free_bytes, 2'000'000u);
  EXPECT_LT(world_.usage(*one).free_bytes, world_.usage(*one).data_bytes);
  world_.run(one->close());
  world_.run(busy->close());
}

TEST_F(FilesNews, WriteTakesSetIdBitsAway) {
  const auto client = world_.connect();
  const auto file = world_.open(*client, "/file");
  world_.write(*file, 0, kMany);
  EXPECT_EQ(world_.read(*file, 0, 1), "L");  // its map is known
  AttributeChange change;
  change.set = AttributeChange::kMode;
  change.mode = 06755;
  ASSERT_TRUE(world_.run(client->set_attributes({}, file->ino(), change)));
  world_.write(*file, 8192, "x");
  const auto other = world_.connect();
  EXPECT_EQ(world_.run(other->get_attributes(file->ino()))->mode, 0755);
  world_.run(other->close());
  world_.run(client->close());
}

// So many news that those which it lacks are kept no more.
TEST_F(FilesNews, ClientThatDoesNotListenIsFoundUnderChurn) {
  base::Executor& executor = world_.executor();
  internal::FilesClients clients(executor, FilesWorld::kLeaseNs, 8);
  service::Session session;
  service::Session another;
  const auto deaf = clients.came(ClientSecret::of_number(1).id(), 1, 0, session);
  const auto hears = clients.came(ClientSecret::of_number(2).id(), 1, 0, another);
  deaf->has_maps = hears->has_maps = true;
  std::vector<internal::FilesClientRef> found;
  for (int looks = 0; looks < 12 && found.empty(); ++looks) {
    for (uint64_t i = 0; i <= internal::FilesClients::kNews; ++i) clients.add_news(Ino{i});
    world_.let_time_pass(FilesWorld::kLeaseNs / 4);
    found = clients.look();
    EXPECT_TRUE(clients.confirm(*hears, clients.newest() - 1));
  }
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found.front(), deaf);
}

TEST_F(FilesNews, NobodyPushesOthersOutByInstancesOfItsOwn) {
  internal::FilesClients clients(world_.executor(), FilesWorld::kLeaseNs, 2);
  service::Session session;
  const ClientId honest = ClientSecret::of_number(1).id();
  const ClientId many = ClientSecret::of_number(2).id();
  const auto comes_and_goes = [&](ClientId id, uint64_t instance) {
    clients.left(*clients.came(id, instance, 0, session));
    world_.let_time_pass(1000);
  };
  comes_and_goes(honest, 1);
  for (uint64_t instance = 1; instance < 5; ++instance) comes_and_goes(many, instance);
  EXPECT_EQ(clients.size(), 2u);
  EXPECT_NE(clients.find(honest, 1), nullptr);
  EXPECT_NE(clients.find(many, 4), nullptr);
  comes_and_goes(ClientSecret::of_number(3).id(), 1);
  EXPECT_EQ(clients.find(honest, 1), nullptr) << "it went first";
}

// What a raw client is told with its answers.
TEST_F(FilesNews, AnAnswerSaysTheNewestAndAMapThatFromBefore) {
  const auto client = world_.connect();
  const auto file = world_.open(*client, "/file");
  for (uint64_t i = 0; i < 5; ++i) world_.write(*file, 2 * i * kUnitBytes, "x");
  world_.write(*file, 11 * kUnitBytes, "x");
  ASSERT_TRUE(world_.run(file->truncate(10 * kUnitBytes)));
  RawClient raw_client(world_);
  const FilesHello hello{1, 0};
  raw_client.connect(service::ServiceId::kFiles, service::bytes_of(hello), raw_client.files);
  std::vector<std::byte> request(sizeof(RequestHead) + sizeof(MapRequest));
  fabric::MessageWriter writer(request);
  writer.put(RequestHead{});
  writer.put(MapRequest{raw(file->ino()), 0, 1 << 30, 0, {}});
  constexpr size_t kHeads = sizeof(ReplyHead) + sizeof(WireAttributes) + sizeof(MapReply);
  const auto map = static_cast<uint16_t>(FilesMethod::kMap);
  // Room for two extents.
  const auto answered =
      world_.run(raw_client.files->call(map, request, kHeads + 2 * sizeof(WireExtent)));
  ASSERT_TRUE(answered);
  fabric::MessageReader reader(answered->bytes());
  EXPECT_EQ(reader.get<ReplyHead>().news, stat("news"));
  reader.get<WireAttributes>();
  const auto found = reader.get<MapReply>();
  EXPECT_EQ(found.news_before, stat("news"));
  EXPECT_EQ(found.count, 2u);
  EXPECT_EQ(found.to, 4 * kUnitBytes) << "the map as far as it fits";
  world_.run(client->close());
}

TEST_F(FilesNews, WhoConfirmsWhatIsNotThereIsEnded) {
  RawClient lies(world_);
  const FilesHello hello{1, 0};
  lies.connect(service::ServiceId::kFiles, service::bytes_of(hello), lies.files);
  RequestHead head;
  head.confirmed = stat("news") + 1;
  const auto news = static_cast<uint16_t>(FilesMethod::kNews);
  EXPECT_FALSE(world_.run(lies.files->call(news, service::bytes_of(head), 4096)));
  EXPECT_EQ(stat("malformed"), 1u);
}

TEST_F(FilesNews, WhoSaysGoodbyeIsForgottenAtOnce) {
  const auto client = world_.connect();
  auto other = world_.connect();
  {
    const auto file = world_.open(*client, "/file");
    world_.write(*file, 0, kSome);
    const auto same = world_.open(*other, "/file", O_RDWR);
    EXPECT_EQ(world_.read(*same, 0, 10), kSome.substr(0, 10));
    EXPECT_TRUE(world_.run(file->close()));
  }
  EXPECT_EQ(stat("clients"), 2u);
  world_.run(other->close());
  world_.let_time_pass(1'000'000);
  EXPECT_EQ(stat("clients"), 1u);
  ASSERT_TRUE(world_.run(client->remove("/file")));
  world_.let_time_pass(FilesWorld::kLeaseNs / 4);
  EXPECT_TRUE(all_is_free(*client));
  world_.run(client->close());
}

// ---- what a call costs ----

TEST_F(FilesNews, CallsCostOneMessageEach) {
  const auto client = world_.connect();
  const auto messages = [&](auto&& action) {
    const uint64_t before = client->counters().server_messages;
    action();
    return client->counters().server_messages - before;
  };
  std::unique_ptr<File> file;
  NewFile made;
  made.mode = 0644;
  EXPECT_EQ(messages([&] {
              file = std::move(*world_.run(client->create({}, kRootIno, "file", made, O_RDWR)));
            }),
            1u);
  EXPECT_EQ(messages([&] { world_.write(*file, 0, kMany); }), 2u);
  EXPECT_EQ(messages([&] { world_.write(*file, kMany.size(), "x"); }), 1u);
  const std::string page(4096, 'p');
  world_.write(*file, 4096, page);  // with its map
  EXPECT_EQ(messages([&] { world_.write(*file, 8192, page); }), 0u);
  EXPECT_EQ(messages([&] { EXPECT_EQ(world_.read(*file, 8192, 4096), page); }), 0u);
  const fabric::Counters before = client->counters();
  world_.write(*file, 8192, page);
  const fabric::Counters after = client->counters();
  EXPECT_EQ(after.doorbells - before.doorbells, 1u);
  EXPECT_EQ(after.round_trips - before.round_trips, 1u);
  EXPECT_EQ(messages([&] { EXPECT_TRUE(world_.run(client->get_attributes(kRootIno))); }), 1u);
  std::unique_ptr<File> again;
  EXPECT_EQ(messages([&] {
              again = std::move(*world_.run(client->open_file({}, file->ino(), O_RDONLY)));
            }),
            1u);
  EXPECT_EQ(messages([&] { EXPECT_TRUE(world_.run(again->close())); }), 2u) << "mtime, and close";
  world_.run(client->close());
}

}  // namespace
}  // namespace pmstore::fs
