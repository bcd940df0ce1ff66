#include "tools/bench/micro_service.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <future>

#include "base/clock.h"

namespace pmstore::tools {

using persist::Domain;
using persist::WriteLanding;

namespace {

// A generous bound for the bytes that a pool needs beside the requested memory.
constexpr uint64_t kPoolOverhead = 64u << 20;
constexpr uint64_t kInterleaveBytes = kStripeBytes * kInterleavedDimms;

}  // namespace

// One thread with an executor, a device and a MicroServer.
class MicroService::Worker {
 public:
  Status start(const MicroServerOptions& memory, const fabric::Uri& uri) {
    std::promise<Status> started;
    auto result = started.get_future();
    thread_ = std::thread([this, memory, uri, started = std::move(started)]() mutable {
      serve(memory, uri, started);
    });
    return result.get();
  }
  ~Worker() {
    if (executor_ != nullptr) executor_->request_stop();
    if (thread_.joinable()) thread_.join();
  }
  // After start() has succeeded.
  const fabric::Uri& uri() const { return uri_; }
  void set_workers(std::vector<uint16_t> ports) {
    std::promise<void> done;
    executor_->post_remote([&] {
      server_->set_workers(std::move(ports));
      done.set_value();
    });
    done.get_future().wait();
  }

 private:
  void serve(const MicroServerOptions& memory, const fabric::Uri& uri,
             std::promise<Status>& started) {
    base::RealClock clock;
    base::Executor executor(clock);
    auto device = fabric::open_device(uri.scheme, executor);
    if (!device) return started.set_value(device.error());
    auto server = MicroServer::start(**device, memory, uri);
    if (!server) return started.set_value(server.error());
    server_ = server->get();
    uri_ = server_->uri();
    executor_ = &executor;
    started.set_value({});
    executor.run_until_stopped();
  }

  std::thread thread_;
  base::Executor* executor_ = nullptr;  // on the thread's stack, as is the server
  MicroServer* server_ = nullptr;
  fabric::Uri uri_{fabric::Scheme::kLocal, {}, 0};
};

bool MicroServiceOptions::same_server(const MicroServiceOptions& other) const {
  return listen.to_string() == other.listen.to_string() && threads == other.threads &&
         bytes == other.bytes && pool == other.pool && assume_domain == other.assume_domain &&
         ddio == other.ddio;
}

MicroService::MicroService(const MicroServiceOptions& options)
    : options_(options), uri_(options.listen) {}

MicroService::~MicroService() {
  workers_.clear();
  if (!mapping_.empty()) munmap(mapping_.data(), mapping_.size());
}

Status MicroService::prepare_dram() {
  void* const mapping = mmap(nullptr, options_.bytes, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (mapping == MAP_FAILED) {
    return make_error(ErrorCode::kIo, fmt::format("{} bytes of memory: {}; use a smaller --memory",
                                                  options_.bytes, std::strerror(errno)));
  }
  mapping_ = {static_cast<std::byte*>(mapping), options_.bytes};
  memory_.dram.bytes = mapping_;
  memory_.dram.capability.domain = Domain::kCpuCache;  // nobody asks for durability here
  return {};
}

Status MicroService::prepare_nvm() {
  persist::PoolOpenOptions open;
  open.assume_domain = options_.assume_domain;
  const uint64_t wanted = options_.bytes + kInterleaveBytes;
  PMSTORE_TRY(pool_,
              persist::Pool::create(options_.pool, wanted + kPoolOverhead, open, options_.force));
  const bool device_dax = pool_->info().medium == "devdax";
  // create() has refused a path that held anything, so this file is ours.
  if (!device_dax) unlink(options_.pool.c_str());
  PMSTORE_TRY(const persist::Extent extent,
              pool_->allocate_extent(persist::ExtentKind::kRecords, wanted));
  const uint64_t offset = persist::round_up(extent.offset, kInterleaveBytes);
  memory_.nvm.bytes = pool_->memory().mapping().subspan(offset, options_.bytes);
  memory_.nvm.capability.domain = pool_->memory().domain();
  memory_.nvm.capability.landing =
      options_.ddio ? WriteLanding::kLastLevelCache : WriteLanding::kMemory;
  memory_.nvm.interleaved = device_dax;
  memory_.nvm.ordinary_file = pool_->info().medium == "file";
  return {};
}

Result<std::unique_ptr<MicroService>> MicroService::start(const MicroServiceOptions& options) {
  if (options.threads == 0 || options.threads > kMostServerThreads) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("{} server threads: use 1 to {}", options.threads, kMostServerThreads));
  }
  std::unique_ptr<MicroService> service(new MicroService(options));
  PMSTORE_TRY_STATUS(service->prepare_dram());
  if (!options.pool.empty()) {
    PMSTORE_TRY_STATUS(service->prepare_nvm());
  }
  std::vector<uint16_t> ports;
  for (uint32_t i = 0; i < options.threads; ++i) {
    auto worker = std::make_unique<Worker>();
    // The system chooses the ports of the others.
    PMSTORE_TRY_STATUS(worker->start(service->memory_, micro_worker_uri(options.listen, i, 0)));
    ports.push_back(worker->uri().port);
    service->workers_.push_back(std::move(worker));
  }
  for (const auto& worker : service->workers_) worker->set_workers(ports);
  service->uri_ = service->workers_.front()->uri();
  return service;
}

}  // namespace pmstore::tools
