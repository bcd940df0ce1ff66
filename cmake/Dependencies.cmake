# Debian 12's own packages; tools/install-deps installs them.
find_package(PkgConfig REQUIRED)
foreach(package IN ITEMS libisal libxxhash fmt libibverbs librdmacm libfabric libpmem libpmem2
    libpmemobj libndctl libdaxctl)
  string(TOUPPER ${package} prefix)
  pkg_check_modules(${prefix} REQUIRED IMPORTED_TARGET ${package})
endforeach()
find_package(GTest REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(tl-expected REQUIRED)
pkg_check_modules(TOMLPLUSPLUS REQUIRED IMPORTED_TARGET tomlplusplus)
