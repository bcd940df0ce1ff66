set(PMSTORE_SERVER_SOURCES
  catalog.cc commit.cc index.cc lock_table.cc recovery.cc redo.cc rnic_words.cc server.cc
  server_calls.cc session.cc shared_pages.cc slab_arena.cc store.cc store_rnic.cc)
