// Preloaded into pmstored: once the file $PMSTORE_TEST_MSYNC_FAILS is there, msync() fails as on a
// disk that has gone away.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

extern "C" int msync(void* start, size_t bytes, int flags) {
  using Msync = int (*)(void*, size_t, int);
  static const auto real = reinterpret_cast<Msync>(dlsym(RTLD_NEXT, "msync"));
  const char* const sign = std::getenv("PMSTORE_TEST_MSYNC_FAILS");
  if (sign != nullptr && access(sign, F_OK) == 0) {
    errno = EIO;
    return -1;
  }
  return real(start, bytes, flags);
}
