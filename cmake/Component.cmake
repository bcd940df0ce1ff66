# pmstore_component(NAME SOURCES ... [DEPS ...] [LIBRARIES ...] [HEADERS ...])
# One folder of the architecture: a static library pmstore_NAME, and a program link_NAME that links
# the whole of it against nothing but its declared dependencies. If the folder uses a symbol of a
# folder that it does not declare, link_NAME fails to link.
# HEADERS: the folder is part of the package, and these are its interface. Its library can then be
# linked into a shared one, and adds nothing to what that one exports.
function(pmstore_component name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LIBRARIES;HEADERS" ${ARGN})
  add_library(pmstore_${name} STATIC ${ARG_SOURCES})
  add_library(pmstore::${name} ALIAS pmstore_${name})
  pmstore_keep_options(pmstore_${name})
  pmstore_unity(pmstore_${name})
  target_link_libraries(pmstore_${name} PUBLIC pmstore_headers)
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(pmstore_${name} PUBLIC pmstore_${dep})
  endforeach()
  target_link_libraries(pmstore_${name} PUBLIC ${ARG_LIBRARIES})
  if(ARG_HEADERS)
    set_target_properties(pmstore_${name} PROPERTIES EXPORT_NAME ${name}
      POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
    list(TRANSFORM ARG_HEADERS PREPEND ${name}/)
    pmstore_package_part(pmstore_${name} ${ARG_HEADERS})
    pmstore_precompile(pmstore_${name} package)
  else()
    pmstore_precompile(pmstore_${name} inner)
  endif()

  if(PMSTORE_BUILD_TESTS)
    add_executable(link_${name} ${PROJECT_SOURCE_DIR}/cmake/link_main.cc)
    target_link_libraries(link_${name} PRIVATE
      -Wl,--whole-archive pmstore_${name} -Wl,--no-whole-archive)
    set_target_properties(link_${name} PROPERTIES
      RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/link)
    add_test(NAME link.${name} COMMAND link_${name})
  endif()
endfunction()

# pmstore_register_test_sources(SOURCE...): these sources are part of a test; pmstore_test() says so
# by itself, any other test (a program run by a script, a fuzzer) by calling this.
function(pmstore_register_test_sources)
  foreach(source IN LISTS ARGN)
    get_filename_component(path ${source} ABSOLUTE BASE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
    set_property(GLOBAL APPEND PROPERTY PMSTORE_TEST_SOURCES ${path})
  endforeach()
endfunction()

# pmstore_compile_fast(SOURCE...): these sources of the calling folder do not measure anything and
# take long to compile (CLI11: 8 s each with -O2, 5 s with -Og); a release optimizes them little.
function(pmstore_compile_fast)
  # A source with options of its own is in no unity build.
  if(CMAKE_BUILD_TYPE STREQUAL "Release")
    set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS -Og SKIP_PRECOMPILE_HEADERS ON)
  endif()
endfunction()

# pmstore_unity(TARGET...): these targets are compiled eight sources at once when the tree is built
# once. Mutants replace such objects whole: tests/crash/mutants/mutants.cmake.
function(pmstore_unity)
  if(PMSTORE_FEWER_COMPILATIONS)
    set_target_properties(${ARGN} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
endfunction()

# The target sanitized_tests builds the test programs of the kinds (the first folder under tests/)
# that tools/check runs under the sanitizers.
if(PMSTORE_BUILD_TESTS)
  add_custom_target(sanitized_tests)
endif()
set(PMSTORE_SANITIZED_KINDS unit scenario)
set(PMSTORE_SANITIZED_SHARE 0/1 CACHE STRING
  "Of these programs, sanitized_tests builds the share NUMBER/OF; tests of others have a label")

# pmstore_sanitized(PROGRAM TEST...): PROGRAM is one of those, and these tests run it. When it is in
# another share, they have the label other_share. Programs are counted as they are registered.
function(pmstore_sanitized program)
  if(NOT PMSTORE_SANITIZED_SHARE MATCHES "^([0-9]+)/([1-9][0-9]*)$" OR
      NOT CMAKE_MATCH_1 LESS CMAKE_MATCH_2)
    message(FATAL_ERROR "PMSTORE_SANITIZED_SHARE=${PMSTORE_SANITIZED_SHARE}: "
      "it is no share; give NUMBER/OF, as 0/2")
  endif()
  set(wanted ${CMAKE_MATCH_1})
  set(of ${CMAKE_MATCH_2})
  get_target_property(share ${program} PMSTORE_SHARE)
  if(share STREQUAL "share-NOTFOUND")
    get_property(programs GLOBAL PROPERTY PMSTORE_SANITIZED_PROGRAMS)
    list(LENGTH programs count)
    math(EXPR share "${count} % ${of}")
    set_property(GLOBAL APPEND PROPERTY PMSTORE_SANITIZED_PROGRAMS ${program})
    set_target_properties(${program} PROPERTIES PMSTORE_SHARE ${share})
    if(share EQUAL wanted)
      add_dependencies(sanitized_tests ${program})
    endif()
  endif()
  if(NOT share EQUAL wanted)
    set_property(TEST ${ARGN} APPEND PROPERTY LABELS other_share)
  endif()
endfunction()

# pmstore_kind(VARIABLE): the kind of the tests of the calling folder: the first folder below
# tests/.
function(pmstore_kind variable)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR})
  string(REGEX REPLACE "/.*" "" kind "${folder}")
  set(${variable} "${kind}" PARENT_SCOPE)
endfunction()

# pmstore_test_name(VARIABLE PROGRAM): the name of a test program of the calling folder in ctest:
# KIND.NAME, NAME without what KIND says already. So unit/log's log_ring_test is unit.log_ring.
function(pmstore_test_name variable program)
  pmstore_kind(kind)
  string(REGEX REPLACE "^${kind}_|_(test|${kind}_test|${kind}s)$" "" name "${program}")
  string(REGEX REPLACE "_${kind}$|_test$" "" name "${name}")
  set(${variable} ${kind}.${name} PARENT_SCOPE)
endfunction()

# pmstore_patience(VARIABLE): makes a time limit in seconds that of the build: code under a
# sanitizer is several times slower.
function(pmstore_patience variable)
  if(PMSTORE_SANITIZE)
    math(EXPR ${variable} "${${variable}} * 4")
  endif()
  set(${variable} ${${variable}} PARENT_SCOPE)
endfunction()

# pmstore_test(NAME SOURCES ... [DEPS ...] [TIMEOUT SECONDS] [ONE_THREAD] [FAST] [SANITIZED]): a
# GoogleTest program, registered as one ctest test.
#   ONE_THREAD  it starts no thread, and no process that shares memory with it: there is nothing for
#               the thread sanitizer
#   FAST        its own sources are optimized like the product: it measures what they do
#   SANITIZED   with PMSTORE_SANITIZE_ALL it runs under the address sanitizer although it is of
#               another kind
# The sources of the sanitized kinds are compiled with -Og, which takes two thirds of the time.
function(pmstore_test name)
  cmake_parse_arguments(ARG "ONE_THREAD;FAST;SANITIZED" "TIMEOUT" "SOURCES;DEPS" ${ARGN})
  pmstore_register_test_sources(${ARG_SOURCES})
  if(ARG_ONE_THREAD AND PMSTORE_SANITIZE STREQUAL "thread")
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  pmstore_patience(ARG_TIMEOUT)
  add_executable(${name} ${ARG_SOURCES})
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(${name} PRIVATE pmstore_${dep})
  endforeach()
  target_link_libraries(${name} PRIVATE GTest::gtest GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  pmstore_kind(kind)
  pmstore_test_name(test ${name})
  add_test(NAME ${test} COMMAND ${name})
  set_tests_properties(${test} PROPERTIES TIMEOUT ${ARG_TIMEOUT})
  if(kind IN_LIST PMSTORE_SANITIZED_KINDS)
    pmstore_sanitized(${name} ${test})
    pmstore_unity(${name})
    if(NOT ARG_FAST)
      target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-Og>)
      pmstore_precompile(${name} tests)
    endif()
  elseif(ARG_SANITIZED AND PMSTORE_SANITIZE STREQUAL "address" AND PMSTORE_SANITIZE_ALL)
    add_dependencies(sanitized_tests ${name})
    set_tests_properties(${test} PROPERTIES LABELS sanitized)
  endif()
endfunction()
