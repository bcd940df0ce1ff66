// Power cuts of the servers of a replicated log, of one or of all of them, at any event of a life
// with appends, trims, a producer that is fenced, a member that is dropped and added again. After
// each the log is taken over: everything that was acknowledged is there, all replicas have the same
// entries, and no decision about the members is forgotten.
//
// The servers are three pools of one process, two-sided: their CPUs store. Each has a trace of its
// own; the order of all their events is kept beside them, so that a moment is a place in each.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "log/log_host.h"
#include "log/replicated_log.h"
#include "model/crash_recorder.h"
#include "model/crash_states.h"
#include "tests/crash/crash_image.h"
#include "tests/unit/log/log_pool.h"

namespace pmstore::log {
namespace {

using base::Task;
using crash::CrashImage;
using crash::CrashRecorder;
using crash::CrashStates;
using crash::PageBytes;

constexpr size_t kServers = 3;
constexpr uint64_t kLogBytes = 16 * 1024;
constexpr uint64_t kArea = 40 * 1024;
constexpr uint64_t kRegion = 160 * 1024;

// Which server did something, one after the other.
class Ticker final : public persist::Observer {
 public:
  Ticker(std::vector<uint8_t>& order, uint8_t server) : order_(order), server_(server) {}
  void on_store(const void*, const void*, size_t, bool) override { order_.push_back(server_); }
  void on_flush(const void*, size_t) override { order_.push_back(server_); }
  void on_drain() override { order_.push_back(server_); }

 private:
  std::vector<uint8_t>& order_;
  uint8_t server_;
};

struct Server {
  Server(base::Executor& on, std::string where) : executor(on), uri(std::move(where)) {}
  void format(uint64_t identity) {
    pool = persist::Pool::in_region(region.bytes(), kDomain, true).value();
    ASSERT_TRUE(LogStore::format(*pool, kArea, identity));
  }
  // What the pool holds is what was there, or what a power cut has left.
  Status start() {
    host.reset();
    if (!recorder) {
      PMSTORE_TRY(pool, persist::Pool::in_region(region.bytes(), kDomain, false));
    }
    PMSTORE_TRY(host, LogHost::start(executor, *pool, {}));
    const auto listening = executor.run(host->listen(*fabric::parse_uri(uri)));
    return listening ? Status{} : Status(listening.error());
  }
  static constexpr persist::Domain kDomain = persist::Domain::kMemoryController;

  base::Executor& executor;
  std::string uri;
  PageBytes region{kRegion};
  std::unique_ptr<persist::Pool> pool;
  std::optional<CrashRecorder> recorder;
  std::unique_ptr<LogHost> host;
};

std::string text(uint64_t index) { return text_of(index, 20 + index * 37 % 300); }

class Cluster {
 public:
  explicit Cluster(const std::string& name) {
    for (size_t i = 0; i < kServers; ++i) {
      servers.push_back(std::make_unique<Server>(executor, fmt::format("local:{}{}", name, i)));
    }
  }
  ~Cluster() { log.reset(); }

  std::vector<std::string> uris(const std::vector<size_t>& which = {0, 1, 2}) const {
    std::vector<std::string> list;
    for (const size_t i : which) list.push_back(servers[i]->uri);
    return list;
  }
  template <typename T>
  T run(Task<T> task) {
    return executor.run(std::move(task));
  }
  Status open(const std::vector<size_t>& drop = {}) {
    log.reset();
    ReplicatedLogOptions options;
    options.producer.takeover = Takeover::kSteal;
    options.drop = uris(drop);
    PMSTORE_TRY(log, run(ReplicatedLog::open(executor, "log", uris(), options)));
    return {};
  }
  static Task<Result<Appended>> append(ReplicatedLog& log, uint64_t count) {
    std::vector<std::string> texts;
    for (uint64_t i = 0; i < count; ++i) texts.push_back(text(log.next_index() + i));
    std::vector<std::span<const std::byte>> payloads;
    for (const std::string& each : texts) payloads.push_back(std::as_bytes(std::span(each)));
    co_return co_await log.append_batch(payloads);
  }

  base::VirtualClock clock;
  base::Executor executor{clock};
  std::vector<std::unique_ptr<Server>> servers;
  std::unique_ptr<ReplicatedLog> log;
};

// A life of the log, recorded.
class Life {
 public:
  Life() {
    for (size_t i = 0; i < kServers; ++i) cluster_.servers[i]->format(77 + i);
    for (auto& server : cluster_.servers) EXPECT_TRUE(server->start());
    EXPECT_TRUE(cluster_.run(ReplicatedLog::create(cluster_.executor, "log", {.bytes = kLogBytes},
                                                   cluster_.uris(), {})));
    for (size_t i = 0; i < kServers; ++i) {
      tickers_.push_back(std::make_unique<Ticker>(order, static_cast<uint8_t>(i)));
      cluster_.servers[i]->recorder.emplace(cluster_.servers[i]->pool->memory(),
                                            tickers_.back().get());
    }
    note();
    open();
    for (uint64_t count : {1, 1, 3, 2, 1}) append(count);
    together(4);
    trim(8);
    open();  // fences the one before
    for (uint64_t count : {2, 5, 1}) append(count);
    open({2});
    append(3);
    trim(15);
    for (uint64_t count : {1, 2, 1}) append(count);
    EXPECT_TRUE(cluster_.run(cluster_.log->add(cluster_.uris()[2], true)));
    note();
    together(3);
    append(2);
    open({0});
    append(4);
    EXPECT_TRUE(cluster_.run(cluster_.log->close()));
    note();
    cluster_.log.reset();
    for (auto& server : cluster_.servers) {
      server->host.reset();
      traces.push_back(server->recorder->take());
    }
  }

  // What holds from this moment on.
  struct Promise {
    size_t moment;  // so many events of `order` had been
    uint64_t acknowledged;
    uint64_t started;  // entries that were given to append()
    uint64_t membership;
  };
  // `strict`: at this moment, nothing promised later.
  Promise promised(size_t moment) const {
    Promise now = promises_.front();
    for (const Promise& each : promises_) {
      if (each.moment <= moment) now = each;
    }
    return now;
  }

  std::vector<uint8_t> order;
  std::vector<model::Trace> traces;

 private:
  void note() {
    if (cluster_.log) {
      membership_ = cluster_.log->membership();
      acknowledged_ = cluster_.log->next_index() - 1;
    }
    started_ = std::max(started_, acknowledged_);
    promises_.push_back({order.size(), acknowledged_, started_, membership_});
  }
  void open(const std::vector<size_t>& drop = {}) {
    const Status opened = cluster_.open(drop);
    ASSERT_TRUE(opened) << opened.error().to_string();
    note();
  }
  void start_entries(uint64_t count) {
    started_ = cluster_.log->next_index() - 1 + count;
    promises_.push_back({order.size(), acknowledged_, started_, membership_});
  }
  void append(uint64_t count) {
    start_entries(count);
    const auto appended = cluster_.run(Cluster::append(*cluster_.log, count));
    ASSERT_TRUE(appended) << appended.error().to_string();
    note();
  }
  Task<void> counted(uint64_t& left) {
    EXPECT_TRUE(co_await Cluster::append(*cluster_.log, 1));
    --left;
  }
  Task<void> wait(const uint64_t& left) {
    while (left > 0) co_await cluster_.executor.sleep_for(1000);
  }
  // Under way at the same time.
  void together(uint64_t count) {
    start_entries(count);
    uint64_t left = count;
    for (uint64_t i = 0; i < count; ++i) cluster_.executor.spawn(counted(left));
    cluster_.run(wait(left));
    note();
  }
  void trim(uint64_t index) {
    ASSERT_TRUE(cluster_.run(cluster_.log->trim_below_index(index)));
    note();
  }

  Cluster cluster_{"life"};
  std::vector<std::unique_ptr<Ticker>> tickers_;
  std::vector<Promise> promises_;
  uint64_t acknowledged_ = 0;
  uint64_t started_ = 0;
  uint64_t membership_ = 1;
};

// The three of them after a power cut, or all but one, which is gone for good.
class Aftermath {
 public:
  explicit Aftermath(size_t gone) : gone_(gone) {}
  // What is wrong, or nothing.
  std::optional<std::string> look(const std::array<std::span<const std::byte>, kServers>& images,
                                  const Life::Promise& promise) {
    Cluster after("after");
    for (size_t i = 0; i < kServers; ++i) {
      Server& server = *after.servers[i];
      server.uri = fmt::format("local:life{}", i);  // as its list says
      if (i == gone_) continue;
      std::memcpy(server.region.bytes().data(), images[i].data(), images[i].size());
      const Status started = server.start();
      if (!started) return server.uri + " does not start: " + started.error().to_string();
    }
    const Status opened = gone_ == kServers ? after.open() : open_without(after);
    if (!opened) return "it cannot be taken over: " + opened.error().to_string();
    if (const auto wrong = check(after, promise.acknowledged, promise.started)) return wrong;
    if (after.log->membership() < promise.membership) {
      return fmt::format("membership {} is back", after.log->membership());
    }
    const uint64_t next = after.log->next_index();
    const auto appended = after.run(Cluster::append(*after.log, 1));
    if (!appended) return "nothing can be appended: " + appended.error().to_string();
    return check(after, next, next);
  }

 private:
  Status open_without(Cluster& after) {
    std::vector<std::string> left = after.uris();
    left.erase(left.begin() + static_cast<ptrdiff_t>(gone_));
    ReplicatedLogOptions options;
    options.drop = {after.servers[gone_]->uri};
    options.dropped_are_gone = true;
    auto opened = after.run(ReplicatedLog::open(after.executor, "log", left, options));
    if (!opened && opened.code() == ErrorCode::kNotFound) {  // it was no member
      opened = after.run(ReplicatedLog::open(after.executor, "log", left, {}));
    }
    if (!opened) return opened.error();
    after.log = std::move(*opened);
    return {};
  }
  static std::optional<std::string> check(Cluster& after, uint64_t acknowledged, uint64_t started) {
    if (const Status published = after.run(after.log->publish()); !published) {
      return published.error().to_string();
    }
    const uint64_t last = after.log->next_index() - 1;
    if (last < acknowledged) return fmt::format("{} of {} are there", last, acknowledged);
    if (last > started) return fmt::format("{} are there, {} were appended", last, started);
    for (const std::string& uri : after.log->replicas()) {
      const auto found = std::find_if(after.servers.begin(), after.servers.end(),
                                      [&](const auto& server) { return server->uri == uri; });
      const auto entries = read_entries((*found)->host->store(), "log");
      if (!entries) return uri + ": " + entries.error().to_string();
      const uint64_t there = entries->empty() ? 0 : entries->back().index;
      if (there != last) return fmt::format("{} has entries up to {}, not {}", uri, there, last);
      for (size_t i = 0; i < entries->size(); ++i) {
        const TestEntry& entry = (*entries)[i];
        const bool follows = i == 0 || entry.index == (*entries)[i - 1].index + 1;
        if (follows && entry.payload == text(entry.index)) continue;
        return fmt::format("{}: entry {} is another one", uri, entry.index);
      }
    }
    return std::nullopt;
  }
  size_t gone_;  // kServers: none
};

// A power cut now of those in `cut`; the others' caches survive.
class Cut {
 public:
  Cut(std::array<std::optional<CrashStates>, kServers>& states, base::Random& random)
      : states_(states), random_(random) {}

  std::optional<std::string> look(const std::array<bool, kServers>& cut,
                                  const Life::Promise& promise, size_t gone) {
    std::optional<std::string> wrong;
    std::array<std::span<const std::byte>, kServers> images;
    const std::function<void(size_t)> next = [&](size_t server) {
      if (server == kServers) {
        wrong = Aftermath(gone).look(images, promise);
        return;
      }
      CrashStates& states = *states_[server];
      states.show(cut[server] ? draw(states) : states.all(), [&](CrashImage& image) {
        images[server] = image.bytes();
        next(server + 1);
        return true;
      });
    };
    next(0);
    return wrong;
  }

 private:
  CrashStates::Choice draw(const CrashStates& states) {
    const uint64_t kind = random_.below(4);
    if (kind == 0) return states.none();
    CrashStates::Choice choice = states.all();
    if (kind == 1) return choice;
    for (auto& each : choice) each = static_cast<uint16_t>(random_.below(each + 1u));
    return choice;
  }
  std::array<std::optional<CrashStates>, kServers>& states_;
  base::Random& random_;
};

TEST(ReplicatedLogCrash, EverythingAcknowledgedIsThereAfterAnyPowerCut) {
  Life life;
  ASSERT_FALSE(testing::Test::HasFailure());
  std::array<size_t, kServers> counts{};
  for (const uint8_t server : life.order) ++counts[server];
  std::array<std::optional<CrashStates>, kServers> states;
  for (size_t i = 0; i < kServers; ++i) {
    ASSERT_EQ(life.traces[i].events.size(), counts[i]) << "the order has all of them";
    states[i].emplace(life.traces[i]);
  }
  ASSERT_GT(life.order.size(), 400u);
  base::Random random(1);
  uint64_t looks = 0;
  std::array<size_t, kServers> done{};
  for (size_t moment = 0; moment <= life.order.size(); ++moment) {
    if (moment > 0) {
      const uint8_t server = life.order[moment - 1];
      states[server]->step_to(++done[server]);
    }
    // Of all of them, drawn several times, and of one in its turn.
    std::array<bool, kServers> one{};
    one[moment % kServers] = true;
    const std::array<bool, kServers> all = {true, true, true};
    for (const auto& cut : {all, all, all, all, one}) {
      // Every other time one does not come back.
      const size_t gone = ++looks % 2 == 0 ? random.below(kServers) : kServers;
      const auto wrong = Cut(states, random).look(cut, life.promised(moment), gone);
      ASSERT_FALSE(wrong) << "after event " << moment << " of " << life.order.size()
                          << ", cut: " << cut[0] << cut[1] << cut[2] << ": " << *wrong;
    }
  }
  RecordProperty("looks", static_cast<int>(looks));
}

}  // namespace
}  // namespace pmstore::log
