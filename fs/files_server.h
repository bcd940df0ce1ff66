// FilesServer: the files of one pool, as a part of the server of that pool: its file area, its
// namespace in the store's tables, and the two services that clients of files use.
//
// The namespace is a client of the store, in this process. A file system needs ordered tables, so
// it needs lock discipline cpu. Threads: one executor's, all calls on its thread. Lifetimes:
// executor and pool outlive it, and it outlives the server.
//   Server::start(); FilesServer::start(); Server::listen() ... FilesServer::stop(); Server::stop()
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"
#include "fabric/device.h"
#include "fs/namespace.h"
#include "persist/pool.h"
#include "pmstore/server.h"

namespace pmstore::fs {

struct FilesServerOptions {
  uint32_t lease_ms = 5000;  // as ServerOptions::lease_ms
  // The time of day, ns since 1970. Empty: this machine's; in virtual time that of the executor.
  std::function<uint64_t()> now_ns;
  uint64_t max_inodes = 0;                          // as NamespaceOptions
  size_t max_opens = NamespaceOptions{}.max_opens;  // likewise
  uint64_t identity = 0;                            // likewise
  uint32_t root_uid = 0;                            // likewise
  uint32_t root_gid = 0;                            // likewise
  fabric::DeviceOpener* devices = nullptr;          // as ServerOptions
  // Clients of an earlier start may come back within a lease, to their locks and to unlinked files
  // that they have open: both are kept for them. False: there are none, and stop() ends only when
  // the space of what was removed is free.
  bool clients_come_back = true;
  // Serve no names: the file area has data of a file system elsewhere, or will. One that has some
  // already is served so anyway.
  bool data_server = false;
  // In a pool without a file area one is made, as large as a later section. Not of a data server.
  bool make_area = false;
  // The pool's file area grows when it is full, never above this. UINT64_MAX: the limit of the
  // server's start (ServerOptions, and what the pool keeps).
  uint64_t most_file_bytes = UINT64_MAX;
  // Files are not served any more: another server has started on a copy of the pool, and has taken
  // the data servers. Called once, and says why in one line.
  std::function<void(const Error&)> on_fenced;
  std::function<void(const std::string&)> on_damage = {};  // as NamespaceOptions
};

class FilesServer {
 public:
  // Before the server listens for clients: adds its services to the server's host, listens at a
  // local: address of its own, and opens the file system, or makes an empty one. In a pool that
  // has no file area and gets none it refuses clients of files, and does nothing else; a data
  // server serves data and its owner. AlreadyExists: the pool of a data server has a file system.
  // Errors of FileArea::open(), Server::listen(), Client::connect(), Namespace::open().
  static base::Task<Result<std::unique_ptr<FilesServer>>> start(base::Executor& executor,
                                                                persist::Pool& pool, Server& server,
                                                                FilesServerOptions options);
  ~FilesServer();

  // Before the server stops. What clients have open is theirs after the next start, if they come
  // within a lease.
  base::Task<void> stop();

  // Names. False: the pool has no file area, or data of a file system elsewhere, or the server's
  // lock discipline is rnic.
  bool serves() const;

 private:
  struct State;
  explicit FilesServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pmstore::fs
