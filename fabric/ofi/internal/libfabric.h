// Libfabric: the functions of libfabric, which is loaded when the first shm device is opened and
// never unloaded.
//
// Not linked: loading it brings in the libraries of a dozen other fabrics and takes 0.2 s, and the
// constructors of some (psm, psm2) take over SIGSEGV, SIGBUS, SIGILL, SIGABRT, SIGINT and SIGTERM.
// The other functions of libfabric's headers are inline: they call through its objects' tables.
#pragma once

#include <rdma/fabric.h>

#include "base/result.h"

namespace pmstore::fabric::ofi {

struct Libfabric {
  decltype(&::fi_getinfo) getinfo = nullptr;
  decltype(&::fi_freeinfo) freeinfo = nullptr;
  decltype(&::fi_dupinfo) dupinfo = nullptr;
  decltype(&::fi_fabric) fabric = nullptr;
  decltype(&::fi_strerror) strerror = nullptr;
  decltype(&::fi_version) version = nullptr;

  // Unsupported if libfabric is not installed or has another version than at compile time.
  // Leaves the actions of signals as they are. Any thread.
  static Result<const Libfabric*> load();
  // CHECK: load() has succeeded.
  static const Libfabric& loaded();
};

}  // namespace pmstore::fabric::ofi
