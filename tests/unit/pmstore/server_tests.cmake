pmstore_test(pmstore_abandoned_commit_test ONE_THREAD SOURCES abandoned_commit_test.cc
  DEPS pmstore crash_image)
pmstore_test(pmstore_loopback_test ONE_THREAD SOURCES loopback_test.cc DEPS pmstore crash_image)
pmstore_test(pmstore_outcome_book_test ONE_THREAD SOURCES outcome_book_test.cc DEPS pmstore)
pmstore_test(pmstore_outcome_test ONE_THREAD SOURCES outcome_test.cc DEPS pmstore crash_image)
pmstore_test(pmstore_probe_test ONE_THREAD SOURCES probe_test.cc DEPS pmstore crash_image)
pmstore_test(pmstore_server_logs_test ONE_THREAD SOURCES server_logs_test.cc
  DEPS pmstore crash_image)
