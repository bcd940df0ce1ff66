// Locks of files: ranges and flock() between owners of one client and of several, over waits,
// deaths and restarts.
#include <vector>

#include "tests/unit/fs/service/files_world.h"
#include "tests/unit/fs/service/lock_of.h"

namespace pmstore::fs {
namespace {

using namespace locks;

class FilesLocks : public testing::Test {
 protected:
  void SetUp() override {
    one_ = world_.connect();
    two_ = world_.connect();
    file_ = world_.open(*one_, "/file");
    same_ = world_.open(*two_, "/file");
  }
  void TearDown() override {
    file_.reset();
    same_.reset();
    if (one_ != nullptr) world_.run(one_->close());
    if (two_ != nullptr) world_.run(two_->close());
  }
  int lock(File& file, const FileLock& lock) {
    return number_of(world_.run(file.lock(lock, false)));
  }
  // Runs it for so long; is it done?
  bool done_after(base::Task<PosixStatus>& waits, uint64_t ns) {
    world_.let_time_pass(ns);
    return waits.done();
  }

  FilesWorld world_;
  std::unique_ptr<FileSystem> one_;
  std::unique_ptr<FileSystem> two_;
  std::unique_ptr<File> file_;
  std::unique_ptr<File> same_;
};

TEST_F(FilesLocks, AreBetweenClients) {
  EXPECT_EQ(lock(*file_, range(kWrite, 0, 99)), 0);
  EXPECT_EQ(lock(*same_, range(kRead, 50, 150)), EAGAIN);
  EXPECT_EQ(lock(*same_, range(kRead, 100, 150)), 0);
  const auto found = world_.run(same_->find_lock(range(kRead, 0, 10)));
  ASSERT_TRUE(found && *found);
  EXPECT_EQ((*found)->type, kWrite);
  EXPECT_EQ((*found)->end, 99u);
  EXPECT_EQ((*found)->pid, 1u);
  EXPECT_EQ(lock(*file_, range(kUnlock, 0, UINT64_MAX)), 0);
  EXPECT_EQ(lock(*same_, range(kRead, 50, 150)), 0);
  EXPECT_FALSE(*world_.run(file_->find_lock(range(kRead, 0, UINT64_MAX))));
  const auto reader = world_.open(*one_, "/file", O_RDONLY);
  EXPECT_EQ(lock(*reader, range(kWrite, 0, 9)), EBADF);
}

TEST_F(FilesLocks, FlockBelongsToAnOpenFile) {
  EXPECT_EQ(lock(*file_, flock_of(kWrite)), 0);
  auto again = world_.open(*one_, "/file");
  EXPECT_EQ(lock(*again, flock_of(kRead)), EAGAIN);
  EXPECT_EQ(lock(*same_, flock_of(kRead)), EAGAIN);
  EXPECT_EQ(lock(*same_, range(kWrite, 0, 9)), 0) << "kinds do not meet";
  EXPECT_TRUE(world_.run(file_->close()));
  EXPECT_EQ(lock(*again, flock_of(kRead)), 0);
  EXPECT_EQ(lock(*same_, flock_of(kRead)), 0);
  again.reset();
  EXPECT_EQ(lock(*same_, flock_of(kWrite)), 0);
}

TEST_F(FilesLocks, WaiterGetsTheLockWhenItIsGivenUp) {
  EXPECT_EQ(lock(*file_, range(kWrite, 0, 99)), 0);
  auto waits = same_->lock(range(kWrite, 50, 60), true);
  waits.start();
  EXPECT_FALSE(done_after(waits, 3 * FilesWorld::kLeaseNs + FilesWorld::kLeaseNs / 30));
  EXPECT_EQ(lock(*file_, range(kUnlock, 0, 99)), 0);
  EXPECT_TRUE(done_after(waits, 1'000'000));
  EXPECT_TRUE(waits.take());
  EXPECT_EQ(lock(*file_, range(kRead, 55, 55)), EAGAIN);
}

TEST_F(FilesLocks, WaiterHoldsUpNothingElseOfItsClient) {
  EXPECT_EQ(lock(*file_, range(kWrite, 0, 99)), 0);
  auto waits = same_->lock(range(kWrite, 50, 60), true);
  waits.start();
  world_.let_time_pass(1'000'000);
  const uint64_t begun_ns = world_.executor().now_ns();
  for (uint64_t i = 0; i < 2 * kMaxUnanswered; ++i) {
    ASSERT_EQ(lock(*same_, range(kWrite, 1000, 1009)), 0) << i;
  }
  // A wait at the server ends after a quarter of a lease.
  EXPECT_LT(world_.executor().now_ns() - begun_ns, FilesWorld::kLeaseNs / 10);
  EXPECT_EQ(world_.stat("malformed"), 0u);
  EXPECT_EQ(lock(*file_, range(kUnlock, 0, 99)), 0);
  EXPECT_TRUE(done_after(waits, FilesWorld::kLeaseNs));
}

// Each call of a session ends a wait that began 256 calls before it.
TEST_F(FilesLocks, ManyWaitersOfAClientAskSeldom) {
  constexpr uint64_t kWaiters = 300;
  EXPECT_EQ(lock(*file_, range(kWrite, 0, 99)), 0);
  std::vector<base::Task<PosixStatus>> waits;
  for (uint64_t owner = 1; owner <= kWaiters; ++owner) {
    waits.push_back(same_->lock(range(kRead, 50, 60, owner), true));
    waits.back().start();
  }
  const uint64_t before = two_->counters().server_messages;
  constexpr uint64_t kPausesPerLease = 20;
  for (int i = 0; i < 100'000; ++i) world_.executor().run_once();  // no time passes
  ASSERT_LT(two_->counters().server_messages - before, 4 * kWaiters);
  world_.let_time_pass(FilesWorld::kLeaseNs);
  EXPECT_LT(two_->counters().server_messages - before, kWaiters * (kPausesPerLease + 5));
  EXPECT_EQ(lock(*file_, range(kUnlock, 0, 99)), 0);
  world_.let_time_pass(FilesWorld::kLeaseNs);
  for (auto& each : waits) EXPECT_TRUE(each.done() && each.take());
}

TEST_F(FilesLocks, WaiterThatIsGoneHoldsNothing) {
  EXPECT_EQ(lock(*file_, range(kWrite, 0, 99)), 0);
  for (uint64_t turns = 0; turns < 40; ++turns) {
    {
      auto waits = same_->lock(range(kWrite, 50, 60), true);
      waits.start();
      for (uint64_t i = 0; i < turns; ++i) world_.executor().run_once();
      if (turns % 2 == 1) {
        EXPECT_EQ(lock(*file_, range(kUnlock, 0, 99)), 0);
      }
    }
    EXPECT_EQ(lock(*file_, range(kUnlock, 0, 99)), 0);
    world_.let_time_pass(FilesWorld::kLeaseNs);
    ASSERT_EQ(lock(*file_, range(kWrite, 0, 99)), 0) << turns;
  }
}

TEST_F(FilesLocks, WaiterThatLosesItsSessionWaitsOn) {
  auto options = world_.options();
  options.secret = ClientSecret::of_number(5);
  const auto client = world_.connect(options);
  const auto file = world_.open(*client, "/file");
  EXPECT_EQ(lock(*file_, range(kWrite, 0, 99)), 0);
  auto waits = file->lock(range(kWrite, 50, 60), true);
  waits.start();
  world_.let_time_pass(10'000'000);
  world_.server().host().kick(options.secret.id());
  EXPECT_FALSE(done_after(waits, 2 * FilesWorld::kLeaseNs));
  EXPECT_EQ(lock(*file_, range(kUnlock, 0, 99)), 0);
  EXPECT_TRUE(done_after(waits, FilesWorld::kLeaseNs));
  EXPECT_TRUE(waits.take());
  world_.run(client->close());
}

TEST_F(FilesLocks, OwnersDoNotWaitForEachOther) {
  EXPECT_EQ(lock(*file_, range(kWrite, 0, 0)), 0);
  EXPECT_EQ(lock(*same_, range(kWrite, 1, 1)), 0);
  auto waits = file_->lock(range(kWrite, 1, 1), true);
  waits.start();
  world_.let_time_pass(1'000'000);
  EXPECT_EQ(number_of(world_.run(same_->lock(range(kWrite, 0, 0), true))), EDEADLK);
  EXPECT_EQ(lock(*same_, range(kUnlock, 1, 1)), 0);
  EXPECT_TRUE(done_after(waits, 1'000'000));
}

TEST_F(FilesLocks, LocksOfAClientThatDiedAreFreeAfterItsLease) {
  RawClient dies(world_);
  const FilesHello hello{1, 0};
  dies.connect(service::ServiceId::kFiles, service::bytes_of(hello), dies.files);
  dies.ask(FilesMethod::kLock, request_of(file_->ino(), range(kWrite, 0, 9), false));
  dies.files.reset();
  EXPECT_EQ(lock(*file_, range(kWrite, 0, 9)), EAGAIN);
  EXPECT_TRUE(world_.run(file_->lock(range(kWrite, 0, 9), true)));
}

TEST_F(FilesLocks, WhoComesBackWaitsForItsCallsFromBeforeItWasForgotten) {
  EXPECT_EQ(lock(*file_, range(kWrite, 0, 99)), 0);
  RawClient comes(world_);
  const FilesHello hello{1, 0};
  const auto body = service::bytes_of(hello);
  comes.connect(service::ServiceId::kFiles, body, comes.files);
  {
    const auto wanted = request_of(file_->ino(), range(kWrite, 0, 9), false);
    auto waits = comes.call(FilesMethod::kAwaitLock, wanted);
    waits.start();
    world_.let_time_pass(1'000'000);
    [[maybe_unused]] const auto bye = world_.run(comes.files->call(service::kGoodbyeMethod, {}, 0));
    EXPECT_EQ(comes.try_connect(service::ServiceId::kFiles, body).code(), ErrorCode::kBackPressure);
  }
  comes.files.reset();
  EXPECT_EQ(lock(*file_, range(kUnlock, 0, 99)), 0);
  world_.let_time_pass(FilesWorld::kLeaseNs);
  comes.connect(service::ServiceId::kFiles, body, comes.files);
  EXPECT_EQ(lock(*same_, range(kWrite, 0, 99)), 0);
}

// Its client asks again in the next session, or has given up meanwhile.
TEST_F(FilesLocks, AWaitOfALostSessionTakesNothing) {
  EXPECT_EQ(lock(*file_, range(kWrite, 0, 99)), 0);
  RawClient comes(world_);
  const FilesHello hello{1, 0};
  const auto body = service::bytes_of(hello);
  comes.connect(service::ServiceId::kFiles, body, comes.files);
  {
    const auto wanted = request_of(file_->ino(), range(kWrite, 0, 9), false);
    auto waits = comes.call(FilesMethod::kAwaitLock, wanted);
    waits.start();
    world_.let_time_pass(1'000'000);
    EXPECT_FALSE(waits.done());
  }
  std::unique_ptr<service::Link> next;
  comes.connect(service::ServiceId::kFiles, body, next);
  EXPECT_EQ(lock(*file_, range(kUnlock, 0, 99)), 0);
  world_.let_time_pass(FilesWorld::kLeaseNs / 10);
  EXPECT_EQ(lock(*same_, range(kWrite, 0, 99)), 0);
}

TEST_F(FilesLocks, AreNotReclaimedFromAServerThatRunsOn) {
  RawClient late(world_);
  const FilesHello hello{1, 0};
  const auto reclaim = request_of(file_->ino(), range(kWrite, 0, 9), true);
  late.connect(service::ServiceId::kFiles, service::bytes_of(hello), late.files);
  EXPECT_EQ(late.error_of(FilesMethod::kLock, reclaim), EIO);
  late.files.reset();
  world_.crash();
  world_.start();
  late.connect(service::ServiceId::kFiles, service::bytes_of(hello), late.files);
  EXPECT_EQ(late.error_of(FilesMethod::kLock, reclaim), 0);
  world_.let_time_pass(FilesWorld::kLeaseNs);
  EXPECT_EQ(late.error_of(FilesMethod::kLock, reclaim), EIO);
}

TEST_F(FilesLocks, AreKeptOverARestart) {
  EXPECT_EQ(lock(*file_, range(kWrite, 0, 99)), 0);
  EXPECT_EQ(lock(*file_, flock_of(kWrite)), 0);
  world_.crash();
  world_.start();
  // In the first lease only what was held before is given: whoever comes first.
  EXPECT_EQ(lock(*same_, range(kWrite, 50, 60)), EAGAIN);
  EXPECT_EQ(lock(*same_, flock_of(kRead)), EAGAIN);
  EXPECT_EQ(lock(*same_, range(kWrite, 100, 160)), 0);
  EXPECT_EQ(lock(*file_, range(kUnlock, 0, 99)), 0);
  EXPECT_EQ(lock(*same_, range(kWrite, 50, 60)), 0);
  EXPECT_EQ(world_.read(*file_, 0, 10), "");
}

}  // namespace
}  // namespace pmstore::fs
