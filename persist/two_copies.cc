#include "persist/two_copies.h"

#include "base/atomic_copy.h"
#include "persist/padding.h"

namespace pmstore::persist::internal {
namespace {

constexpr uint64_t kCopies = 2;

}  // namespace

CopyPair::CopyPair(Memory& memory, uint64_t offset, uint64_t stride, size_t header_bytes)
    : memory_(&memory), offset_(offset), stride_(stride), header_bytes_(header_bytes) {
  PMSTORE_CHECK(offset % kLineBytes == 0 && stride % kLineBytes == 0 && header_bytes <= stride,
                "a torn write of one copy would reach the other one");
  PMSTORE_CHECK(memory.contains(offset, stride + header_bytes), "both copies are in the pool");
}

bool CopyPair::is_newer(uint64_t generation, uint64_t than) { return generation > than; }

void CopyPair::load(size_t copy, void* header) const {
  base::copy_from_shared(header, copy_at(copy), header_bytes_);
}

bool CopyPair::is_blank(size_t copy) const {
  const std::byte* const bytes = copy_at(copy);
  return *bytes == std::byte{0} && std::memcmp(bytes, bytes + 1, header_bytes_ - 1) == 0;
}

Result<Persisted> CopyPair::write(uint64_t generation, const void* header) const {
  std::byte* const to = copy_at(generation % kCopies);
  memory_->store(to, header, header_bytes_);
  memory_->flush(to, header_bytes_);
  return memory_->drain();
}

}  // namespace pmstore::persist::internal
