pmstore_test(pmstore_abandoned_commit_test SOURCES abandoned_commit_test.cc
  DEPS pmstore crash_image)
pmstore_test(pmstore_loopback_test SOURCES loopback_test.cc DEPS pmstore crash_image)
pmstore_test(pmstore_outcome_book_test SOURCES outcome_book_test.cc DEPS pmstore)
pmstore_test(pmstore_outcome_test SOURCES outcome_test.cc DEPS pmstore crash_image)
