# What clients need, and what clients and servers share.
set(PMSTORE_CLIENT_SOURCES types.cc record.cc)
