// The permission rules of POSIX, and what a mode loses when a file changes hands. Threads: pure
// functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "fs/posix_error.h"
#include "fs/types.h"

namespace pmstore::fs::internal {

inline constexpr uint16_t kSetUid = 04000;
inline constexpr uint16_t kSetGid = 02000;
inline constexpr uint16_t kSticky = 01000;

bool is_in_group(const Caller& caller, uint32_t gid);
// EACCES: the caller may not do what `mask` (R_OK, W_OK, X_OK) says.
PosixStatus check_access(const Caller& caller, const Attributes& attributes, int mask);
// EPERM: the directory is sticky, and neither it nor the inode belongs to the caller.
PosixStatus check_sticky(const Caller& caller, const Attributes& directory,
                         const Attributes& inode);
// ENOENT: empty. ENAMETOOLONG. EINVAL: it has a slash or a zero byte.
PosixStatus check_name(std::string_view name);
// The names that every directory has, and that are no records.
constexpr bool is_dots(std::string_view name) { return name == "." || name == ".."; }

// Owner, group and mode of a new inode in `directory`.
void inherit(const Caller& caller, const Attributes& directory, Attributes& inode);
// Writing and truncating take the set-id bits away; the set-gid bit only with group execution,
// since without it that bit means something else.
void drop_set_id(Attributes& inode);
// The mode that is asked for has set-id bits, or what looks like them.
bool sets_set_id(const AttributeChange& change);
// Mode, owner, group and times of `change`; ctime becomes `now_ns` when anything was asked for.
// EPERM, EACCES, EOPNOTSUPP, as chmod(2), chown(2) and utimensat(2) have them.
PosixStatus apply_change(const Caller& caller, const AttributeChange& change, uint64_t now_ns,
                         Attributes& inode);

}  // namespace pmstore::fs::internal
