// QuarantineGate: tells when no client can write to a freed range any more.
//
// A client that holds an old map may WRITE to a range until it has said that it dropped the map and
// that its accesses by it have ended, or until its connection to the data server is destroyed; a
// lease that has run out does not end that by itself (FileDataService::end_sessions() does).
// Threads: the executor's of the data space.
#pragma once

#include "base/result.h"
#include "base/task.h"
#include "fs/types.h"

namespace pmstore::fs {

class QuarantineGate {
 public:
  virtual ~QuarantineGate() = default;
  // As DataSpace::retire(): closed() of the range waits for maps from before now only.
  virtual void retired(const AreaRange& /*range*/) {}
  // Called when no map that is given out from now on has the range. Returns when no client can
  // write to the range by a map from before. Disconnected: this process stops, and the range stays
  // in quarantine.
  virtual base::Task<Status> closed(AreaRange range) = 0;
};

}  // namespace pmstore::fs
