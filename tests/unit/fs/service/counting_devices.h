// CountingDevices: local devices that count what is registered with them, and refuse it where a
// test says so.
//
// Threads: one. The Registrations outlive the devices.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"
#include "fabric/local/local_device.h"

namespace pmstore::fs {

struct Registrations {
  // Regions that begin there and have not ended.
  size_t at(const std::byte* memory) const {
    size_t count = 0;
    for (const auto& [region, device] : made) {
      if (region.address != reinterpret_cast<uintptr_t>(memory)) continue;
      const auto found = device->regions().find(region.key, region.address, region.bytes,
                                                fabric::Access::kRemoteRead);
      count += found.fault != fabric::AccessFault::kUnknownKey ? 1 : 0;
    }
    return count;
  }

  std::map<const std::byte*, size_t> of;  // how often, by address
  int refused_after = -1;                 // so many more succeed; -1: all do
  const std::byte* refused = nullptr;     // memory that begins there is refused
  unsigned connects = 0;
  bool refuses_connects = false;  // as if nothing listened
  std::vector<std::pair<fabric::RemoteRegion, const fabric::LocalDevice*>> made;
};

class CountingDevice final : public fabric::Device {
 public:
  CountingDevice(base::Executor& executor, Registrations& registrations)
      : Device(executor), device_(executor), registrations_(registrations) {}
  ~CountingDevice() override {
    std::erase_if(registrations_.made,
                  [this](const auto& each) { return each.second == &device_; });
  }
  Result<std::unique_ptr<fabric::MemoryRegion>> register_memory(std::span<std::byte> memory,
                                                                fabric::Access access) override {
    int& left = registrations_.refused_after;
    if (left == 0 || memory.data() == registrations_.refused) {
      return make_error(ErrorCode::kIo, "a test wants it");
    }
    if (left > 0) --left;
    ++registrations_.of[memory.data()];
    PMSTORE_TRY(auto region, device_.register_memory(memory, access));
    registrations_.made.emplace_back(region->remote(), &device_);
    return region;
  }
  base::Task<Result<std::unique_ptr<fabric::Connection>>> connect(
      fabric::Uri uri, fabric::ConnectOptions options) override {
    ++registrations_.connects;
    if (registrations_.refuses_connects) return refuse();
    return device_.connect(std::move(uri), options);
  }
  Result<std::unique_ptr<fabric::Listener>> listen(const fabric::Uri& uri,
                                                   fabric::Acceptor& acceptor) override {
    return device_.listen(uri, acceptor);
  }
  base::Task<Result<std::unique_ptr<fabric::Connection>>> loopback() override {
    return device_.loopback();
  }
  bool notices_dead_peers() const override { return device_.notices_dead_peers(); }

 private:
  static base::Task<Result<std::unique_ptr<fabric::Connection>>> refuse() {
    co_return make_error(ErrorCode::kDisconnected, "a test wants it");
  }

  fabric::LocalDevice device_;
  Registrations& registrations_;
};

class CountingDevices final : public fabric::DeviceOpener {
 public:
  explicit CountingDevices(Registrations& registrations) : registrations_(registrations) {}
  Result<std::unique_ptr<fabric::Device>> open(fabric::Scheme scheme,
                                               base::Executor& executor) override {
    PMSTORE_CHECK(scheme == fabric::Scheme::kLocal, "a test's devices are local");
    return std::unique_ptr<fabric::Device>(
        std::make_unique<CountingDevice>(executor, registrations_));
  }

 private:
  Registrations& registrations_;
};

}  // namespace pmstore::fs
