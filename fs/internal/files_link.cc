// FilesLink: the session, and requests. News are in files_link_news.cc.
#include "fs/internal/files_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/random.h"

namespace pmstore::fs::internal {
namespace {

// Between two tries of a request whose session was lost.
constexpr uint64_t kRepeatPauseNs = 1'000'000;
constexpr uint32_t kMessageBytes = 512;  // of an error's line
constexpr uint64_t kNsPerMs = 1'000'000;

bool lost_answer(const Error& why) {
  return why.code == ErrorCode::kDisconnected || why.code == ErrorCode::kTimeout;
}

PosixError left_in_doubt(std::string_view why) {
  return {EIO, fmt::format("the call may or may not have happened: look before you repeat it ({})",
                           why)};
}

}  // namespace

// A request that may have a number, as long as it has no answer. The number is drawn when it is
// sent, and anew for a server that has forgotten this client.
class FilesLink::Numbered {
 public:
  Numbered(FilesLink& link, bool changes) : link_(link), changes_(changes) {}
  Numbered(const Numbered&) = delete;
  Numbered& operator=(const Numbered&) = delete;
  ~Numbered() { give_up(); }
  // It has none for this server yet, and cannot draw one now.
  bool must_wait() {
    if (!changes_ || ticket_ == link_.ticket()) return false;
    give_up();  // others, and itself, do not wait for that one
    return link_.is_far_ahead();
  }
  uint64_t number_now() {
    if (!changes_ || ticket_ == link_.ticket()) return number_;
    give_up();
    ticket_ = link_.ticket();
    number_ = link_.draw_number();
    return number_;
  }
  // It gets no answer here, and its number is not given up.
  uint64_t hand_over() {
    PMSTORE_CHECK(number_ == 0 || ticket_ == link_.ticket(), "a number is of one server");
    return std::exchange(number_, 0);
  }

 private:
  void give_up() {
    if (number_ != 0) link_.ended(std::exchange(number_, 0));
  }

  FilesLink& link_;
  const bool changes_;
  uint64_t number_ = 0;
  uint64_t ticket_ = 0;  // that the number was drawn for
};

FilesLink::FilesLink(base::Executor& executor, fabric::Device& device, fabric::Uri uri,
                     const FileSystemOptions& options, Host& host)
    : executor_(executor),
      device_(device),
      uri_(std::move(uri)),
      options_(options),
      host_(host),
      secret_(options.secret.empty() ? ClientSecret::random() : options.secret),
      instance_(base::random_identity()),
      answered_(executor),
      locks_(executor),
      dropped_(executor),
      reconnector_(executor, *this, {options.reconnect_timeout_ns, options.connect_timeout_ns}) {}

FilesLink::~FilesLink() {
  news_ = {};
  informed_ = {};
  listens_ = {};
}

void FilesLink::drop_link() {
  if (link_ != nullptr) ended_ += link_->connection().counters();
  link_.reset();
}

uint64_t FilesLink::draw_number() {
  under_way_.insert(++last_number_);
  note_known();
  return last_number_;
}

void FilesLink::ended(uint64_t number) {
  under_way_.erase(number);
  note_known();
  answered_.notify_all();
}

void FilesLink::note_known() {
  *known_through_ = under_way_.empty() ? last_number_ : *under_way_.begin() - 1;
}

fabric::Counters FilesLink::counters() const {
  fabric::Counters all = ended_;
  if (link_ != nullptr) all += link_->connection().counters();
  return all;
}

PosixError FilesLink::malformed(std::string_view what) {
  if (link_ != nullptr) link_->drop();
  return {EIO,
          fmt::format("the server's reply to {} is malformed; the session was given up", what)};
}

// ---- the session ----

base::Task<Status> FilesLink::connect_once() {
  drop_link();
  const uint64_t begun_ns = executor_.now_ns();
  service::LinkOptions with;
  with.service = service::ServiceId::kFiles;
  with.secret = secret_;
  with.known_through = known_through_;
  with.connect_timeout_ns = options_.connect_timeout_ns;
  with.rpc.call_timeout_ns = options_.call_timeout_ns;
  const FilesHello hello{instance_, last_number_};
  PMSTORE_CO_TRY(LinkRef opened,
                 co_await service::Link::open(device_, uri_, with, service::bytes_of(hello)));
  PMSTORE_CO_TRY_STATUS(take_welcome(*opened));
  PMSTORE_CO_TRY_STATUS(co_await reclaim_opens(*opened));
  PMSTORE_CO_TRY_STATUS(co_await reclaim_locks(*opened));
  PMSTORE_CO_TRY_STATUS(co_await send_owed(*opened));
  PMSTORE_CHECK(link_ == nullptr, "one session at a time");
  link_ = std::move(opened);
  known_until_ns_ = begun_ns + link_->welcome().lease_ms * kNsPerMs;
  ++sessions_;
  if (sessions_ == 1) {
    informed_ = keep_informed();
    informed_.start();
  }
  co_return Status{};
}

Status FilesLink::take_welcome(const service::Link& opened) {
  FilesWelcome said;
  if (opened.body().size() != sizeof said) {
    return make_error(ErrorCode::kProtocol,
                      "the welcome has the wrong length; is it a pmstore server of this version?");
  }
  std::memcpy(&said, opened.body().data(), sizeof said);
  if (sessions_ > 0 && said.identity != welcome_.identity) {
    // Waiting would not help, so it is not Disconnected.
    return make_error(
        ErrorCode::kProtocol,
        fmt::format("{} serves another file system now: connect a new client", uri_.to_string()));
  }
  const size_t bytes = opened.rpc().max_request_bytes();
  // Not touched before it is used, so a large one costs nothing.
  if (bytes != message_bytes_) message_.reset(new std::byte[bytes]);
  message_bytes_ = bytes;
  const bool forgotten = said.ticket != welcome_.ticket;
  const bool first = welcome_.ticket == 0;
  welcome_ = said;
  if (!forgotten) return {};
  heard_ = confirmed_ = revoked_ = said.news;
  sure_until_ns_ = 0;
  untold_ = false;
  holds_back_ = !doubts_.empty();
  if (first) return {};
  host_.on_forgotten();
  for (const auto& [ino, reclaim] : reclaims_) under_way_.erase(reclaim.number);
  reclaims_.clear();
  for (const Owed& each : owed_) under_way_.erase(each.number);
  owed_.clear();
  note_known();
  for (const OpenedFile* file : opened_) {
    if (file->lost) continue;
    Reclaim& reclaim = reclaims_[file->ino];
    ++reclaim.opens;
    reclaim.flags |= file->flags;
  }
  lock_reclaims_ = locks_.held_by(OpenOwner{});
  return {};
}

// Before the session is used for anything else: a file that is unlinked lives by it.
base::Task<Status> FilesLink::reclaim_opens(service::Link& on) {
  while (!reclaims_.empty()) {
    const Ino ino = reclaims_.begin()->first;
    Reclaim& reclaim = reclaims_.begin()->second;
    if (reclaim.number == 0) reclaim.number = draw_number();
    FilesCall request(FilesMethod::kReclaim, true, sizeof(WireAttributes) + sizeof(OpenReply));
    const uint32_t opens = std::min(reclaim.opens, kMaxReclaimedOpens);
    request.put(ReclaimRequest{raw(ino), reclaim.flags, opens});
    auto answered = co_await send(on, request, reclaim.number);
    if (!answered) co_return std::move(answered.error());
    fabric::MessageReader reader(answered->bytes());
    const auto head = reader.get<ReplyHead>();
    if (head.error == 0 && !decode_attributes(reader)) {
      co_return make_error(ErrorCode::kProtocol, "a malformed reply");
    }
    const auto reply = head.error == 0 ? reader.get<OpenReply>() : OpenReply{};
    if (reader.failed()) co_return make_error(ErrorCode::kProtocol, "a malformed reply");
    if (reply.wait != 0) {
      PMSTORE_CO_TRY_STATUS(co_await await_reclaim(on, ino));
    }
    ended(std::exchange(reclaim.number, 0));
    reclaim.opens -= opens;
    if (head.error != 0) {
      for (OpenedFile* file : opened_) file->lost |= file->ino == ino;
    }
    if (head.error != 0 || reclaim.opens == 0) reclaims_.erase(ino);
  }
  co_return Status{};
}

// Until nobody uses what was cached of the file while this client was forgotten.
base::Task<Status> FilesLink::await_reclaim(service::Link& on, Ino ino) {
  while (true) {
    FilesCall request(FilesMethod::kAwaitOpen, false, sizeof(OpenReply));
    request.put(AwaitOpenRequest{raw(ino), 0, 0});
    auto answered = co_await send(on, request, 0);
    if (!answered) co_return std::move(answered.error());
    fabric::MessageReader reader(answered->bytes());
    const auto head = reader.get<ReplyHead>();
    const auto reply = head.error == 0 ? reader.get<OpenReply>() : OpenReply{};
    if (reader.failed()) co_return make_error(ErrorCode::kProtocol, "a malformed reply");
    if (reply.wait == 0) co_return Status{};
  }
}

// One that another client may have had meanwhile is lost: who works under it is told by EIO.
base::Task<Status> FilesLink::reclaim_locks(service::Link& on) {
  while (!lock_reclaims_.empty()) {
    FileLocks::Held held = lock_reclaims_.back();
    FilesCall request(FilesMethod::kLock, false, sizeof(LockReply));
    request.put(request_of(held.ino, held.lock, true));
    auto answered = co_await send(on, request, 0);
    if (!answered) co_return std::move(answered.error());
    fabric::MessageReader reader(answered->bytes());
    const auto head = reader.get<ReplyHead>();
    if (reader.failed()) co_return make_error(ErrorCode::kProtocol, "a malformed reply");
    if (head.error != 0) {
      for (OpenedFile* file : opened_) file->lost |= file->ino == held.ino;
      // The next server is not told of it.
      held.lock.type = LockType::kUnlock;
      locks_.set(OpenOwner{}, held.ino, held.lock);
    }
    lock_reclaims_.pop_back();
  }
  co_return Status{};
}

void FilesLink::owe(const FilesCall& request, Numbered& numbered) {
  owed_.push_back({request, numbered.hand_over()});
  // Nothing else is asked before it.
  if (link_ != nullptr) link_->drop();
}

base::Task<Status> FilesLink::send_owed(service::Link& on) {
  while (!owed_.empty()) {
    Owed& first = owed_.front();
    if (first.number == 0) first.number = draw_number();
    const auto answered = co_await send(on, first.request, first.number);
    if (!answered && lost_answer(answered.error())) co_return Error(answered.error());
    // Whatever the answer is, nothing is left to do.
    ended(first.number);
    owed_.pop_front();
  }
  co_return Status{};
}

base::Task<void> FilesLink::close() {
  co_await reconnector_.close();
  news_ = {};
  informed_ = {};
  listens_ = {};
  if (usable()) {
    const LinkRef on = link_;
    // The server notices the end of the connection all the same.
    [[maybe_unused]] const auto bye = co_await on->call(service::kGoodbyeMethod, {}, 0);
  }
  drop_link();
}

// ---- requests ----

Result<std::span<const std::byte>> FilesLink::lay_out(const service::Link& on,
                                                      const FilesCall& request, uint64_t number,
                                                      bool doubt) {
  fabric::MessageWriter writer({message_.get(), message_bytes_});
  writer.put(on.prefix());
  RequestHead head;
  head.number = number;
  head.confirmed = confirmed_;
  head.uid = request.caller.uid;
  head.gid = request.caller.gid;
  head.repeated = doubt ? 1 : 0;
  head.mark = request.mark;
  head.groups = static_cast<uint16_t>(std::min(request.caller.groups.size(), kMaxGroups));
  writer.put(head);
  for (size_t i = 0; i < head.groups; ++i) writer.put(request.caller.groups[i]);
  const auto text = [](std::span<const std::byte> bytes) {
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  writer.put_bytes(text(request.body));
  writer.put_bytes(text(request.data));
  if (!writer.overflowed()) return writer.message();
  return make_error(ErrorCode::kTooLarge,
                    fmt::format("a request is at most {} bytes", message_bytes_));
}

base::Task<Result<fabric::RpcReply>> FilesLink::send(service::Link& on, const FilesCall& request,
                                                     uint64_t number, bool doubt) {
  const uint32_t room = sizeof(ReplyHead) + std::max(request.reply_bytes, kMessageBytes);
  PMSTORE_CO_TRY(const auto message, lay_out(on, request, number, doubt));
  ++calls_;
  untold_ = false;
  const uint64_t sent_ns = executor_.now_ns();
  auto answered = co_await on.rpc().call(static_cast<uint16_t>(request.method), message, room);
  // It says that it does not answer any more: the next call makes another session.
  if (!answered && lost_answer(answered.error())) on.drop();
  if (answered) {
    fabric::MessageReader reader(answered->bytes());
    const auto head = reader.get<ReplyHead>();
    if (!reader.failed()) note_sure(on, sent_ns, head.news);
  }
  co_return std::move(answered);
}

PosixResult<FilesLink::Reply> FilesLink::open_reply(LinkRef on, fabric::RpcReply reply) {
  fabric::MessageReader reader(reply.bytes());
  const auto head = reader.get<ReplyHead>();
  if (reader.failed() || head.error < 0) return malformed("a call");
  note_news(head.news);
  if (head.error != 0) {
    std::string message(reader.get_bytes(head.message_bytes));
    if (!reader.complete()) return malformed("a call");
    return PosixError(head.error, std::move(message));
  }
  const auto body = reply.bytes().subspan(sizeof head);
  return Reply{std::move(on), std::move(reply), body};
}

base::Task<PosixResult<FilesLink::Reply>> FilesLink::call(const FilesCall& request,
                                                          bool* in_doubt) {
  Numbered numbered(*this, request.changes);
  const uint64_t give_up_ns = executor_.now_ns() + options_.reconnect_timeout_ns;
  std::optional<uint64_t> sent_by;  // the ticket under which it was sent last
  bool doubt = false;               // it was sent under an earlier one, too
  const uint64_t begun_under = ticket();
  while (true) {
    if (!usable()) {
      const Status again = co_await reconnector_.connected();
      if (!again) {
        if (request.gives_up && ticket() == begun_under) owe(request, numbered);
        if (sent_by && request.changes) co_return left_in_doubt(again.error().to_string());
        co_return PosixError(again.error());
      }
    }
    if (request.gives_up && ticket() != begun_under) {
      if (in_doubt != nullptr) *in_doubt = true;
      co_return PosixError(EBADF, "the server has forgotten it with this client");
    }
    if (numbered.must_wait()) {
      co_await answered_.wait();
      continue;
    }
    const LinkRef on = link_;
    doubt |= request.changes && sent_by && *sent_by != ticket();
    if (doubt && !request.may_be_repeated_in_doubt) {
      co_return left_in_doubt("the server has been started again meanwhile");
    }
    if (doubt && in_doubt != nullptr) *in_doubt = true;
    sent_by = ticket();
    auto answered = co_await send(*on, request, numbered.number_now(), doubt);
    if (answered) {
      auto reply = open_reply(on, std::move(*answered));
      // What makes a name looks for its mark only where it can look for the name.
      const bool unlooked = doubt && request.mark != 0 && !reply && reply.number() != EEXIST &&
                            reply.number() != kWalkFirst;
      if (unlooked) co_return left_in_doubt(reply.error().to_string());
      co_return std::move(reply);
    }
    if (!lost_answer(answered.error())) co_return PosixError(answered.error());
    if (executor_.now_ns() >= give_up_ns) {
      if (request.gives_up && ticket() == begun_under) owe(request, numbered);
      if (request.changes) co_return left_in_doubt(answered.error().to_string());
      co_return PosixError(answered.error());
    }
    co_await executor_.sleep_for(kRepeatPauseNs);
  }
}

}  // namespace pmstore::fs::internal
