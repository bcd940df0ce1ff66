#include "tests/scenario/log/log_role.h"

#include <gtest/gtest.h>

#include <cstring>
#include <new>

#include "log/log_store.h"

namespace pmstore::scenario {
namespace {

constexpr uint64_t kPageBytes = 4096;
// Of the pool, for what is not the log area.
constexpr uint64_t kOtherBytes = 256 * 1024;

}  // namespace

std::vector<std::string> LogsSetup::to_args() const {
  return {std::to_string(static_cast<int>(domain)), std::to_string(static_cast<int>(landing)),
          std::to_string(area_kib), std::to_string(lease_ms)};
}

LogsSetup LogsSetup::from_args(const std::vector<std::string>& args) {
  LogsSetup setup;
  setup.domain = static_cast<persist::Domain>(std::stoi(args.at(0)));
  setup.landing = static_cast<persist::WriteLanding>(std::stoi(args.at(1)));
  setup.area_kib = static_cast<uint32_t>(std::stoul(args.at(2)));
  setup.lease_ms = static_cast<uint32_t>(std::stoul(args.at(3)));
  return setup;
}

void LogRole::FreeMemory::operator()(std::byte* memory) const {
  ::operator delete[](memory, std::align_val_t{kPageBytes});
}

LogRole::~LogRole() {
  if (host_ != nullptr) {
    EXPECT_TRUE(host_->stop());
  }
}

Result<fabric::Uri> LogRole::start(base::Executor& executor, const fabric::Uri& uri,
                                   const std::vector<std::string>& args) {
  const LogsSetup setup = LogsSetup::from_args(args);
  const uint64_t area_bytes = uint64_t{setup.area_kib} << 10;
  const uint64_t bytes = area_bytes + kOtherBytes;
  memory_.reset(static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{kPageBytes})));
  std::memset(memory_.get(), 0, bytes);
  PMSTORE_TRY(pool_, persist::Pool::in_region({memory_.get(), bytes}, setup.domain, true));
  PMSTORE_TRY_STATUS(log::LogStore::format(*pool_, area_bytes));
  log::LogHostOptions options;
  options.host.lease_ms = setup.lease_ms;
  options.host.device_landing = setup.landing;
  options.host.devices = TestMachine::target_host();
  PMSTORE_TRY(host_, log::LogHost::start(executor, *pool_, options));
  return executor.run(host_->listen(uri));
}

}  // namespace pmstore::scenario
