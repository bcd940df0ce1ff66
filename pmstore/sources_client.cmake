# What clients need, and what clients and servers share.
set(PMSTORE_CLIENT_SOURCES
  buffer_pool.cc
  client.cc
  client_session.cc
  commit_cpu.cc
  commit_rnic.cc
  embedded.cc
  location_cache.cc
  reader.cc
  reconnect.cc
  record.cc
  redo_ring.cc
  rnic_background.cc
  single_write.cc
  transaction.cc
  transaction_commit.cc
  types.cc)
