pmstore_test(pmstore_types_test SOURCES types_test.cc DEPS pmstore)
pmstore_test(pmstore_record_test SOURCES record_test.cc DEPS pmstore)
pmstore_test(pmstore_location_cache_test SOURCES location_cache_test.cc DEPS pmstore)
pmstore_test(pmstore_buffer_pool_test SOURCES buffer_pool_test.cc DEPS pmstore)
set(PMSTORE_CLIENT_TESTS client_session_test.cc client_read_test.cc client_write_test.cc
  transaction_test.cc fake_server.cc)
if(EXISTS ${CMAKE_SOURCE_DIR}/log/remote_appender.cc)
  pmstore_test(pmstore_client_test SOURCES ${PMSTORE_CLIENT_TESTS} DEPS pmstore)
else()  # as in pmstore/CMakeLists.txt
  list(TRANSFORM PMSTORE_CLIENT_TESTS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  set_property(GLOBAL APPEND PROPERTY PMSTORE_TEST_SOURCES ${PMSTORE_CLIENT_TESTS})
endif()
