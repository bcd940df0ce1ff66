# pmstore_mutants(NAME LIST file SOURCES ... LIBRARIES ...): the program NAME, with the product
# sources that LIST names, mutants built in. Their objects are linked before the libraries, so that
# the linker never takes the sources' own objects from there. Headers that LIST names are for these
# sources and SOURCES that are compiled here; so each source whose code a header's mutant is to
# reach has mutants of its own.
function(pmstore_mutants name)
  cmake_parse_arguments(ARG "" "LIST" "SOURCES;LIBRARIES" ${ARGN})
  set(list ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_LIST})
  set(generator ${PROJECT_SOURCE_DIR}/tests/crash/mutants/make_mutants.py)
  set(generated ${CMAKE_CURRENT_BINARY_DIR}/sources)
  set(make_mutants ${generator} ${PROJECT_SOURCE_DIR} ${list} ${generated})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${list} ${generator})
  execute_process(COMMAND ${make_mutants} OUTPUT_VARIABLE paths RESULT_VARIABLE status
    OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${list} cannot be read")
  endif()
  string(REPLACE "\n" ";" paths "${paths}")
  list(TRANSFORM paths PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE originals)
  list(TRANSFORM paths PREPEND ${generated}/ OUTPUT_VARIABLE sources)
  list(APPEND sources ${generated}/mutant_table.cc)
  add_custom_command(OUTPUT ${sources} COMMAND ${make_mutants}
    DEPENDS ${originals} ${list} ${generator})

  add_executable(${name} ${ARG_SOURCES} ${sources})
  target_include_directories(${name} BEFORE PRIVATE ${generated})
  target_link_libraries(${name} PRIVATE pmstore_mutant_runner ${ARG_LIBRARIES})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
endfunction()
