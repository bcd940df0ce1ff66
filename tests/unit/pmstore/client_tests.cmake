pmstore_test(pmstore_types_test SOURCES types_test.cc DEPS pmstore)
pmstore_test(pmstore_record_test SOURCES record_test.cc DEPS pmstore)
