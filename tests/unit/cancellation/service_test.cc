// The awaitables of service/ are destroyed at each of their points. tests/structure/awaitables.py
// looks for their names here.
#include <gtest/gtest.h>

#include "base/clock.h"
#include "service/host.h"
#include "service/link.h"
#include "service/reconnector.h"
#include "tests/unit/cancellation/cutter.h"

namespace pmstore::cancellation {
namespace {

using base::Task;
using service::Link;

constexpr service::ServiceId kPlain{1};

// Has nothing but sessions.
class PlainService final : public service::Service {
 public:
  PlainService() : Service({.id = kPlain, .name = "plain", .max_sessions = 4}) {}
  uint64_t epoch() const override { return 1; }
  bool needs_lease(const service::Session&) const override { return true; }
  Result<std::vector<std::byte>> admit(service::Session&, std::span<const std::byte>) override {
    return std::vector<std::byte>();
  }
  void on_call(service::Session& session, fabric::RpcCall call,
               std::span<const std::byte>) override {
    host().drop_malformed(session, call);
  }
};

// A host, and a link to it that keeps its lease.
class ServiceWorld {
 public:
  explicit ServiceWorld(Weather weather) : weather_(weather) {
    device_ = std::move(*fabric::open_device(fabric::Scheme::kLocal, executor_));
    host_.add(service_);
    EXPECT_TRUE(executor_.run(host_.listen(uri("first"))));
    EXPECT_TRUE(make_link());
  }

  using Operation = Task<void> (*)(ServiceWorld&);
  struct Case {
    const char* name;
    Operation operation;
  };
  bool destroy_at(const Case& tested, uint64_t point, uint64_t breaks_at);

  // For operations.
  static fabric::Uri uri(std::string name) { return {fabric::Scheme::kLocal, std::move(name), 0}; }
  fabric::Uri new_uri() { return uri("another " + std::to_string(++uris_)); }
  Task<Result<std::unique_ptr<Link>>> open() {
    service::LinkOptions options;
    options.service = kPlain;
    options.secret = ClientSecret::of_number(7);
    return Link::open(*device_, uri("first"), options, {});
  }
  // One that has lost its link.
  service::Reconnector& reconnector() { return dialer_.made_anew(); }
  // Goes on behind the operation.
  void beside(Task<Status> task) {
    beside_ = std::move(task);
    beside_.start();
  }
  Task<Status> connect_later(service::Reconnector& reconnector) {
    co_await executor_.yield();
    co_return co_await reconnector.connected();
  }
  service::Host& host() { return host_; }
  Link& link() { return *link_; }
  void expect(const Status& ended) const {
    EXPECT_TRUE(ended || breaks_sessions(weather_)) << ended.error().to_string();
  }

 private:
  class Dialer final : public service::Reconnector::Target {
   public:
    explicit Dialer(ServiceWorld& world) : world_(world) {}
    service::Reconnector& made_anew() {
      link_.reset();
      return reconnector_.emplace(world_.executor_, *this, service::Patience{kMillisecond, 0});
    }
    bool connecting() const { return reconnector_ && reconnector_->connecting(); }
    void hang_up() { link_.reset(); }

   private:
    bool usable() const override { return link_ != nullptr && link_->usable(); }
    Task<void> let_go() override { co_return; }
    Task<Status> connect_once() override {
      auto opened = co_await world_.open();
      if (!opened) co_return std::move(opened.error());
      link_ = std::move(*opened);
      co_return Status{};
    }
    ServiceWorld& world_;
    std::unique_ptr<Link> link_;
    std::optional<service::Reconnector> reconnector_;
  };

  bool make_link() {
    auto made = executor_.run(open());
    EXPECT_TRUE(made) << made.error().to_string();
    if (!made) return false;
    link_ = std::move(*made);
    link_->keep_lease();
    return true;
  }

  Weather weather_;
  int uris_ = 0;
  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  Cutter cutter_{executor_};
  PlainService service_;
  service::Host host_{executor_, {}};
  std::unique_ptr<fabric::Device> device_;
  std::unique_ptr<Link> link_;
  Dialer dialer_{*this};
  Task<Status> beside_;
};

bool ServiceWorld::destroy_at(const Case& tested, uint64_t point, uint64_t breaks_at) {
  if (!link_->usable() && !make_link()) return false;
  settle(executor_);
  Cutter::End ended;
  {
    const WeatherFaults faults(weather_, breaks_at);
    ended = cutter_.run(tested.operation(*this), point);
  }
  let_pass(executor_, 10 * kMillisecond);
  EXPECT_FALSE(dialer_.connecting()) << "an attempt that nobody makes keeps all others waiting";
  beside_ = {};
  dialer_.hang_up();
  let_pass(executor_, kMillisecond);
  EXPECT_LE(service_.sessions(), 1u) << "a session is left behind";
  const auto opened = within(executor_, kBoundNs, open());
  EXPECT_TRUE(opened && *opened) << "the next one is kept out";
  return ended == Cutter::End::kDestroyed;
}

const ServiceWorld::Case kCases[] = {
    {"Host::listen",
     [](ServiceWorld& world) -> Task<void> {
       EXPECT_TRUE(co_await world.host().listen(world.new_uri()));
     }},
    {"Link::open",
     [](ServiceWorld& world) -> Task<void> {
       const auto opened = co_await world.open();
       world.expect(opened ? Status{} : Status(opened.error()));
     }},
    {"Link::call",
     [](ServiceWorld& world) -> Task<void> {
       const auto pong = co_await world.link().call(service::kPingMethod, {}, 0);
       world.expect(pong ? Status{} : Status(pong.error()));
     }},
    {"Reconnector::connected",
     [](ServiceWorld& world) -> Task<void> {
       service::Reconnector& reconnector = world.reconnector();
       world.beside(reconnector.connected());
       world.expect(co_await reconnector.connected());
     }},
    {"Reconnector::connected, with another behind it",
     [](ServiceWorld& world) -> Task<void> {
       service::Reconnector& reconnector = world.reconnector();
       world.beside(world.connect_later(reconnector));
       world.expect(co_await reconnector.connected());
     }},
    {"Reconnector::close",
     [](ServiceWorld& world) -> Task<void> {
       service::Reconnector& reconnector = world.reconnector();
       world.beside(reconnector.connected());
       co_await reconnector.close();
       EXPECT_TRUE(reconnector.closed());
     }},
};

class ServiceCancellation
    : public ::testing::TestWithParam<std::tuple<const ServiceWorld::Case*, Weather>> {};

TEST_P(ServiceCancellation, LeavesNothingBehind) {
  const auto& [tested, weather] = GetParam();
  ServiceWorld world(weather);
  destroy_everywhere(weather, 3, [&](uint64_t point, uint64_t breaks_at) {
    return world.destroy_at(*tested, point, breaks_at);
  });
}

INSTANTIATE_TEST_SUITE_P(Service, ServiceCancellation,
                         ::testing::Combine(::testing::Values(&kCases[0], &kCases[1], &kCases[2],
                                                              &kCases[3], &kCases[4], &kCases[5]),
                                            ::testing::Values(Weather::kCalm, Weather::kSlow,
                                                              Weather::kBroken)),
                         [](const auto& param) {
                           const Weather weather = std::get<1>(param.param);
                           return test_name(std::get<0>(param.param)->name,
                                            weather == Weather::kCalm   ? "calm"
                                            : weather == Weather::kSlow ? "slow"
                                                                        : "broken");
                         });

}  // namespace
}  // namespace pmstore::cancellation
