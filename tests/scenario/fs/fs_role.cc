#include "tests/scenario/fs/fs_role.h"

#include <cstring>
#include <filesystem>
#include <new>

#include "fs/file_area.h"

namespace pmstore::scenario {

std::vector<std::string> FilesSetup::to_args() const {
  return {std::to_string(static_cast<int>(domain)),
          std::to_string(static_cast<int>(landing)),
          path.empty() ? "-" : path,
          std::to_string(pool_mib),
          std::to_string(files_mib),
          std::to_string(lease_ms),
          data_server ? "data" : "names"};
}

FilesSetup FilesSetup::from_args(const std::vector<std::string>& args) {
  FilesSetup setup;
  setup.domain = static_cast<persist::Domain>(std::stoi(args.at(0)));
  setup.landing = static_cast<persist::WriteLanding>(std::stoi(args.at(1)));
  if (args.at(2) != "-") setup.path = args.at(2);
  setup.pool_mib = static_cast<uint32_t>(std::stoul(args.at(3)));
  setup.files_mib = static_cast<uint32_t>(std::stoul(args.at(4)));
  setup.lease_ms = static_cast<uint32_t>(std::stoul(args.at(5)));
  setup.data_server = args.at(6) == "data";
  return setup;
}

void FilesRole::FreeMemory::operator()(std::byte* memory) const {
  ::operator delete[](memory, std::align_val_t{4096});
}

FilesRole::~FilesRole() {
  if (files_ != nullptr && executor_ != nullptr) executor_->run(files_->stop());
}

Status FilesRole::open_pool(const FilesSetup& setup) {
  const uint64_t bytes = uint64_t{setup.pool_mib} << 20;
  FormatOptions format;
  format.rings = 0;
  format.log_bytes = 0;
  format.file_bytes = uint64_t{setup.files_mib} << 20;
  if (setup.path.empty()) {
    memory_.reset(static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{4096})));
    std::memset(memory_.get(), 0, bytes);
    PMSTORE_TRY(pool_, persist::Pool::in_region({memory_.get(), bytes}, setup.domain, true));
    return fs::format_pool(*pool_, format);
  }
  persist::PoolOpenOptions options;
  options.assume_domain = setup.domain;
  if (std::filesystem::exists(setup.path)) {
    PMSTORE_TRY(pool_, pmstore::open_pool(setup.path, options));
    return {};
  }
  PMSTORE_TRY(pool_,
              persist::Pool::create(setup.path, bytes, options, false, [&](persist::Pool& pool) {
                return fs::format_pool(pool, format);
              }));
  return {};
}

Result<fabric::Uri> FilesRole::start(base::Executor& executor, const fabric::Uri& uri,
                                     const std::vector<std::string>& args) {
  const FilesSetup setup = FilesSetup::from_args(args);
  PMSTORE_TRY_STATUS(open_pool(setup));
  executor_ = &executor;
  ServerOptions options;
  options.discipline = LockDiscipline::kCpu;
  options.lease_ms = setup.lease_ms;
  options.device_landing = setup.landing;
  options.devices = TestMachine::target_host();
  PMSTORE_TRY(server_, executor.run(Server::start(executor, *pool_, options)));
  fs::FilesServerOptions files;
  files.lease_ms = setup.lease_ms;
  files.devices = options.devices;
  files.data_server = setup.data_server;
  PMSTORE_TRY(files_,
              executor.run(fs::FilesServer::start(executor, *pool_, *server_, std::move(files))));
  return executor.run(server_->listen(uri));
}

}  // namespace pmstore::scenario
