list(APPEND PMSTORE_FABRIC_SOURCES
  verbs/cm_events.cc
  verbs/completion_queues.cc
  verbs/connection.cc
  verbs/connection_datapath.cc
  verbs/device_inventory.cc
  verbs/device_poll.cc
  verbs/handshake.cc
  verbs/listener.cc
  verbs/rdma_device.cc
  verbs/verbs_device.cc)
list(APPEND PMSTORE_FABRIC_LIBRARIES PkgConfig::LIBIBVERBS PkgConfig::LIBRDMACM)
