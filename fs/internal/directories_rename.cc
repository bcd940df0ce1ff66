// Directories: rename().
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "fs/internal/directories_parts.h"
#include "fs/internal/permissions.h"

namespace pmstore::fs::internal {
namespace {

// Whether `directory` is `ino` or lies below it. Every link on the way up is in the read set.
Task<PosixResult<bool>> is_below(NamespaceTransaction& transaction, Ino directory, Ino ino) {
  // More levels than a file system can have without a loop, which would be damage.
  constexpr unsigned kMostLevels = 1u << 16;
  for (unsigned level = 0; level < kMostLevels; ++level) {
    if (directory == ino) co_return true;
    if (directory == kRootIno) co_return false;
    PMSTORE_CO_TRY(directory, co_await transaction.parent(directory));
  }
  co_return PosixError(EIO, "directories lie in each other; run `pmstore fs check`");
}

void count_entry(Inode& directory, const Inode& entry, int difference) {
  directory.attributes.size += static_cast<uint64_t>(int64_t{difference});
  if (entry.is_directory()) directory.attributes.links += static_cast<uint32_t>(difference);
}

}  // namespace

Task<PosixResult<Directories::Move>> Directories::look_at_move(NamespaceTransaction& transaction,
                                                               const RenameCall& call) {
  Move move;
  PMSTORE_CO_TRY(move.from, co_await transaction.directory(call.from));
  PMSTORE_CO_TRY_STATUS(check_access(call.caller, move.from.attributes, X_OK));
  if (call.from != call.to) {
    PMSTORE_CO_TRY(move.to, co_await transaction.directory(call.to));
    PMSTORE_CO_TRY_STATUS(check_access(call.caller, move.to->attributes, X_OK));
  }
  PMSTORE_CO_TRY(const auto source, co_await transaction.entry(call.from, call.name));
  if (!source) co_return PosixError(ENOENT);
  move.source = *source;
  PMSTORE_CO_TRY(move.target, co_await transaction.entry(call.to, call.new_name));
  if (!move.target && call.mode == RenameMode::kExchange) co_return PosixError(ENOENT);
  if (move.target && call.mode == RenameMode::kNoReplace) co_return PosixError(EEXIST);
  if (move.is_of_one_inode()) co_return std::move(move);
  PMSTORE_CO_TRY_STATUS(check_access(call.caller, move.from.attributes, W_OK));
  PMSTORE_CO_TRY_STATUS(check_access(call.caller, move.target_directory().attributes, W_OK));
  PMSTORE_CO_TRY(move.source_inode, co_await transaction.inode(move.source.ino));
  PMSTORE_CO_TRY_STATUS(
      check_sticky(call.caller, move.from.attributes, move.source_inode.attributes));
  if (move.target) {
    PMSTORE_CO_TRY(move.target_inode, co_await transaction.inode(move.target->ino));
    PMSTORE_CO_TRY_STATUS(check_sticky(call.caller, move.target_directory().attributes,
                                       move.target_inode->attributes));
  }
  co_return std::move(move);
}

Task<PosixStatus> Directories::check_no_loop(NamespaceTransaction& transaction,
                                             const RenameCall& call, const Move& move) {
  const bool exchanges = call.mode == RenameMode::kExchange;
  if (move.source_inode.is_directory()) {
    PMSTORE_CO_TRY(const bool loop, co_await is_below(transaction, call.to, move.source.ino));
    if (loop) co_return PosixError(EINVAL, "a directory cannot move into itself");
  }
  if (exchanges && move.target_inode->is_directory()) {
    PMSTORE_CO_TRY(const bool loop, co_await is_below(transaction, call.from, move.target->ino));
    if (loop) co_return PosixError(EINVAL, "a directory cannot move into itself");
  }
  if (call.from == call.to) co_return PosixStatus();
  // A directory that moves gets another "..", so it is written to.
  if (move.source_inode.is_directory()) {
    PMSTORE_CO_TRY_STATUS(check_access(call.caller, move.source_inode.attributes, W_OK));
  }
  if (exchanges && move.target_inode->is_directory()) {
    PMSTORE_CO_TRY_STATUS(check_access(call.caller, move.target_inode->attributes, W_OK));
  }
  const bool target_is_directory = move.target_inode && move.target_inode->is_directory();
  const bool source_is_directory = move.source_inode.is_directory();
  if (source_is_directory && !target_is_directory &&
      move.target_directory().attributes.links >= kMaxLinks) {
    co_return PosixError(EMLINK);
  }
  if (exchanges && target_is_directory && !source_is_directory &&
      move.from.attributes.links >= kMaxLinks) {
    co_return PosixError(EMLINK);
  }
  co_return PosixStatus();
}

Directories::Removal Directories::replace(NamespaceTransaction& transaction, const RenameCall& call,
                                          Move& move) const {
  const uint64_t now_ns = core_.now_ns();
  Inode& to = move.target_directory();
  transaction.erase_entry(call.from, call.name, move.source);
  count_entry(move.from, move.source_inode, -1);
  Removal removal;
  uint64_t number;
  if (move.target) {
    // The name stays, so its place in the listing does.
    number = move.target->number;
    count_entry(to, *move.target_inode, -1);
    changed(*move.target_inode, now_ns);
    removal = drop_link(transaction, std::move(*move.target_inode));
  } else {
    number = to.next_number++;
  }
  count_entry(to, move.source_inode, +1);
  transaction.put_entry(call.to, call.new_name, {move.source.ino, move.source.type, number});
  if (move.to && move.source_inode.is_directory()) {
    transaction.put_parent(move.source.ino, call.to);
  }
  changed(move.source_inode, now_ns);
  transaction.put(move.source_inode);
  entries_changed(move.from, now_ns);
  transaction.put(move.from);
  if (move.to) {
    entries_changed(*move.to, now_ns);
    transaction.put(*move.to);
  }
  return removal;
}

void Directories::exchange(NamespaceTransaction& transaction, const RenameCall& call,
                           Move& move) const {
  const uint64_t now_ns = core_.now_ns();
  Inode& to = move.target_directory();
  count_entry(move.from, move.source_inode, -1);
  count_entry(to, *move.target_inode, -1);
  count_entry(move.from, *move.target_inode, +1);
  count_entry(to, move.source_inode, +1);
  transaction.put_entry(call.from, call.name,
                        {move.target->ino, move.target->type, move.source.number});
  transaction.put_entry(call.to, call.new_name,
                        {move.source.ino, move.source.type, move.target->number});
  if (move.to) {
    if (move.source_inode.is_directory()) transaction.put_parent(move.source.ino, call.to);
    if (move.target_inode->is_directory()) transaction.put_parent(move.target->ino, call.from);
  }
  changed(move.source_inode, now_ns);
  transaction.put(move.source_inode);
  changed(*move.target_inode, now_ns);
  transaction.put(*move.target_inode);
  entries_changed(move.from, now_ns);
  transaction.put(move.from);
  if (move.to) {
    entries_changed(*move.to, now_ns);
    transaction.put(*move.to);
  }
}

Task<PosixResult<std::optional<Directories::Removal>>> Directories::rename_in(
    NamespaceTransaction& transaction, const RenameCall& call) {
  PMSTORE_CO_TRY(Move move, co_await look_at_move(transaction, call));
  // Nothing to do, as POSIX wants it; so nobody needs to be allowed to do it.
  if (move.is_of_one_inode()) co_return std::optional<Removal>();
  PMSTORE_CO_TRY_STATUS(co_await check_no_loop(transaction, call, move));
  if (call.mode == RenameMode::kExchange) {
    exchange(transaction, call, move);
    co_return std::optional<Removal>();
  }
  if (move.target) {
    const bool is_directory = move.source_inode.is_directory();
    if (is_directory && !move.target_inode->is_directory()) co_return PosixError(ENOTDIR);
    if (!is_directory && move.target_inode->is_directory()) co_return PosixError(EISDIR);
    if (is_directory && move.target_inode->attributes.size > 0) co_return PosixError(ENOTEMPTY);
  }
  co_return std::optional<Removal>(replace(transaction, call, move));
}

Task<PosixStatus> Directories::rename(RenameCall call) {
  if (PosixStatus name = check_name(call.name); !name) co_return std::move(name);
  if (PosixStatus name = check_name(call.new_name); !name) co_return std::move(name);
  if (is_dots(call.name) || is_dots(call.new_name)) co_return PosixError(EBUSY);
  PMSTORE_CO_TRY(const Locks locks, co_await lock_for_removal(call.to, call.new_name, call.from));
  const auto body = [&](NamespaceTransaction& transaction) { return rename_in(transaction, call); };
  PMSTORE_CO_TRY(const auto removal, co_await core_.take_away<std::optional<Removal>>(body));
  if (removal) removed(*removal);
  co_return PosixStatus();
}

}  // namespace pmstore::fs::internal
