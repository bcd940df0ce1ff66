// Operations whose coroutine is destroyed while it connects again: the client stays usable.
#include "tests/unit/pmstore/server_fixture.h"

namespace pmstore {
namespace {

class AbandonedReconnect : public testing::ClientFixture,
                           public ::testing::WithParamInterface<LockDiscipline> {
 protected:
  static constexpr uint64_t kLongNs = 120'000'000'000;
  void SetUp() override {
    client_options_.reconnect_timeout_ns = 10'000'000'000;
    ClientFixture::SetUp(GetParam());
    ASSERT_TRUE(run(client_->put(table_, "alice", "1")));
  }
  void stop_server() {
    server_.reset();
    pool_ = std::move(*persist::Pool::in_region(region_.bytes(), domain_, false));
    let_time_pass(1'000'000);
  }
  template <typename T>
  void expect_ends(Task<T> task, const char* what) {
    task.start();
    if (!task.done()) let_time_pass(kLongNs);
    EXPECT_TRUE(task.done()) << what << " waits for ever";
  }
  void expect_usable() {
    expect_ends(client_->get(table_, "alice"), "get()");
    if (HasFailure()) return client_.reset();  // its destructor does not wait
    EXPECT_EQ(*run(client_->get(table_, "alice")), "1");
    expect_ends(client_->close(), "close()");
  }
};
INSTANTIATE_TEST_SUITE_P(Locks, AbandonedReconnect,
                         ::testing::Values(LockDiscipline::kCpu, LockDiscipline::kRnic),
                         [](const auto& param) {
                           return std::string(discipline_name(param.param));
                         });

TEST_P(AbandonedReconnect, GetThatIsDestroyedBeforeTheServerIsBack) {
  stop_server();
  {
    Task<Result<std::string>> get = client_->get(table_, "alice");
    get.start();
    let_time_pass(5'000'000);
    ASSERT_FALSE(get.done());
  }
  start();
  expect_usable();
}

TEST_P(AbandonedReconnect, CommitThatIsDestroyedBeforeTheServerIsBack) {
  stop_server();
  {
    Transaction tx = client_->begin();
    tx.put(table_, "bob", "2");
    Task<Status> commit = tx.commit();
    commit.start();
    let_time_pass(5'000'000);
    ASSERT_FALSE(commit.done());
  }
  start();
  expect_usable();
}

// At each turn of the executor between the first attempt and success.
TEST_P(AbandonedReconnect, GetThatIsDestroyedAtAnyTurn) {
  for (int turns = 0; turns < 200 && !HasFailure(); ++turns) {
    restart();
    Task<Result<std::string>> waits = client_->get(table_, "alice");
    {
      Task<Result<std::string>> get = client_->get(table_, "alice");
      get.start();
      waits.start();  // for the attempt of the first
      for (int turn = 0; turn < turns && !get.done(); ++turn) executor_.run_once();
    }
    if (!waits.done()) let_time_pass(kLongNs);
    ASSERT_TRUE(waits.done()) << "after " << turns << " turns";
    const auto got = waits.take();
    EXPECT_TRUE(got) << got.error().to_string();
  }
  expect_usable();
}

// Who waited for it hears nothing of an attempt that failed before.
TEST_P(AbandonedReconnect, GetThatIsDestroyedAfterAnotherOneHasFailed) {
  stop_server();
  ASSERT_FALSE(run(client_->get(table_, "alice")));
  start();
  Task<Result<std::string>> waits = client_->get(table_, "alice");
  {
    Task<Result<std::string>> get = client_->get(table_, "alice");
    get.start();
    waits.start();  // for the attempt of the first
    ASSERT_FALSE(get.done());
  }
  const auto got = finish(std::move(waits));
  EXPECT_TRUE(got) << got.error().to_string();
  expect_usable();
}

}  // namespace
}  // namespace pmstore
