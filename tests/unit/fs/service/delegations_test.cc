// Files that a client may cache, until another one opens them in a way that conflicts.
#include "fs/internal/delegations.h"

#include <map>
#include <optional>

#include "tests/unit/fs/service/delegations_fixture.h"

namespace pmstore::fs {
namespace {

TEST_F(FilesDelegations, OneWriterOrManyReadersMayCache) {
  Client one(world_);
  Client two(world_);
  {
    const auto file = world_.open(*one.files, "/file");
    EXPECT_TRUE(file->was_delegated());
    EXPECT_TRUE(one.has(*file));
    EXPECT_TRUE(world_.open(*one.files, "/file", O_RDONLY)->was_delegated()) << "its own";
    EXPECT_TRUE(one.has(*file));
    world_.write(*file, 0, kSome);
    EXPECT_EQ(one.files->delegated(file->ino())->size, kSome.size());
    EXPECT_TRUE(world_.run(file->close()));
    EXPECT_FALSE(one.has(*file));
  }
  const auto reads = world_.open(*one.files, "/file", O_RDONLY);
  const auto also = world_.open(*two.files, "/file", O_RDONLY);
  EXPECT_TRUE(one.has(*reads));
  EXPECT_TRUE(two.has(*also));
  EXPECT_EQ(two.files->delegated(also->ino())->size, kSome.size());
  EXPECT_EQ(world_.stat("recalls"), 0u);
}

TEST_F(FilesDelegations, SecondWriterRecallsItAndWaitsForThat) {
  Client one(world_);
  Client two(world_);
  const auto file = world_.open(*one.files, "/file");
  one.cache.takes_ns = FilesWorld::kLeaseNs / 2;  // longer than one call waits
  const uint64_t begun_ns = now_ns();
  const auto same = world_.open(*two.files, "/file", O_RDWR);
  EXPECT_GE(now_ns() - begun_ns, one.cache.takes_ns);
  EXPECT_LT(now_ns() - begun_ns, one.cache.takes_ns + FilesWorld::kLeaseNs / 10);
  EXPECT_EQ(one.cache.forgotten[file->ino()], 1);
  EXPECT_FALSE(same->was_delegated());
  EXPECT_FALSE(one.has(*file));
  EXPECT_FALSE(two.has(*same));
  EXPECT_EQ(world_.stat("recalls"), 1u);
  EXPECT_EQ(world_.stat("deaf"), 0u);
}

TEST_F(FilesDelegations, RecallOfAnIdleClientTakesNoTime) {
  Client one(world_);
  const auto plain = world_.connect();  // caches nothing itself
  make(*plain, "/file", kSome);
  const auto file = world_.open(*one.files, "/file", O_RDONLY);
  for (int i = 0; i < 5; ++i) {
    world_.let_time_pass(FilesWorld::kLeaseNs * 3);
    EXPECT_TRUE(one.has(*file)) << "it hears of the server";
  }
  const uint64_t begun_ns = now_ns();
  const auto writes = world_.open(*plain, "/file", O_WRONLY);
  EXPECT_LT(now_ns() - begun_ns, 1'000'000u);
  EXPECT_FALSE(one.has(*file));
  EXPECT_EQ(one.cache.forgotten[file->ino()], 1);
}

// A call that waits keeps its place in the rings of its connection, and those of all later ones.
TEST_F(FilesDelegations, ARequestForNewsHoldsUpNothingElseOfItsClient) {
  Client one(world_);
  const auto file = world_.open(*one.files, "/file");
  ASSERT_TRUE(one.has(*file));
  world_.let_time_pass(1'000'000);
  const uint64_t begun_ns = now_ns();
  for (int i = 0; i < 3000; ++i) ASSERT_TRUE(world_.run(one.files->get_attributes(kRootIno)));
  EXPECT_LT(now_ns() - begun_ns, FilesWorld::kLeaseNs / 10);
  EXPECT_TRUE(one.has(*file));
}

TEST_F(FilesDelegations, AnOpenThatWaitsHoldsUpNothingElseOfItsClient) {
  Client one(world_);
  const auto plain = world_.connect();
  const auto file = world_.open(*one.files, "/file");
  one.cache.takes_ns = FilesWorld::kLeaseNs * 3 / 4;
  Opening opening;
  begin_open(opening, *plain, "/file", O_RDWR);
  world_.let_time_pass(1'000'000);
  const uint64_t begun_ns = now_ns();
  for (int i = 0; i < 3000; ++i) ASSERT_TRUE(world_.run(plain->get_attributes(kRootIno)));
  EXPECT_LT(now_ns() - begun_ns, FilesWorld::kLeaseNs / 10);
  EXPECT_FALSE(opening.result);
  finish(opening);
  EXPECT_TRUE(*opening.result);
  opening.result.reset();
  world_.run(plain->close());
}

TEST_F(FilesDelegations, ReaderRecallsAWriter) {
  Client one(world_);
  Client two(world_);
  const auto writes = world_.open(*one.files, "/file");
  const auto reads = world_.open(*two.files, "/file", O_RDONLY);
  EXPECT_FALSE(one.has(*writes));
  EXPECT_FALSE(two.has(*reads));
}

TEST_F(FilesDelegations, SharedFileIsNotCachedUntilAllHaveClosedIt) {
  Client one(world_);
  Client two(world_);
  const auto file = world_.open(*one.files, "/file");
  {
    const auto same = world_.open(*two.files, "/file", O_RDWR);
    EXPECT_FALSE(world_.open(*one.files, "/file", O_RDONLY)->was_delegated());
    EXPECT_TRUE(world_.run(same->close()));
  }
  EXPECT_FALSE(world_.open(*one.files, "/file", O_RDONLY)->was_delegated()) << "one has it open";
  EXPECT_FALSE(world_.open(*two.files, "/file", O_RDONLY)->was_delegated());
  EXPECT_TRUE(world_.run(file->close()));
  world_.let_time_pass(FilesWorld::kLeaseNs / 10);
  EXPECT_TRUE(world_.open(*two.files, "/file", O_RDONLY)->was_delegated());
}

TEST_F(FilesDelegations, TruncationByPathRecalls) {
  Client one(world_);
  Client two(world_);
  make(*one.files, "/file", kSome);
  const auto file = world_.open(*one.files, "/file", O_RDONLY);
  one.cache.takes_ns = FilesWorld::kLeaseNs / 2;
  AttributeChange change;
  change.set = AttributeChange::kSize;
  change.size = 10;
  ASSERT_TRUE(world_.run(two.files->set_attributes({}, file->ino(), change)));
  EXPECT_EQ(one.cache.forgotten[file->ino()], 1);
  EXPECT_FALSE(one.has(*file));
  EXPECT_EQ(world_.read(*file, 0, 100), kSome.substr(0, 10));
  // Its own does not.
  make(*one.files, "/mine", kSome);
  const auto mine = world_.open(*one.files, "/mine", O_RDONLY);
  ASSERT_TRUE(world_.run(one.files->set_attributes({}, mine->ino(), change)));
  EXPECT_TRUE(one.has(*mine));
  EXPECT_EQ(one.files->delegated(mine->ino())->size, 10u);
}

TEST_F(FilesDelegations, TruncationByOpenRecalls) {
  Client one(world_);
  Client two(world_);
  make(*one.files, "/file", kSome);
  const auto file = world_.open(*one.files, "/file", O_RDONLY);
  const auto cut = world_.open(*two.files, "/file", O_RDONLY | O_TRUNC);
  EXPECT_FALSE(one.has(*file));
  EXPECT_EQ(one.cache.forgotten[file->ino()], 1);
}

TEST_F(FilesDelegations, ClientThatDoesNotConfirmIsForgotten) {
  Client one(world_);
  Client two(world_);
  make(*one.files, "/file", kSome);
  const auto file = world_.open(*one.files, "/file", O_RDONLY);
  one.cache.takes_ns = 100 * FilesWorld::kLeaseNs;
  const uint64_t begun_ns = now_ns();
  const auto same = world_.open(*two.files, "/file", O_RDWR);
  ASSERT_NE(same, nullptr);
  EXPECT_GE(now_ns() - begun_ns, 2 * FilesWorld::kLeaseNs);
  EXPECT_LT(now_ns() - begun_ns, 3 * FilesWorld::kLeaseNs);
  EXPECT_FALSE(one.has(*file));
  EXPECT_EQ(world_.stat("deaf"), 1u);
}

TEST_F(FilesDelegations, ClientThatHearsNothingForALeaseIsNotSure) {
  Client one(world_);
  make(*one.files, "/file", kSome);
  const auto file = world_.open(*one.files, "/file", O_RDONLY);
  EXPECT_TRUE(one.has(*file));
  world_.crash();
  world_.let_time_pass(FilesWorld::kLeaseNs / 2);
  EXPECT_TRUE(one.has(*file)) << "no server has given it to anybody else yet";
  world_.let_time_pass(FilesWorld::kLeaseNs);
  EXPECT_FALSE(one.has(*file));
  world_.start();
}

TEST_F(FilesDelegations, RestartedServerGivesNoFileToAWriterForALease) {
  Client one(world_);
  Client two(world_);
  make(*one.files, "/file", kSome);
  const auto file = world_.open(*one.files, "/file", O_RDONLY);
  world_.crash();
  world_.start();
  const uint64_t begun_ns = now_ns();
  const auto made = world_.open(*two.files, "/new", O_RDWR | O_CREAT);
  EXPECT_LT(now_ns() - begun_ns, FilesWorld::kLeaseNs / 4) << "nobody has what is new";
  const auto same = world_.open(*two.files, "/file", O_RDWR | O_CREAT);
  ASSERT_NE(same, nullptr);
  EXPECT_GE(now_ns() - begun_ns, FilesWorld::kLeaseNs - 50'000'000);
  EXPECT_FALSE(one.has(*file));
  EXPECT_EQ(one.cache.forgotten[file->ino()], 1);
  EXPECT_FALSE(same->was_delegated());
  // A file that was open before is not cached by later opens either.
  EXPECT_FALSE(world_.open(*two.files, "/new", O_RDWR)->was_delegated());
}

TEST_F(FilesDelegations, OpenThatWaitsOverARestartIsOpenThere) {
  Client one(world_);
  Client two(world_);
  make(*one.files, "/file", kSome);
  const auto file = world_.open(*one.files, "/file", O_RDONLY);
  one.cache.takes_ns = 5 * FilesWorld::kLeaseNs;
  Opening opening;
  begin_open(opening, *two.files, "/file", O_RDWR);
  world_.let_time_pass(FilesWorld::kLeaseNs / 10);
  ASSERT_FALSE(opening.result);
  world_.crash();
  world_.start();
  finish(opening);
  ASSERT_TRUE(*opening.result) << opening.result->error().to_string();
  EXPECT_TRUE(world_.run(file->close()));
  ASSERT_TRUE(world_.run(one.files->remove("/file")));
  world_.let_time_pass(FilesWorld::kLeaseNs / 10);
  EXPECT_EQ(world_.read(***opening.result, 0, 10), kSome.substr(0, 10)) << "it lives by its open";
}

TEST_F(FilesDelegations, OpenThatWaitsCanBeCancelled) {
  Client one(world_);
  Client two(world_);
  make(*one.files, "/file", kSome);
  const auto file = world_.open(*one.files, "/file", O_RDONLY);
  one.cache.takes_ns = FilesWorld::kLeaseNs / 2;
  {
    Opening opening;
    begin_open(opening, *two.files, "/file", O_RDWR);
    world_.let_time_pass(FilesWorld::kLeaseNs / 10);
    ASSERT_FALSE(opening.result);
  }
  world_.let_time_pass(FilesWorld::kLeaseNs);
  EXPECT_TRUE(world_.run(file->close()));
  EXPECT_TRUE(world_.open(*one.files, "/file")->was_delegated()) << "it was closed again";
}

TEST_F(FilesDelegations, TruncationByWhoReadsTheFileWaitsEachTime) {
  Client one(world_);
  Client two(world_);
  make(*one.files, "/file", kSome);
  const auto file = world_.open(*one.files, "/file", O_RDONLY);
  const auto also = world_.open(*two.files, "/file", O_RDONLY);
  one.cache.takes_ns = FilesWorld::kLeaseNs;  // longer than a call waits
  AttributeChange change;
  change.set = AttributeChange::kSize;
  change.size = 10;
  const uint64_t begun_ns = now_ns();
  ASSERT_TRUE(world_.run(two.files->set_attributes({}, also->ino(), change)));
  EXPECT_GE(now_ns() - begun_ns, one.cache.takes_ns);
  EXPECT_FALSE(one.has(*file));
}

TEST_F(FilesDelegations, ChangeOfRightsRecalls) {
  Client one(world_);
  const auto plain = world_.connect();
  make(*one.files, "/file", kSome);
  const auto file = world_.open(*one.files, "/file", O_RDONLY);
  AttributeChange change;
  change.set = AttributeChange::kMode;
  change.mode = 0600;
  const Caller nobody{.uid = 1000, .gid = 1000, .groups = {}};
  EXPECT_EQ(number_of(world_.run(plain->set_attributes(nobody, file->ino(), change))), EPERM);
  AttributeChange cut;
  cut.set = AttributeChange::kSize;
  EXPECT_EQ(number_of(world_.run(plain->set_attributes(nobody, file->ino(), cut))), EACCES);
  world_.let_time_pass(FilesWorld::kLeaseNs);
  EXPECT_TRUE(one.has(*file)) << "who may not change it recalls nothing";
  ASSERT_TRUE(world_.run(plain->set_attributes({}, file->ino(), change)));
  EXPECT_FALSE(one.has(*file));
}

TEST_F(FilesDelegations, ForgottenClientCachesForALeaseByItsClock) {
  RawClient deaf(world_);
  Client two(world_);
  make(*two.files, "/first", kSome);
  make(*two.files, "/second", kSome);
  const Ino first = world_.run(two.files->stat("/first"))->ino;
  const Ino second = world_.run(two.files->stat("/second"))->ino;
  const FilesHello hello{1, 0};
  deaf.connect(service::ServiceId::kFiles, service::bytes_of(hello), deaf.files);
  deaf.ask(FilesMethod::kOpen, OpenRequest{raw(first), O_RDONLY, 1});
  deaf.ask(FilesMethod::kOpen, OpenRequest{raw(second), O_RDONLY, 1});
  Opening opening;
  begin_open(opening, *two.files, "/first", O_RDWR);
  uint64_t sure_until_ns = 0;
  while (world_.stat("deaf") == 0) {
    const uint64_t sent_ns = now_ns();
    const auto answered =
        world_.run(deaf.call(FilesMethod::kGetAttributes, InoRequest{raw(second)}));
    if (answered) sure_until_ns = sent_ns + FilesWorld::kLeaseNs;
    world_.let_time_pass(FilesWorld::kLeaseNs / 20);
  }
  const auto writes = world_.open(*two.files, "/second", O_RDWR);
  ASSERT_NE(writes, nullptr);
  EXPECT_GE(now_ns(), sure_until_ns);
  EXPECT_LT(now_ns(), sure_until_ns + FilesWorld::kLeaseNs / 2);
  finish(opening);
}

TEST_F(FilesDelegations, OneRequestForNewsWaitsAtATime) {
  RawClient raw_client(world_);
  const FilesHello hello{1, 0};
  raw_client.connect(service::ServiceId::kFiles, service::bytes_of(hello), raw_client.files);
  raw_client.ask(FilesMethod::kAwaitNews, AwaitNewsRequest{10, 0});
  raw_client.ask(FilesMethod::kAwaitNews, AwaitNewsRequest{10, 0});
  std::optional<bool> answered;
  auto first = [](RawClient& by, std::optional<bool>& result) -> base::Task<void> {
    const auto got = co_await by.call(FilesMethod::kAwaitNews, AwaitNewsRequest{500, 0});
    result.emplace(static_cast<bool>(got));
  }(raw_client, answered);
  first.start();
  world_.let_time_pass(1'000'000);
  EXPECT_FALSE(world_.run(raw_client.call(FilesMethod::kAwaitNews, AwaitNewsRequest{500, 0})));
  EXPECT_EQ(world_.stat("malformed"), 1u);
  world_.let_time_pass(FilesWorld::kLeaseNs);
}

TEST_F(FilesDelegations, CloseEndsWithoutItsServer) {
  const auto client = world_.connect();
  {
    const auto file = world_.open(*client, "/file");
    world_.crash();
    // Closed in the background.
  }
  const uint64_t begun_ns = now_ns();
  world_.run(client->close());
  EXPECT_LT(now_ns() - begun_ns, FilesWorld::kPatienceNs);
  world_.start();
}

TEST_F(FilesDelegations, LostSessionKeepsThem) {
  auto options = world_.options();
  options.secret = ClientSecret::of_number(1);
  Client one(world_, options);
  make(*one.files, "/file", kSome);
  const auto file = world_.open(*one.files, "/file", O_RDONLY);
  for (int i = 0; i < 3; ++i) {
    world_.server().host().kick(options.secret.id());
    world_.let_time_pass(FilesWorld::kLeaseNs);
    EXPECT_TRUE(one.has(*file));
  }
  const auto plain = world_.connect();
  const auto writes = world_.open(*plain, "/file", O_WRONLY);
  EXPECT_FALSE(one.has(*file));
}

TEST_F(FilesDelegations, WithoutACacheNothingIsDelegated) {
  const auto plain = world_.connect();
  const auto file = world_.open(*plain, "/file");
  EXPECT_FALSE(file->was_delegated());
  EXPECT_EQ(plain->delegated(file->ino()), nullptr);
}

// ---- the server's books ----

TEST(Delegations, StateIsGoneWithTheLastOpen) {
  internal::Delegations books;
  uint64_t news = 0;
  books.on_recall = [&](Ino) { return ++news; };
  const OpenOwner one{1};
  const OpenOwner two{2};
  const Ino ino{5};
  EXPECT_TRUE(books.opened(one, ino, true, true));
  EXPECT_FALSE(books.opened(two, ino, false, true));
  EXPECT_EQ(news, 1u);
  EXPECT_TRUE(books.must_hear(one, 0));
  EXPECT_FALSE(books.must_hear(two, 0));
  EXPECT_TRUE(books.is_cached_beside(two, ino));
  EXPECT_FALSE(books.is_cached_beside(one, ino));
  books.confirmed(one, 0);
  EXPECT_TRUE(books.is_cached_beside(two, ino));
  books.confirmed(one, 1);
  EXPECT_FALSE(books.is_cached_beside(two, ino));
  EXPECT_FALSE(books.must_hear(one, 0));
  books.closed(one, ino);
  books.closed(two, ino);
  EXPECT_EQ(books.files(), 0u);
  // A client that closes it without a confirmation caches nothing of it either.
  EXPECT_TRUE(books.opened(one, ino, true, true));
  EXPECT_FALSE(books.opened(two, ino, true, true));
  books.closed(one, ino);
  EXPECT_FALSE(books.is_cached_beside(two, ino));
  books.drop(two);
  books.drop(two);
  EXPECT_EQ(books.files(), 0u);
}

}  // namespace
}  // namespace pmstore::fs
