list(APPEND PMSTORE_FABRIC_SOURCES
  ofi/ofi_device.cc
  ofi/internal/kept_signals.cc
  ofi/internal/libfabric.cc
  ofi/internal/ofi_connection.cc
  ofi/internal/ofi_connection_datapath.cc
  ofi/internal/ofi_device.cc
  ofi/internal/ofi_region.cc
  ofi/internal/provider.cc
  ofi/internal/shm_connection.cc
  ofi/internal/shm_device.cc
  ofi/internal/shm_lock_breaker.cc
  ofi/internal/shm_segment.cc
  ofi/internal/shm_socket.cc)
# Its headers; the library is loaded when it is needed.
list(APPEND PMSTORE_FABRIC_INCLUDE_DIRECTORIES ${LIBFABRIC_INCLUDE_DIRS})
