#include "fabric/ofi/internal/ofi_region.h"

namespace pmstore::fabric::ofi {

namespace {

uint64_t ofi_access(Access access) {
  uint64_t flags = FI_READ | FI_WRITE | FI_SEND | FI_RECV;
  if (has(access, Access::kRemoteRead)) flags |= FI_REMOTE_READ;
  if (has(access, Access::kRemoteWrite)) flags |= FI_REMOTE_WRITE;
  return flags;
}

}  // namespace

Result<std::unique_ptr<MemoryRegion>> OfiRegion::create(const Provider& provider,
                                                        std::span<std::byte> memory,
                                                        Access access) {
  if (memory.empty() || memory.size() > kGrantMaxBytes) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a region must have at least 1 byte and less than 64 TiB");
  }
  std::unique_ptr<OfiRegion> region(new OfiRegion(memory, access));
  fid_mr* mr = nullptr;
  int code = -FI_ENOKEY;
  uint64_t key = 0;
  // Another region may have the key: numbers are only 16 bits wide.
  constexpr int kAttempts = 64;
  for (int attempt = 0; attempt < kAttempts && code == -FI_ENOKEY; ++attempt) {
    PMSTORE_TRY(key, internal::random_key());
    key = make_grant(access, memory.size(), static_cast<uint16_t>(key));
    code = fi_mr_reg(provider.domain(), memory.data(), memory.size(), ofi_access(access), 0, key, 0,
                     &mr, nullptr);
  }
  if (code != 0) {
    return ofi_error("cannot register " + std::to_string(memory.size()) + " bytes", code,
                     "register fewer, larger regions");
  }
  region->mr_.reset(mr);
  region->remote_ = RemoteRegion{address_base(key), memory.size(), key};
  return std::unique_ptr<MemoryRegion>(std::move(region));
}

}  // namespace pmstore::fabric::ofi
