// A store that can no longer make anything durable: what a call on a file was doing then is never
// known by this process, so the call ends, and its file is closed for good.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "fabric/local/fault_injection.h"
#include "fs/namespace.h"
#include "model/page_bytes.h"
#include "persist/pool.h"
#include "pmstore/client.h"
#include "pmstore/server.h"
#include "tests/unit/fs/memory_space.h"
#include "tests/unit/pmstore/lost_page.h"

namespace pmstore::fs {
namespace {

using Step = MemorySpace::Step;

// Counts the sessions that a server refuses: who asks what became of a transaction makes one.
class Refusals final : public SessionObserver {
 public:
  void on_session(const SessionName&) override {}
  void on_refused(const SessionName&, const Error&) override { ++count; }
  void on_ended(const SessionName&, SessionEnd) override {}
  void on_failure(const Error&) override {}
  int count = 0;
};

class FailedStore : public ::testing::Test {
 protected:
  static constexpr uint64_t kSecondNs = 1'000'000'000;

  FailedStore() {
    pool_ = persist::Pool::in_region(region_.bytes(), persist::Domain::kNone, true).value();
    FormatOptions format;
    format.rings = 0;
    format.log_bytes = 0;
    format.shard_log_bytes = 1 << 20;
    format.identity = 1;
    EXPECT_TRUE(format_store(*pool_, format));
    ServerOptions with;
    with.discipline = LockDiscipline::kCpu;
    with.observer = &refusals_;
    server_ = run(Server::start(executor_, *pool_, with)).value();
    const auto uri = run(server_->listen({fabric::Scheme::kLocal, "failed-store", 0})).value();
    client_ = run(Client::connect(executor_, uri, {})).value();
    space_.executor = &executor_;
    options_.now_ns = [] { return uint64_t{1'000'000}; };
    options_.identity = 7;
    options_.store_has_failed = [this] { return pool_->memory().failed(); };
    namespace_ = run(Namespace::open(*client_, space_, options_)).value();
  }
  ~FailedStore() override {
    namespace_.reset();
    client_.reset();
    (void)run(server_->stop());
  }

  template <typename T>
  T run(base::Task<T> task) {
    return executor_.run(std::move(task));
  }
  void sleep(uint64_t ns) {
    run([](base::Executor& executor, uint64_t for_ns) -> base::Task<void> {
      co_await executor.sleep_for(for_ns);
    }(executor_, ns));
  }
  static std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text.data(), text.size()));
  }
  Ino make_file() {
    const Ino ino = run(namespace_->make({}, kRootIno, "f", {.type = FileType::kRegular}))->ino;
    EXPECT_TRUE(run(namespace_->write(ino, 0, bytes_of(std::string(200'000, 'x')))));
    return ino;
  }
  // The store fails at the first step of this kind.
  void fail_at(Step step) {
    space_.on_step = [this, step](Step taken, const AreaRange&) {
      if (taken == step && lost_ == nullptr) {
        lost_ = std::make_unique<pmstore::testing::LostPage>(pool_->memory());
      }
      note(taken);
    };
  }
  void fail_now() {
    lost_ = std::make_unique<pmstore::testing::LostPage>(pool_->memory());
    space_.on_step = [this](Step taken, const AreaRange&) { note(taken); };
  }
  void note(Step taken) {
    const bool frees = taken == Step::kRetire || taken == Step::kClean || taken == Step::kRelease;
    if (lost_ != nullptr && frees) ++freeing_steps_;
  }
  // The error of a call that begins now; empty: it does not end, or succeeds.
  template <typename T>
  std::optional<PosixError> failure_of(base::Task<PosixResult<T>> call) {
    call.start();
    sleep(60 * kSecondNs);
    EXPECT_TRUE(call.done());
    if (!call.done()) return {};
    const auto result = call.take();
    if (result) return {};
    return result.error();
  }
  template <typename T>
  int error_of(base::Task<PosixResult<T>> call) {
    const auto failure = failure_of(std::move(call));
    return failure ? failure->number : -1;
  }
  // Nothing asks the store again and again, and nothing is freed that may be some file's. Questions
  // that never see that the store has failed would end after kPatienceNs: they are counted before.
  void expect_quiet() {
    const int before = refusals_.count;
    sleep(600 * kSecondNs);
    EXPECT_LT(refusals_.count - before, 200);
    EXPECT_EQ(freeing_steps_, 0);
  }
  // Not only because the store answers nothing.
  template <typename T>
  void expect_unsettled(base::Task<PosixResult<T>> call) {
    const auto failure = failure_of(std::move(call));
    ASSERT_TRUE(failure);
    EXPECT_EQ(failure->number, EIO);
    EXPECT_NE(failure->message.find("what became of the file's last change"), std::string::npos)
        << failure->message;
  }
  void expect_closed(Ino ino) {
    expect_unsettled(namespace_->read(ino, 0, 10));
    expect_unsettled(namespace_->map(ino, 0, 10, false));
    expect_unsettled(namespace_->write(ino, 0, bytes_of("y")));
  }

  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  model::PageBytes region_{16 << 20};
  Refusals refusals_;
  std::unique_ptr<persist::Pool> pool_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Client> client_;
  MemorySpace space_{8 << 20, 2};
  NamespaceOptions options_;
  std::unique_ptr<Namespace> namespace_;
  std::unique_ptr<pmstore::testing::LostPage> lost_;
  int freeing_steps_ = 0;  // since it is lost
};

TEST_F(FailedStore, EndsAnAtomicWriteThatGivesTheFileItsNewUnits) {
  const Ino ino = make_file();
  fail_at(Step::kWrite);
  const uint64_t used_bytes = space_.used_bytes();
  EXPECT_EQ(error_of(namespace_->write(ino, 100, bytes_of("y"), true)), EIO);
  ASSERT_NE(lost_, nullptr);
  expect_closed(ino);
  expect_quiet();
  EXPECT_EQ(space_.used_bytes(), used_bytes + kUnitBytes) << "either place may be the file's";
}

TEST_F(FailedStore, EndsAnAtomicWriteThatRecordsItsNewUnits) {
  const Ino ino = make_file();
  fail_now();
  const uint64_t used_bytes = space_.used_bytes();
  EXPECT_EQ(error_of(namespace_->write(ino, 100, bytes_of("y"), true)), EIO);
  expect_quiet();
  EXPECT_EQ(space_.used_bytes(), used_bytes + kUnitBytes) << "they may be recorded";
}

TEST_F(FailedStore, EndsATruncation) {
  const Ino ino = make_file();
  fail_at(Step::kWords);
  const uint64_t used_bytes = space_.used_bytes();
  const AttributeChange smaller{.set = AttributeChange::kSize, .size = 10};
  EXPECT_EQ(error_of(namespace_->set_attributes({}, ino, smaller)), EIO);
  ASSERT_NE(lost_, nullptr);
  expect_closed(ino);
  expect_quiet();
  EXPECT_EQ(space_.used_bytes(), used_bytes);
}

TEST_F(FailedStore, EndsAMove) {
  const Ino ino = make_file();
  const auto mapped = run(namespace_->map(ino, 0, kMaxFileBytes, false));
  ASSERT_TRUE(mapped);
  const uint16_t server = mapped->map.extents.front().place.server;
  space_.drain(server);
  fail_at(Step::kWrite);
  EXPECT_EQ(error_of(namespace_->move_off(server)), EIO);
  ASSERT_NE(lost_, nullptr);
  expect_closed(ino);
  expect_quiet();
}

// Breaks the connection behind the n-th request of a client, and each later one before its first
// request, until the store is back.
class AwayFrom final : public fabric::FaultInjector {
 public:
  explicit AwayFrom(uint64_t request) : left_(request) {}
  fabric::FaultDecision on_request(const fabric::FaultPoint& point) override {
    if (!point.connector || is_back) return {};
    if (left_ == 0) return {fabric::Fault::kBreakBefore, 0};
    if (--left_ == 0) return {fabric::Fault::kBreakAfter, 0};
    return {};
  }
  bool fired() const { return left_ == 0; }
  bool is_back = false;

 private:
  uint64_t left_;
};

class AwayStore : public FailedStore {
 protected:
  struct Doubt {
    bool fired = false;
    bool in_doubt = false;  // whether the truncation has committed
  };
  // Truncates a file while the store is away from this request of its client on. Tables are looked
  // through `scan_ns` from the start of the namespace on, and again each second while that fails.
  Doubt truncate(uint64_t request, uint64_t scan_ns) {
    Doubt doubt;
    const Ino ino = make_file();
    namespace_.reset();
    space_.restart();
    options_.reclaim_ns = scan_ns;
    namespace_ = run(Namespace::open(*client_, space_, options_)).value();
    sleep(kSecondNs / 2);  // the first look is over
    std::vector<Step> steps;
    space_.on_step = [&](Step step, const AreaRange&) {
      if (step == Step::kRetire || step == Step::kClean) steps.push_back(step);
    };
    AwayFrom away(request);
    {
      const fabric::ScopedFaultInjector injected(away);
      const AttributeChange smaller{.set = AttributeChange::kSize, .size = 0};
      const auto failure = failure_of(namespace_->set_attributes({}, ino, smaller));
      doubt.in_doubt = failure && failure->message.find("may or may not") != std::string::npos;
      sleep(kSecondNs / 20);  // what is asked each second was asked just now
      away.is_back = true;
      sleep(60 * kSecondNs);
    }
    doubt.fired = away.fired();
    const auto retired = std::find(steps.begin(), steps.end(), Step::kRetire);
    const auto cleaned = std::find(steps.begin(), steps.end(), Step::kClean);
    EXPECT_TRUE(cleaned == steps.end() || retired < cleaned);
    EXPECT_EQ(cleaned == steps.end(), retired == steps.end()) << "what is freed is cleaned";
    space_.on_step = {};
    EXPECT_TRUE(run(namespace_->unlink({}, kRootIno, "f")));
    sleep(kSecondNs);
    EXPECT_EQ(space_.used_bytes(), 0u);
    return doubt;
  }
};

// The scan comes when the store is back, before it says what became of the truncation, or behind.
TEST_F(AwayStore, AScanDoesNotCleanWhatATruncationInDoubtHasFreed) {
  constexpr uint64_t kPhases = 8;
  bool was_in_doubt = false;
  for (uint64_t request = 1; true; ++request) {
    const Doubt first = truncate(request, kSecondNs);
    if (!first.fired) break;
    was_in_doubt |= first.in_doubt;
    for (uint64_t phase = 1; phase < kPhases && first.in_doubt; ++phase) {
      const Doubt same = truncate(request, kSecondNs + phase * kSecondNs / kPhases);
      EXPECT_TRUE(same.in_doubt) << request << ", " << phase;
    }
  }
  EXPECT_TRUE(was_in_doubt);
}

}  // namespace
}  // namespace pmstore::fs
