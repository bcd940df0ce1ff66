list(APPEND PMSTORE_FABRIC_SOURCES ofi/ofi_device.cc)
