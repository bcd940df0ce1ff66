// Preloaded into pmstored: once the file $PMSTORE_TEST_MSYNC_FAILS is there, msync() fails as on a
// disk that has gone away; when that file holds a number, after so many calls more.
#include <dlfcn.h>
#include <sys/mman.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace {

// 0 when the file is empty; -1 when there is none.
int calls_left(const char* sign) {
  std::FILE* const file = std::fopen(sign, "r");
  if (file == nullptr) return -1;
  int calls = 0;
  if (std::fscanf(file, "%d", &calls) != 1) calls = 0;
  std::fclose(file);
  return calls;
}

}  // namespace

extern "C" int msync(void* start, size_t bytes, int flags) {
  using Msync = int (*)(void*, size_t, int);
  static const auto real = reinterpret_cast<Msync>(dlsym(RTLD_NEXT, "msync"));
  const char* const sign = std::getenv("PMSTORE_TEST_MSYNC_FAILS");
  static std::atomic<int> went_well = 0;
  const int most = sign == nullptr ? -1 : calls_left(sign);
  if (most >= 0 && went_well++ >= most) {
    errno = EIO;
    return -1;
  }
  return real(start, bytes, flags);
}
