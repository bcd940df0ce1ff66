#include "tests/scenario/fs/model/operation_arguments.h"

#include <fcntl.h>
#include <fmt/format.h>

namespace pmstore::fs::model {
namespace {

constexpr std::string_view kTypeLetters = "?fdlpscb";

char letter_of(FileType type) { return kTypeLetters[static_cast<unsigned>(type)]; }

}  // namespace

Caller caller_of(const Operation& operation) {
  const User user = user_of(operation.caller);
  return {user.uid, user.gid, user.groups};
}

int open_flags(const Operation& operation) {
  constexpr int kAccess[] = {O_RDONLY, O_WRONLY, O_RDWR};
  return kAccess[operation.mode % 3] | (operation.mode >= 9 ? O_TRUNC : 0);
}

AttributeChange attribute_change(const Operation& operation) {
  using Change = AttributeChange;
  Change change;
  switch (operation.kind) {
    case Kind::kChangeMode:
      change.set = Change::kMode;
      change.mode = operation.bits;
      break;
    case Kind::kChangeOwner:
      change.set = operation.flag ? Change::kUid : Change::kGid;
      change.uid = 1000 + static_cast<uint32_t>(operation.offset % 3);
      change.gid = 100 * (1 + static_cast<uint32_t>(operation.offset % 3));
      break;
    default:
      change.set =
          operation.flag ? Change::kAtimeNow | Change::kMtimeNow : Change::kAtime | Change::kMtime;
      change.atime_ns = operation.offset;
      change.mtime_ns = operation.bytes;
      break;
  }
  return change;
}

std::string xattr_name(const Operation& operation) {
  return fmt::format("user.{}", kNames[operation.to[0]]);
}
std::string xattr_value(const Operation& operation) {
  return std::string(operation.bytes % 5000, operation.fill);
}
std::string symlink_target(const Operation& operation) {
  return std::string(1 + operation.bytes % 4000, operation.fill);
}

std::string attributes_text(const Attributes& a, bool with_file_times) {
  if (!with_file_times && a.type == FileType::kRegular) {
    return attributes_text('f', a.mode, a.uid, a.gid, a.links, a.size, 0, 0, 0);
  }
  return attributes_text(letter_of(a.type), a.mode, a.uid, a.gid, a.links, a.size, a.atime_ns,
                         a.mtime_ns, a.ctime_ns);
}

std::string listed_text(const DirectoryEntry& entry) {
  return fmt::format("{} {}; ", entry.name, letter_of(entry.type));
}

}  // namespace pmstore::fs::model
