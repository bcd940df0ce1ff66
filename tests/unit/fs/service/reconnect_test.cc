// Clients whose session, or whose server, is lost: what they have open, and what they were doing.
#include "tests/unit/fs/service/files_world.h"

namespace pmstore::fs {
namespace {

class FilesReconnect : public testing::Test {
 protected:
  // Runs `task` for so many turns, then does `what`, then lets it end.
  template <typename T, typename What>
  T interrupt(base::Task<T> task, size_t turns, What what) {
    task.start();
    for (size_t i = 0; i < turns && !task.done(); ++i) world_.executor().run_once();
    ended_before_ = task.done();
    what();
    const auto wait = [](FilesWorld& world, base::Task<T>& waited) -> base::Task<void> {
      while (!waited.done()) co_await world.executor().sleep_for(1'000'000);
    };
    if (!task.done()) world_.run(wait(world_, task));
    return task.take();
  }
  void kick(const ClientSecret& secret) { world_.server().host().kick(secret.id()); }

  FilesWorld world_;
  bool ended_before_ = false;
};

TEST_F(FilesReconnect, FileStaysOpenWhenItsSessionIsLost) {
  auto options = world_.options();
  options.secret = ClientSecret::of_number(1);
  const auto client = world_.connect(options);
  const auto file = world_.open(*client, "/file");
  world_.write(*file, 0, kSome);
  ASSERT_TRUE(world_.run(client->remove("/file")));
  for (int i = 0; i < 3; ++i) {
    kick(options.secret);
    EXPECT_EQ(world_.read(*file, 0, 200'000), kSome);
  }
  EXPECT_EQ(world_.run(client->get_attributes(file->ino()))->links, 0u);
  EXPECT_TRUE(world_.run(file->close()));
  world_.run(client->close());
}

TEST_F(FilesReconnect, UnlinkedFileIsReclaimedFromARestartedServer) {
  const auto client = world_.connect();
  const auto file = world_.open(*client, "/file");
  const auto empty = world_.open(*client, "/empty");
  world_.write(*file, 0, kSome);
  ASSERT_TRUE(world_.run(client->remove("/file")));
  ASSERT_TRUE(world_.run(client->remove("/empty")));
  world_.crash();
  world_.start();
  EXPECT_EQ(world_.read(*file, 0, 200'000), kSome);
  world_.let_time_pass(5 * FilesWorld::kLeaseNs);
  EXPECT_EQ(world_.read(*file, 99'999, 2), "L");
  world_.write(*file, 100'000, "more");
  EXPECT_EQ(world_.read(*file, 99'999, 10), "Lmore");
  EXPECT_EQ(world_.read(*empty, 0, 10), "");
  EXPECT_TRUE(world_.run(file->close()));
  EXPECT_TRUE(world_.run(empty->close()));
  world_.let_time_pass(5 * FilesWorld::kLeaseNs);
  EXPECT_EQ(world_.usage(*client).inodes, 1u);
  EXPECT_EQ(world_.usage(*client).free_bytes, world_.usage(*client).data_bytes);
  world_.run(client->close());
}

TEST_F(FilesReconnect, FilesOfAClientThatDiedAreClosedAfterItsLease) {
  const auto other = world_.connect();
  auto file = world_.open(*other, "/file");
  world_.write(*file, 0, kSome);
  RawClient dies(world_);
  const FilesHello hello{1, 0};
  dies.connect(service::ServiceId::kFiles, service::bytes_of(hello), dies.files);
  dies.ask(FilesMethod::kOpen, OpenRequest{raw(file->ino()), O_RDWR, 0});
  EXPECT_TRUE(world_.run(file->close()));
  ASSERT_TRUE(world_.run(other->remove("/file")));
  EXPECT_EQ(world_.usage(*other).inodes, 2u);
  dies.files.reset();  // without a goodbye
  world_.let_time_pass(FilesWorld::kLeaseNs / 2);
  EXPECT_EQ(world_.usage(*other).inodes, 2u);
  world_.let_time_pass(5 * FilesWorld::kLeaseNs);
  EXPECT_EQ(world_.usage(*other).inodes, 1u);
  EXPECT_EQ(world_.usage(*other).free_bytes, world_.usage(*other).data_bytes);
  world_.run(other->close());
}

TEST_F(FilesReconnect, ReclaimDoesNotTruncate) {
  const auto client = world_.connect();
  auto file = world_.open(*client, "/file");
  world_.write(*file, 0, kSome);
  RawClient comes(world_);
  const FilesHello hello{1, 0};
  comes.connect(service::ServiceId::kFiles, service::bytes_of(hello), comes.files);
  ReclaimRequest asked;
  asked.ino = raw(file->ino());
  asked.flags = O_RDWR | O_TRUNC;
  asked.opens = 2;
  comes.ask(FilesMethod::kReclaim, asked);
  EXPECT_EQ(world_.run(client->get_attributes(file->ino()))->size, kSome.size());
  // It has it open twice.
  EXPECT_TRUE(world_.run(file->close()));
  ASSERT_TRUE(world_.run(client->remove("/file")));
  const Ino ino = file->ino();
  comes.ask(FilesMethod::kClose, InoRequest{raw(ino)});
  EXPECT_TRUE(world_.run(client->get_attributes(ino)));
  comes.ask(FilesMethod::kClose, InoRequest{raw(ino)});
  world_.let_time_pass(FilesWorld::kLeaseNs / 2);
  EXPECT_EQ(number_of(world_.run(client->get_attributes(ino))), ESTALE);
  world_.run(client->close());
}

TEST_F(FilesReconnect, NextSessionOfAnInstanceEndsTheOneBefore) {
  RawClient comes(world_);
  const FilesHello hello{1, 0};
  const auto body = service::bytes_of(hello);
  comes.connect(service::ServiceId::kFiles, body, comes.files);
  std::unique_ptr<service::Link> again;
  comes.connect(service::ServiceId::kFiles, body, again);
  world_.let_time_pass(1'000'000);
  EXPECT_FALSE(comes.files->usable());
  EXPECT_TRUE(again->usable());
  EXPECT_EQ(world_.stat("clients"), 1u);
}

TEST_F(FilesReconnect, OpenThatEndsAfterItsClientHasGoneIsClosed) {
  const auto other = world_.connect();
  for (size_t turns = 0; turns < 30; ++turns) {
    const auto file = world_.open(*other, "/file");
    {
      RawClient dies(world_);
      const FilesHello hello{1, 0};
      dies.connect(service::ServiceId::kFiles, service::bytes_of(hello), dies.files);
      auto opens = dies.call(FilesMethod::kOpen, OpenRequest{raw(file->ino()), O_RDWR, 0});
      opens.start();
      for (size_t i = 0; i < turns; ++i) world_.executor().run_once();
      // It is forgotten at once.
      auto bye = dies.files->call(service::kGoodbyeMethod, {}, 0);
      bye.start();
      for (size_t i = 0; i < 3; ++i) world_.executor().run_once();
      dies.files->drop();
      opens = {};
      bye = {};
    }
    ASSERT_TRUE(world_.run(other->remove("/file")));
    EXPECT_TRUE(world_.run(file->close()));
    world_.let_time_pass(3 * FilesWorld::kLeaseNs);
    ASSERT_EQ(world_.usage(*other).inodes, 1u) << turns;
  }
  world_.run(other->close());
}

TEST_F(FilesReconnect, AppendWhoseAnswerIsLostHappensOnce) {
  auto options = world_.options();
  options.secret = ClientSecret::of_number(1);
  const auto client = world_.connect(options);
  const auto file = world_.open(*client, "/log");
  std::string expected;
  for (size_t turns = 0;; ++turns) {
    const std::string line = "line " + std::to_string(turns) + "\n";
    const auto appended =
        interrupt(file->append(bytes_of(line)), turns, [&] { kick(options.secret); });
    ASSERT_TRUE(appended) << turns << ": " << appended.error().to_string();
    expected += line;
    EXPECT_EQ(world_.read(*file, 0, 100'000), expected) << turns;
    if (ended_before_) break;
  }
  EXPECT_GE(expected.size(), 14u) << "it was interrupted before it ended";
  world_.run(client->close());
}

// The first try waits for the lock of the file while the second one arrives.
TEST_F(FilesReconnect, AppendThatIsRepeatedWhileItRunsHappensOnce) {
  const auto other = world_.connect();
  const auto file = world_.open(*other, "/log");
  const uint64_t size = 3 << 20;
  world_.write(*file, size - 1, "x");
  RawClient repeats(world_);
  const FilesHello hello{1, 0};
  repeats.connect(service::ServiceId::kFiles, service::bytes_of(hello), repeats.files);
  RequestHead head;
  head.number = 1;
  WriteRequest append;
  append.ino = raw(file->ino());
  append.bytes = 4;
  append.append = 1;
  std::vector<std::byte> request(sizeof head + sizeof append + append.bytes);
  fabric::MessageWriter writer(request);
  writer.put(head);
  writer.put(append);
  writer.put_bytes("line");
  auto zeroes = file->allocate(AllocateMode::kZeroRange, 0, 2 << 20);
  zeroes.start();
  for (int i = 0; i < 3; ++i) world_.executor().run_once();
  constexpr auto kMethod = static_cast<uint16_t>(FilesMethod::kWrite);
  auto first = repeats.files->call(kMethod, request, 64 * 1024);
  auto second = repeats.files->call(kMethod, request, 64 * 1024);
  first.start();
  second.start();
  for (int i = 0; i < 100 && !(first.done() && second.done() && zeroes.done()); ++i) {
    world_.let_time_pass(FilesWorld::kLeaseNs / 100);
  }
  ASSERT_TRUE(first.done() && second.done() && zeroes.done());
  EXPECT_EQ(world_.stat("repeated"), 1u);
  EXPECT_EQ(world_.run(other->get_attributes(file->ino()))->size, size + 4);
  // Once it has its answer, that is given again.
  EXPECT_TRUE(world_.run(repeats.files->call(kMethod, request, 64 * 1024)));
  EXPECT_EQ(world_.run(other->get_attributes(file->ino()))->size, size + 4);
  world_.run(other->close());
}

TEST_F(FilesReconnect, CreateWhoseAnswerIsLostHappensOnce) {
  auto options = world_.options();
  options.secret = ClientSecret::of_number(1);
  const auto client = world_.connect(options);
  for (size_t turns = 0;; ++turns) {
    const std::string path = "/file" + std::to_string(turns);
    auto made = interrupt(client->open(path, O_RDWR | O_CREAT | O_EXCL), turns,
                          [&] { kick(options.secret); });
    ASSERT_TRUE(made) << turns << ": " << made.error().to_string();
    // It is open once: a single close deletes it.
    const Ino ino = (*made)->ino();
    EXPECT_TRUE(world_.run(client->remove(path)));
    EXPECT_TRUE(world_.run(client->get_attributes(ino)));
    EXPECT_TRUE(world_.run((*made)->close()));
    world_.let_time_pass(FilesWorld::kLeaseNs);
    EXPECT_EQ(number_of(world_.run(client->get_attributes(ino))), ESTALE) << turns;
    if (ended_before_) break;
  }
  world_.run(client->close());
}

TEST_F(FilesReconnect, AppendAtARestartHappensOnceOrIsInDoubt) {
  const auto client = world_.connect();
  const auto file = world_.open(*client, "/log");
  std::string known;
  size_t in_doubt = 0;
  for (size_t turns = 0;; ++turns) {
    const std::string line = "line " + std::to_string(turns) + "\n";
    const auto appended = interrupt(file->append(bytes_of(line)), turns, [&] {
      world_.crash();
      world_.start();
    });
    const std::string now = world_.read(*file, 0, 100'000);
    if (appended) {
      EXPECT_EQ(now, known + line) << turns;
    } else {
      EXPECT_EQ(appended.number(), EIO);
      EXPECT_TRUE(now == known || now == known + line) << turns;
      ++in_doubt;
    }
    known = now;
    if (ended_before_) break;
  }
  EXPECT_GT(in_doubt, 0u);
  world_.run(client->close());
}

TEST_F(FilesReconnect, RenameAtARestartIsDoneOrInDoubt) {
  const auto client = world_.connect();
  size_t done = 0;
  for (size_t turns = 0;; ++turns) {
    const std::string from = "/from" + std::to_string(turns);
    const std::string to = "/to" + std::to_string(turns);
    ASSERT_NE(world_.open(*client, from), nullptr);
    const auto renamed = interrupt(client->rename(from, to), turns, [&] {
      world_.crash();
      world_.start();
    });
    done += renamed ? 1 : 0;
    if (!renamed) {
      EXPECT_EQ(renamed.number(), EIO) << turns;
    }
    EXPECT_TRUE(world_.run(client->stat(to)));
    EXPECT_EQ(number_of(world_.run(client->stat(from))), ENOENT);
    if (ended_before_) break;
  }
  EXPECT_GT(done, 0u);
  world_.run(client->close());
}

// The target is another file: it does not show that this call has moved something.
TEST_F(FilesReconnect, WhatWasNeverThereIsNeitherRenamedNorRemovedAtARestart) {
  const auto client = world_.connect();
  ASSERT_NE(world_.open(*client, "/there"), nullptr);
  for (const bool removes : {false, true}) {
    for (size_t turns = 0;; ++turns) {
      const auto restart = [&] {
        world_.crash();
        world_.start();
      };
      const auto done = removes ? interrupt(client->remove("/missing"), turns, restart)
                                : interrupt(client->rename("/missing", "/there"), turns, restart);
      EXPECT_FALSE(done) << turns;
      if (ended_before_) break;
    }
  }
  world_.run(client->close());
}

// What makes a name, by inode and by path, under a name of its own in each turn.
class FilesMakeInDoubt : public FilesReconnect {
 protected:
  enum class Kind { kDirectory, kDirectoryByPath, kFile, kFileByPath, kSymlink, kLink };
  static constexpr Kind kKinds[] = {Kind::kDirectory,  Kind::kDirectoryByPath, Kind::kFile,
                                    Kind::kFileByPath, Kind::kSymlink,         Kind::kLink};
  // The errno; 0: it was made.
  base::Task<int> make(FileSystem& client, Kind kind, std::string name) {
    const Caller root;
    NewFile file;
    file.mode = 0400;
    if (kind == Kind::kDirectoryByPath) {
      co_return number_of(co_await client.make_directory("/" + name));
    }
    if (kind == Kind::kFile) {
      co_return number_of(co_await client.create(root, kRootIno, name, file, O_RDWR));
    }
    if (kind == Kind::kFileByPath) {
      const std::string path = "/" + name;
      co_return number_of(co_await client.open(path, O_RDWR | O_CREAT | O_EXCL, 0400));
    }
    if (kind == Kind::kLink) {
      co_return number_of(co_await client.link(root, target_, kRootIno, name));
    }
    file.type = kind == Kind::kDirectory ? FileType::kDirectory : FileType::kSymlink;
    if (kind == Kind::kSymlink) file.target = "target";
    co_return number_of(co_await client.make(root, kRootIno, name, file));
  }
  void restart() {
    world_.crash();
    world_.start();
  }

  Ino target_{};
};

TEST_F(FilesMakeInDoubt, WhatIsMadeAtARestartWasMadeByTheCall) {
  FileSystemOptions with = world_.options();
  with.caller = {1000, 1000, {}};
  const auto root = world_.connect();
  AttributeChange open_to_all;
  open_to_all.set = AttributeChange::kMode;
  open_to_all.mode = 0777;
  ASSERT_TRUE(world_.run(root->set_attributes({}, kRootIno, open_to_all)));
  const auto client = world_.connect(with);
  target_ = world_.open(*root, "/target")->ino();
  for (const Kind kind : kKinds) {
    for (size_t turns = 0;; ++turns) {
      const std::string name = std::to_string(static_cast<int>(kind)) + "-" + std::to_string(turns);
      EXPECT_EQ(interrupt(make(*client, kind, name), turns, [&] { restart(); }), 0) << name;
      EXPECT_TRUE(world_.run(root->lookup({}, kRootIno, name))) << name;
      if (ended_before_) break;
    }
  }
  world_.run(client->close());
  world_.run(root->close());
}

TEST_F(FilesMakeInDoubt, WhatWasThereBeforeARestartIsAnothers) {
  const auto client = world_.connect();
  target_ = world_.open(*client, "/target")->ino();
  for (const Kind kind : kKinds) {
    const std::string name = std::to_string(static_cast<int>(kind));
    ASSERT_EQ(world_.run(make(*client, kind, name)), 0);
    for (size_t turns = 0;; ++turns) {
      EXPECT_EQ(interrupt(make(*client, kind, name), turns, [&] { restart(); }), EEXIST) << name;
      if (ended_before_) break;
    }
  }
  world_.run(client->close());
}

TEST_F(FilesMakeInDoubt, OneOfTwoThatMakeANameAtARestartHasMadeIt) {
  const auto client = world_.connect(), other = world_.connect();
  target_ = world_.open(*client, "/target")->ino();
  size_t of_the_other = 0, in_all = 0;
  for (const Kind kind : kKinds) {
    for (size_t turns = 0;; ++turns) {
      const std::string name = std::to_string(static_cast<int>(kind)) + "-" + std::to_string(turns);
      int others = 0;
      const int mine = interrupt(make(*client, kind, name), turns, [&] {
        restart();
        others = world_.run(make(*other, kind, name));
      });
      EXPECT_EQ(std::min(mine, others), 0) << name;
      EXPECT_EQ(std::max(mine, others), EEXIST) << name;
      of_the_other += others == 0 ? 1 : 0;
      ++in_all;
      if (ended_before_) break;
    }
  }
  EXPECT_GT(of_the_other, 0u);
  EXPECT_LT(of_the_other, in_all);
  world_.run(client->close());
  world_.run(other->close());
}

TEST_F(FilesReconnect, SymlinkIsFollowedByACreateAtARestart) {
  const auto client = world_.connect();
  ASSERT_TRUE(world_.run(client->make_symlink("target", "/link")));
  for (size_t turns = 0;; ++turns) {
    const auto opened = interrupt(client->open("/link", O_RDWR | O_CREAT), turns, [&] {
      world_.crash();
      world_.start();
    });
    EXPECT_TRUE(opened) << turns << ": " << opened.error().to_string();
    if (ended_before_) break;
  }
  EXPECT_TRUE(world_.run(client->stat("/target")));
  world_.run(client->close());
}

TEST_F(FilesReconnect, ClientWithoutPatienceGetsEio) {
  auto options = world_.options();
  options.reconnect_timeout_ns = 0;
  const auto client = world_.connect(options);
  const auto file = world_.open(*client, "/file");
  world_.crash();
  EXPECT_EQ(number_of(world_.run(file->pwrite(bytes_of("x"), 0))), EIO);
  EXPECT_EQ(number_of(world_.run(client->stat("/file"))), EIO);
  world_.start();
  EXPECT_TRUE(world_.run(client->stat("/file")));
  world_.run(client->close());
}

// close() does not wait for the server, and what follows goes behind it.
base::Task<PosixResult<Attributes>> close_and_look(File& file, FileSystem& client) {
  PosixStatus closed = co_await file.close();
  if (!closed) co_return PosixError(closed.error());
  co_return co_await client.stat("/");
}

TEST_F(FilesReconnect, CloseThatFailsIsMadeUpForInTheNextSession) {
  auto options = world_.options();
  options.reconnect_timeout_ns = 0;
  options.secret = ClientSecret::of_number(1);
  const auto client = world_.connect(options);
  const auto other = world_.connect();
  int failed = 0;
  for (size_t turns = 0;; ++turns) {
    const auto file = world_.open(*client, "/file");
    ASSERT_NE(file, nullptr);
    ASSERT_TRUE(world_.run(other->remove("/file")));
    const auto looked =
        interrupt(close_and_look(*file, *client), turns, [&] { kick(options.secret); });
    if (ended_before_) break;
    failed += looked ? 0 : 1;
    EXPECT_TRUE(world_.run(client->stat("/")));
    world_.let_time_pass(FilesWorld::kLeaseNs / 10);
    ASSERT_EQ(world_.usage(*other).inodes, 1u) << turns;
  }
  EXPECT_GT(failed, 0);
  world_.run(other->close());
  world_.run(client->close());
}

TEST_F(FilesReconnect, CloseAtARestartClosesNoOtherOpen) {
  const auto client = world_.connect();
  for (size_t turns = 0;; ++turns) {
    const std::string path = "/file" + std::to_string(turns);
    const auto file = world_.open(*client, path);
    const auto again = world_.open(*client, path);
    const auto closed = interrupt(file->close(), turns, [&] {
      world_.crash();
      world_.start();
    });
    EXPECT_TRUE(closed) << turns << ": " << closed.error().to_string();
    EXPECT_TRUE(world_.run(again->close())) << turns;
    if (ended_before_) break;
  }
  world_.run(client->close());
}

TEST_F(FilesReconnect, OneSidedWriteGoesOnAtARestartedServer) {
  const auto client = world_.connect();
  const auto file = world_.open(*client, "/file");
  world_.write(*file, 0, kSome);
  for (size_t turns = 0;; turns += 3) {
    const std::string text = "text " + std::to_string(turns);
    const auto written = interrupt(file->pwrite(bytes_of(text), 500), turns, [&] {
      world_.crash();
      world_.start();
    });
    EXPECT_TRUE(written) << turns << ": " << written.error().to_string();
    EXPECT_EQ(world_.read(*file, 500, text.size()), text) << turns;
    if (ended_before_) break;
  }
  world_.run(client->close());
}

}  // namespace
}  // namespace pmstore::fs
