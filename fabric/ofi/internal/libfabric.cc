#include "fabric/ofi/internal/libfabric.h"

#include <dlfcn.h>

#include <mutex>
#include <string>

#include "base/check.h"
#include "fabric/ofi/internal/kept_signals.h"

namespace pmstore::fabric::ofi {
namespace {

constexpr const char* kFile = "libfabric.so.1";
constexpr uint32_t kCompiledFor = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);

Libfabric functions;
std::once_flag loaded_once;
bool is_loaded = false;
Error why_not;

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

std::string text_of(uint32_t version) {
  return std::to_string(FI_MAJOR(version)) + "." + std::to_string(FI_MINOR(version));
}

void load_functions() {
  const KeptSignals kept;
  void* const library = dlopen(kFile, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    const char* const why = dlerror();
    why_not =
        make_error(ErrorCode::kUnsupported, "shm:// needs libfabric, which cannot be loaded (" +
                                                std::string(why != nullptr ? why : kFile) +
                                                "); install the package libfabric1");
    return;
  }
  const bool complete = find(library, "fi_getinfo", functions.getinfo) &&
                        find(library, "fi_freeinfo", functions.freeinfo) &&
                        find(library, "fi_dupinfo", functions.dupinfo) &&
                        find(library, "fi_fabric", functions.fabric) &&
                        find(library, "fi_strerror", functions.strerror) &&
                        find(library, "fi_version", functions.version);
  // Its structs may grow with each version.
  is_loaded = complete && functions.version() == kCompiledFor;
  if (is_loaded) return;
  why_not = make_error(ErrorCode::kUnsupported,
                       "shm:// needs libfabric " + text_of(kCompiledFor) + ", here is " +
                           (complete ? text_of(functions.version()) : "an incomplete one") +
                           "; install that version, or build pmstore with this one");
}

}  // namespace

Result<const Libfabric*> Libfabric::load() {
  std::call_once(loaded_once, load_functions);
  if (!is_loaded) return Error(why_not);
  return &functions;
}

const Libfabric& Libfabric::loaded() {
  PMSTORE_CHECK(is_loaded, "libfabric is loaded before it is used");
  return functions;
}

}  // namespace pmstore::fabric::ofi
