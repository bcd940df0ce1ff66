// What a Namespace consists of. Threads: as Namespace.
#pragma once

#include "fs/internal/directories.h"
#include "fs/internal/file_calls.h"
#include "fs/internal/file_maps.h"
#include "fs/internal/file_mover.h"
#include "fs/internal/namespace_core.h"
#include "fs/internal/reclaimer.h"
#include "fs/internal/xattrs.h"
#include "fs/namespace.h"

namespace pmstore::fs {

struct Namespace::State {
  State(Client& client, DataSpace& space, NamespaceOptions options)
      : core(client, space, std::move(options)),
        maps(core),
        files(core, maps),
        directories(core, files),
        xattrs(core),
        mover(core, maps),
        reclaimer(core, maps) {}

  // Runs `work` to its end even if the caller is destroyed.
  template <typename T>
  base::Task<T> own(base::Task<T> work) {
    return core.tasks.run(std::move(work));
  }

  internal::NamespaceCore core;
  internal::FileMaps maps;
  internal::FileCalls files;
  internal::Directories directories;
  internal::Xattrs xattrs;
  internal::FileMover mover;
  internal::Reclaimer reclaimer;
};

}  // namespace pmstore::fs
