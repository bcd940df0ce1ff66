#include "fs/internal/namespace_core.h"

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "fs/internal/ask_patiently.h"

namespace pmstore::fs::internal {
namespace {

constexpr uint64_t kInosAtOnce = 4096;
constexpr Ino kNumbersLock{0};  // no inode has this number

}  // namespace

NamespaceCore::NamespaceCore(Client& client, DataSpace& space, NamespaceOptions options)
    : directory_locks(client.executor()),
      data_locks(client.executor()),
      opens(client.executor(), options.max_opens),
      queue(client.executor()),
      reserve(client, tables),
      tasks(client.executor()),
      client_(client),
      space_(space),
      options_(std::move(options)) {
  PMSTORE_CHECK(options_.now_ns != nullptr, "a file system needs a clock for its times");
}

Task<NamespaceCore::End> NamespaceCore::commit(NamespaceTransaction& transaction, Doubt* doubt) {
  const Status done = co_await transaction.commit();
  if (done || done.code() != ErrorCode::kCommitUnknown) transaction.settle();
  if (done) co_return End{true, {}};
  if (done.code() == ErrorCode::kConflict) co_return End{};
  if (done.code() != ErrorCode::kCommitUnknown) co_return End{true, done.error()};
  const auto outcome = co_await client_.outcome(transaction.id());
  if (outcome) transaction.settle();
  if (outcome && *outcome == Outcome::kCommitted) co_return End{true, {}};
  if (outcome) co_return End{};
  if (doubt != nullptr) *doubt = transaction.id();
  co_return End{true, done.error()};
}

// Other errors, a refusal for lack of memory among them, may be those of this try.
bool NamespaceCore::store_has_failed() const {
  return options_.store_has_failed && options_.store_has_failed();
}

Task<NamespaceCore::Fate> NamespaceCore::fate_of(TxId id) {
  const auto outcome = co_await ask_patiently<Outcome>(
      executor(), kPauseNs, kPatienceNs, [this, id] { return client_.outcome(id); },
      [this] { return store_has_failed(); });
  if (outcome) co_return *outcome == Outcome::kCommitted ? Fate::kCommitted : Fate::kAborted;
  co_return outcome.code() == ErrorCode::kOutcomeExpired ? Fate::kNotKept : Fate::kNeverKnown;
}

Task<Result<bool>> NamespaceCore::is_freed(uint64_t id) {
  const std::string key = freed_key(id);
  const auto recorded = co_await ask_patiently<std::string>(
      executor(), kPauseNs, kPatienceNs, [&] { return client_.get(tables.freed, key); },
      [this] { return store_has_failed(); });
  if (recorded) co_return true;
  if (recorded.code() == ErrorCode::kNotFound) co_return false;
  co_return recorded.error();
}

Task<void> NamespaceCore::pause(unsigned attempt) {
  const uint64_t most_ns = uint64_t{1000} << std::min(attempt, 10u);
  co_await executor().sleep_for(executor().random().below(most_ns));
}

PosixError NamespaceCore::commit_failed(const Error& error) {
  // What a call erases belongs to something that it has read.
  if (error.code == ErrorCode::kNotFound) {
    return {EIO, "a record of what is there is missing; run `pmstore fs check`"};
  }
  return error;
}

PosixError NamespaceCore::lost_too_often() {
  return {EAGAIN, "the call has lost against others 1000 times; run it again"};
}

Task<PosixResult<Inode>> NamespaceCore::inode(Ino ino) {
  const auto body = [ino](NamespaceTransaction& transaction) { return transaction.inode(ino); };
  co_return co_await look<Inode>(body);
}

Task<PosixResult<std::optional<Entry>>> NamespaceCore::entry(Ino parent, std::string name) {
  const auto body = [parent, &name](NamespaceTransaction& transaction) {
    return transaction.entry(parent, name);
  };
  co_return co_await look<std::optional<Entry>>(body);
}

Task<PosixResult<Inode>> NamespaceCore::file(Ino ino) {
  if (deleting.contains(ino)) co_return PosixError(ESTALE);
  PMSTORE_CO_TRY_STATUS(check_settled(ino));
  PMSTORE_CO_TRY(Inode found, co_await inode(ino));
  if (found.is_directory()) co_return PosixError(EISDIR);
  if (!found.is_regular()) co_return PosixError(EINVAL, "it is no regular file");
  co_return std::move(found);
}

PosixStatus NamespaceCore::check_settled(Ino ino) const {
  if (damaged.contains(ino)) {
    return PosixError(EIO,
                      "a record of where the file has its data is wrong; stop the server and run "
                      "`pmstore fs check --repair`");
  }
  if (!unsettled.contains(ino)) return {};
  return PosixError(EIO,
                    "what became of the file's last change is not known yet: the store is away, or "
                    "has failed; try again when it is back, or start the server again");
}

Task<PosixStatus> NamespaceCore::check_reserve() {
  if (!reserve.is_spent()) co_return PosixStatus();
  const Status restored = co_await reserve.restore();
  if (restored) co_return PosixStatus();
  if (restored.code() != ErrorCode::kFull) co_return restored.error();
  co_return check_not_full();
}

Task<PosixStatus> NamespaceCore::try_reserve() {
  PosixStatus restored = co_await check_reserve();
  if (!restored && restored.number() == ENOSPC) co_return PosixStatus();
  co_return std::move(restored);
}

PosixStatus NamespaceCore::check_not_full() const {
  if (!reserve.is_spent()) return {};
  return PosixError(ENOSPC, "the pool is full; what is free is needed to remove files");
}

Task<PosixResult<Ino>> NamespaceCore::take_ino() {
  if (next_ino == ino_limit) {
    const InodeLocks::Guard guard = co_await data_locks.exclusive(kNumbersLock);
    if (next_ino == ino_limit) {
      const auto body = [](NamespaceTransaction& transaction) -> Task<PosixResult<uint64_t>> {
        PMSTORE_CO_TRY(SuperRecord super, co_await transaction.super());
        const uint64_t first = super.next_ino;
        super.next_ino += kInosAtOnce;
        transaction.put(super);
        co_return first;
      };
      PMSTORE_CO_TRY(next_ino, co_await transact<uint64_t>(body));
      ino_limit = next_ino + kInosAtOnce;
    }
  }
  co_return Ino{next_ino++};
}

}  // namespace pmstore::fs::internal
