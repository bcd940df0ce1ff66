// Operations of the model test: what two programs do with one file system.
//
// An operation names files by paths of a few names and by slots of open files, never by what an
// earlier operation has given; so any part of a sequence is a sequence, and a failing one can be
// shrunk. Threads: values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"

namespace pmstore::fs::model {

enum class Kind : uint8_t {
  kMakeDirectory,
  kMakeFile,  // opens it in a slot; `flag`: O_EXCL
  kMakeSymlink,
  kLink,
  kUnlink,
  kRemoveDirectory,
  kRename,
  kOpen,
  kClose,
  kWrite,
  kAppend,
  kRead,
  kTruncate,
  kAllocate,
  kStat,
  kChangeMode,
  kChangeOwner,
  kChangeTimes,
  kSetXattr,
  kGetXattr,
  kRemoveXattr,
  kReadLink,
  kList,      // a whole directory
  kListNext,  // one page, from where this slot's listing stands
  kForget,    // one of the two programs ends
  kCrash,     // of servers (`mode`: which); `flag`: of both programs, too
  kSync,      // fsync() of a slot
  kMove,      // a data server is drained, or is used again (`mode`)
  kCompare,   // everything
};
inline constexpr unsigned kKinds = static_cast<unsigned>(Kind::kCompare) + 1;

inline constexpr unsigned kSlots = 6;  // a slot belongs to program slot % 2
inline constexpr std::array<const char*, 5> kNames{"a", "b", "c", "d", "e"};

struct Operation {
  Kind kind{};
  uint8_t caller = 0;  // 0: root; 1, 2: a user
  std::vector<uint8_t> path;
  std::vector<uint8_t> to;
  uint8_t slot = 0;
  uint8_t mode = 0;  // of rename and allocate; access mode of open
  bool flag = false;
  uint16_t bits = 0;  // a file mode, or which times
  uint64_t offset = 0;
  uint64_t bytes = 0;
  char fill = 'x';
  // A server dies after so many turns of the call; 0: none does.
  uint32_t interrupt = 0;

  std::string to_string() const;
  // Nothing: to_string() gives no such text.
  static std::optional<Operation> parse(std::string_view text);
};

// The data that a write writes: told by its letter and place, so that mixed up pieces are noticed.
std::string data_of(const Operation& operation);

Operation random_operation(base::Random& random);

}  // namespace pmstore::fs::model
