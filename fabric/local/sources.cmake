list(APPEND PMSTORE_FABRIC_SOURCES local/local_device.cc)
