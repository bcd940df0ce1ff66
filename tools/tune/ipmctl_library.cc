#include "tools/tune/ipmctl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

namespace pmstore::tools {
namespace {

// As nvm_management.h of libipmctl 03.00.00.0468 (Debian 12) lays them out; reserved bytes at their
// ends keep the sizes from version to version. Fields that are not used here are skipped.
struct DeviceDiscovery {
  uint8_t all_properties_populated;
  uint32_t device_handle;
  uint8_t skipped[162];
  char uid[22];
  uint8_t rest[64];
};
static_assert(sizeof(DeviceDiscovery) == 256 && offsetof(DeviceDiscovery, device_handle) == 4 &&
              offsetof(DeviceDiscovery, uid) == 170);

struct DeviceStatus {
  uint8_t health;
  uint8_t rest[127];
};
static_assert(sizeof(DeviceStatus) == 128);

struct DevicePerformance {
  int64_t time;
  uint64_t bytes_read;  // in spite of the name: times 64 bytes
  uint64_t host_reads;
  uint64_t bytes_written;  // likewise
  uint64_t host_writes;
  uint8_t rest[24];
};
static_assert(sizeof(DevicePerformance) == 64 && offsetof(DevicePerformance, host_writes) == 32);

constexpr const char* kHealth[] = {nullptr, "ok",           "non-critical",  "critical",
                                   "fatal", "unmanageable", "non-functional"};

Error refused(const char* call, int code) {
  return make_error(ErrorCode::kIo,
                    fmt::format("libipmctl's {} has failed ({}): run this as root", call, code));
}

}  // namespace

struct IpmctlLibrary::Calls {
  void* library = nullptr;
  bool started = false;
  int (*init)() = nullptr;
  void (*uninit)() = nullptr;
  int (*number_of_devices)(unsigned* count) = nullptr;
  int (*devices)(DeviceDiscovery* list, uint8_t count) = nullptr;
  int (*device_status)(const char* uid, DeviceStatus* status) = nullptr;
  int (*device_performance)(const char* uid, DevicePerformance* performance) = nullptr;

  ~Calls() {
    if (started) uninit();
    if (library != nullptr) dlclose(library);
  }
  // The name of one that is not there; null when all are.
  const char* find() {
    const char* missing = nullptr;
    const auto bind = [&](auto& call, const char* name) {
      call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(dlsym(library, name));
      if (call == nullptr) missing = name;
    };
    bind(init, "nvm_init");
    bind(uninit, "nvm_uninit");
    bind(number_of_devices, "nvm_get_number_of_devices");
    bind(devices, "nvm_get_devices");
    bind(device_status, "nvm_get_device_status");
    bind(device_performance, "nvm_get_device_performance");
    return missing;
  }
};

IpmctlLibrary::IpmctlLibrary(std::unique_ptr<Calls> calls) : calls_(std::move(calls)) {}
IpmctlLibrary::~IpmctlLibrary() = default;

Result<std::unique_ptr<IpmctlLibrary>> IpmctlLibrary::open(const std::string& path) {
  auto calls = std::make_unique<Calls>();
  calls->library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (calls->library == nullptr) {
    const char* const why = dlerror();
    return make_error(ErrorCode::kNotFound,
                      fmt::format("cannot load {}: {}: apt-get install libipmctl5", path,
                                  why != nullptr ? why : "unknown"));
  }
  if (const char* const missing = calls->find()) {
    return make_error(
        ErrorCode::kIo,
        fmt::format("{} has no {}: it is not the libipmctl of ipmctl 2 or 3", path, missing));
  }
  if (const int code = calls->init(); code != 0) return refused("nvm_init", code);
  calls->started = true;
  return std::unique_ptr<IpmctlLibrary>(new IpmctlLibrary(std::move(calls)));
}

Result<std::vector<IpmctlLibrary::Dimm>> IpmctlLibrary::dimms() const {
  unsigned count = 0;
  if (const int code = calls_->number_of_devices(&count); code != 0) {
    return refused("nvm_get_number_of_devices", code);
  }
  std::vector<Dimm> found;
  if (count == 0) return found;
  if (count > UINT8_MAX) return refused("nvm_get_number_of_devices", static_cast<int>(count));
  std::vector<DeviceDiscovery> list(count);
  if (const int code = calls_->devices(list.data(), static_cast<uint8_t>(count)); code != 0) {
    return refused("nvm_get_devices", code);
  }
  for (const DeviceDiscovery& one : list) {
    found.push_back({one.device_handle, std::string(one.uid, strnlen(one.uid, sizeof(one.uid)))});
  }
  std::sort(found.begin(), found.end(),
            [](const Dimm& a, const Dimm& b) { return a.handle < b.handle; });
  return found;
}

namespace {

// The library takes an array of this size.
std::array<char, sizeof(DeviceDiscovery::uid)> uid_of(const IpmctlLibrary::Dimm& dimm) {
  std::array<char, sizeof(DeviceDiscovery::uid)> uid{};
  std::copy_n(dimm.uid.begin(), std::min(dimm.uid.size(), uid.size() - 1), uid.begin());
  return uid;
}

}  // namespace

std::optional<std::string> IpmctlLibrary::health(const Dimm& dimm) const {
  DeviceStatus status{};
  if (calls_->device_status(uid_of(dimm).data(), &status) != 0) return std::nullopt;
  if (status.health >= std::size(kHealth) || kHealth[status.health] == nullptr) {
    return std::nullopt;
  }
  return kHealth[status.health];
}

Result<DimmReading> IpmctlLibrary::counters(const Dimm& dimm) const {
  DevicePerformance performance{};
  const int code = calls_->device_performance(uid_of(dimm).data(), &performance);
  if (code != 0) return refused("nvm_get_device_performance", code);
  return DimmReading{fmt::format("{:#06x}", dimm.handle), performance.host_reads,
                     performance.host_writes, performance.bytes_read, performance.bytes_written};
}

}  // namespace pmstore::tools
