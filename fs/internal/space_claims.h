// SpaceClaims: at the start of a namespace, which units of the data servers are in use, as the maps
// of files and the quarantine say it, also where some of these records are damaged.
//
// What a damaged record may name is kept out of use. A record that does not say where its range
// lies may name any unit: then no space is given out at all (NamespaceCore::space_is_unknown). Of a
// range that leaves its area, or has units of another range, each unit that can be is claimed by
// itself. The files of such records, and those that have units of theirs, go to
// NamespaceCore::damaged; such a range of the quarantine is never reclaimed. Invariant: no unit
// that a record names is free behind run(). Threads: as Namespace. Lifetimes: the core outlives it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/task.h"
#include "fs/internal/namespace_core.h"

namespace pmstore::fs::internal {

class SpaceClaims {
 public:
  explicit SpaceClaims(NamespaceCore& core) : core_(core) {}
  // Tells NamespaceOptions::on_damage, one line for each damaged record, at most kMostLines of
  // them, and then how many there are. Errors of the store.
  base::Task<Status> run();
  // Behind run(), when so many records of the store were given up, and others before: what they
  // named counts as free, and is not zero. All that is free goes into quarantine, durably;
  // on_damage hears a line. Where the pool has no room for that, no space is given out.
  // `was_left`: the super record says kSpaceIsUnclean. Errors of the store.
  base::Task<Status> quarantine_free(uint32_t given_up, bool was_left);
  // All that is free at this server is taken before the first suspension, and goes into quarantine,
  // durably. On an error none of it is given out before the next start. Errors of the store.
  base::Task<Status> quarantine_server(uint16_t server);
  static constexpr uint64_t kMostLines = 16;

 private:
  void claim_piece(const RecordRef& record);
  void claim_freed(const RecordRef& record);
  void note_piece(const RecordRef& record);
  void claim_units(const AreaRange& range);
  void note(std::string line);
  void space_is_unknown(std::string line);
  void tell();
  base::Task<Status> quarantine_all_free();
  base::Task<Status> quarantine(std::span<const AreaRange> ranges);

  NamespaceCore& core_;
  uint64_t found_ = 0;
  std::vector<AreaRange> refused_;  // of files; could not be claimed as a whole
};

}  // namespace pmstore::fs::internal
