// A library that looks like libipmctl, for tests: two DIMMs, or what PMSTORE_FALSE_IPMCTL says.
// Written against the layout of nvm_management.h, not against the product's.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

bool asked_for(std::string_view what) {
  const char* const said = std::getenv("PMSTORE_FALSE_IPMCTL");
  return said != nullptr && what == said;
}

constexpr char kUids[2][22] = {"8089-a2-1837-00000001", "8089-a2-1837-00000002"};
uint64_t calls = 0;

int number_of(const char* uid) {
  for (int i = 0; i < 2; ++i) {
    if (std::memcmp(uid, kUids[i], sizeof(kUids[i])) == 0) return i;
  }
  return -1;
}

void put(unsigned char* to, uint64_t value) { std::memcpy(to, &value, sizeof(value)); }

}  // namespace

extern "C" {

int nvm_init() { return asked_for("no init") ? 1 : 0; }
void nvm_uninit() {}

int nvm_get_number_of_devices(unsigned* count) {
  *count = asked_for("no dimms") ? 0 : 2;
  return asked_for("no root") ? 2 : 0;
}

// struct device_discovery: 256 bytes, the handle at 4, the UID at 170. The second DIMM first.
int nvm_get_devices(unsigned char* list, uint8_t count) {
  std::memset(list, 0xee, size_t{256} * count);
  for (int i = 0; i < count; ++i) {
    const uint32_t handle = i == 0 ? 0x11 : 0x1;
    std::memcpy(list + 256 * i + 4, &handle, sizeof(handle));
    std::memcpy(list + 256 * i + 170, kUids[1 - i], sizeof(kUids[0]));
  }
  return 0;
}

// struct device_status: 128 bytes, the health first.
int nvm_get_device_status(const char* uid, unsigned char* status) {
  const int dimm = number_of(uid);
  if (dimm < 0) return 3;
  std::memset(status, 0xee, 128);
  status[0] = dimm == 0 ? 1 : 3;
  return 0;
}

// struct device_performance: 64 bytes: time, 64-byte reads, read requests, writes, write requests.
int nvm_get_device_performance(const char* uid, unsigned char* performance) {
  const int dimm = number_of(uid);
  if (dimm < 0 || asked_for("no counters")) return 3;
  std::memset(performance, 0xee, 64);
  const uint64_t n = ++calls;
  put(performance + 8, n * 4400);
  put(performance + 16, n * 100);
  put(performance + 24, n * 4000);
  put(performance + 32, n * 1000);
  return 0;
}
}
