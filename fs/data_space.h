// DataSpace: the file areas of all data servers of one file system, as its namespace server sees
// them: which units are free, and how to store, zero and invalidate them.
//
// What is allocated is not recorded here: the file maps and the quarantine records of the namespace
// say it. At start the namespace claims every range that they name; the rest is free. So there is
// nothing to agree on between allocator and namespace, and a crash can leak nothing.
//
// Invariants: every free unit is zero, durably. A unit is in one state: free, allocated, or in
// quarantine. A range whose transaction did not commit is given back untouched.
// Threads: one executor's. Lifetimes: outlives the namespace that uses it. Errors of all tasks: Io,
// Disconnected and Timeout of data servers; Full.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/task.h"
#include "fs/types.h"

namespace pmstore::fs {

class DataSpace {
 public:
  // A range in quarantine is free when all of it is zero, and writers wait for the first one.
  static constexpr uint64_t kMostUncleanBytes = uint64_t{64} << 20;

  virtual ~DataSpace() = default;

  // Data servers; an index is never used again.
  virtual uint16_t servers() const = 0;
  // Of those that new data may go to now: how many there are, and the server that a number falls
  // to.
  virtual uint16_t takers() const { return servers(); }
  virtual uint16_t taker(uint64_t number) const {
    return static_cast<uint16_t>(number % servers());
  }
  // There would be more of them, were none away.
  virtual bool takers_are_away() const { return false; }
  // False: it is away, and what is asked of it would wait for it.
  virtual bool is_there(uint16_t /*server*/) const { return true; }
  // It is there, and what it has is to be moved to others.
  virtual bool gives_away(uint16_t /*server*/) const { return true; }
  virtual uint64_t total_bytes() const = 0;
  virtual uint64_t free_bytes() const = 0;
  // What make_room() may add to both, as far as it is known.
  virtual uint64_t growable_bytes() const { return 0; }
  // More units than before are free on success. Full: the space cannot grow, and the error says
  // what has the room. Io. The space may also have grown when the caller is destroyed meanwhile.
  virtual base::Task<Status> make_room() {
    co_return make_error(ErrorCode::kFull, "file data has all the room that it can have");
  }

  // At start: `range` is not free. Damaged: it is outside, or a part of it was claimed before.
  virtual Status claim(const AreaRange& range) = 0;
  // Between `least` and `most` contiguous bytes of this server, multiples of kUnitBytes; all zero.
  // Full: there are not `least` together.
  virtual Result<AreaRange> allocate(uint16_t server, uint64_t least, uint64_t most) = 0;
  // A free range of this server, at most kMostUncleanBytes, with whatever is in it: at start,
  // behind the last claim(), or before any of it was given out. It is allocated from then on.
  // nullopt: nothing is free there, or the server is gone.
  virtual std::optional<AreaRange> take_unclean(uint16_t server) = 0;
  // Of what allocate() gave; it was not written to, and no client was given a map with it.
  virtual void give_back(const AreaRange& range) = 0;

  // Of the range's first unit.
  virtual uint64_t generation(const AreaRange& range) const = 0;
  // Changes the generation words of the first units of all these ranges. On return no READ of a
  // client gives an old value.
  virtual base::Task<Status> change_generations(std::vector<AreaRange> ranges) = 0;

  // Any alignment. Durable on return.
  virtual base::Task<Status> write(AreaRange range, std::span<const std::byte> bytes) = 0;
  virtual base::Task<Status> zero(AreaRange range) = 0;
  virtual base::Task<Status> read(AreaRange range, std::span<std::byte> into) = 0;

  // The range will be cleaned. No map that is given out from now on has it, and the clients that
  // have a map with it were told so: clean() need not wait for news that come later.
  virtual void retire(const AreaRange& /*range*/) {}
  // The range, allocated, will be free when it is zero and no client can write to it any more.
  // Returns then, and the range is still allocated: the caller erases its record of it and then
  // calls release().
  virtual base::Task<Status> clean(AreaRange range) = 0;
  // Free from now on. Requires that it is zero.
  virtual void release(const AreaRange& range) = 0;
};

}  // namespace pmstore::fs
