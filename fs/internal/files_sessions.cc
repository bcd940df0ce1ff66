#include "fs/internal/files_sessions.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace pmstore::fs::internal {
namespace {

// Of an answer to a request with a number; none has more.
constexpr size_t kNumberedAnswerBytes = 512;

std::span<const std::byte> bytes_of(const FilesClient::Answer& answer) {
  return {answer.data(), answer.size()};
}

}  // namespace

// A handler under way: its session is not silent, and what it does for its client is not over.
class FilesSessions::Active {
 public:
  explicit Active(FilesSession& session) : session_(session), client_(session.files) {
    ++session_.active;
    ++client_->active;
  }
  Active(const Active&) = delete;
  Active& operator=(const Active&) = delete;
  ~Active() {
    PMSTORE_CHECK(session_.active > 0 && client_->active > 0, "each handler is counted once");
    --session_.active;
    if (--client_->active == 0) client_->idle.notify_all();
  }

 private:
  FilesSession& session_;
  const FilesClientRef client_;
};

FilesSessions::FilesSessions(base::Executor& executor, const FilesServiceOptions& options)
    : Service({.id = service::ServiceId::kFiles,
               .name = "files",
               .max_sessions = options.max_sessions}),
      executor_(executor),
      options_(options),
      clients_(executor, lease_ns(), options.max_sessions),
      locks_(executor),
      delegations_(options.epoch) {
  clients_.on_forget = [this](FilesClient& client) { forgotten(client); };
  delegations_.on_recall = [this](Ino ino) {
    clients_.add_news(ino, true);
    for (auto& [session, parked] : parked_) parked.wake.notify_all();
    return clients_.newest();
  };
}

void FilesSessions::open(Namespace& names, DataServers* servers) {
  PMSTORE_CHECK(names_ == nullptr, "a namespace is opened once");
  names_ = &names;
  FilesCalls::Options with;
  with.servers = servers;
  with.lock_patience_ns = lease_ns() / 4;
  if (options_.lock_grace) with.lock_grace_until_ns = executor_.now_ns() + lease_ns();
  calls_.emplace(executor_, names, locks_, delegations_, with);
  names.on_map_change = [this](Ino ino) { clients_.add_news(ino); };
}

void FilesSessions::stop() {
  if (std::exchange(stopped_, true)) return;
  if (names_ != nullptr) names_->on_map_change = {};
  parked_.clear();
  tasks_.clear();
}

void FilesSessions::refuse(const Error& why) {
  refusal_ = why;
  stop();
  for (service::Session* const session : clients_.sessions()) {
    host().end(*session, SessionEnd::kReplaced);
  }
}

void FilesSessions::run(base::Task<void> task) {
  if (stopped_) return;
  std::erase_if(tasks_, [](const base::Task<void>& each) { return each.done(); });
  tasks_.push_back(std::move(task));
  tasks_.back().start();
}

// ---- sessions ----

Result<std::vector<std::byte>> FilesSessions::admit(service::Session& session, Body body) {
  fabric::MessageReader reader(body);
  const auto hello = reader.get<FilesHello>();
  if (!reader.complete() || hello.instance == 0) {
    return make_error(ErrorCode::kProtocol, "a malformed hello of the file service");
  }
  if (refusal_) return *refusal_;
  if (names_ == nullptr || stopped_) {
    return make_error(ErrorCode::kBackPressure, "the file system is not open yet; try again");
  }
  if (const FilesClientRef before = clients_.find(session.client, hello.instance);
      before != nullptr && before->session != nullptr) {
    // The client has lost its old connection, over which no request may arrive from here on.
    host().end(*before->session, SessionEnd::kReplaced);
  }
  if (clients_.lingers(session.client, hello.instance)) {
    // It would act behind what the client does from here on.
    return make_error(ErrorCode::kBackPressure,
                      "calls of this client from before it was forgotten are under way; try again");
  }
  auto& admitted = static_cast<FilesSession&>(session);
  admitted.files = clients_.came(session.client, hello.instance, hello.last_sent, session);
  // It hears that it was forgotten.
  for (const FilesClientRef& each : fading_) {
    if (each->id == session.client && each->instance == hello.instance) each->caches_until_ns = 0;
  }
  start_watch();
  FilesWelcome welcome;
  welcome.identity = names_->identity();
  welcome.ticket = admitted.files->ticket;
  welcome.news = clients_.newest();
  return service::message_of(welcome);
}

void FilesSessions::on_ended(service::Session& session, std::optional<SessionEnd> why) {
  FilesClient& client = *static_cast<FilesSession&>(session).files;
  if (const auto parked = parked_.find(static_cast<FilesSession*>(&session));
      parked != parked_.end()) {
    parked->second.wake.notify_all();
  }
  if (client.forgotten) return;
  PMSTORE_CHECK(client.session == &session, "one session of a client at a time");
  if (!why || stopped_) {
    // What it has open is told to the next start by the client.
    client.session = nullptr;
    client.away_since_ns = executor_.now_ns();
  } else if (*why == SessionEnd::kGoodbye) {
    client.session = nullptr;
    client.caches_until_ns = 0;
    clients_.forget(client);
  } else {
    clients_.left(client);
  }
}

void FilesSessions::forgotten(FilesClient& client) {
  if (client.session != nullptr) host().end(*client.session, SessionEnd::kSilent);
  client.session = nullptr;
  if (end_data_sessions) end_data_sessions(client.id);
  if (!stopped_) run(forget_opens(client.shared_from_this()));
}

// Others get what it had when none of its writes takes effect any more, and cache nothing that it
// has open for writing until then. Without a map it has written nothing itself. What a call of it
// still opens or locks is given up, too.
base::Task<void> FilesSessions::forget_opens(FilesClientRef client) {
  fading_.push_back(client);
  // A data server that is away does not keep them for ever: by its own clock the client begins no
  // write after `caches_until_ns`, and a lease later what it has posted has landed or is lost.
  const uint64_t until_ns = std::max(client->caches_until_ns, executor_.now_ns()) + lease_ns();
  if (client->has_maps) co_await data_sessions_ended(until_ns);
  locks_.drop(client->owner);
  while (client->active > 0) co_await client->idle.wait();
  if (client->has_maps) co_await data_sessions_ended(until_ns);
  locks_.drop(client->owner);
  if (delegations_.caches(client->owner)) co_await caches_nothing(*client);
  std::erase(fading_, client);
  delegations_.drop(client->owner);
  co_await names_->forget(client->owner);
}

base::Task<void> FilesSessions::caches_nothing(const FilesClient& client) {
  constexpr uint64_t kLookAgainNs = 5'000'000;
  while (executor_.now_ns() < client.caches_until_ns) co_await executor_.sleep_for(kLookAgainNs);
}

void FilesSessions::start_watch() {
  if (std::exchange(watching_, true)) return;
  run(watch());
}

base::Task<void> FilesSessions::watch() {
  constexpr unsigned kLooksPerLease = 4;
  while (!clients_.empty()) {
    co_await executor_.sleep_for(lease_ns() / kLooksPerLease);
    std::erase_if(parked_, [](const auto& each) { return each.second.answer.done(); });
    for (const FilesClientRef& client : clients_.look()) {
      if (client->forgotten) continue;
      ++deaf_;
      clients_.forget(*client);
    }
    look_at_held_back();
  }
  watching_ = false;
}

// One data server that a client cannot reach costs it its sessions there, not its place here. A
// data server that is away keeps freed ranges, and holds up each recall for one more lease: what
// the client has posted has landed by then, or is lost.
void FilesSessions::look_at_held_back() {
  for (const auto& [client, server] : clients_.held_back_long()) {
    FilesClient::HeldBack& held = client->held_back.at(server);
    if (!std::exchange(held.ending, true)) end_data_sessions_at(client->id, server);
    const uint64_t now_ns = executor_.now_ns();
    const bool is_late = now_ns - held.since_ns >= 3 * lease_ns();
    if (is_late) delegations_.give_up(client->owner, server, now_ns - lease_ns());
  }
  for (const auto& [client, server] : clients_.held_back_long()) note_ended(*client);
}

void FilesSessions::note_ended(FilesClient& client) {
  std::vector<uint16_t> ended;
  for (const auto& [server, held] : client.held_back) {
    if (held.ending && have_ended_at(client.id, server)) ended.push_back(server);
  }
  for (const uint16_t server : ended) {
    delegations_.landed(client.owner, server);
    clients_.landed(client, server);
  }
}

bool FilesSessions::on_known_through(service::Session& session, uint64_t number) {
  clients_.known(*static_cast<FilesSession&>(session).files, number);
  return true;
}

// ---- requests ----

void FilesSessions::on_call(service::Session& session, fabric::RpcCall call, Body body) {
  auto& mine = static_cast<FilesSession&>(session);
  fabric::MessageReader reader(body);
  FilesRequest request;
  const auto head = get_head(reader, request.caller);
  if (!head || call.reply_room().size() < sizeof(ReplyHead) ||
      !clients_.confirm(*mine.files, head->confirmed)) {
    return host().drop_malformed(session, call);
  }
  delegations_.confirmed(mine.files->owner, head->confirmed);
  // It has sent the request before now, and is sure for a lease from then on.
  mine.files->caches_until_ns = executor_.now_ns() + lease_ns();
  request.method = static_cast<FilesMethod>(call.method());
  request.mark = head->mark;
  request.repeated = head->repeated != 0;
  request.owner = mine.files->owner;
  request.forgotten = &mine.files->forgotten;  // the handler keeps the client, and the session
  request.ended = &mine.ended;
  request.calls = &mine.calls;
  request.call = ++mine.calls;
  if (mine.calls % FilesCalls::kCallsPerWait == 0) end_waits(mine);
  request.has_maps = &mine.files->has_maps;
  request.news_before = clients_.newest();
  request.body = body.subspan(sizeof *head + head->groups * sizeof(uint32_t));
  if (request.method == FilesMethod::kConfirm) return serve_confirm(mine, call, request.body);
  if (request.method == FilesMethod::kNews) {
    if (!request.body.empty()) return host().drop_malformed(session, call);
    return serve_news(mine, call, *head);
  }
  if (stopped_) return call.reply_error(make_error(ErrorCode::kDisconnected, "the server stops"));
  if (request.method == FilesMethod::kAwaitNews) {
    fabric::MessageReader rest(request.body);
    const auto asked = rest.get<AwaitNewsRequest>();
    if (!rest.complete()) return host().drop_malformed(session, call);
    const uint64_t most_ns = std::min(uint64_t{asked.most_ms} * 1'000'000, lease_ns());
    if (!park(std::static_pointer_cast<FilesSession>(session.shared_from_this()), call, *head,
              executor_.now_ns() + most_ns)) {
      host().drop_malformed(session, call);
    }
    return;
  }
  if (request.method == FilesMethod::kMap) mine.files->has_maps = true;
  if (request.method == FilesMethod::kReserve) mine.files->has_maps = true;
  run(serve(std::static_pointer_cast<FilesSession>(session.shared_from_this()), std::move(call),
            *head, std::move(request)));
}

void FilesSessions::serve_news(FilesSession& session, fabric::RpcCall& call,
                               const RequestHead& head) {
  const std::span<std::byte> room = call.reply_room();
  constexpr size_t kHeads = sizeof(ReplyHead) + sizeof(NewsReply);
  if (room.size() < kHeads) return host().drop_malformed(session, call);
  const size_t most = (room.size() - kHeads) / sizeof(uint64_t);
  const FilesClients::News news = clients_.news_after(head.confirmed, most);
  fabric::MessageWriter writer(room);
  writer.put(ReplyHead{clients_.newest(), 0, 0});
  NewsReply reply;
  reply.through = news.through;
  reply.count = static_cast<uint32_t>(news.changed.size());
  reply.recalls = static_cast<uint32_t>(news.recalled.size());
  reply.all = news.all ? 1 : 0;
  writer.put(reply);
  for (const Ino ino : news.changed) writer.put(raw(ino));
  for (const Ino ino : news.recalled) writer.put(raw(ino));
  PMSTORE_CHECK(!writer.overflowed(), "the room was measured");
  call.reply_filled(writer.bytes());
}

void FilesSessions::serve_confirm(FilesSession& session, fabric::RpcCall& call, Body body) {
  fabric::MessageReader reader(body);
  const auto asked = reader.get<ConfirmRequest>();
  UnlandedWrites unlanded;
  for (uint32_t i = 0; i < asked.count && !reader.failed(); ++i) {
    const auto each = reader.get<UnlandedWrite>();
    UnlandedFiles& files = unlanded[each.server];
    if (each.ino == 0) {
      files.any = true;
    } else {
      files.inos.insert(Ino{each.ino});
    }
  }
  FilesClient& client = *session.files;
  // What it names is of later sessions than those that were ended: it is held back anew.
  note_ended(client);
  if (!reader.complete() || asked.count > kMaxUnlandedWrites ||
      !clients_.confirm_beside(client, asked.through, unlanded)) {
    return host().drop_malformed(session, call);
  }
  delegations_.confirmed(client.owner, asked.through, &unlanded, executor_.now_ns());
  fabric::MessageWriter writer(call.reply_room());
  writer.put(ReplyHead{clients_.newest(), 0, 0});
  PMSTORE_CHECK(!writer.overflowed(), "the room of a head was looked at");
  call.reply_filled(writer.bytes());
}

bool FilesSessions::park(std::shared_ptr<FilesSession> session, fabric::RpcCall& call,
                         const RequestHead& head, uint64_t until_ns) {
  const auto [at, is_first] = parked_.try_emplace(session.get(), executor_);
  Parked& parked = at->second;
  if (!is_first && !parked.answer.done()) return false;
  parked.ends = false;
  parked.timer = wake_at(parked, until_ns);
  parked.timer.start();
  parked.answer = await_news(parked, std::move(session), std::move(call), head, until_ns);
  parked.answer.start();
  return true;
}

// It does not count as active: a client that has gone silent is still noticed.
base::Task<void> FilesSessions::await_news(Parked& parked, std::shared_ptr<FilesSession> session,
                                           fabric::RpcCall call, RequestHead head,
                                           uint64_t until_ns) {
  const FilesClientRef client = session->files;
  const auto is_over = [&] { return client->forgotten || client->session != session.get(); };
  while (!is_over() && executor_.now_ns() < until_ns && !parked.ends &&
         !delegations_.must_hear(client->owner, head.confirmed)) {
    co_await parked.wake.wait();
  }
  if (!is_over()) serve_news(*session, call, head);
}

void FilesSessions::end_waits(FilesSession& session) {
  locks_.end_waits(session.files->owner);
  const auto parked = parked_.find(&session);
  if (parked == parked_.end()) return;
  parked->second.ends = true;
  parked->second.wake.notify_all();
}

base::Task<void> FilesSessions::wake_at(Parked& parked, uint64_t at_ns) {
  co_await executor_.sleep_until(at_ns);
  parked.wake.notify_all();
}

base::Task<void> FilesSessions::serve(std::shared_ptr<FilesSession> session, fabric::RpcCall call,
                                      RequestHead head, FilesRequest request) {
  const Active active(*session);
  if (head.number == 0) {
    co_await execute(*session, call, request);
  } else {
    co_await serve_number(*session, call, head, request);
  }
}

base::Task<size_t> FilesSessions::answer(const FilesRequest& request, std::span<std::byte> room) {
  FilesRequest with_room = request;
  with_room.room = room.size() - sizeof(ReplyHead);
  fabric::MessageWriter writer(room.subspan(sizeof(ReplyHead)));
  PosixStatus done = co_await calls_->execute(with_room, writer);
  if (done && writer.overflowed()) done = PosixError(ERANGE, "the answer has no room");
  ReplyHead head;
  head.news = clients_.newest();
  if (done) {
    std::memcpy(room.data(), &head, sizeof head);
    co_return sizeof head + writer.bytes();
  }
  if (done.number() == EBADMSG) co_return 0;
  const std::string& message = done.error().message;
  const size_t bytes = std::min(message.size(), room.size() - sizeof head);
  head.error = done.number();
  head.message_bytes = static_cast<uint32_t>(bytes);
  std::memcpy(room.data(), &head, sizeof head);
  if (bytes > 0) std::memcpy(room.data() + sizeof head, message.data(), bytes);
  co_return sizeof head + bytes;
}

base::Task<void> FilesSessions::execute(FilesSession& session, fabric::RpcCall& call,
                                        const FilesRequest& request) {
  const size_t bytes = co_await answer(request, call.reply_room());
  if (bytes == 0) {
    host().drop_malformed(session, call);
  } else {
    call.reply_filled(bytes);
  }
}

base::Task<void> FilesSessions::serve_number(FilesSession& session, fabric::RpcCall& call,
                                             const RequestHead& head, const FilesRequest& request) {
  const FilesClientRef client = session.files;
  auto number = clients_.begin(*client, head.number);
  if (number == FilesClients::Number::kRunning || number == FilesClients::Number::kAnswered) {
    ++repeated_;
  }
  while (number == FilesClients::Number::kRunning) {
    co_await client->answered.wait();
    if (client->forgotten) break;
    number = clients_.begin(*client, head.number);
  }
  switch (number) {
    case FilesClients::Number::kAnswered:
      call.reply(bytes_of(*client->executed.at(head.number)));
      co_return;
    case FilesClients::Number::kRunning:
    case FilesClients::Number::kKnown:
      call.reply_error(
          make_error(ErrorCode::kOutcomeExpired, "the client wants no answer to this request"));
      co_return;
    case FilesClients::Number::kTooMany: host().drop_malformed(session, call); co_return;
    case FilesClients::Number::kNew: break;
  }
  std::vector<std::byte> room(kNumberedAnswerBytes);
  const size_t bytes = co_await answer(request, room);
  if (bytes == 0) {
    clients_.drop(*client, head.number);
    host().drop_malformed(session, call);
    co_return;
  }
  room.resize(bytes);
  call.reply(room);
  clients_.answer(*client, head.number, std::move(room));
}

}  // namespace pmstore::fs::internal
