# What every target is compiled with. No behaviour hangs on these: every option of the product is a
# run-time option.
add_library(pmstore_options INTERFACE)
target_include_directories(pmstore_options INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(pmstore_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Werror
  -fcoroutines -fno-omit-frame-pointer)
# g++ 12 loads two neighbouring fields of a coroutine frame, stored one by one just before, as one
# vector: the load waits until the stores have left the store buffer. 30 ns instead of 22 ns for a
# suspension, its resumption and a task around them.
target_compile_options(pmstore_options INTERFACE -fno-tree-slp-vectorize)
# A program loads the libraries that it uses, and no others.
target_link_options(pmstore_options INTERFACE -Wl,--as-needed)
find_package(Threads REQUIRED)
target_link_libraries(pmstore_options INTERFACE Threads::Threads)

option(PMSTORE_FEWER_COMPILATIONS
  "Compile tools and tests eight sources at once: for a tree that is built once" OFF)

# In a unity build every source is in an included file, so g++ calls anonymous namespaces a mistake.
if(CMAKE_UNITY_BUILD OR PMSTORE_FEWER_COMPILATIONS)
  target_compile_options(pmstore_options INTERFACE -Wno-subobject-linkage)
endif()

set(PMSTORE_SANITIZE "" CACHE STRING "address or thread, or empty; set by the presets")
if(PMSTORE_SANITIZE STREQUAL "address")
  target_compile_options(pmstore_options INTERFACE -fsanitize=address)
  target_link_options(pmstore_options INTERFACE -fsanitize=address,undefined)
  # Of the folder, not of the target: tests/ leaves some of it out.
  add_compile_options(
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=undefined>
    $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all>)
  add_link_options(-fsanitize=undefined)
elseif(PMSTORE_SANITIZE STREQUAL "thread")
  # g++ warns that thread fences are not modelled; the project orders with acquire and release.
  target_compile_options(pmstore_options INTERFACE -fsanitize=thread -Wno-tsan)
  target_link_options(pmstore_options INTERFACE -fsanitize=thread)
elseif(NOT PMSTORE_SANITIZE STREQUAL "")
  message(FATAL_ERROR
    "PMSTORE_SANITIZE=${PMSTORE_SANITIZE}: use address, thread, or leave it empty")
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
