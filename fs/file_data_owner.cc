// Of FileDataService: the session of the area's owner, a namespace server elsewhere.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "fabric/message.h"
#include "fs/file_data_service.h"
#include "fs/internal/data_session.h"

namespace pmstore::fs {

using internal::DataSession;

namespace {

// So much is zeroed before others get their turn.
constexpr uint64_t kZeroedAtOnce = 256 * 1024;

Error malformed_owner_call() {
  return make_error(ErrorCode::kProtocol, "a malformed request of a file area's owner");
}

}  // namespace

void FileDataService::serve_owner(const FileArea& area) {
  PMSTORE_CHECK(area.identity() == space_.area().identity(), "the area of the space is served");
  area_ = area;
  PMSTORE_CHECK(area.sections().size() == 1, "an owner elsewhere knows the first section only");
  const Status taken = space_.claim({LocalDataSpace::kServer, 0, space_.total_bytes()});
  PMSTORE_CHECK(taken, "nothing was allocated before");
}

// ---- its session ----

Status FileDataService::check_owner(const ClientId& key, const AreaOwnerHello& hello) const {
  if (hello.instance == 0 || hello.file_system == 0 || hello.server == 0) {
    return make_error(ErrorCode::kProtocol, "a malformed hello of a file area's owner");
  }
  if (!area_) {
    return make_error(ErrorCode::kAccess,
                      "this pool has a file system of its own, so it is no data server of another "
                      "one: start pmstored with --data-server on a pool without files");
  }
  if (hello.area != 0 && hello.area != area_->identity()) {
    return make_error(ErrorCode::kNotFound,
                      "another file area is served here: is this the file system's data server?");
  }
  const AreaOwner owner = area_->owner();
  if (owner.file_system != 0 && owner.file_system != hello.file_system) {
    return make_error(ErrorCode::kAccess,
                      fmt::format("this file area is data server {} of file system {:016x}, and "
                                  "holds its data: drain it there, or create another pool",
                                  owner.server, owner.file_system));
  }
  // An area whose owner has come without a secret so far takes the first one.
  if (owner.file_system != 0 && owner.key.is_somebody() && owner.key != key) {
    return make_error(ErrorCode::kAccess,
                      fmt::format("this file area is data server {} of file system {:016x}, whose "
                                  "namespace server has another secret than this program: use the "
                                  "pool that has added it",
                                  owner.server, owner.file_system));
  }
  if (owner.file_system != 0 && hello.epoch < owner.epoch) {
    return make_error(ErrorCode::kFenced,
                      fmt::format("a later start of the file system's namespace server has come "
                                  "to this data server (epoch {}, this one has {})",
                                  owner.epoch, hello.epoch));
  }
  const bool is_same_start = owner.start == 0 || owner.start == hello.start_number();
  if (owner.file_system != 0 && hello.epoch == owner.epoch && !is_same_start) {
    return make_error(ErrorCode::kFenced,
                      fmt::format("another namespace server of this file system has come to this "
                                  "data server with epoch {}, too, so one of the two runs on a "
                                  "copy of the pool: start the one that is to stay again",
                                  hello.epoch));
  }
  return {};
}

Result<std::vector<std::byte>> FileDataService::admit_owner(service::Session& session,
                                                            const AreaOwnerHello& hello) {
  PMSTORE_TRY_STATUS(check_owner(session.client, hello));
  PMSTORE_CHECK(session.client.is_somebody(), "a session is admitted by a secret");
  const AreaOwner owner{hello.file_system, hello.epoch, hello.server, session.client,
                        hello.start_number()};
  if (owner != area_->owner()) {
    PMSTORE_TRY_STATUS(area_->set_owner(owner));
  }
  AreaOwnerAnswer answer;
  answer.area = area_->identity();
  answer.bytes = space_.total_bytes();
  auto& made = static_cast<DataSession&>(session);
  made.is_owner = true;
  made.instance = hello.instance;
  service::Session* const before = std::exchange(owner_, &session);
  if (hello.instance != owner_instance_) {
    // What the one before had told its clients is not known to this one: no map of theirs is good.
    owner_instance_ = hello.instance;
    end_all_clients();
    answer.word = space_.renew_words();
  }
  if (before != nullptr) host().end(*before, SessionEnd::kReplaced);
  return service::message_of(answer);
}

void FileDataService::end_all_clients() {
  while (!sessions_of_.empty()) end_sessions(sessions_of_.begin()->first, SessionEnd::kReplaced);
}

// ---- its requests ----

Status FileDataService::on_owner_call(service::Session& session, fabric::RpcCall& call,
                                      std::span<const std::byte> body) {
  if (call.method() == kAreaZeroMethod) return zero(session, call, body);
  Status done;
  switch (call.method()) {
    case kAreaSetWordsMethod: done = set_words(body); break;
    case kAreaEndClientMethod: done = end_client(body); break;
    case kAreaReleaseMethod: done = release(body); break;
    default: done = malformed_owner_call();
  }
  if (done) call.reply({});
  return done;
}

Status FileDataService::end_client(std::span<const std::byte> body) {
  fabric::MessageReader reader(body);
  const auto what = reader.get<AreaEndClient>();
  if (!reader.complete()) return malformed_owner_call();
  if (what.client.is_somebody()) {
    end_sessions(what.client, SessionEnd::kReplaced);
  } else {
    end_all_clients();
  }
  return {};
}

Status FileDataService::release(std::span<const std::byte> body) {
  if (!body.empty()) return malformed_owner_call();
  end_all_clients();
  return area_->set_owner({});
}

// The request lies in memory of its sender: each word is copied before it is looked at.
Status FileDataService::set_words(std::span<const std::byte> body) {
  fabric::MessageReader reader(body);
  const auto head = reader.get<AreaSetWords>();
  if (reader.failed() || head.count > kMaxAreaWords || head.reserved != 0 ||
      body.size() != sizeof head + head.count * sizeof(AreaWord)) {
    return malformed_owner_call();
  }
  for (uint32_t i = 0; i < head.count; ++i) {
    const auto each = reader.get<AreaWord>();
    if (each.offset % kUnitBytes != 0 || !space_.has_word(each.offset)) {
      return malformed_owner_call();
    }
    space_.set_word(each.offset, each.word);
  }
  return {};
}

Status FileDataService::zero(service::Session& session, fabric::RpcCall& call,
                             std::span<const std::byte> body) {
  fabric::MessageReader reader(body);
  const auto what = reader.get<AreaZero>();
  if (!reader.complete() || what.bytes == 0 || what.bytes > kMaxAreaZeroBytes ||
      space_.bytes_at(what.offset, what.bytes) == nullptr) {
    return malformed_owner_call();
  }
  zeroing_.run(zero_parts(session.shared_from_this(), std::move(call), what));
  return {};
}

// Ends with its session: an owner that has come again zeroes again, and then uses the range.
base::Task<void> FileDataService::zero_parts(std::shared_ptr<service::Session> session,
                                             fabric::RpcCall call, AreaZero what) {
  const base::RunningTasks::Position here = zeroing_.started_last();
  ++session->active;
  Status done;
  for (uint64_t at = 0; at < what.bytes && done; at += kZeroedAtOnce) {
    if (at > 0) co_await space_.executor().yield();
    if (session->ended) break;
    const AreaRange part{LocalDataSpace::kServer, what.offset + at,
                         std::min(kZeroedAtOnce, what.bytes - at)};
    done = co_await space_.zero(part);
  }
  --session->active;
  if (!session->ended) {
    if (done) {
      call.reply({});
    } else {
      host().tell_failure(done.error());
      call.reply_error(done.error());
    }
  }
  zeroing_.ended(here);
}

}  // namespace pmstore::fs
