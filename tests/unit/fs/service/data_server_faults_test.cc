// Data servers under attack and failure: strangers, later namespace servers, drains that cannot go
// on, clients that lose one of several servers.
#include "fs/file_data_protocol.h"
#include "fs/internal/data_server_records.h"
#include "fs/layout/fs_layout.h"
#include "pmstore/client.h"
#include "tests/unit/fs/service/data_servers_fixture.h"

namespace pmstore::fs {
namespace {

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

TEST_F(DataServersTest, AnAccessToSeveralServersIsRepeatedWhenOneOfThemWasStartedAgain) {
  DataServerPool& pool = add();
  const auto file = world_.open(client(), "/file");
  world_.write(*file, 0, kMany);
  EXPECT_EQ(world_.read(*file, 0, kMany.size()), kMany);  // it has the map, and sessions
  ASSERT_TRUE(extents_at(*file, 0) > 0 && extents_at(*file, 1) > 0);
  pool.crash();
  pool.start();
  const std::string text = content(kMany.size());
  world_.write(*file, 0, text);
  EXPECT_EQ(world_.read(*file, 0, text.size()), text);
  pool.crash();
  pool.start();
  EXPECT_EQ(world_.read(*file, 0, text.size()), text);
}

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

// As a hard mount has it.
class FsyncClientTest : public DataServersTest {
 protected:
  class Cache final : public FileCache {
   public:
    base::Task<void> forget(Ino) override { co_return; }
  };
  FsyncClientTest() {
    goes_ = &add();
    drain(0);
    FileSystemOptions with = world_.options();
    with.sync = DataSync::kFsync;
    with.reconnect_timeout_ns = 1000 * FilesWorld::kPatienceNs;
    writer_ = world_.connect(with);
    writer_->set_cache(&cache_);
    file_ = make_file("/file");
  }
  ~FsyncClientTest() override {
    file_.reset();
    run(writer_->close());
  }
  std::unique_ptr<File> make_file(const std::string& path) {
    auto file = world_.open(*writer_, path);
    world_.write(*file, 0, kSome);
    EXPECT_EQ(world_.read(*file, 0, 1), "L");  // its map is known
    EXPECT_TRUE(run(file->fsync()));
    return file;
  }

  DataServerPool* goes_ = nullptr;
  Cache cache_;
  std::unique_ptr<FileSystem> writer_;
  std::unique_ptr<File> file_;
};

TEST_F(FsyncClientTest, ARecallDoesNotWaitUntilWhatWasWrittenIsDurable) {
  ASSERT_TRUE(file_->was_delegated());
  world_.let_time_pass(1'000'000);
  world_.write(*file_, 100, "visible");
  goes_->crash();
  const uint64_t clients = world_.stat("clients");
  const uint64_t begun_ns = world_.executor().now_ns();
  const uint64_t mtime_ns = file_->attributes().mtime_ns;
  const auto same = world_.open(client(), "/file");
  EXPECT_LT(world_.executor().now_ns() - begun_ns, FilesWorld::kLeaseNs);
  const auto now = run(client().get_attributes(file_->ino()));
  ASSERT_TRUE(now);
  EXPECT_GT(now->mtime_ns, mtime_ns) << "others see when it was written";
  world_.let_time_pass(6 * FilesWorld::kLeaseNs);
  EXPECT_EQ(world_.stat("deaf"), 0u);
  EXPECT_EQ(world_.stat("clients"), clients);
  goes_->start();
  world_.let_time_pass(2 * FilesWorld::kLeaseNs);
  EXPECT_EQ(number_of(run(file_->fsync())), EIO) << "it was started again before";
  EXPECT_EQ(world_.read(*same, 100, 7), "visible");
}

TEST_F(FsyncClientTest, ADataServerThatIsAwayHoldsUpNoFileOfOthersInTheBackground) {
  EXPECT_TRUE(run(client().drain_data_server(0, true)));
  std::unique_ptr<File> other;
  for (int i = 0; i < 8 && other == nullptr; ++i) {
    auto made = make_file("/other" + std::to_string(i));
    if (extents_at(*made, 1) == 0) other = std::move(made);
  }
  ASSERT_NE(other, nullptr);
  const auto mtime_ns = [&] { return run(client().get_attributes(other->ino()))->mtime_ns; };
  const uint64_t before_ns = mtime_ns();
  ASSERT_LT(raw(file_->ino()), raw(other->ino())) << "it is flushed first";
  world_.write(*file_, 0, "waits");
  world_.write(*other, 0, "goes on");
  goes_->crash();
  world_.let_time_pass(3 * FilesWorld::kLeaseNs);
  EXPECT_GT(mtime_ns(), before_ns);
  goes_->start();
}

TEST_F(FsyncClientTest, AClientIsClosedWhileADataServerIsAway) {
  world_.write(*file_, 100, "visible");
  goes_->crash();
  world_.let_time_pass(2 * FilesWorld::kLeaseNs);
  auto closing = writer_->close();
  closing.start();
  world_.let_time_pass(20'000'000'000);
  ASSERT_TRUE(closing.done());
  EXPECT_EQ(number_of(run(file_->close())), EIO) << "it is not durable";
  goes_->start();
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

// The client was held back at the first server long before it wrote at the second one.
TEST_F(DataServersByMessageTest, ARecallWaitsForTheServerAtWhichAWriteMayLand) {
  DataServerPool& first = add();
  DataServerPool& second = add();
  drain(0);
  class Cache final : public FileCache {
   public:
    base::Task<void> forget(Ino) override { co_return; }
  } cache;
  const auto writer = world_.connect();
  writer->set_cache(&cache);
  std::unique_ptr<File> at_first;
  std::unique_ptr<File> at_second;
  for (int i = 0; at_first == nullptr || at_second == nullptr; ++i) {
    ASSERT_LT(i, 8);
    auto made = world_.open(*writer, "/file" + std::to_string(i));
    world_.write(*made, 0, kSome);
    EXPECT_EQ(world_.read(*made, 0, 1), "L");  // its map is known
    (extents_at(*made, 1) > 0 ? at_first : at_second) = std::move(made);
  }
  std::unique_ptr<File> changed;
  for (int i = 0; changed == nullptr || extents_at(*changed, 1) > 0; ++i) {
    ASSERT_LT(i, 8);
    changed = world_.open(client(), "/changed" + std::to_string(i));
    world_.write(*changed, 0, kSome);
  }
  first.crash();
  auto waits = at_first->pwrite(bytes_of("late"), 0);
  waits.start();
  world_.let_time_pass(FilesWorld::kLeaseNs / 10);
  EXPECT_TRUE(run(changed->truncate(0)));  // news
  world_.let_time_pass(FilesWorld::kLeaseNs * 3 / 2);
  second.crash();
  auto also_waits = at_second->pwrite(bytes_of("late"), 0);
  also_waits.start();
  world_.let_time_pass(FilesWorld::kLeaseNs / 10);
  ASSERT_FALSE(also_waits.done());
  const uint64_t begun_ns = world_.executor().now_ns();
  const auto path = at_second->ino() == run(client().stat("/file0"))->ino ? "/file0" : "/file1";
  ASSERT_EQ(run(client().stat(path))->ino, at_second->ino());
  const auto same = world_.open(client(), path, O_RDWR);
  EXPECT_GE(world_.executor().now_ns() - begun_ns, 2 * FilesWorld::kLeaseNs);
  EXPECT_LT(world_.executor().now_ns() - begun_ns, 4 * FilesWorld::kLeaseNs);
  first.start();
  second.start();
  world_.let_time_pass(2 * FilesWorld::kLeaseNs);
  EXPECT_TRUE(waits.done() && also_waits.done());
  EXPECT_TRUE(run(at_first->close()) && run(at_second->close()));
  run(writer->close());
}

// ---- an upgrade ----

TEST_F(DataServersTest, AFullPoolOfAnEarlierReleaseIsRefusedWithWhatToDo) {
  add();
  const uint64_t area = info(1).area;
  const auto make = [&](const std::string& path) {
    return number_of(run(client().open(path, O_RDWR | O_CREAT, 0644)));
  };
  // Large records, and then small ones.
  const std::string value(48 << 10, 'v');
  const auto make_large = [&](int i) {
    const Ino ino = world_.open(client(), "/large" + std::to_string(i))->ino();
    return run(client().set_xattr({}, ino, "user.large", bytes_of(value), XattrMode::kCreate));
  };
  for (int i = 0; make_large(i);) ++i;
  int made = 0;
  while (make("/file" + std::to_string(made)) == 0) ++made;
  EXPECT_GT(made, 100);
  // It has added the server, and knows of no secret.
  auto store = run(Client::connect(world_.executor(), world_.uri(), {})).value();
  const auto table = run(store->open_table(".fs.super", false)).value();
  const std::string key = internal::owner_secret_key(area);
  ASSERT_TRUE(run(store->erase(table, key)));
  const std::string secret(sizeof(ClientSecret), 's');
  const auto fills = [&](int i) {
    std::string filler = std::to_string(10'000'000 + i);
    filler.resize(key.size(), 'f');
    return run(store->put(table, filler, secret)).has_value();
  };
  for (int i = 0; fills(i);) ++i;
  internal::DataServerRecords records(*store);
  const auto secret_of = [&] { return run(records.secret_of(area)); };
  EXPECT_EQ(secret_of().code(), ErrorCode::kFull);
  const auto refused = run(client().add_data_server(this->make().uri()));
  ASSERT_EQ(number_of(refused), ENOSPC);
  EXPECT_NE(refused.error().message.find("remove files and add it again"), std::string::npos);
  EXPECT_TRUE(run(store->get(table, "spare000"))) << "to remove files with the earlier one";
  for (int i = 0; i < made; ++i) {
    const auto removed = run(client().remove("/file" + std::to_string(i)));
    ASSERT_TRUE(removed) << i << ": " << removed.error().to_string();
  }
  world_.let_time_pass(3 * FilesWorld::kLeaseNs);
  EXPECT_TRUE(secret_of());
  run(store->close());
}

}  // namespace
}  // namespace pmstore::fs
