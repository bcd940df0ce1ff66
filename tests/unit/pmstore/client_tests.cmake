pmstore_test(pmstore_types_test ONE_THREAD SOURCES types_test.cc DEPS pmstore)
pmstore_test(pmstore_index_key_test ONE_THREAD SOURCES index_key_test.cc DEPS pmstore)
pmstore_test(pmstore_record_test ONE_THREAD SOURCES record_test.cc DEPS pmstore)
pmstore_test(pmstore_record_page_test ONE_THREAD SOURCES record_page_test.cc DEPS pmstore)
pmstore_test(pmstore_location_cache_test ONE_THREAD SOURCES location_cache_test.cc DEPS pmstore)
pmstore_test(pmstore_buffer_pool_test ONE_THREAD SOURCES buffer_pool_test.cc DEPS pmstore)
pmstore_test(pmstore_transaction_numbers_test ONE_THREAD SOURCES transaction_numbers_test.cc
  DEPS pmstore)
pmstore_test(pmstore_participant_test ONE_THREAD SOURCES participant_test.cc DEPS pmstore)
pmstore_test(pmstore_redo_ring_test ONE_THREAD SOURCES redo_ring_test.cc DEPS pmstore)
pmstore_test(pmstore_leaf_routes_test ONE_THREAD SOURCES leaf_routes_test.cc DEPS pmstore)
pmstore_test(pmstore_region_table_test ONE_THREAD SOURCES region_table_test.cc DEPS pmstore)
pmstore_test(pmstore_client_test ONE_THREAD
  SOURCES client_session_test.cc client_growth_test.cc frame_regions_test.cc client_read_test.cc
    client_write_test.cc leaf_page_test.cc scan_reads_test.cc transaction_test.cc fake_server.cc
  DEPS pmstore)
