// Reclaimer: gives back, in the background, what nobody uses any more: unlinked inodes that nobody
// has open, with their extents; ranges in quarantine; what a crash has left of truncations.
//
// Each range is freed in this order: generation words change, DataSpace::clean() (no client can
// write there; it is zero), its record is erased, release(). The extents of an unlinked inode are
// in quarantine under their own map records, so to delete needs no room. Work that fails is tried
// again after a pause that grows to a minute, without end: the tables keep it. Other work goes on.
// Threads: one executor's. Lifetimes: core and maps outlive it; its tasks are the core's.
#pragma once

#include <memory>
#include <vector>

#include "base/task.h"
#include "fs/internal/file_maps.h"
#include "fs/internal/namespace_core.h"

namespace pmstore::fs::internal {

class Reclaimer {
 public:
  Reclaimer(NamespaceCore& core, FileMaps& maps) : core_(core), maps_(maps) {}
  // Starts to work, also on what the tables have from before.
  void start();

 private:
  using Work = ReclaimQueue::Work;
  using Kind = ReclaimQueue::Kind;
  static constexpr unsigned kWorkers = 8;
  static constexpr uint64_t kPauseNs = NamespaceCore::kPauseNs;

  base::Task<void> work_for_ever();
  base::Task<void> try_later(Work work);
  base::Task<void> end_grace();
  base::Task<PosixStatus> work_on(Work& work);
  base::Task<PosixStatus> scan();
  template <typename Add>
  base::Task<PosixStatus> scan_table(TableId table, Add add);
  base::Task<PosixStatus> clean(AreaRange range);
  base::Task<PosixStatus> release_freed(Work& work);
  base::Task<PosixResult<bool>> is_recorded(uint64_t id, AreaRange range);
  base::Task<PosixStatus> reclaim_inode(Work& work);
  base::Task<PosixStatus> erase_orphan(Ino ino);
  base::Task<PosixStatus> delete_inode(Work& work);
  base::Task<PosixStatus> delete_extents(Work& work);
  base::Task<PosixStatus> delete_xattrs(Ino ino);
  base::Task<PosixStatus> delete_record(Ino ino);

  NamespaceCore& core_;
  FileMaps& maps_;
  size_t delayed_ = 0;
};

}  // namespace pmstore::fs::internal
