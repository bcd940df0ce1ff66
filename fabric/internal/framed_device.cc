#include "fabric/internal/framed_device.h"

#include "fabric/internal/framed_connection.h"
#include "fabric/internal/region_key.h"

namespace pmstore::fabric::internal {

FramedRegion::FramedRegion(FramedDevice& device, std::span<std::byte> memory, Access access,
                           uint64_t key)
    : MemoryRegion(memory, access), device_(device) {
  remote_ = RemoteRegion{address_base(key), memory.size(), key};
}

FramedRegion::~FramedRegion() { device_.withdraw(*this); }

FramedDevice::~FramedDevice() {
  PMSTORE_CHECK(regions_.empty(), "regions use their device to the end");
}

Result<std::unique_ptr<MemoryRegion>> FramedDevice::register_memory(std::span<std::byte> memory,
                                                                    Access access) {
  if (memory.empty()) {
    return make_error(ErrorCode::kInvalidArgument, "a region must have at least 1 byte");
  }
  uint64_t key = 0;
  do {
    PMSTORE_TRY(key, random_key());
  } while (regions_.contains(key));
  auto region = std::make_unique<FramedRegion>(*this, memory, access, key);
  regions_.emplace(key, region.get());
  return std::unique_ptr<MemoryRegion>(std::move(region));
}

void FramedDevice::withdraw(const FramedRegion& region) {
  regions_.erase(region.remote().key);
  // One whose peer reads or writes it at this moment needs attention.
  for_each_attentive([&](PolledConnection& connection) {
    static_cast<FramedConnection&>(connection).withdraw(region);
  });
}

}  // namespace pmstore::fabric::internal
