set(PMSTORE_SERVER_SOURCES
  admin_service.cc catalog.cc check.cc index.cc lock_lists.cc lock_table.cc outcome_book.cc redo.cc
  rnic_words.cc server.cc server_calls.cc server_session.cc server_stat.cc server_tables.cc
  shared_pages.cc slab_arena.cc store.cc store_commit.cc store_recovery.cc store_rings.cc
  store_rnic.cc store_tables.cc)
