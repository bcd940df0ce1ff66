#include "tests/unit/cancellation/cutter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include "base/check.h"

namespace pmstore::cancellation {

namespace {

uint64_t pairs = 0;

// Prints the count behind the last test.
class Report final : public ::testing::Environment {
 public:
  void TearDown() override {
    std::printf("%llu pairs of an operation and a point of destruction\n",
                static_cast<unsigned long long>(pairs));
  }
};
[[maybe_unused]] const auto* const report = ::testing::AddGlobalTestEnvironment(new Report);

base::Task<void> sleep(base::Executor& executor, uint64_t ns) { co_await executor.sleep_for(ns); }

}  // namespace

std::string test_name(std::string_view tested, std::string_view setting) {
  std::string name = std::string(tested) + "_" + std::string(setting);
  std::erase_if(name, [](char c) { return std::string_view(": ,").find(c) != std::string::npos; });
  return name;
}

void let_pass(base::Executor& executor, uint64_t ns) { executor.run(sleep(executor, ns)); }

void settle(base::Executor& executor) {
  constexpr uint64_t kLeaseNs = 5 * kSecond;
  let_pass(executor, kLeaseNs - executor.now_ns() % kLeaseNs);
}

bool run_until(base::Executor& executor, uint64_t bound_ns, const std::function<bool()>& over) {
  const uint64_t until_ns = executor.now_ns() + bound_ns;
  uint64_t pause_ns = 1;
  while (!over() && executor.now_ns() < until_ns) {
    let_pass(executor, pause_ns);
    pause_ns = std::min(2 * pause_ns, kMillisecond);
  }
  return over();
}

class Cutter::Marker final : public base::Poller {
 public:
  explicit Marker(Cutter& cutter) : cutter_(cutter) { cutter_.executor_.add_poller(this); }
  ~Marker() override { cutter_.executor_.remove_poller(this); }
  bool arm() override { return true; }
  size_t poll() override {
    cutter_.pass();
    return 0;
  }

 private:
  Cutter& cutter_;
};

Cutter::Cutter(base::Executor& executor)
    : executor_(executor), front_(std::make_unique<Marker>(*this)) {}
Cutter::~Cutter() = default;

void Cutter::pass() {
  if (!operation_ || operation_->done()) return;
  if (--points_left_ == 0) operation_.reset();
}

Cutter::End Cutter::run(base::Task<void> operation, uint64_t point,
                        const std::function<void()>& begun) {
  if (point == 0) {
    ++pairs;
    return End::kDestroyed;
  }
  back_ = std::make_unique<Marker>(*this);  // behind the devices that are open now
  points_left_ = point;
  operation_ = std::move(operation);
  operation_->start();
  if (begun) begun();
  pass();  // the first point
  EXPECT_TRUE(run_until(executor_, kBoundNs, [this] { return !operation_ || operation_->done(); }))
      << "the operation itself does not end";
  back_.reset();
  if (!operation_) {
    ++pairs;
    return End::kDestroyed;
  }
  operation_.reset();
  return End::kDone;
}

fabric::FaultDecision SlowCompletions::on_request(const fabric::FaultPoint& point) {
  if (!point.connector || point.request.op == fabric::OpCode::kWriteImmediate) return {};
  return {fabric::Fault::kDelay, 20 * kMicrosecond};
}

fabric::FaultDecision BreakNext::on_request(const fabric::FaultPoint& point) {
  if (!point.connector || left_ == 0 || --left_ > 0) return {};
  return {fabric::Fault::kBreakBefore, 0};
}

WeatherFaults::WeatherFaults(Weather weather, uint64_t breaks_at) : break_(breaks_at) {
  if (weather == Weather::kSlow) installed_.emplace(slow_);
  if (weather == Weather::kBroken) installed_.emplace(break_);
}

Share share_of_points() {
  Share share;
  const char* const given = std::getenv("PMSTORE_TEST_POINTS");
  if (given == nullptr) return share;
  int used = 0;
  const int read = std::sscanf(given, "%" SCNu64 "/%" SCNu64 "%n", &share.first, &share.of, &used);
  PMSTORE_CHECK(read == 2 && given[used] == '\0' && share.first < share.of,
                "PMSTORE_TEST_POINTS is NUMBER/OF, as 0/4");
  return share;
}

void at_all_points(const std::function<bool(uint64_t point)>& destroy_at, uint64_t first) {
  static const Share share = share_of_points();
  uint64_t point = (share.first + first) % share.of;
  while (destroy_at(point) && !::testing::Test::HasFailure()) point += share.of;
  EXPECT_FALSE(::testing::Test::HasFailure()) << "at point " << point;
}

void destroy_everywhere(Weather weather, uint64_t breaks,
                        const std::function<bool(uint64_t point, uint64_t breaks_at)>& destroy_at) {
  if (weather != Weather::kBroken) breaks = 1;
  for (uint64_t breaks_at = 1; breaks_at <= breaks && !::testing::Test::HasFailure(); ++breaks_at) {
    at_all_points([&](uint64_t point) { return destroy_at(point, breaks_at); }, breaks_at);
    EXPECT_FALSE(::testing::Test::HasFailure()) << "request " << breaks_at << " breaks";
  }
}

}  // namespace pmstore::cancellation
