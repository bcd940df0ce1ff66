#include "tests/scenario/persist/persist_role.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/atomic_copy.h"
#include "base/checksum.h"

namespace pmstore::scenario {
namespace {

constexpr uint64_t kPoolBytes = 64u << 20;

template <typename T>
std::span<const std::byte> as_bytes(const T& value) {
  return std::as_bytes(std::span<const T, 1>(&value, 1));
}

// A path that nothing is at, in memory where there is a tmpfs.
std::string fresh_path() {
  const bool shm = access("/dev/shm", W_OK) == 0;
  std::string pattern =
      (shm ? std::string("/dev/shm") : std::filesystem::temp_directory_path().string()) +
      "/pmstore-scenario-XXXXXX";
  const int fd = mkstemp(pattern.data());
  if (fd >= 0) close(fd);
  unlink(pattern.c_str());
  return pattern;
}

}  // namespace

PersistRole::~PersistRole() {
  listener_.reset();
  disconnect_all();
  region_.reset();
}

Status PersistRole::open_pool(const std::string& domain) {
  persist::PoolOpenOptions options;
  if (domain != kDetected) {
    PMSTORE_TRY(options.assume_domain, persist::parse_domain(domain));
  }
  if (const char* dax = std::getenv("PMSTORE_DAX")) {
    PMSTORE_TRY(pool_, persist::Pool::create(dax, 0, options, true));
  } else {
    const std::string path = fresh_path();
    PMSTORE_TRY(pool_, persist::Pool::create(path, kPoolBytes, options));
    unlink(path.c_str());
  }
  PMSTORE_TRY(granted_, pool_->allocate_extent(persist::ExtentKind::kRecords, kGrantedBytes));
  service_ = std::make_unique<persist::PersistService>(pool_->memory());
  return {};
}

Result<fabric::Uri> PersistRole::start(base::Executor& executor, const fabric::Uri& uri,
                                       const std::vector<std::string>& args) {
  PMSTORE_TRY_STATUS(open_pool(args.empty() ? kDetected : args[0]));
  PMSTORE_TRY(device_, fabric::open_device(uri.scheme, executor, TestMachine::target_host()));
  PMSTORE_TRY(region_, device_->register_memory(
                           pool_->memory().mapping().subspan(granted_.offset, granted_.bytes),
                           fabric::Access::kRemoteRead | fabric::Access::kRemoteWrite));
  PMSTORE_TRY(listener_, device_->listen(uri, *this));
  return listener_->uri();
}

Result<std::vector<std::byte>> PersistRole::on_hello(uint64_t token,
                                                     std::span<const std::byte> hello) {
  PersistHello client;
  if (hello.size() < sizeof client) return make_error(ErrorCode::kProtocol, "not a scenario");
  std::memcpy(&client, hello.data(), sizeof client);
  PersistAnswer answer{};
  PMSTORE_TRY(answer.requests, expect_client(token, *device_, client.replies));
  answer.granted = region_->remote();
  answer.domain = pool_->memory().domain();
  // What RNICs of servers do unless somebody has configured them otherwise.
  answer.landing = persist::WriteLanding::kLastLevelCache;
  return harness::message_of(answer);
}

void PersistRole::reply_sum(fabric::RpcCall call) {
  ContentRange range{};
  if (call.request().size() == sizeof range) {
    std::memcpy(&range, call.request().data(), sizeof range);
  }
  if (range.offset > granted_.bytes || range.bytes > granted_.bytes - range.offset) {
    call.reply_error(make_error(ErrorCode::kInvalidArgument, "outside the extent"));
    return;
  }
  std::vector<std::byte> copy(range.bytes);
  base::copy_from_shared(copy.data(), pool_->memory().at(granted_.offset + range.offset),
                         range.bytes);
  const uint64_t sum = base::checksum64(copy, 0);
  call.reply(as_bytes(sum));
}

void PersistRole::on_call(fabric::RpcPeer&, fabric::RpcCall call) {
  switch (call.method()) {
    case persist::kPersistWriteMethod:
      service_->on_call(std::move(call), granted_.offset, granted_.bytes);
      return;
    case kContentSum: reply_sum(std::move(call)); return;
    case kPersistStats: {
      const persist::MemoryStats stats = pool_->memory().stats();
      call.reply(as_bytes(stats));
      return;
    }
    case kClear: {
      persist::Memory& memory = pool_->memory();
      memory.zero(memory.at(granted_.offset), granted_.bytes);
      memory.flush(memory.at(granted_.offset), granted_.bytes);
      if (auto durable = memory.drain(); !durable) {
        call.reply_error(durable.error());
        return;
      }
      call.reply({});
      return;
    }
    default: call.reply_error(make_error(ErrorCode::kUnsupported, "no such method"));
  }
}

}  // namespace pmstore::scenario
