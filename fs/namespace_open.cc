// Namespace::open(): an empty file system is made, or the one that is there is claimed.
#include <algorithm>
#include <string>
#include <utility>

#include "fs/internal/namespace_state.h"
#include "fs/internal/space_claims.h"
#include "fs/namespace.h"

namespace pmstore::fs {
namespace {

using internal::NamespaceCore;
using internal::NamespaceTables;

Error error_of(PosixError error) {
  return make_error(error.number == ENOSPC ? ErrorCode::kFull : ErrorCode::kDamaged,
                    error.to_string());
}

uint32_t given_up_of(const NamespaceCore& core) {
  return static_cast<uint32_t>(
      std::min<uint64_t>(core.options().records_given_up, internal::kSpaceIsUnclean - 1));
}

// Where records were given up, the units of the area may have been another file system's.
std::string first_super(const NamespaceCore& core, uint64_t identity) {
  return internal::encode(internal::SuperRecord{.magic = internal::kSuperMagic,
                                                .version = internal::kFsVersion,
                                                .features = 0,
                                                .identity = identity,
                                                .next_ino = raw(kRootIno) + 1,
                                                .created_ns = core.now_ns(),
                                                .servers = 1,
                                                .columns = 1,
                                                .given_up = 0});
}

std::string first_root(const NamespaceCore& core) {
  const uint64_t now_ns = core.now_ns();
  internal::Inode root;
  root.attributes = {.ino = kRootIno,
                     .type = FileType::kDirectory,
                     .mode = 0755,
                     .uid = core.options().root_uid,
                     .gid = core.options().root_gid,
                     .links = 2,
                     .atime_ns = now_ns,
                     .mtime_ns = now_ns,
                     .ctime_ns = now_ns,
                     .created_ns = now_ns,
                     .version = 1};
  return internal::encode(root);
}

// In one transaction: either the file system is there or it is not.
Task<Status> format(NamespaceCore& core) {
  uint64_t identity = core.options().identity;
  while (identity == 0) identity = core.executor().random().next();
  Transaction transaction = core.client().begin();
  transaction.insert(core.tables.super, internal::kSuperKey, first_super(core, identity));
  transaction.insert(core.tables.inodes, internal::ino_key(kRootIno), first_root(core));
  co_return co_await transaction.commit();
}

Task<Status> start(NamespaceCore& core) {
  PMSTORE_CO_TRY(core.tables, co_await internal::open_tables(core.client(), true));
  auto super = co_await core.client().get(core.tables.super, internal::kSuperKey);
  if (!super && super.code() == ErrorCode::kNotFound) {
    PMSTORE_CO_TRY_STATUS(co_await format(core));
    core.is_new = true;
    super = co_await core.client().get(core.tables.super, internal::kSuperKey);
  }
  if (!super) co_return super.error();
  PMSTORE_CO_TRY(const internal::SuperRecord record, internal::decode_super(*super));
  core.identity = record.identity;
  const auto root = co_await core.inode(kRootIno);
  if (!root) co_return error_of(root.error());
  // Its index knows: counting would read the header of each record of the pool.
  PMSTORE_CO_TRY(core.inodes, co_await core.client().count_records(core.tables.inodes));
  // In a full pool it stays spent.
  const Status reserved = co_await core.reserve.restore();
  if (!reserved && reserved.code() != ErrorCode::kFull) co_return reserved.error();
  internal::SpaceClaims claims(core);
  PMSTORE_CO_TRY_STATUS(co_await claims.run());
  if (record.given_up == given_up_of(core) || core.space_is_unknown) co_return Status{};
  const bool was_left = record.given_up == internal::kSpaceIsUnclean;
  co_return co_await claims.quarantine_free(given_up_of(core), was_left);
}

}  // namespace

Namespace::Namespace(std::unique_ptr<State> state) : state_(std::move(state)) {
  state_->core.on_map_change = &on_map_change;
}
Namespace::~Namespace() = default;

Task<void> Namespace::finish_reclaiming() { return state_->core.queue.settled(); }

Task<Result<std::unique_ptr<Namespace>>> Namespace::open(Client& client, DataSpace& space,
                                                         NamespaceOptions options) {
  auto state = std::make_unique<State>(client, space, std::move(options));
  PMSTORE_CO_TRY_STATUS(co_await start(state->core));
  std::unique_ptr<Namespace> opened(new Namespace(std::move(state)));
  opened->state_->reclaimer.start();
  co_return std::move(opened);
}

}  // namespace pmstore::fs
