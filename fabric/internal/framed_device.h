// FramedDevice: the base of the tcp and the shm device: their regions, whose rights this end checks
// for each frame that arrives. See fabric/device.h.
#pragma once

#include <memory>
#include <unordered_map>

#include "fabric/internal/polled_device.h"

namespace pmstore::fabric::internal {

class FramedDevice;

class FramedRegion final : public MemoryRegion {
 public:
  FramedRegion(FramedDevice& device, std::span<std::byte> memory, Access access, uint64_t key);
  ~FramedRegion() override;

  // The memory of these bytes; null if some are outside the region or the right is not granted.
  std::byte* grant(uint64_t address, uint32_t bytes, Access right) const {
    const uint64_t offset = address - remote_.address;
    const bool inside = offset <= remote_.bytes && bytes <= remote_.bytes - offset;
    return inside && has(access_, right) ? memory_.data() + offset : nullptr;
  }

 private:
  FramedDevice& device_;
};

class FramedDevice : public PolledDevice {
 public:
  ~FramedDevice() override;

  // InvalidArgument when the memory is empty. Access::kRemoteAtomic is accepted without effect:
  // Capabilities::atomics is kNone.
  Result<std::unique_ptr<MemoryRegion>> register_memory(std::span<std::byte> memory,
                                                        Access access) override;

  // ---- for regions and connections ----
  const FramedRegion* find(uint64_t key) const {
    const auto found = regions_.find(key);
    return found == regions_.end() ? nullptr : found->second;
  }
  void withdraw(const FramedRegion& region);

 protected:
  using PolledDevice::PolledDevice;

 private:
  std::unordered_map<uint64_t, const FramedRegion*> regions_;
};

}  // namespace pmstore::fabric::internal
