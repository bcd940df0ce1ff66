// Runs a sequence of operations on a real file system and on the reference, and compares what each
// gives; a sequence that fails is made as short as it can be. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/scenario/fs/model/model_operation.h"
#include "tests/scenario/fs/model/setting.h"

namespace pmstore::fs::model {

struct Difference {
  size_t at = 0;  // the operation
  std::string what;
};

struct RunCounts {
  uint64_t operations = 0;
  uint64_t succeeded = 0;
  uint64_t crashes = 0;
  uint64_t interrupted = 0;  // of the crashes
  uint64_t happened = 0;     // of the interrupted
  uint64_t survived = 0;     // calls within which a server died, and the programs lived on
  uint64_t in_doubt = 0;     // of the survived: EIO, since the answer was lost
  uint64_t without_space = 0;
};

std::vector<Operation> random_sequence(uint64_t seed, size_t length);

// The first difference, if any. A namespace alone gets a pool at `pool_path`.
std::optional<Difference> run_sequence(const std::vector<Operation>& sequence, Setting setting,
                                       const std::string& pool_path, RunCounts& counts);

// A part of `sequence` that fails, too, and from which no single operation can be left out.
std::vector<Operation> shrink(std::vector<Operation> sequence, Setting setting,
                              const std::string& pool_path);

}  // namespace pmstore::fs::model
