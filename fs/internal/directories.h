// Directories: the calls that change or read directory entries.
//
// Each call is one transaction. While it runs it holds the locks of the directories whose entries
// it changes, and, where a file may lose its last name, the lock of that file's data: so nobody
// opens a file between the look whether it is open and the commit. Calls that change something
// take their arguments by value, because they run to their end without their caller.
// Threads, errors: as Namespace. Lifetimes: the core outlives it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/task.h"
#include "fs/internal/file_calls.h"
#include "fs/internal/namespace_core.h"

namespace pmstore::fs::internal {

struct NameCall {
  Caller caller;
  Ino parent{};
  std::string name;
  uint32_t mark = 0;      // NewFile::mark
  bool repeated = false;  // NewFile::repeated
  // The name is there by an earlier try of this call.
  bool has_made(const Entry& there) const { return repeated && mark != 0 && there.mark == mark; }
};
struct WalkCall {
  Caller caller;
  Ino start{};
  std::string path;
};
struct MakeCall : NameCall {
  NewFile file;        // its target is below
  std::string target;  // of a symlink
  std::optional<OpenOwner> open_for;
};
struct RenameCall {
  Caller caller;
  Ino from{};
  std::string name;
  Ino to{};
  std::string new_name;
  RenameMode mode = RenameMode::kReplace;
};

class Directories {
 public:
  Directories(NamespaceCore& core, FileCalls& files) : core_(core), files_(files) {}

  base::Task<PosixResult<Attributes>> lookup(NameCall call);
  base::Task<PosixResult<Namespace::Walked>> walk(WalkCall call, size_t most);
  std::optional<Ino> known_directory(const Caller& caller, Ino start, std::string_view path) const {
    return core_.searched.find(caller, start, path);
  }
  base::Task<PosixResult<Ino>> parent_of(Ino directory);
  base::Task<PosixResult<std::vector<Namespace::Listed>>> list(Caller caller, Ino directory,
                                                               uint64_t cookie, uint32_t most,
                                                               bool with_attributes);

  base::Task<PosixResult<Attributes>> make(MakeCall call);
  base::Task<PosixResult<Attributes>> link(NameCall call, Ino ino);
  base::Task<PosixStatus> unlink(NameCall call);
  base::Task<PosixStatus> remove_directory(NameCall call);
  base::Task<PosixStatus> rename(RenameCall call);

 private:
  struct Made;
  struct Removal;
  struct Move;

  base::Task<PosixResult<Inode>> find_in(NamespaceTransaction& transaction, const Caller& caller,
                                         const Inode& directory, std::string_view name) const;
  base::Task<PosixResult<Namespace::Walked>> walk_in(NamespaceTransaction& transaction,
                                                     const WalkCall& call, size_t most) const;
  base::Task<PosixResult<Made>> make_in(NamespaceTransaction& transaction, const MakeCall& call,
                                        Ino ino);
  // `is_gone`: the file that it found was removed before it could be opened.
  base::Task<PosixResult<Attributes>> make_once(const MakeCall& call, bool& is_gone);
  PosixStatus check_new(const MakeCall& call, const Inode& directory) const;
  Inode new_inode(const MakeCall& call, const Inode& directory, Ino ino) const;
  base::Task<PosixResult<Attributes>> link_in(NamespaceTransaction& transaction,
                                              const NameCall& call, Ino ino);
  // The locks of a call that may take the last name of an inode.
  struct Locks {
    InodeLocks::Guard data;
    InodeLocks::Guard entries;
    InodeLocks::Guard other_entries;
  };
  // Of directory `parent`, in which `name` may go, and of `other`, which may be the same.
  base::Task<PosixResult<Locks>> lock_for_removal(Ino parent, std::string name, Ino other);
  base::Task<PosixStatus> remove(NameCall call, bool directory);
  base::Task<PosixResult<Removal>> remove_in(NamespaceTransaction& transaction,
                                             const NameCall& call, bool directory);
  base::Task<PosixResult<std::optional<Removal>>> rename_in(NamespaceTransaction& transaction,
                                                            const RenameCall& call);
  base::Task<PosixResult<Move>> look_at_move(NamespaceTransaction& transaction,
                                             const RenameCall& call);
  base::Task<PosixStatus> check_no_loop(NamespaceTransaction& transaction, const RenameCall& call,
                                        const Move& move);
  Removal replace(NamespaceTransaction& transaction, const RenameCall& call, Move& move) const;
  void exchange(NamespaceTransaction& transaction, const RenameCall& call, Move& move) const;
  // The inode has lost one name: it is written, or erased, or becomes an orphan.
  Removal drop_link(NamespaceTransaction& transaction, Inode inode) const;
  // Behind the commit.
  void removed(const Removal& removal);

  NamespaceCore& core_;
  FileCalls& files_;
};

}  // namespace pmstore::fs::internal
