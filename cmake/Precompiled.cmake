# What nearly every source includes is compiled once instead of in each of some hundred
# compilations. Only in trees that are built once: there, a source that does not include what it
# needs is not noticed.

set(PMSTORE_PRECOMPILED_HEADERS
  <algorithm> <array> <atomic> <bit> <cerrno> <charconv> <chrono> <coroutine> <cstddef> <cstdint>
  <cstdio> <cstdlib> <cstring> <deque> <filesystem> <fstream> <functional> <map> <memory> <mutex>
  <optional> <set> <span> <sstream> <string> <string_view> <thread> <tl/expected.hpp>
  <unordered_map> <utility> <vector> <fmt/format.h>
  ${PROJECT_SOURCE_DIR}/base/executor.h)

# pmstore_precompile(TARGET KIND): TARGET's sources find these headers compiled. KIND:
#   package   a library that can be linked into a shared one
#   inner     any other code of the product
#   commands  with CLI11; a release optimizes it little
#   tests     with GoogleTest; a release optimizes it little
# The targets of one kind share what is compiled, so they agree in -O, -fPIC and -D. g++ 12 warns
# when they do not, but for -O, where it can crash: a source that is optimized otherwise than its
# target has SKIP_PRECOMPILE_HEADERS.
function(pmstore_precompile target kind)
  if(NOT PMSTORE_FEWER_COMPILATIONS AND NOT CMAKE_UNITY_BUILD)
    return()
  endif()
  set(owner pmstore_precompiled_${kind})
  if(NOT TARGET ${owner})
    # Any source will do.
    add_library(${owner} OBJECT ${PROJECT_SOURCE_DIR}/cmake/link_main.cc)
    set(headers ${PMSTORE_PRECOMPILED_HEADERS})
    if(kind STREQUAL "package")
      set_target_properties(${owner} PROPERTIES POSITION_INDEPENDENT_CODE ON
        CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
    elseif(kind STREQUAL "commands")
      list(APPEND headers <CLI/CLI.hpp>)
    elseif(kind STREQUAL "tests")
      list(APPEND headers <gtest/gtest.h>)
      target_link_libraries(${owner} PRIVATE GTest::gtest)
    endif()
    if(kind MATCHES "^(commands|tests)$")
      target_compile_options(${owner} PRIVATE $<$<CONFIG:Release>:-Og>)
    endif()
    target_precompile_headers(${owner} PRIVATE ${headers})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${owner})
endfunction()
