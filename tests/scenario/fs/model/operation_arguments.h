// What an Operation means as arguments of a real file system, and what that gives as an Outcome.
// Threads: values.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fs/namespace.h"
#include "fs/posix_error.h"
#include "fs/types.h"
#include "tests/scenario/fs/model/model_operation.h"
#include "tests/scenario/fs/model/reference_fs.h"

namespace pmstore::fs::model {

Caller caller_of(const Operation& operation);
// Access mode and O_TRUNC.
int open_flags(const Operation& operation);
// Of chmod, chown and utimens.
AttributeChange attribute_change(const Operation& operation);
std::string xattr_name(const Operation& operation);
std::string xattr_value(const Operation& operation);
std::string symlink_target(const Operation& operation);
inline RenameMode rename_mode(const Operation& operation) {
  return static_cast<RenameMode>(operation.mode % 3);
}

// `with_file_times`: also those of regular files.
std::string attributes_text(const Attributes& attributes, bool with_file_times);
inline Outcome outcome_of(const PosixStatus& result) { return {result ? 0 : result.number(), {}}; }
// As the listing of a directory is compared: name and type.
std::string listed_text(const DirectoryEntry& entry);

inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace pmstore::fs::model
