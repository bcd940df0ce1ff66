list(APPEND PMSTORE_FABRIC_SOURCES
  internal/page_memory.cc
  internal/rpc_space.cc
  rpc_call.cc
  rpc_client.cc
  rpc_server.cc)
