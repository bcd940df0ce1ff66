#include "service/reconnector.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace pmstore::service {
namespace {

constexpr uint64_t kFirstPauseNs = 1'000'000;
constexpr uint64_t kLongestPauseNs = 200'000'000;

}  // namespace

class Reconnector::Attempt {
 public:
  explicit Attempt(Reconnector& reconnector) : reconnector_(reconnector) {
    PMSTORE_CHECK(!reconnector_.connecting_, "one attempt at a time");
    reconnector_.connecting_ = true;
    reconnector_.failure_.reset();
  }
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;
  ~Attempt() {
    reconnector_.connecting_ = false;
    reconnector_.done_.notify_all();
  }

 private:
  Reconnector& reconnector_;
};

// The time until which another try may help.
uint64_t Reconnector::retry_until(ErrorCode code, uint64_t began_ns) const {
  switch (code) {
    case ErrorCode::kDisconnected:
    case ErrorCode::kTimeout: return began_ns + patience_.away_ns;
    case ErrorCode::kBackPressure: return began_ns + patience_.busy_ns;
    default: return 0;
  }
}

base::Task<Status> Reconnector::connected() {
  bool waited = false;
  while (connecting_) {
    co_await done_.wait();
    waited = true;
  }
  if (closed_) {
    co_return make_error(ErrorCode::kDisconnected, "the client was closed; connect another one");
  }
  if (target_.usable()) co_return Status{};
  // One attempt for all who asked while it ran.
  if (waited && failure_) co_return Error(*failure_);
  const Attempt attempt(*this);
  const uint64_t began_ns = executor_.now_ns();
  uint64_t pause_ns = kFirstPauseNs;
  co_await target_.let_go();
  Status done = co_await target_.connect_once();
  // Its patience ends when the client is closed.
  while (!done && !closed_ && executor_.now_ns() + pause_ns < retry_until(done.code(), began_ns)) {
    co_await executor_.sleep_for(pause_ns);
    pause_ns = std::min(2 * pause_ns, kLongestPauseNs);
    done = co_await target_.connect_once();
  }
  if (!done) {
    failure_ = done.error();
    co_return std::move(done);
  }
  co_return Status{};
}

base::Task<void> Reconnector::close() {
  closed_ = true;
  while (connecting_) co_await done_.wait();
}

}  // namespace pmstore::service
