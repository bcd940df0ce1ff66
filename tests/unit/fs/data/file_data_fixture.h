// A file area that is served over the in-process fabric, in virtual time, and clients of it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "fs/file_data.h"
#include "fs/file_data_service.h"
#include "fs/local_data_space.h"
#include "service/host.h"
#include "service/link.h"
#include "tests/unit/fs/data/area_pool.h"

namespace pmstore::fs {
using base::Task;

class FileDataTest : public testing::Test {
 protected:
  static constexpr uint32_t kLeaseMs = 100;

  // Over the in-process fabric a CPU stores: one-sided writes are durable under eADR only.
  explicit FileDataTest(persist::Domain domain = persist::Domain::kCpuCache,
                        uint64_t area_bytes = (uint64_t{12} << 20), uint64_t spare_bytes = 0)
      : domain_(domain), pool_(domain, area_bytes, spare_bytes) {
    options_.secret = ClientSecret::of_number(7);
    start();
    device_ = std::move(*fabric::open_device(fabric::Scheme::kLocal, executor_));
  }
  ~FileDataTest() override { stop(); }

  void start() {
    pool_.reopen();
    area_ = FileArea::open(pool_.pool()).value();
    space_.emplace(executor_, *area_);
    service_.emplace(*space_, kMaxSessions);
    service::HostOptions options;
    options.lease_ms = kLeaseMs;
    options.domain = domain_;
    host_.emplace(executor_, options);
    host_->add(*service_);
    uri_ = run(host_->listen({fabric::Scheme::kLocal, "file-data", 0})).value();
  }
  // As a crash would.
  void stop() {
    if (!host_) return;
    host_->shut_down();
    host_->close_endpoints();
    host_.reset();
    service_.reset();
    space_.reset();
  }

  template <typename T>
  T run(Task<T> task) {
    return executor_.run(std::move(task));
  }
  void let_time_pass(uint64_t ms) {
    run([](base::Executor& executor, uint64_t ns) -> Task<void> {
      co_await executor.sleep_for(ns);
    }(executor_, ms * 1'000'000));
  }

  Result<std::unique_ptr<FileData>> try_open() {
    return run(FileData::open(*device_, uri_, options_));
  }
  std::unique_ptr<FileData> open() {
    auto opened = try_open();
    EXPECT_TRUE(opened) << opened.error().to_string();
    return std::move(opened.value());
  }
  // An extent as a map would have it now.
  MapExtent map(const AreaRange& place) { return {0, place, space_->generation(place)}; }
  MapExtent allocate(uint64_t units) {
    return map(space_->allocate(0, units * kUnitBytes, units * kUnitBytes).value());
  }
  void change(const MapExtent& extent) {
    EXPECT_TRUE(run(space_->change_generations({extent.place})));
  }
  std::vector<std::byte> stored(const MapExtent& extent, uint64_t offset, size_t bytes) {
    std::vector<std::byte> into(bytes);
    EXPECT_TRUE(run(space_->read({0, extent.place.offset + offset, bytes}, into)));
    return into;
  }
  static std::vector<std::byte> some(size_t bytes, unsigned seed = 1) {
    std::vector<std::byte> made(bytes);
    for (size_t i = 0; i < bytes; ++i) made[i] = static_cast<std::byte>(seed + i * 7 + i / 256);
    return made;
  }
  Result<DataOutcome> write(FileData& data, const MapExtent& extent, uint64_t offset,
                            std::span<const std::byte> bytes) {
    std::vector<WritePiece> pieces{{extent, offset, bytes}};
    return run(data.write(data.session(), std::move(pieces)));
  }
  Result<DataOutcome> read(FileData& data, const MapExtent& extent, uint64_t offset,
                           std::span<std::byte> into) {
    std::vector<ReadPiece> pieces{{extent, offset, into}};
    return run(data.read(data.session(), std::move(pieces)));
  }

  static constexpr size_t kMaxSessions = 4;
  const persist::Domain domain_;
  base::VirtualClock clock_;
  base::Executor executor_{clock_};
  AreaPool pool_;
  std::optional<FileArea> area_;
  std::optional<LocalDataSpace> space_;
  std::optional<FileDataService> service_;
  std::optional<service::Host> host_;
  fabric::Uri uri_;
  std::unique_ptr<fabric::Device> device_;
  FileDataOptions options_;
};

}  // namespace pmstore::fs
