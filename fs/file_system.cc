// FileSystem: connecting, and open files. Other calls by inode are in file_system_calls.cc, those
// by path in file_system_paths.cc.
#include "fs/file_system.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "fs/internal/file_system_state.h"

namespace pmstore::fs {

using internal::FilesCall;

namespace {

// After a wait for an open that a server has ended as soon.
constexpr uint64_t kWaitPauseNs = 20'000'000;

}  // namespace

PosixError work_in_doubt(const char* what) {
  return {EIO, std::string("the server was started again meanwhile: ") + what +
                   " may or may not be the work of this call; look at it"};
}

// ---- the session ----

FileSystem::State::State(base::Executor& client_executor, fabric::Uri server,
                         FileSystemOptions client_options)
    : executor(client_executor), uri(std::move(server)), options(std::move(client_options)) {}

FileSystem::State::~State() { background.clear(); }

base::Task<Status> FileSystem::State::connect() {
  PMSTORE_CO_TRY(device, fabric::open_device(uri.scheme, executor, options.devices));
  link = std::make_unique<internal::FilesLink>(executor, *device, uri, options, *this);
  Status connected = co_await link->connect_once();
  const bool nobody_there = !connected && connected.code() == ErrorCode::kDisconnected;
  if (nobody_there && uri.scheme == fabric::Scheme::kLocal && options.devices == nullptr) {
    // No server of this process listens there, so it is the path of a pool.
    EmbeddedFilesOptions with;
    with.assume_domain = options.assume_domain;
    PMSTORE_CO_TRY(embedded, co_await EmbeddedFiles::open(executor, uri.name, with));
    link =
        std::make_unique<internal::FilesLink>(executor, *device, embedded->uri(), options, *this);
    connected = co_await link->connect_once();
  }
  if (!connected) co_return std::move(connected);
  const fabric::Uri& data_uri = embedded == nullptr ? uri : embedded->uri();
  io = std::make_unique<internal::FileIo>(executor, *device, data_uri, *link, options);
  io->on_loss = [this](Ino ino) { kept.forget(ino); };
  kept.on_doubt = [this](Ino ino) { link->note_doubt(ino); };
  co_return Status{};
}

void FileSystem::State::run(base::Task<void> task) {
  std::erase_if(background, [](const base::Task<void>& each) { return each.done(); });
  background.push_back(std::move(task));
  background.back().start();
}

base::Task<void> FileSystem::State::finish_background() {
  const auto runs = [](const base::Task<void>& each) { return !each.done(); };
  const uint64_t until_ns = executor.now_ns() + options.call_timeout_ns;
  while (std::any_of(background.begin(), background.end(), runs)) {
    if (executor.now_ns() >= until_ns) break;
    co_await executor.sleep_for(100'000);
  }
  const std::list<base::Task<void>> given_up = std::exchange(background, {});
}

void FileSystem::State::on_forgotten() {
  if (io == nullptr) return;
  io->forget_all();
  delegated.revoke_all();
  kept.clear();
  if (cache != nullptr) run(drop_cached(delegated.open_ones()));
}

void FileSystem::State::revoke(const internal::FilesLink::Heard& news) {
  if (news.all) delegated.revoke_all();
  for (const Ino ino : news.recalled) delegated.revoke(ino);
}

base::Task<UnlandedWrites> FileSystem::State::drop(internal::FilesLink::Heard news) {
  if (io == nullptr) co_return UnlandedWrites{};
  std::vector<Ino> recalled = std::move(news.recalled);
  if (news.all) recalled = delegated.open_ones();
  co_await drop_cached(std::move(recalled));
  const uint64_t doubts = kept.doubts();
  UnlandedWrites unlanded = co_await io->drop_maps(news.through, news.all, std::move(news.changed));
  if (unlanded.empty()) kept.settle(doubts);
  co_return std::move(unlanded);
}

base::Task<void> FileSystem::State::drop_cached(std::vector<Ino> files) {
  for (const Ino ino : files) {
    kept.forget(ino);
    if (cache != nullptr && delegated.is_open(ino)) co_await cache->forget(ino);
    // What was written is visible, which is enough for others: no data server is waited for.
    // Without an answer it is told later.
    [[maybe_unused]] const PosixStatus told = co_await io->tell_written(ino);
  }
}

base::Task<PosixResult<Attributes>> FileSystem::State::ask_attributes(Call request) {
  const auto answered = co_await link->call(request);
  if (!answered) co_return PosixError(answered.error());
  fabric::MessageReader reader = answered->reader();
  const auto attributes = decode_attributes(reader);
  if (!attributes || !reader.complete()) co_return link->malformed("a call");
  delegated.heard(*attributes);
  co_return *attributes;
}

base::Task<PosixResult<Attributes>> FileSystem::State::change(Call request, Ino ino) {
  while (true) {
    auto changed = co_await ask_attributes(request);
    if (changed || changed.number() != kCachedElsewhere) co_return std::move(changed);
    // Within three leases they have let go, or were forgotten.
    PosixStatus free = co_await await_open(ino, true);
    if (!free) co_return std::move(free.error());
  }
}

// Is told to a server that has forgotten this client, while it lives.
class KnownOpen {
 public:
  KnownOpen(internal::FilesLink& link, Ino ino, int flags)
      : link_(link), file_{.ino = ino, .flags = flags} {
    link_.add_open(file_);
  }
  KnownOpen(const KnownOpen&) = delete;
  KnownOpen& operator=(const KnownOpen&) = delete;
  ~KnownOpen() { link_.remove_open(file_); }
  bool lost() const { return file_.lost; }

 private:
  internal::FilesLink& link_;
  internal::OpenedFile file_;
};

struct FileSystem::State::PendingOpen {
  explicit PendingOpen(base::Executor& executor) : done(executor) {}
  std::optional<PosixResult<Opened>> result;
  bool abandoned = false;
  base::WaitList done;
};

// Waits for an open; says so when it does not any more.
class FileSystem::State::OpenWaiter {
 public:
  OpenWaiter(State& state, PendingOpen& pending) : state_(state), pending_(pending) {}
  OpenWaiter(const OpenWaiter&) = delete;
  OpenWaiter& operator=(const OpenWaiter&) = delete;
  ~OpenWaiter() {
    if (taken_) return;
    pending_.abandoned = true;
    if (!pending_.result || !*pending_.result) return;
    state_.run(state_.close_later((*pending_.result)->attributes.ino));
  }
  PosixResult<Opened> take() {
    taken_ = true;
    return std::move(*pending_.result);
  }

 private:
  State& state_;
  PendingOpen& pending_;
  bool taken_ = false;
};

base::Task<PosixResult<FileSystem::State::Opened>> FileSystem::State::open_once(Call request,
                                                                                int flags) {
  std::optional<Attributes> attributes;
  OpenReply reply;
  {
    const auto answered = co_await link->call(request);
    if (!answered) co_return PosixError(answered.error());
    fabric::MessageReader reader = answered->reader();
    attributes = decode_attributes(reader);
    reply = reader.get<OpenReply>();
    if (!attributes || !reader.complete()) co_return link->malformed("an open");
    // Its room in the session is free before anything is waited for.
  }
  // A delegation of before the news that this client knows may have been recalled by them.
  const bool given = reply.caches != 0 && reply.news >= link->revoked() && cache != nullptr;
  Opened opened{.attributes = *attributes,
                .delegated = delegated.opened(*attributes, given),
                .now_ns = reply.now_ns,
                .ticket = link->ticket()};
  note_kept(opened, reply, flags);
  if (opened.delegated) link->listen();
  if (reply.wait == 0) co_return opened;
  const KnownOpen known(*link, attributes->ino, flags);
  const bool writes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_TRUNC) != 0;
  PosixStatus free = co_await await_open(attributes->ino, writes);
  if (free && known.lost()) free = PosixError(EIO, "the server was started again meanwhile");
  opened.ticket = link->ticket();
  if (free) co_return opened;
  run(close_later(attributes->ino));
  co_return std::move(free.error());
}

void FileSystem::State::note_kept(Opened& opened, const OpenReply& reply, int flags) {
  const Ino ino = opened.attributes.ino;
  if (!opened.delegated || (flags & O_TRUNC) != 0) return kept.forget(ino);
  opened.keeps_cache = kept.is_right(ino, reply.changed);
  opened.delegation = std::make_shared<internal::KeptFiles::Opened>(kept, ino, reply.changes);
}

// Until nobody uses what was cached of the file before it was opened, or is changed.
base::Task<PosixStatus> FileSystem::State::await_open(Ino ino, bool writes) {
  while (true) {
    Call request(FilesMethod::kAwaitOpen, false, sizeof(OpenReply));
    request.put(AwaitOpenRequest{raw(ino), writes ? 1u : 0u, 0});
    const uint64_t asked_ns = executor.now_ns();
    const auto answered = co_await link->call(request);
    if (!answered) co_return PosixError(answered.error());
    fabric::MessageReader reader = answered->reader();
    const auto reply = reader.get<OpenReply>();
    if (!reader.complete()) co_return link->malformed("an open");
    if (reply.wait == 0) co_return PosixStatus{};
    // It is ended early when a client with many waits asks often.
    if (executor.now_ns() - asked_ns < kWaitPauseNs) co_await executor.sleep_for(kWaitPauseNs);
  }
}

base::Task<void> FileSystem::State::finish_open(std::shared_ptr<PendingOpen> pending, Call request,
                                                int flags) {
  auto opened = co_await open_once(std::move(request), flags);
  if (pending->abandoned && opened) {
    co_await close_later(opened->attributes.ino);
  } else {
    pending->result = std::move(opened);
    pending->done.notify_all();
  }
}

base::Task<PosixResult<FileSystem::State::Opened>> FileSystem::State::ask_open(Call request,
                                                                               int flags) {
  const auto pending = std::make_shared<PendingOpen>(executor);
  OpenWaiter waiter(*this, *pending);
  run(finish_open(pending, std::move(request), flags));
  while (!pending->result) co_await pending->done.wait();
  co_return waiter.take();
}

base::Task<PosixStatus> FileSystem::State::ask(Call request, bool* in_doubt) {
  const auto answered = co_await link->call(request, in_doubt);
  if (!answered) co_return PosixError(answered.error());
  if (!answered->body.empty()) co_return link->malformed("a call");
  co_return PosixStatus{};
}

FileSystem::FileSystem(std::shared_ptr<State> state) : state_(std::move(state)) {}
FileSystem::~FileSystem() = default;

base::Task<Result<std::unique_ptr<FileSystem>>> FileSystem::connect(base::Executor& executor,
                                                                    fabric::Uri uri,
                                                                    FileSystemOptions options) {
  auto state = std::make_shared<State>(executor, std::move(uri), std::move(options));
  PMSTORE_CO_TRY_STATUS(co_await state->connect());
  co_return std::unique_ptr<FileSystem>(new FileSystem(std::move(state)));
}

base::Task<void> FileSystem::close() {
  const std::shared_ptr<State> state = state_;
  if (std::exchange(state->closed, true)) co_return;
  co_await state->finish_background();
  co_await state->io->close();
  co_await state->link->close();
  if (state->embedded != nullptr) co_await state->embedded->close();
}

uint64_t FileSystem::identity() const { return state_->link->identity(); }
fabric::Counters FileSystem::counters() const {
  fabric::Counters all = state_->link->counters();
  all += state_->io->counters();
  return all;
}
base::Executor& FileSystem::executor() { return state_->executor; }

void FileSystem::set_cache(FileCache* cache) { state_->cache = cache; }

const Attributes* FileSystem::delegated(Ino ino, uint64_t for_ns) const {
  if (state_->closed || !state_->link->is_sure(for_ns)) return nullptr;
  return state_->delegated.find(ino);
}

// ---- open files ----

base::Task<PosixResult<std::unique_ptr<File>>> FileSystem::create(const Caller& caller, Ino parent,
                                                                  std::string_view name,
                                                                  const NewFile& file, int flags) {
  if (too_long(name)) co_return PosixError(ENAMETOOLONG);
  co_return co_await state_->create(FilesMethod::kMake, caller, parent, name, file, flags);
}

base::Task<PosixResult<std::unique_ptr<File>>> FileSystem::State::create(
    FilesMethod method, const Caller& caller, Ino parent, std::string_view name,
    const NewFile& file, int flags) {
  NewFile wanted = file;
  wanted.type = FileType::kRegular;
  wanted.exclusive = file.exclusive || (flags & O_EXCL) != 0;
  wanted.open_flags = flags;
  FilesCall request = make_call(caller, parent, name, wanted, true);
  request.method = method;
  const auto made = co_await ask_open(std::move(request), flags);
  if (made) co_return opened_file(*made, flags);
  co_return PosixError(made.error());
}

base::Task<PosixResult<std::unique_ptr<File>>> FileSystem::open_file(const Caller& caller, Ino ino,
                                                                     int flags) {
  FilesCall request(FilesMethod::kOpen, true, sizeof(WireAttributes) + sizeof(OpenReply));
  request.caller = caller;
  request.put(OpenRequest{raw(ino), flags, state_->cache != nullptr ? 1u : 0u});
  const auto opened = co_await state_->ask_open(std::move(request), flags);
  if (!opened) co_return PosixError(opened.error());
  co_return state_->opened_file(*opened, flags);
}

FilesCall FileSystem::State::make_call(const Caller& caller, Ino parent, std::string_view name,
                                       const NewFile& file, bool open) const {
  const uint32_t room = sizeof(WireAttributes) + (open ? sizeof(OpenReply) : 0);
  FilesCall request(FilesMethod::kMake, true, room);
  request.caller = caller;
  request.mark = draw_mark();
  MakeRequest asked;
  asked.parent = raw(parent);
  asked.device = file.device;
  asked.open_flags = file.open_flags;
  asked.mode = file.mode;
  asked.name_bytes = static_cast<uint16_t>(name.size());
  asked.target_bytes = static_cast<uint16_t>(file.target.size());
  asked.type = file.type;
  asked.exclusive = file.exclusive ? 1 : 0;
  asked.open = open ? 1 : 0;
  asked.caches = open && cache != nullptr ? 1 : 0;
  request.put(asked).put_name(name).put_name(file.target);
  return request;
}

std::unique_ptr<File> FileSystem::State::opened_file(const Opened& opened, int flags) {
  auto file = std::make_unique<File::State>();
  file->id = ++last_file;
  file->system = shared_from_this();
  file->opened.ino = opened.attributes.ino;
  file->opened.flags = flags;
  file->attributes = opened.attributes;
  file->delegated = opened.delegated;
  file->keeps_cache = opened.keeps_cache;
  file->delegation = opened.delegation;
  file->server_ns = opened.now_ns;
  file->opened_ns = executor.now_ns();
  file->losses_told = io->losses(opened.attributes.ino);
  // A server that was started again since was not told of it.
  file->opened.lost = opened.ticket != link->ticket();
  link->add_open(file->opened);
  return std::unique_ptr<File>(new File(std::move(file)));
}

}  // namespace pmstore::fs
