// FilesCalls: opens and closes, and the delegations that come with them.
#include <fcntl.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "fs/internal/files_calls.h"

namespace pmstore::fs::internal {
namespace {

bool may_write(int flags) { return (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0; }

}  // namespace

base::Task<PosixStatus> FilesCalls::make(const FilesRequest& request, Writer& reply) {
  Reader reader(request.body);
  const auto asked = reader.get<MakeRequest>();
  NamePlace at{Ino{asked.parent}, std::string(reader.get_bytes(asked.name_bytes))};
  const std::string target(reader.get_bytes(asked.target_bytes));
  if (!reader.complete() || !is_known(asked.type)) co_return malformed();
  if (request.method == FilesMethod::kMakeAt) {
    PMSTORE_CO_TRY(at, co_await end_of_path(request.caller, at.parent, std::move(at.name)));
  }
  NewFile file;
  file.type = asked.type;
  file.mode = asked.mode;
  file.device = asked.device;
  file.exclusive = asked.exclusive != 0;
  file.open_flags = asked.open_flags;
  file.target = target;
  file.mark = request.mark;
  file.repeated = request.repeated;
  std::optional<OpenOwner> open_for;
  bool is_new = true;
  if (asked.open != 0) {
    open_for = request.owner;
    if (in_grace()) {
      const auto there = co_await names_.lookup(request.caller, at.parent, at.name);
      is_new = !there && there.number() == ENOENT;
    }
  }
  const auto made = co_await names_.make(request.caller, at.parent, at.name, file, open_for);
  if (!made) co_return PosixError(made.error());
  if (asked.open != 0) {
    co_return co_await finish_open(request, *made, may_write(asked.open_flags), asked.caches != 0,
                                   is_new, reply);
  }
  reply.put(to_wire(*made));
  co_return PosixStatus{};
}

base::Task<PosixStatus> FilesCalls::open(const FilesRequest& request, Writer& reply) {
  Reader reader(request.body);
  const auto asked = reader.get<OpenRequest>();
  if (!reader.complete()) co_return malformed();
  const auto opened =
      co_await names_.open_file(request.caller, Ino{asked.ino}, asked.flags, request.owner);
  if (!opened) co_return PosixError(opened.error());
  co_return co_await finish_open(request, *opened, may_write(asked.flags), asked.caches != 0, false,
                                 reply);
}

base::Task<PosixStatus> FilesCalls::finish_open(const FilesRequest& request, Attributes opened,
                                                bool writes, bool wants, bool is_new,
                                                Writer& reply) {
  OpenReply answer;
  answer.news = request.news_before;
  answer.now_ns = names_.now_ns();
  if (opened.type == FileType::kRegular) {
    const Ino ino = opened.ino;
    const bool early = in_grace();
    if (delegations_.opened(request.owner, ino, writes, wants && !early)) {
      *request.has_maps = true;
      answer.caches = 1;
      answer.changes = delegations_.changes();
      answer.changed = delegations_.changed_by_others(request.owner, ino);
      // Who had it open for writing until now may have changed it since this call has looked.
      const auto now = co_await names_.get_attributes(ino);
      if (!now) {
        answer.caches = 0;
      } else {
        opened = *now;
      }
    }
    // One that is not cached from its first open on is not cached by later ones.
    if (early) delegations_.share(ino);
    // It is not waited for here: the request has a number, of which a client has few.
    const bool free = !must_wait(request.owner, ino, early && writes && !is_new);
    if (free) delegations_.admit(request.owner, ino);
    answer.wait = free ? 0 : 1;
  }
  reply.put(to_wire(opened));
  reply.put(answer);
  co_return PosixStatus{};
}

base::Task<PosixStatus> FilesCalls::await_open(const FilesRequest& request, Writer& reply) {
  Reader reader(request.body);
  const auto asked = reader.get<AwaitOpenRequest>();
  if (!reader.complete()) co_return malformed();
  const bool free = co_await others_let_go(request, Ino{asked.ino}, asked.writes != 0);
  if (free) delegations_.admit(request.owner, Ino{asked.ino});
  OpenReply answer;
  answer.news = request.news_before;
  answer.now_ns = names_.now_ns();
  answer.wait = free ? 0 : 1;
  reply.put(answer);
  co_return PosixStatus{};
}

base::Task<bool> FilesCalls::others_let_go(const FilesRequest& request, Ino ino, bool after_grace) {
  constexpr uint64_t kFirstPauseNs = 50'000;
  constexpr uint64_t kLongestPauseNs = 5'000'000;
  const uint64_t until_ns = executor_.now_ns() + options_.lock_patience_ns;
  uint64_t pause_ns = kFirstPauseNs;
  while (must_wait(request.owner, ino, after_grace)) {
    const bool is_long = *request.calls - request.call >= kCallsPerWait;
    if (executor_.now_ns() >= until_ns || is_long || *request.forgotten) co_return false;
    co_await executor_.sleep_for(pause_ns);
    pause_ns = std::min(2 * pause_ns, kLongestPauseNs);
  }
  co_return true;
}

// The permission was checked when the client opened the file first.
base::Task<PosixStatus> FilesCalls::reclaim(const FilesRequest& request, Writer& reply) {
  Reader reader(request.body);
  const auto asked = reader.get<ReclaimRequest>();
  if (!reader.complete() || asked.opens == 0 || asked.opens > kMaxReclaimedOpens) {
    co_return malformed();
  }
  const Caller anybody;
  const int flags = asked.flags & ~(O_TRUNC | O_CREAT | O_EXCL);
  PosixResult<Attributes> opened = PosixError(EINVAL);
  for (uint32_t i = 0; i < asked.opens && !*request.forgotten; ++i) {
    opened = co_await names_.open_file(anybody, Ino{asked.ino}, flags, request.owner);
    if (opened && opened->type == FileType::kRegular) {
      // Its delegation ended with the server that gave it.
      delegations_.opened(request.owner, opened->ino, may_write(flags), false);
      delegations_.share(opened->ino);
    }
    if (opened) continue;
    // All or none: the client takes the file for lost.
    for (; i > 0; --i) {
      [[maybe_unused]] const PosixStatus closed =
          co_await names_.close_file(Ino{asked.ino}, request.owner);
      delegations_.closed(request.owner, Ino{asked.ino});
    }
    break;
  }
  if (!opened) co_return PosixError(opened.error());
  // It was forgotten alone, and another client may have cached the file since.
  const bool free = !must_wait(request.owner, opened->ino, false);
  if (free) delegations_.admit(request.owner, opened->ino);
  OpenReply answer;
  answer.news = request.news_before;
  answer.now_ns = names_.now_ns();
  answer.wait = free ? 0 : 1;
  reply.put(to_wire(*opened));
  reply.put(answer);
  co_return PosixStatus{};
}

base::Task<PosixStatus> FilesCalls::close(const FilesRequest& request) {
  Reader reader(request.body);
  const Ino ino{reader.get<InoRequest>().ino};
  if (!reader.complete()) co_return malformed();
  auto closed = co_await names_.close_file(ino, request.owner);
  if (closed) delegations_.closed(request.owner, ino);
  co_return std::move(closed);
}

}  // namespace pmstore::fs::internal
