list(APPEND PMSTORE_FABRIC_SOURCES verbs/verbs_device.cc)
