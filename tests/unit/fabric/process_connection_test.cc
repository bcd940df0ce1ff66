// What an established connection does: limits, order, deadlines, and being destroyed at awkward
// moments.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <cstring>
#include <optional>
#include <thread>

#include "tests/unit/fabric/process_server.h"

namespace pmstore::fabric {
namespace {

class ProcessConnection : public ProcessTest {};

TEST_P(ProcessConnection, AFullQueuePushesBackAndLosesNothing) {
  connect();
  // The server is not polled, so nothing can be served: both run on this executor, which does not
  // run.
  Batch batch;
  for (size_t i = 0; i < Batch::kMaxWorkRequests; ++i) {
    batch.write(local(0, 2048), remote_.region.at(i * 2048));
  }
  std::vector<std::unique_ptr<Completion>> completions;
  Status refused;
  for (int i = 0; i < 4000 && refused; ++i) {
    auto completion = std::make_unique<Completion>();
    refused = client_->connection->post(batch, completion.get());
    if (refused) {
      completions.push_back(std::move(completion));
    } else {
      EXPECT_TRUE(completion->idle()) << "a batch that was not taken must not be armed";
    }
  }
  ASSERT_FALSE(refused) << "the queue has no bound";
  EXPECT_EQ(refused.code(), ErrorCode::kBackPressure);
  const Counters& counters = client_->connection->counters();
  EXPECT_EQ(counters.doorbells, completions.size());
  EXPECT_EQ(counters.work_requests, completions.size() * batch.size());
  server_->resume();
  ASSERT_TRUE(run_until([&] { return completions.back()->done(); }));
  for (auto& completion : completions) EXPECT_TRUE(completion->ok());
  EXPECT_EQ(counters.completions, completions.size()) << "one for each batch";
  EXPECT_TRUE(client_->connection->post(batch, completions[0].get())) << "there is room again";
  ASSERT_TRUE(run_until([&] { return completions[0]->done(); }));
}

TEST_P(ProcessConnection, TooManySignaledBatchesPushBack) {
  connect();
  Batch batch;
  batch.write(local(0, 8), remote_.region.at(0));
  std::vector<std::unique_ptr<Completion>> completions;
  Status refused;
  while (refused && completions.size() < 5000) {
    completions.push_back(std::make_unique<Completion>());
    refused = client_->connection->post(batch, completions.back().get());
  }
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.code(), ErrorCode::kBackPressure);
  completions.pop_back();
  ASSERT_TRUE(run_until([&] { return completions.back()->done(); }));
  for (auto& completion : completions) EXPECT_TRUE(completion->ok());
}

// Sizes on both sides of every protocol switch of the providers.
TEST_P(ProcessConnection, AReadSeesTheWritesBeforeItAndImmediatesComeAfterTheirData) {
  connect();
  uint32_t serial = 0;
  for (uint32_t bytes :
       {1u, 8u, 64u, 230u, 256u, 1000u, 4096u, 4097u, 9000u, 32768u, 65537u, 400'000u}) {
    for (int round = 0; round < 5; ++round) {
      ++serial;
      std::memset(memory_.data(), static_cast<int>(serial), bytes);
      Batch batch;
      batch.write(local(0, bytes), remote_.region.at(100));
      batch.read(local(500'000, bytes), remote_.region.at(100));
      batch.write_immediate(local(0, bytes), remote_.region.at(500'000), serial);
      batch.read(local(500'000 + bytes - 1, 1), remote_.region.at(500'000 + bytes - 1));
      ASSERT_TRUE(execute(batch)) << bytes;
      EXPECT_EQ(std::memcmp(memory_.data(), memory_.data() + 500'000, bytes), 0) << bytes;
      EXPECT_EQ(std::memcmp(memory_.data(), server_->at(500'000), bytes), 0) << bytes;
      ASSERT_TRUE(run_until([&] { return server_->immediates(0) == serial; }));
      EXPECT_EQ(server_->last_immediate(0), serial);
    }
  }
  EXPECT_EQ(client_->connection->counters().completions, serial);
}

TEST_P(ProcessConnection, AnImmediateMayHaveNoData) {
  connect();
  Batch batch;
  batch.write_immediate(local(0, 0), remote_.region.at(0), 0xffffffff);
  ASSERT_TRUE(execute(batch));
  ASSERT_TRUE(run_until([&] { return server_->immediates(0) == 1; }));
  EXPECT_EQ(server_->last_immediate(0), 0xffffffffu);
}

TEST_P(ProcessConnection, AFloodOfImmediatesIsPushedBackAndAllArrive) {
  connect();
  constexpr uint32_t kImmediates = 300'000;  // more than the buffers of a socket hold
  server_->pause();
  bool paused = true;
  for (uint32_t sent = 0; sent < kImmediates;) {
    Batch batch;
    batch.write_immediate(local(0, sent % 2 == 0 ? 0 : 1000), remote_.region.at(0), sent + 1);
    const Status posted = client_->connection->post(batch, nullptr);
    if (posted) {
      ++sent;
      continue;
    }
    ASSERT_EQ(posted.code(), ErrorCode::kBackPressure);
    if (paused) server_->resume();
    paused = false;
    executor_.run_once();
  }
  EXPECT_FALSE(paused) << "the queue has no bound";
  ASSERT_TRUE(run_until([&] { return server_->immediates(0) == kImmediates; }));
  EXPECT_EQ(server_->last_immediate(0), kImmediates);
}

TEST_P(ProcessConnection, ABatchThatEndsWithAnEmptyImmediateIsCompleteWhenItsDataHasLanded) {
  connect();
  for (int round = 1; round <= 50; ++round) {
    std::memset(memory_.data(), round, 3000);
    Batch batch;
    batch.write(local(0, 3000), remote_.region.at(0));
    batch.write_immediate(local(0, 0), remote_.region.at(0), 1);
    batch.write_immediate(local(0, 0), remote_.region.at(0), 2);
    ASSERT_TRUE(execute(batch));
    ASSERT_EQ(std::memcmp(memory_.data(), server_->at(0), 3000), 0);
  }
  EXPECT_EQ(client_->connection->counters().completions, 50u);
  ASSERT_TRUE(run_until([&] { return server_->immediates(0) == 100; }));
}

TEST_P(ProcessConnection, ABatchIsPostedAsAWholeOrNotAtAll) {
  connect();
  Batch atomic;
  atomic.write(local(0, 8), remote_.region.at(0)).fetch_add(local(8, 8), remote_.region.at(8), 1);
  Batch outside;
  outside.write(local(0, 8), remote_.region.at(0))
      .write({memory_.data() + kServerBytes - 4, 8, region_.get()}, remote_.region.at(8));
  Completion completion;
  Status refused = client_->connection->post(atomic, &completion);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.code(), ErrorCode::kUnsupported);
  refused = client_->connection->post(outside, &completion);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.code(), ErrorCode::kInvalidArgument);
  Batch nothing;
  nothing.write(local(0, 8), remote_.region.at(0)).read(local(0, 0), remote_.region.at(8));
  refused = client_->connection->post(nothing, &completion);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.code(), ErrorCode::kInvalidArgument);
  refused = client_->connection->post(Batch{}, &completion);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.code(), ErrorCode::kInvalidArgument);
  EXPECT_TRUE(completion.idle());
  EXPECT_EQ(client_->connection->counters().doorbells, 0u);
  EXPECT_EQ(client_->connection->counters().work_requests, 0u);
  EXPECT_FALSE(client_->connection->broken());
}

// A receiver that destroys its connection from inside the callback, as fabric/connection.h allows.
struct Suicide final : Receiver {
  std::unique_ptr<Connection> connection;
  int immediates = 0;
  int disconnects = 0;
  void on_immediate(uint32_t) override {
    ++immediates;
    connection.reset();
  }
  void on_disconnect(const Error&) override {
    ++disconnects;
    connection.reset();
  }
};

TEST_P(ProcessConnection, MayBeDestroyedFromItsOwnImmediate) {
  connect();
  Suicide suicide;
  suicide.connection = std::move(client_->connection);
  suicide.connection->set_receiver(&suicide);
  server_->send_immediates(0, 10);
  ASSERT_TRUE(run_until([&] { return suicide.connection == nullptr; }));
  EXPECT_EQ(suicide.immediates, 1) << "nothing comes after its destruction";
  ASSERT_TRUE(run_until([&] { return server_->disconnects(0) == 1; }));
}

TEST_P(ProcessConnection, MayBeDestroyedFromItsOwnDisconnect) {
  connect();
  Suicide suicide;
  suicide.connection = std::move(client_->connection);
  suicide.connection->set_receiver(&suicide);
  server_->destroy_end(0);
  ASSERT_TRUE(run_until([&] { return suicide.connection == nullptr; }));
  EXPECT_EQ(suicide.disconnects, 1);
}

TEST_P(ProcessConnection, MayBeDestroyedByACoroutineThatItResumes) {
  connect();
  auto run = [](ClientEnd& end, const Batch& batch, int& done) -> base::Task<void> {
    Status status = co_await end.connection->execute(batch);
    done += status ? 1 : 100;
    end.connection.reset();
  };
  Batch batch;
  batch.read(local(0, 64), remote_.region.at(0));
  int done = 0;
  executor_.spawn(run(*client_, batch, done));
  ASSERT_TRUE(run_until([&] { return done != 0; }));
  EXPECT_EQ(done, 1);
  ASSERT_TRUE(run_until([&] { return server_->disconnects(0) == 1; }));
}

// Who awaits the last answer may drop the device there, from inside its own poll(). Memory checkers
// see what a poll touches after that.
class WhoeverDropsTheDevice : public ProcessConnection {
 protected:
  // A READ, and dropping all when it has ended; gives how it did.
  Status read_and_drop() {
    std::optional<Status> done;
    Batch batch;
    batch.read(local(0, 64), remote_.region.at(0));
    executor_.spawn(run(batch, done));
    if (!run_until([&] { return done.has_value(); })) {
      return make_error(ErrorCode::kTimeout, "the READ has not ended");
    }
    executor_.run_once();
    return std::move(*done);
  }

 private:
  base::Task<void> run(const Batch& batch, std::optional<Status>& done) {
    Status status = co_await client_->connection->execute(batch);
    client_.reset();
    region_.reset();
    device_.reset();
    done = std::move(status);
  }
};

TEST_P(WhoeverDropsTheDevice, MayBeResumedByIt) {
  connect();
  EXPECT_TRUE(read_and_drop());
  ASSERT_TRUE(run_until([&] { return server_->disconnects(0) == 1; }));
}

// From a tick, where a deadline passes or the peer's end is noticed.
TEST_P(WhoeverDropsTheDevice, MayBeToldByItThatTheConnectionBroke) {
  connect(50'000'000);
  server_->pause();
  const Status failed = read_and_drop();
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message.find("has not ended"), std::string::npos);
}

TEST_P(ProcessConnection, WhatWasSentBeforeAnOrderlyCloseArrives) {
  connect();
  Batch batch;
  for (uint32_t i = 0; i < 20; ++i) batch.write_immediate(local(0, 100), remote_.region.at(0), i);
  Completion completion;
  ASSERT_TRUE(client_->connection->post(batch, &completion));
  ASSERT_TRUE(run_until([&] { return completion.done(); }));
  client_.reset();
  ASSERT_TRUE(run_until([&] { return server_->disconnects(0) == 1; }));
  EXPECT_EQ(server_->immediates(0), 20u);
}

TEST_P(ProcessConnection, NothingThatIsOutstandingIsWrittenAfterItsDestruction) {
  connect();
  Batch batch;
  batch.read(local(0, 300'000), remote_.region.at(0));
  std::memset(server_->at(0), 0x77, 300'000);
  Completion completion;
  ASSERT_TRUE(client_->connection->post(batch, &completion));
  client_.reset();
  std::memset(memory_.data(), 0x11, 300'000);
  ASSERT_TRUE(run_until([&] { return server_->disconnects(0) == 1; }));
  for (size_t i = 0; i < 300'000; ++i) ASSERT_EQ(memory_[i], std::byte{0x11}) << i;
}

TEST_P(ProcessConnection, ASilentPeerFailsEverythingOnceAndInOrder) {
  connect(200'000'000);
  // Closed without a word, as if its host had lost power: its connection lives, but nobody polls
  // it.
  server_->pause();
  Batch batch;
  batch.read(local(0, 64), remote_.region.at(0));
  std::vector<std::unique_ptr<Completion>> completions;
  const uint64_t before = clock_.now_ns();
  for (int i = 0; i < 10; ++i) {
    completions.push_back(std::make_unique<Completion>());
    ASSERT_TRUE(client_->connection->post(batch, completions.back().get()));
  }
  ASSERT_TRUE(run_until([&] { return client_->disconnects.size() == 1; }));
  EXPECT_GE(clock_.now_ns() - before, 190'000'000u);
  EXPECT_EQ(client_->disconnects[0].code, ErrorCode::kTimeout);
  for (auto& completion : completions) {
    EXPECT_TRUE(completion->done());
    EXPECT_FALSE(completion->ok());
  }
  EXPECT_FALSE(run_until([&] { return client_->disconnects.size() > 1; }, 20'000'000));
}

TEST_P(ProcessConnection, ASilentPeerIsNoticedAfterATimeWithoutAnyRequest) {
  connect(100'000'000);
  Batch batch;
  batch.read(local(0, 64), remote_.region.at(0));
  ASSERT_TRUE(execute(batch));
  run_until([] { return false; }, 150'000'000);
  EXPECT_TRUE(client_->disconnects.empty());
  server_->pause();
  EXPECT_FALSE(execute(batch));
  ASSERT_EQ(client_->disconnects.size(), 1u);
  EXPECT_EQ(client_->disconnects[0].code, ErrorCode::kTimeout);
}

int sockets() {
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    int type = 0;
    socklen_t bytes = sizeof type;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0) ++count;
  }
  return count;
}

// Not over what the silent one had: that may lead to a host that is gone.
// SIGSTOP, a debugger, a suspended machine: the time is over, but the answer is there.
TEST_P(ProcessConnection, AnAnswerThatCameWhileThisProcessStoodStillCounts) {
  constexpr uint64_t kTimeoutNs = 200'000'000;
  connect(kTimeoutNs);
  // So many long waits that the executor spins no more: it reads only what it was told of.
  for (int i = 0; i < 20; ++i) run_until([] { return false; }, 1'000'000);
  server_->pause();
  Batch batch;
  batch.read(local(0, 64), remote_.region.at(0));
  Completion completion;
  ASSERT_TRUE(client_->connection->post(batch, &completion));
  run_until([] { return false; }, 10'000'000);
  server_->resume();
  // It has read and answered what came before, once it has carried out some orders.
  for (int i = 0; i < 3; ++i) {
    server_->pause();
    server_->resume();
  }
  std::this_thread::sleep_for(std::chrono::nanoseconds(2 * kTimeoutNs));
  ASSERT_TRUE(run_until([&] { return completion.done(); }));
  EXPECT_TRUE(completion.ok());
  EXPECT_TRUE(client_->disconnects.empty());
}

TEST_P(ProcessConnection, AfterASilentPeerANewConnectionIsMadeAfresh) {
  connect();
  std::unique_ptr<ClientEnd> bystander = std::move(client_);
  connect(100'000'000);
  const int before = sockets();
  server_->pause();
  Batch batch;
  batch.read(local(0, 64), remote_.region.at(0));
  EXPECT_FALSE(execute(batch));
  EXPECT_EQ(client_->disconnects.size(), 1u);
  server_->resume();
  connect();
  EXPECT_TRUE(execute(batch));
  EXPECT_EQ(sockets(), GetParam() == Scheme::kTcp ? before + 1 : before);
  EXPECT_FALSE(bystander->connection->broken());
}

// Unsignaled batches that cannot be sent must not wait for ever either.
TEST_P(ProcessConnection, ASilentPeerIsNoticedWithoutAnySignaledBatch) {
  connect(200'000'000);
  server_->pause();
  Batch batch;
  for (size_t i = 0; i < Batch::kMaxWorkRequests; ++i)
    batch.write(local(0, 100'000), remote_.region.at(0));
  int posted = 0;
  while (posted < 1000 && client_->connection->post(batch, nullptr)) ++posted;
  ASSERT_LT(posted, 1000) << "the queue has no bound";
  ASSERT_TRUE(run_until([&] { return client_->disconnects.size() == 1; }));
  EXPECT_EQ(client_->disconnects[0].code, ErrorCode::kTimeout);
}

TEST_P(ProcessConnection, AViolationIsAnAccessErrorOrADisconnectAndTheTargetServesOthers) {
  connect();
  std::unique_ptr<ClientEnd> violator = std::move(client_);
  connect();
  Batch bad;
  bad.write(local(0, 64), remote_.region.at(kServerBytes - 63));
  Completion completion;
  ASSERT_TRUE(violator->connection->post(bad, &completion));
  ASSERT_TRUE(run_until([&] { return violator->disconnects.size() == 1; }));
  EXPECT_FALSE(completion.ok());
  EXPECT_EQ(violator->disconnects[0].code, ErrorCode::kAccess);
  ASSERT_TRUE(run_until([&] { return server_->disconnects(0) == 1; }));
  EXPECT_EQ(server_->disconnects(1), 0u);
  Batch good;
  good.write(local(0, 64), remote_.region.at(0));
  EXPECT_TRUE(execute(good));
}

TEST_P(ProcessConnection, AWithdrawnRegionCannotBeReached) {
  connect();
  std::unique_ptr<ClientEnd> other = std::move(client_);
  connect(300'000'000);  // shm notices by time
  std::swap(other, client_);
  Batch batch;
  batch.write(local(0, 64), remote_.extra.at(0));
  std::memset(memory_.data(), 0x33, 64);
  ASSERT_TRUE(execute(batch));
  EXPECT_EQ(server_->extra()[0], std::byte{0x33});
  server_->withdraw_extra();
  std::memset(memory_.data(), 0x44, 64);
  std::swap(other, client_);
  ASSERT_FALSE(client_->connection->broken()) << "of something else";
  EXPECT_FALSE(execute(batch));
  EXPECT_TRUE(client_->connection->broken());
  EXPECT_EQ(server_->extra()[0], std::byte{0x33});
}

INSTANTIATE_TEST_SUITE_P(Provider, ProcessConnection, testing::Values(Scheme::kTcp, Scheme::kShm),
                         [](const auto& provider) {
                           return std::string(scheme_name(provider.param));
                         });
INSTANTIATE_TEST_SUITE_P(Provider, WhoeverDropsTheDevice,
                         testing::Values(Scheme::kTcp, Scheme::kShm), [](const auto& provider) {
                           return std::string(scheme_name(provider.param));
                         });

}  // namespace
}  // namespace pmstore::fabric
