list(APPEND PMSTORE_FABRIC_SOURCES
  tcp/internal/multiplexer.cc
  tcp/internal/multiplexer_datapath.cc
  tcp/internal/multiplexer_set.cc
  tcp/internal/socket.cc
  tcp/internal/socket_batch.cc
  tcp/internal/tcp_connection.cc
  tcp/internal/tcp_device.cc
  tcp/internal/tcp_listener.cc
  tcp/tcp_device.cc)
list(APPEND PMSTORE_FABRIC_LIBRARIES PkgConfig::LIBURING)
