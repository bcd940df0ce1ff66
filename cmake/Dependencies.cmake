# Debian 12's own packages; tools/install-deps installs them.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(tl-expected REQUIRED)
# What programs that use the installed libraries link, too: cmake/pmstore-config.cmake.in and
# cmake/pmstore.pc.in are made from this list.
set(PMSTORE_PKG_CONFIG_PACKAGES
  libisal libxxhash fmt libibverbs librdmacm liburing libpmem2 libpmemobj libndctl libdaxctl)
set(needed ${PMSTORE_PKG_CONFIG_PACKAGES})
if(PMSTORE_BUILD_PROGRAMS)
  list(APPEND needed tomlplusplus fuse3)
  find_package(CLI11 REQUIRED)
  find_package(nlohmann_json REQUIRED)
endif()
if(PMSTORE_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()
foreach(package IN LISTS needed)
  string(TOUPPER ${package} prefix)
  pkg_check_modules(${prefix} REQUIRED IMPORTED_TARGET ${package})
endforeach()
