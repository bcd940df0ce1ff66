pmstore_test(pmstore_abandoned_commit_test ONE_THREAD SOURCES abandoned_commit_test.cc
  DEPS pmstore crash_image)
pmstore_test(pmstore_server_test ONE_THREAD
  SOURCES abandoned_reconnect_test.cc atomics_fail_test.cc background_atomics_test.cc
    damaged_record_test.cc kept_lock_test.cc old_place_test.cc ordered_session_test.cc
    phantom_test.cc region_rights_test.cc rings_of_one_extent_test.cc rings_on_demand_test.cc
    session_end_test.cc session_places_test.cc
  DEPS pmstore crash_image)
pmstore_test(pmstore_joint_commit_test ONE_THREAD
  SOURCES held_moves_test.cc joint_commit_test.cc joint_group_test.cc open_transactions_test.cc
    two_phase_session_test.cc
  DEPS pmstore crash_image)
pmstore_test(pmstore_commit_group_test ONE_THREAD SOURCES commit_group_test.cc
  DEPS pmstore crash_image)
pmstore_test(pmstore_direct_calls_test ONE_THREAD SOURCES direct_calls_test.cc
  DEPS pmstore crash_image)
pmstore_test(pmstore_expected_reads_test ONE_THREAD SOURCES expected_reads_test.cc DEPS pmstore
  crash_image)
pmstore_test(pmstore_embedded_client_test ONE_THREAD
  SOURCES batch_test.cc embedded_client_test.cc embedded_space_test.cc embedded_view_test.cc
  DEPS pmstore)
pmstore_test(pmstore_indexed_table_test ONE_THREAD SOURCES indexed_table_test.cc
  DEPS pmstore)
pmstore_test(pmstore_loopback_test ONE_THREAD SOURCES loopback_test.cc DEPS pmstore crash_image)
pmstore_test(pmstore_idle_session_test ONE_THREAD SOURCES idle_session_test.cc
  DEPS pmstore crash_image)
pmstore_test(pmstore_outcome_book_test ONE_THREAD SOURCES outcome_book_test.cc DEPS pmstore)
pmstore_test(pmstore_outcome_test ONE_THREAD SOURCES outcome_test.cc stolen_id_test.cc
  DEPS pmstore crash_image)
pmstore_test(pmstore_probe_test ONE_THREAD SOURCES probe_test.cc DEPS pmstore crash_image)
pmstore_test(pmstore_tables_test ONE_THREAD SOURCES moved_records_test.cc record_extents_test.cc
  scan_patience_test.cc tables_test.cc
  DEPS pmstore crash_image)
pmstore_test(pmstore_server_logs_test ONE_THREAD SOURCES server_logs_test.cc
  DEPS pmstore crash_image)
pmstore_test(pmstore_admin_test ONE_THREAD SOURCES admin_test.cc DEPS pmstore crash_image)
