// Every awaitable of FileData is destroyed at each of its points, one-sided and by message.
#include "fs/file_data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "fs/file_data_service.h"
#include "fs/local_data_space.h"
#include "service/host.h"
#include "tests/unit/cancellation/cutter.h"
#include "tests/unit/fs/data/area_pool.h"

namespace pmstore::cancellation {
namespace {

using base::Task;
using fs::DataOutcome;

// A served area and a client of it, whose operations are destroyed in their middle. Everything is
// on one executor in virtual time. Invariant between two operations: the server has no session.
class FileDataWorld {
 public:
  static constexpr size_t kExtentUnits = 20;
  static constexpr uint64_t kBreaks = 3;
  static constexpr size_t kUsedBytes = 40'000;
  using Operation = Task<void> (*)(FileDataWorld& world);
  struct Case {
    const char* name;
    Operation operation;
  };

  explicit FileDataWorld(persist::Domain domain)
      : domain_(domain), pool_(domain, (kExtentUnits + 4) * fs::kUnitBytes) {
    extent.place = {0, 0, kExtentUnits * fs::kUnitBytes};
    memory_.resize(1'200'000);
    start_server();
    device_ = std::move(*fabric::open_device(fabric::Scheme::kLocal, executor_));
  }
  ~FileDataWorld() {
    data.reset();
    stop_server();
  }

  void destroy_everywhere(const Case& tested, Weather weather, Aftermath aftermath) {
    weather_ = weather;
    cancellation::destroy_everywhere(weather, kBreaks, [&](uint64_t point, uint64_t breaks_at) {
      return destroy_at(tested, aftermath, point, breaks_at);
    });
  }

  // ---- for operations ----
  Task<Result<std::unique_ptr<fs::FileData>>> open() {
    fs::FileDataOptions options;
    options.secret = ClientSecret::of_number(1);
    options.small_buffers = 2;
    options.large_buffers = 1;
    options.reconnect_timeout_ns = 100 * kMillisecond;
    co_return co_await fs::FileData::open(*device_, uri_, options);
  }
  std::vector<fs::WritePiece> written(size_t bytes) {
    return {{extent, 100, std::span(memory_).first(bytes)}};
  }
  std::vector<fs::ReadPiece> to_read(size_t bytes) {
    return {{extent, 100, std::span(memory_).first(bytes)}};
  }
  template <typename T>
  void expect(const Result<T>& result) {
    if (result) return;
    EXPECT_TRUE(breaks_sessions(weather_)) << result.error().to_string();
  }
  std::span<std::byte> registered() { return std::span(memory_).subspan(100'000, 500'000); }
  Weather weather() const { return weather_; }
  base::Executor& executor() { return executor_; }
  std::unique_ptr<fs::FileData> data;
  fs::MapExtent extent;

 private:
  void start_server() {
    pool_.reopen();
    space_.emplace(executor_, fs::FileArea::open(pool_.pool()).value());
    EXPECT_TRUE(space_->claim(extent.place));
    extent.generation = space_->generation(extent.place);
    service_.emplace(*space_);
    service::HostOptions options;
    options.domain = domain_;
    host_.emplace(executor_, options);
    host_->add(*service_);
    uri_ = executor_.run(host_->listen({fabric::Scheme::kLocal, "cut-data", 0})).value();
  }
  void stop_server() {
    host_->shut_down();
    host_->close_endpoints();
    host_.reset();
    service_.reset();
  }

  bool destroy_at(const Case& tested, Aftermath aftermath, uint64_t point, uint64_t breaks_at) {
    settle(executor_);
    auto opened = executor_.run(open());
    EXPECT_TRUE(opened);
    data = std::move(*opened);
    EXPECT_TRUE(data->register_buffer(registered()));
    Cutter::End end;
    std::optional<Task<void>> restart;
    {
      const WeatherFaults faults(weather_, breaks_at);
      if (weather_ == Weather::kServerGone) {
        stop_server();
        restart = start_later();
        restart->start();
      }
      end = cutter_.run(tested.operation(*this), point);
      const bool destroyed = end == Cutter::End::kDestroyed;
      if (aftermath == Aftermath::kDestroy && destroyed) data.reset();
      if (restart) run_until(executor_, kBoundNs, [&] { return restart->done(); });
    }
    if (data != nullptr) {
      const auto used = within(executor_, kBoundNs, use());
      EXPECT_TRUE(used && *used) << "the client is of no use any more";
      EXPECT_LE(service_->sessions(), 1u);
      data.reset();
    }
    EXPECT_TRUE(run_until(executor_, 100 * kMillisecond, [&] { return service_->sessions() == 0; }))
        << "the server keeps a session";
    return end == Cutter::End::kDestroyed;
  }

  Task<void> start_later() {
    co_await executor_.sleep_for(5 * kMillisecond);
    start_server();
  }

  // All that a client does, as often as its sessions break.
  Task<bool> use() {
    co_await data->settled();
    for (int tries = 0; tries < 4; ++tries) {
      const Status connected = co_await data->connected();
      if (!connected) co_return connected.code() == ErrorCode::kDisconnected;  // it was closed
      const std::span<std::byte> some = std::span(memory_).first(kUsedBytes);
      std::fill(some.begin(), some.end(), std::byte{0x21});
      const auto done = co_await data->write(data->session(), written(kUsedBytes));
      if (!done) continue;
      EXPECT_EQ(done, DataOutcome::kDone);
      std::fill(some.begin(), some.end(), std::byte{0});
      const auto got = co_await data->read(data->session(), to_read(kUsedBytes));
      if (!got) continue;
      co_return got == DataOutcome::kDone&& some.back() == std::byte{0x21};
    }
    co_return false;
  }

  const persist::Domain domain_;
  fs::AreaPool pool_;
  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  Cutter cutter_{executor_};
  std::optional<fs::LocalDataSpace> space_;
  std::optional<fs::FileDataService> service_;
  std::optional<service::Host> host_;
  fabric::Uri uri_;
  std::unique_ptr<fabric::Device> device_;
  std::vector<std::byte> memory_;
  Weather weather_ = Weather::kCalm;
};

// All at the same time.
template <typename Access>
Task<void> together(FileDataWorld& world, Access access, int count) {
  std::vector<Task<void>> tasks;
  for (int i = 0; i < count; ++i) {
    tasks.push_back(access(world));
    tasks.back().start();
  }
  for (const auto& each : tasks) {
    while (!each.done()) co_await world.executor().sleep_for(10 * kMicrosecond);
  }
}

Task<void> write_some(FileDataWorld& world, size_t bytes) {
  world.expect(co_await world.data->write(world.data->session(), world.written(bytes)));
}
Task<void> write_visible(FileDataWorld& world, size_t bytes) {
  const uint64_t session = world.data->session();
  const auto done = co_await world.data->write(session, world.written(bytes), fs::DataSync::kFsync);
  world.expect(done);
  if (done != DataOutcome::kDone) co_return;
  std::vector<persist::RemoteRange> ranges{{world.extent.place.offset + 100, bytes}};
  world.expect(co_await world.data->persist(world.data->start_of(session), std::move(ranges)));
}
Task<void> read_some(FileDataWorld& world, size_t bytes) {
  world.expect(co_await world.data->read(world.data->session(), world.to_read(bytes)));
}

Task<void> read_registered(FileDataWorld& world) {
  std::vector<fs::ReadPiece> pieces{{world.extent, 0, world.registered()}};
  world.expect(co_await world.data->read(world.data->session(), std::move(pieces)));
}

const FileDataWorld::Case kCases[] = {
    {"FileData::open",
     [](FileDataWorld& world) -> Task<void> {
       const auto opened = co_await world.open();
       // It tries once.
       if (world.weather() != Weather::kServerGone) world.expect(opened);
     }},
    {"FileData::read", [](FileDataWorld& world) -> Task<void> { return read_some(world, 5000); }},
    {"FileData::read, in parts",
     [](FileDataWorld& world) -> Task<void> { return read_some(world, 1'200'000); }},
    {"FileData::read, many",
     [](FileDataWorld& world) -> Task<void> {
       return together(
           world, [](FileDataWorld& of) { return read_some(of, 300); }, 6);
     }},
    {"FileData::write", [](FileDataWorld& world) -> Task<void> { return write_some(world, 5000); }},
    {"FileData::write, in parts",
     [](FileDataWorld& world) -> Task<void> { return write_some(world, 1'200'000); }},
    {"FileData::write, many",
     [](FileDataWorld& world) -> Task<void> {
       return together(
           world, [](FileDataWorld& of) { return write_some(of, 300); }, 6);
     }},
    {"FileData::write, visible",
     [](FileDataWorld& world) -> Task<void> { return write_visible(world, 5000); }},
    {"FileData::persist",
     [](FileDataWorld& world) -> Task<void> { return write_visible(world, 1'200'000); }},
    {"FileData::connected",
     [](FileDataWorld& world) -> Task<void> { world.expect(co_await world.data->connected()); }},
    {"FileData::settled",
     [](FileDataWorld& world) -> Task<void> {
       auto reading = read_some(world, 1'200'000);
       reading.start();
       co_await world.data->settled();
       EXPECT_TRUE(reading.done() || breaks_sessions(world.weather()));
     }},
    {"FileData::landed",
     [](FileDataWorld& world) -> Task<void> {
       auto writing = write_some(world, 5000);
       writing.start();
       const Status landed = co_await world.data->landed();
       EXPECT_TRUE(landed || landed.code() == ErrorCode::kDisconnected);
     }},
    {"FileData::landed_by",
     [](FileDataWorld& world) -> Task<void> {
       auto writing = write_some(world, 5000);
       writing.start();
       const uint64_t until_ns = world.executor().now_ns() + 1'000'000'000;
       const Status landed = co_await world.data->landed_by(until_ns);
       EXPECT_TRUE(landed || landed.code() == ErrorCode::kDisconnected);
     }},
    {"FileData::close",
     [](FileDataWorld& world) -> Task<void> {
       auto reading = read_some(world, 5000);
       reading.start();
       co_await world.data->close();
     }},
    {"FileData::forget_buffer",
     [](FileDataWorld& world) -> Task<void> {
       auto reading = read_registered(world);
       reading.start();
       co_await world.data->forget_buffer(world.registered());
     }},
};

struct Setting {
  const char* name;
  persist::Domain domain;
  Weather weather;
};

const Setting kSettings[] = {
    {"one_sided", persist::Domain::kCpuCache, Weather::kCalm},
    {"one_sided_slow", persist::Domain::kCpuCache, Weather::kSlow},
    {"one_sided_broken", persist::Domain::kCpuCache, Weather::kBroken},
    {"one_sided_server_gone", persist::Domain::kCpuCache, Weather::kServerGone},
    {"by_message", persist::Domain::kMemoryController, Weather::kCalm},
    {"by_message_slow", persist::Domain::kMemoryController, Weather::kSlow},
    {"by_message_broken", persist::Domain::kMemoryController, Weather::kBroken},
    {"by_message_server_gone", persist::Domain::kMemoryController, Weather::kServerGone},
};

class FileDataCancellation
    : public ::testing::TestWithParam<std::tuple<const FileDataWorld::Case*, const Setting*>> {
 protected:
  void destroy_everywhere(Aftermath aftermath) {
    const auto& [tested, setting] = GetParam();
    FileDataWorld world(setting->domain);
    world.destroy_everywhere(*tested, setting->weather, aftermath);
  }
};

template <typename T, size_t kCount>
std::vector<const T*> all_of(const T (&table)[kCount]) {
  std::vector<const T*> all;
  for (const T& each : table) all.push_back(&each);
  return all;
}

INSTANTIATE_TEST_SUITE_P(FileData, FileDataCancellation,
                         ::testing::Combine(::testing::ValuesIn(all_of(kCases)),
                                            ::testing::ValuesIn(all_of(kSettings))),
                         [](const auto& param) {
                           return test_name(std::get<0>(param.param)->name,
                                            std::get<1>(param.param)->name);
                         });

TEST_P(FileDataCancellation, LeavesNothingBehind) { destroy_everywhere(Aftermath::kUse); }

TEST_P(FileDataCancellation, OfAClientThatGoesRightAfter) {
  destroy_everywhere(Aftermath::kDestroy);
}

}  // namespace
}  // namespace pmstore::cancellation
