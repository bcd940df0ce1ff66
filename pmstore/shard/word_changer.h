// WordChanger: changes lock words by RNIC atomics, for LockDiscipline::kRnic.
//
// A CPU atomic is not atomic against an RNIC's, so under this discipline the server changes its own
// lock words only through an implementation of this interface (invariant 6).
#pragma once

#include "base/result.h"
#include "base/task.h"
#include "pmstore/layout/lock_word.h"
#include "pmstore/types.h"

namespace pmstore::internal {

class WordChanger {
 public:
  virtual ~WordChanger() = default;
  // True: the word was `expected` and is `desired` now. False: it was something else and is
  // unchanged. An error: not known whether the word has changed.
  virtual base::Task<Result<bool>> compare_swap(SlotOffset slot, LockWord expected,
                                                LockWord desired) = 0;
  // Lets everything else of the executor run.
  virtual base::Task<void> pause() = 0;
};

}  // namespace pmstore::internal
