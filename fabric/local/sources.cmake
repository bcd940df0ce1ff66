list(APPEND PMSTORE_FABRIC_SOURCES
  local/fault_injection.cc
  local/late_effects.cc
  local/local_connection.cc
  local/local_connection_datapath.cc
  local/local_connection_late.cc
  local/local_device.cc
  local/local_device_late.cc
  local/local_listener.cc
  local/region_table.cc)
