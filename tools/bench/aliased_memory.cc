#include "tools/bench/aliased_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace pmstore::tools {
namespace {

Error no_memory(size_t bytes) {
  return make_error(ErrorCode::kIo, fmt::format("{} bytes of addresses: {}; use a smaller --range",
                                                bytes, std::strerror(errno)));
}

}  // namespace

Result<std::unique_ptr<AliasedMemory>> AliasedMemory::create(size_t bytes) {
  const size_t pieces = (bytes + kPieceBytes - 1) / kPieceBytes;
  const size_t whole = pieces * kPieceBytes;
  void* const first =
      mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (first == MAP_FAILED) return no_memory(whole);
  std::unique_ptr<AliasedMemory> memory(new AliasedMemory({static_cast<std::byte*>(first), whole}));
  const int file = memfd_create("pmstore-aliased", MFD_CLOEXEC);
  bool good = file >= 0 && ftruncate(file, kPieceBytes) == 0;
  for (size_t i = 0; good && i < pieces; ++i) {
    good = mmap(memory->bytes_.data() + i * kPieceBytes, kPieceBytes, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_FIXED | MAP_POPULATE, file, 0) != MAP_FAILED;
  }
  Error why = no_memory(whole);
  if (file >= 0) close(file);
  if (!good) return why;
  return memory;
}

AliasedMemory::~AliasedMemory() { munmap(bytes_.data(), bytes_.size()); }

}  // namespace pmstore::tools
