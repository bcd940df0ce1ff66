list(APPEND PMSTORE_FABRIC_SOURCES
  shm/internal/segment.cc
  shm/internal/shm_connection.cc
  shm/internal/shm_connection_datapath.cc
  shm/internal/shm_device.cc
  shm/internal/shm_listener.cc
  shm/internal/shm_socket.cc
  shm/shm_device.cc)
