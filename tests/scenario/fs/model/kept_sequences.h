// Sequences of the model test that have failed once, as text: a line of the setting, and one of
// each operation. Threads: values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/scenario/fs/model/model_operation.h"
#include "tests/scenario/fs/model/setting.h"

namespace pmstore::fs::model {

struct KeptSequence {
  std::string name;
  Setting setting;
  std::vector<Operation> operations;
};

// Writes it to `folder`, which is made. Gives the path; empty: it cannot be written.
std::string keep(const std::string& folder, const KeptSequence& sequence);
// All in `folder`, by name. Nothing: a file there is none, or cannot be read; that is printed.
std::optional<std::vector<KeptSequence>> kept_in(const std::string& folder);

}  // namespace pmstore::fs::model
