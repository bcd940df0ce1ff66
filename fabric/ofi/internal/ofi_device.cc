#include "fabric/ofi/internal/ofi_device.h"

#include "fabric/ofi/internal/ofi_region.h"

namespace pmstore::fabric::ofi {

OfiDevice::OfiDevice(base::Executor& executor, Scheme scheme, std::unique_ptr<Provider> provider)
    : PolledDevice(executor, scheme), provider_(std::move(provider)) {}

Result<std::unique_ptr<MemoryRegion>> OfiDevice::register_memory(std::span<std::byte> memory,
                                                                 Access access) {
  return OfiRegion::create(*provider_, memory, access);
}

}  // namespace pmstore::fabric::ofi
