# What cmake --install installs: the programs, the libraries with their headers, and what
# find_package(pmstore) and pkg-config read.

# pmstore_package_part(TARGET [HEADER...]): TARGET is installed, and these headers with all that
# they include. Paths from the repository root.
function(pmstore_package_part target)
  set_property(GLOBAL APPEND PROPERTY PMSTORE_PACKAGE_TARGETS ${target})
  set_property(GLOBAL APPEND PROPERTY PMSTORE_PACKAGE_HEADERS ${ARGN})
endfunction()

# Sets `result` to the headers given and those that they include with "", directly or not. The
# configure step runs again when one of them has changed.
function(pmstore_include_closure result)
  set(open ${ARGN})
  set(closure)
  while(open)
    list(POP_FRONT open header)
    if(header IN_LIST closure)
      continue()
    endif()
    list(APPEND closure ${header})
    file(STRINGS ${PROJECT_SOURCE_DIR}/${header} lines REGEX "^#include \"")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" included "${line}")
      list(APPEND open ${included})
    endforeach()
  endwhile()
  list(TRANSFORM closure PREPEND ${PROJECT_SOURCE_DIR}/ OUTPUT_VARIABLE files)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files})
  set(${result} ${closure} PARENT_SCOPE)
endfunction()

# pmstore_pkg_config(NAME): NAME.pc from cmake/NAME.pc.in. Its prefix is where it lies itself, so
# that cmake --install --prefix, or moving all of it, needs no editing.
function(pmstore_pkg_config name)
  set(folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  file(RELATIVE_PATH up /prefix/${folder} /prefix)
  string(REGEX REPLACE "/$" "" up ${up})
  list(JOIN PMSTORE_PKG_CONFIG_PACKAGES " " packages)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${folder})
endfunction()

# After all folders.
function(pmstore_install_package)
  get_property(targets GLOBAL PROPERTY PMSTORE_PACKAGE_TARGETS)
  set_target_properties(pmstore_headers PROPERTIES EXPORT_NAME headers)
  install(TARGETS pmstore_headers ${targets} EXPORT pmstore-targets)
  if(PMSTORE_BUILD_PROGRAMS)
    install(TARGETS pmstore pmstored)
    install(PROGRAMS ${PROJECT_SOURCE_DIR}/tools/mount/mount.pmstore
      DESTINATION ${CMAKE_INSTALL_SBINDIR})
  endif()
  get_property(headers GLOBAL PROPERTY PMSTORE_PACKAGE_HEADERS)
  pmstore_include_closure(headers ${headers})
  foreach(header IN LISTS headers)
    get_filename_component(folder ${header} DIRECTORY)
    install(FILES ${PROJECT_SOURCE_DIR}/${header}
      DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/pmstore/${folder})
  endforeach()

  set(folder ${CMAKE_INSTALL_LIBDIR}/cmake/pmstore)
  include(CMakePackageConfigHelpers)
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/pmstore-config.cmake.in
    ${PROJECT_BINARY_DIR}/pmstore-config.cmake INSTALL_DESTINATION ${folder}
    NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
  # Until 1.0, another minor version may be another interface.
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/pmstore-config-version.cmake
    COMPATIBILITY SameMinorVersion)
  install(EXPORT pmstore-targets NAMESPACE pmstore:: DESTINATION ${folder})
  install(FILES ${PROJECT_BINARY_DIR}/pmstore-config.cmake
    ${PROJECT_BINARY_DIR}/pmstore-config-version.cmake DESTINATION ${folder})
  pmstore_pkg_config(pmstore)
  pmstore_pkg_config(pmstore_c)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
endfunction()
