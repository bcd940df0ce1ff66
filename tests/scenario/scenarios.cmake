# pmstore_scenarios(NAME [MODEL] [PROVIDERS] LATE_SEEDS A-B SOURCES ... [DEPS ...]
# [TIMEOUT seconds]): a scenario binary and its runs. As tests they are called scenario.AREA for
# NAME "AREA_scenarios": scenario.AREA is the run on `local` with the target in a second thread,
# .same_thread with both on one executor; .model, with MODEL, on the modelled machine; .late and
# .model_late on these two with late effects, for each of some seeds; .tcp and .shm have a second
# process. verbs needs a guest: tests/scenario/harness.h says how.
# PROVIDERS: these scenarios are about the providers themselves. Under a sanitizer the others run on
# `local` only, where the code of their area does the same as on every provider, unless
# PMSTORE_SANITIZE_ALL is set.
function(pmstore_scenarios name)
  cmake_parse_arguments(ARG "MODEL;PROVIDERS" "TIMEOUT;LATE_SEEDS" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 1200)
  endif()
  # tests/mutants links a scenario's objects without these.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/tests/scenario/harness.cc
    data_main.cc fs_main.cc log_main.cc store_main.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  pmstore_test(${name} TIMEOUT ${ARG_TIMEOUT} DEPS fabric model ${ARG_DEPS}
    SOURCES ${PROJECT_SOURCE_DIR}/tests/scenario/harness.cc ${ARG_SOURCES})
  pmstore_test_name(test ${name})
  pmstore_patience(ARG_TIMEOUT)
  # COST: what takes long begins early, so that not one long test runs alone at the end.
  set_tests_properties(${test} PROPERTIES COST 30)
  set(all TRUE)
  if(PMSTORE_SANITIZE AND NOT PMSTORE_SANITIZE_ALL)
    set(all ${ARG_PROVIDERS})
    string(REGEX REPLACE "-.*" "" first_seed ${ARG_LATE_SEEDS})
    set(ARG_LATE_SEEDS ${first_seed}-${first_seed})
  endif()
  # These two have one thread: there is nothing for the thread sanitizer.
  if(NOT PMSTORE_SANITIZE STREQUAL "thread")
    add_test(NAME ${test}.same_thread COMMAND ${name})
    set_tests_properties(${test}.same_thread PROPERTIES TIMEOUT ${ARG_TIMEOUT}
      ENVIRONMENT "PMSTORE_TEST_FABRIC=local;PMSTORE_TEST_PLACE=same")
    set(campaign ${PROJECT_SOURCE_DIR}/tests/scenario/late_campaign --seconds ${ARG_TIMEOUT})
    add_test(NAME ${test}.late
      COMMAND ${campaign} --seeds ${ARG_LATE_SEEDS} $<TARGET_FILE:${name}>)
    set_tests_properties(${test}.late PROPERTIES TIMEOUT ${ARG_TIMEOUT})
    pmstore_sanitized(${name} ${test}.same_thread ${test}.late)
    if(ARG_MODEL AND all)
      add_test(NAME ${test}.model COMMAND ${name})
      set_tests_properties(${test}.model PROPERTIES TIMEOUT ${ARG_TIMEOUT}
        ENVIRONMENT "PMSTORE_TEST_FABRIC=model")
      add_test(NAME ${test}.model_late
        COMMAND ${campaign} --fabric model --seeds 1-1 $<TARGET_FILE:${name}>)
      set_tests_properties(${test}.model_late PROPERTIES TIMEOUT ${ARG_TIMEOUT})
      pmstore_sanitized(${name} ${test}.model ${test}.model_late)
    endif()
  endif()
  if(NOT all)
    return()
  endif()
  foreach(fabric IN ITEMS tcp shm)
    add_test(NAME ${test}.${fabric} COMMAND ${name})
    set_tests_properties(${test}.${fabric} PROPERTIES TIMEOUT ${ARG_TIMEOUT} COST 50
      ENVIRONMENT "PMSTORE_TEST_FABRIC=${fabric}")
    pmstore_sanitized(${name} ${test}.${fabric})
  endforeach()
endfunction()
