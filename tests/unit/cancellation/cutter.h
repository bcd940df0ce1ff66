// Cutter: runs an operation and destroys its coroutine at the n-th point where somebody could.
//
// A point is a moment at which a user's own coroutine may run and so may destroy another one: right
// after the operation's first suspension, and then in each round of the executor twice, before and
// behind what the devices deliver. Every suspension of the operation is met, also the time between
// the moment when its end is posted to the executor and the moment when it runs. Point 0 is before
// the first step. Threads: the executor's, which has a VirtualClock.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/executor.h"
#include "base/task.h"
#include "fabric/local/fault_injection.h"

namespace pmstore::cancellation {

inline constexpr uint64_t kMicrosecond = 1000;
inline constexpr uint64_t kMillisecond = 1'000'000;
inline constexpr uint64_t kSecond = 1'000'000'000;
// No operation takes longer, and no lease has run out by then.
inline constexpr uint64_t kBoundNs = kSecond;

// Runs the executor until `over` or until so much time has passed; gives over().
bool run_until(base::Executor& executor, uint64_t bound_ns, const std::function<bool()>& over);
void let_pass(base::Executor& executor, uint64_t ns);
// Up to the next moment at which leases are as they are now; timers that somebody has left behind
// are over then. So what follows has the same points as before, and none is skipped.
void settle(base::Executor& executor);

// The value of `task`, or nothing when it has none after that time. It is destroyed then.
template <typename T>
std::optional<T> within(base::Executor& executor, uint64_t bound_ns, base::Task<T> task) {
  task.start();
  if (!run_until(executor, bound_ns, [&task] { return task.done(); })) return std::nullopt;
  return task.take();
}

class Cutter {
 public:
  // Before the devices whose deliveries are to be met are opened: pollers are asked in order.
  explicit Cutter(base::Executor& executor);
  ~Cutter();
  Cutter(const Cutter&) = delete;
  Cutter& operator=(const Cutter&) = delete;

  enum class End { kDone, kDestroyed };
  // `begun` is called right behind the operation's first suspension. The test fails when the
  // operation has not ended after kBoundNs, and counts the pair when it was destroyed.
  End run(base::Task<void> operation, uint64_t point, const std::function<void()>& begun = {});

 private:
  class Marker;
  void pass();

  base::Executor& executor_;
  std::optional<base::Task<void>> operation_;
  uint64_t points_left_ = 0;
  std::unique_ptr<Marker> front_;
  std::unique_ptr<Marker> back_;
};

// Of a case and a setting.
std::string test_name(std::string_view tested, std::string_view setting);

// In what the operation begins.
enum class Weather {
  kCalm,
  kSlow,       // completions come late
  kBroken,     // the connection has just broken, or breaks at the operation's first request
  kServerGone  // the server has died, and another one is started after a while
};

// May a session be gone in it, so that an operation may fail?
constexpr bool breaks_sessions(Weather weather) {
  return weather == Weather::kBroken || weather == Weather::kServerGone;
}

// What comes right behind the destruction.
enum class Aftermath {
  kUse,      // the client is used, looked into and closed
  kDestroy,  // the client is destroyed
};

// Each completion of the clients comes late, one after the other: all that waits for completions is
// suspended there.
class SlowCompletions final : public fabric::FaultInjector {
 public:
  fabric::FaultDecision on_request(const fabric::FaultPoint& point) override;
};

// Breaks the connection of the client that posts next, or after so many requests.
class BreakNext final : public fabric::FaultInjector {
 public:
  explicit BreakNext(uint64_t at = 1) : left_(at) {}
  fabric::FaultDecision on_request(const fabric::FaultPoint& point) override;

 private:
  uint64_t left_;
};

// What a weather does to the requests of clients, as long as it lives: kSlow delays them, kBroken
// breaks the connection at the request `breaks_at`; the others do nothing.
class WeatherFaults {
 public:
  WeatherFaults(Weather weather, uint64_t breaks_at);

 private:
  SlowCompletions slow_;
  BreakNext break_;
  std::optional<fabric::ScopedFaultInjector> installed_;
};

// Every `of`-th point, from `first` on.
struct Share {
  uint64_t first = 0;
  uint64_t of = 1;
};
// As the environment says by PMSTORE_TEST_POINTS=FIRST/OF; without it, all points. It is for a
// sanitizer, under which all of them take long.
Share share_of_points();

// Calls `destroy_at` with the points 0, 1, ... until it says that the operation had ended before
// that point, or the test has failed. Of a share, the first point is `first` further: so that
// several calls of a test meet early points and late ones.
void at_all_points(const std::function<bool(uint64_t point)>& destroy_at, uint64_t first = 0);

// The same; in broken weather for each of the first `breaks` requests, at which the connection
// breaks, else once.
void destroy_everywhere(Weather weather, uint64_t breaks,
                        const std::function<bool(uint64_t point, uint64_t breaks_at)>& destroy_at);

}  // namespace pmstore::cancellation
