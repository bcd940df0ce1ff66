# What users of the libraries need, in this tree or outside of it.
add_library(pmstore_headers INTERFACE)
target_include_directories(pmstore_headers INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/pmstore>)
target_compile_features(pmstore_headers INTERFACE cxx_std_20)
target_link_libraries(pmstore_headers INTERFACE Threads::Threads)

# What every target of the project is compiled with, and no target of a project around it. No
# behaviour hangs on these: every option of the product is a run-time option.
add_library(pmstore_options INTERFACE)
target_link_libraries(pmstore_options INTERFACE pmstore_headers)
option(PMSTORE_WARNINGS_AS_ERRORS
  "Warnings fail the build: for those who work on it; the presets set it" OFF)
set(PMSTORE_WARNINGS -Wall -Wextra -Wpedantic -Wshadow)
if(PMSTORE_WARNINGS_AS_ERRORS)
  list(APPEND PMSTORE_WARNINGS -Werror)
else()
  # With -O3, g++ 12 warns of what it has made of std::string's own operator+ (GCC bug 105651).
  list(APPEND PMSTORE_WARNINGS -Wno-restrict)
endif()
set(options ${PMSTORE_WARNINGS} -fcoroutines -fno-omit-frame-pointer)
# g++ 12 loads two neighbouring fields of a coroutine frame, stored one by one just before, as one
# vector: the load waits until the stores have left the store buffer. 30 ns instead of 22 ns for a
# suspension, its resumption and a task around them.
list(APPEND options -fno-tree-slp-vectorize)
target_compile_options(pmstore_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${options}>)
# A program loads the libraries that it uses, and no others.
target_link_options(pmstore_options INTERFACE -Wl,--as-needed)
link_libraries($<BUILD_INTERFACE:pmstore_options>)
# pmstore_keep_options(TARGET): a new target does not hand these on, as CMake would have it.
function(pmstore_keep_options target)
  set_property(TARGET ${target} PROPERTY INTERFACE_LINK_LIBRARIES)
endfunction()

option(PMSTORE_FEWER_COMPILATIONS
  "Compile tools and tests eight sources at once: for a tree that is built once" OFF)

# In a unity build every source is in an included file, so g++ calls anonymous namespaces a mistake.
if(CMAKE_UNITY_BUILD OR PMSTORE_FEWER_COMPILATIONS)
  target_compile_options(pmstore_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  # Such a tree links some hundred programs once, and gold takes half of the time for each. It does
  # not keep to the version scripts of the libraries.
  include(CheckLinkerFlag)
  check_linker_flag(CXX -fuse-ld=gold PMSTORE_HAS_GOLD)
  if(PMSTORE_HAS_GOLD)
    target_link_options(pmstore_options INTERFACE
      $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-fuse-ld=gold>)
  endif()
endif()

set(PMSTORE_SANITIZE "" CACHE STRING "address or thread, or empty; set by the presets")
option(PMSTORE_SANITIZE_ALL
  "Under a sanitizer, also the tests in which it rarely finds what the others do not show" OFF)
if(PMSTORE_SANITIZE STREQUAL "address")
  target_compile_options(pmstore_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=address>)
  target_link_options(pmstore_options INTERFACE -fsanitize=address,undefined)
  # Of the folder, not of the target: tests/ leaves some of it out.
  add_compile_options(
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=undefined>
    $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all>)
  add_link_options(-fsanitize=undefined)
elseif(PMSTORE_SANITIZE STREQUAL "thread")
  # g++ warns that thread fences are not modelled; the project orders with acquire and release.
  target_compile_options(pmstore_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=thread> $<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>)
  target_link_options(pmstore_options INTERFACE -fsanitize=thread)
elseif(NOT PMSTORE_SANITIZE STREQUAL "")
  message(FATAL_ERROR
    "PMSTORE_SANITIZE=${PMSTORE_SANITIZE}: use address, thread, or leave it empty")
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The compiler says what it has included; otherwise a source that is not in the cache would be
  # preprocessed once more. The rest is what ccache asks for with precompiled headers.
  if(DEFINED ENV{CCACHE_SLOPPINESS} OR DEFINED ENV{CCACHE_DEPEND})
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  else()
    set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_DEPEND=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
  endif()
endif()
