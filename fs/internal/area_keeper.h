// AreaKeeper: makes the file area of a pool larger when it is full, and gives back what is empty.
//
// A section is made in this order: its space is zeroed, a part in each turn of the executor; its
// extent appears with its header, durably; every device can reach it; its units are handed out. It
// goes in the reverse order: no unit is handed out; no device can reach it; the extent is free. A
// section goes when it was empty for a while, which also
// means that no client uses a map of it (fs/quarantine_gate.h). Some of the pool is left to records
// and rings. Before begin() it does nothing: what looks empty may not be claimed yet. Invariants:
// one section is made at a time; a section that devices can reach exists; the first section stays.
// Threads: the executor's. Lifetimes: all that the constructor is given outlives it, and it
// outlives the waits for make_room().
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/result.h"
#include "base/task.h"
#include "fs/file_area.h"
#include "fs/file_data_service.h"
#include "fs/internal/own_tasks.h"
#include "fs/local_data_space.h"
#include "persist/pool.h"
#include "pmstore/server.h"

namespace pmstore::fs::internal {

struct AreaKeeperOptions {
  uint64_t most_bytes = UINT64_MAX;  // the area is never made larger
  // A section takes a 16th of the pool within these bounds, and as much is left to records. Tests
  // make smaller ones.
  uint64_t least_step_bytes = uint64_t{4} << 20;
  uint64_t most_step_bytes = uint64_t{1} << 30;
  // A section that would be smaller is not made.
  uint64_t least_section_bytes = FormatOptions::kLeastFileBytes;
};

// What file data can have of a pool's free space, in one piece, and what it has reserved of it.
struct AreaRoom {
  uint64_t bytes = 0;
  uint64_t reserved = 0;
};

class AreaKeeper {
 public:
  AreaKeeper(base::Executor& executor, persist::Pool& pool, FileArea& area, LocalDataSpace& space,
             FileDataService& data, const AreaKeeperOptions& options);
  AreaKeeper(const AreaKeeper&) = delete;
  AreaKeeper& operator=(const AreaKeeper&) = delete;
  ~AreaKeeper();

  // All that is in use is claimed. Sections that the last start has not used go, after a while.
  void begin();
  // As DataSpace.
  base::Task<Status> make_room();
  uint64_t growable_bytes() const;
  uint64_t most_bytes() const { return options_.most_bytes; }
  // A section is made, if there can be one, and nothing waits for it.
  void grow_beside();
  // At a stop: sections that are empty go now. What cannot be freed is found by the next start.
  void give_back_now();

  // Parts that were zeroed ahead of sections, each in a turn of its own.
  uint64_t zeroed_parts() const { return zeroed_parts_; }

  // How large a section of this pool can be now; 0: there is no room for one.
  static uint64_t step_bytes(persist::Pool& pool, const AreaKeeperOptions& options);
  // At most so many later sections; the pool has 64 extents for everything.
  static constexpr size_t kMostSections = 24;
  // An empty section is kept for so long, also behind the last call that has asked for room.
  static constexpr uint64_t kKeptNs = 1'000'000'000;

 private:
  // How many sections the keeper may make yet.
  size_t sections_left() const;
  static AreaRoom room_in(persist::Pool& pool);
  // How large the next section can be, beside so many bytes of units; 0: there can be none.
  uint64_t section_bytes(uint64_t has, AreaRoom room) const;
  uint64_t next_bytes() const;
  std::string who_has_room() const;
  void start_growing();
  base::Task<void> grow();
  base::Task<Status> zero_ahead();
  Error is_full() const;
  base::Task<Status> add_section();
  std::vector<uint64_t> empty_sections() const;
  // Sections that are empty go, after a while. Does nothing while that is under way.
  void look_for_empty();
  base::Task<void> give_back_empty();
  // Of an empty section.
  uint64_t kept_until_ns(uint64_t first_unit) const;
  // No suspension: nothing is allocated in it meanwhile.
  Status give_back(uint64_t first_unit);

  base::Executor& executor_;
  persist::Pool& pool_;
  FileArea& area_;
  LocalDataSpace& space_;
  FileDataService& data_;
  const AreaKeeperOptions options_;
  bool has_begun_ = false;
  bool is_growing_ = false;
  uint64_t coming_bytes_ = 0;  // of a section whose units are not handed out yet
  uint64_t growths_ = 0;       // that have ended
  uint64_t zeroed_parts_ = 0;
  Status last_;  // what became of the last one
  bool gives_back_ = false;
  uint64_t asked_ns_ = 0;                     // when a call has last waited for a section
  std::map<uint64_t, uint64_t> empty_since_;  // of later sections: when they last became empty
  base::WaitList grown_;
  OwnTasks tasks_;  // last: destroyed first
};

}  // namespace pmstore::fs::internal
