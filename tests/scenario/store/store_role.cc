#include "tests/scenario/store/store_role.h"

#include <cstring>
#include <filesystem>
#include <new>

namespace pmstore::scenario {

std::vector<std::string> StoreSetup::to_args() const {
  return {std::to_string(static_cast<int>(discipline)),
          std::to_string(static_cast<int>(domain)),
          path.empty() ? "-" : path,
          std::to_string(pool_mib),
          std::to_string(lease_ms),
          std::to_string(rings),
          std::to_string(ring_kib),
          std::to_string(always_groups)};
}

StoreSetup StoreSetup::from_args(const std::vector<std::string>& args) {
  StoreSetup setup;
  setup.discipline = static_cast<LockDiscipline>(std::stoi(args.at(0)));
  setup.domain = static_cast<persist::Domain>(std::stoi(args.at(1)));
  if (args.at(2) != "-") setup.path = args.at(2);
  setup.pool_mib = static_cast<uint32_t>(std::stoul(args.at(3)));
  setup.lease_ms = static_cast<uint32_t>(std::stoul(args.at(4)));
  setup.rings = static_cast<uint32_t>(std::stoul(args.at(5)));
  setup.ring_kib = static_cast<uint32_t>(std::stoul(args.at(6)));
  setup.always_groups = args.at(7) != "0";
  return setup;
}

void StoreRole::FreeMemory::operator()(std::byte* memory) const {
  ::operator delete[](memory, std::align_val_t{4096});
}

Status StoreRole::open_pool(const StoreSetup& setup) {
  const uint64_t bytes = uint64_t{setup.pool_mib} << 20;
  FormatOptions format;
  format.rings = setup.rings;
  format.ring_bytes = uint64_t{setup.ring_kib} << 10;
  format.shard_log_bytes = format.ring_bytes;
  if (setup.path.empty()) {
    memory_.reset(static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{4096})));
    std::memset(memory_.get(), 0, bytes);
    PMSTORE_TRY(pool_, persist::Pool::in_region({memory_.get(), bytes}, setup.domain, true));
    return format_store(*pool_, format);
  }
  persist::PoolOpenOptions options;
  options.assume_domain = setup.domain;
  if (std::filesystem::exists(setup.path)) {
    PMSTORE_TRY(pool_, pmstore::open_pool(setup.path, options));
    return {};
  }
  PMSTORE_TRY(pool_,
              persist::Pool::create(setup.path, bytes, options, false, [&](persist::Pool& pool) {
                return format_store(pool, format);
              }));
  return {};
}

Result<fabric::Uri> StoreRole::start(base::Executor& executor, const fabric::Uri& uri,
                                     const std::vector<std::string>& args) {
  const StoreSetup setup = StoreSetup::from_args(args);
  PMSTORE_TRY_STATUS(open_pool(setup));
  ServerOptions options;
  options.discipline = setup.discipline;
  options.lease_ms = setup.lease_ms;
  if (setup.always_groups) options.group_above_ns = 0;
  options.devices = TestMachine::target_host();
  PMSTORE_TRY(server_, executor.run(Server::start(executor, *pool_, options)));
  return executor.run(server_->listen(uri));
}

}  // namespace pmstore::scenario
