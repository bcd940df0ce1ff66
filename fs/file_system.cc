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
  co_return Status{};
}

void FileSystem::State::run(base::Task<void> task) {
  std::erase_if(background, [](const base::Task<void>& each) { return each.done(); });
  background.push_back(std::move(task));
  background.back().start();
}

base::Task<void> FileSystem::State::finish_background() {
  const auto runs = [](const base::Task<void>& each) { return !each.done(); };
  while (std::any_of(background.begin(), background.end(), runs)) {
    co_await executor.sleep_for(100'000);
  }
}

void FileSystem::State::on_forgotten() {
  if (io != nullptr) io->forget_all();
}

base::Task<Status> FileSystem::State::drop_maps(uint64_t through, bool all,
                                                std::vector<Ino> changed) {
  if (io == nullptr) co_return Status{};
  co_return co_await io->drop_maps(through, all, std::move(changed));
}

base::Task<PosixResult<Attributes>> FileSystem::State::ask_attributes(Call request,
                                                                      bool* in_doubt) {
  const auto answered = co_await link->call(request, in_doubt);
  if (!answered) co_return PosixError(answered.error());
  fabric::MessageReader reader = answered->reader();
  const auto attributes = decode_attributes(reader);
  if (!attributes || !reader.complete()) co_return link->malformed("a call");
  co_return *attributes;
}

struct FileSystem::State::PendingOpen {
  explicit PendingOpen(base::Executor& executor) : done(executor) {}
  std::optional<PosixResult<Attributes>> result;
  bool in_doubt = false;
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
    state_.run(state_.close_later((*pending_.result)->ino));
  }
  PosixResult<Attributes> take() {
    taken_ = true;
    return std::move(*pending_.result);
  }

 private:
  State& state_;
  PendingOpen& pending_;
  bool taken_ = false;
};

base::Task<void> FileSystem::State::finish_open(std::shared_ptr<PendingOpen> pending,
                                                Call request) {
  auto opened = co_await ask_attributes(std::move(request), &pending->in_doubt);
  if (pending->abandoned && opened) {
    co_await close_later(opened->ino);
  } else {
    pending->result = std::move(opened);
    pending->done.notify_all();
  }
}

base::Task<PosixResult<Attributes>> FileSystem::State::ask_open(Call request, bool* in_doubt) {
  const auto pending = std::make_shared<PendingOpen>(executor);
  OpenWaiter waiter(*this, *pending);
  run(finish_open(pending, std::move(request)));
  while (!pending->result) co_await pending->done.wait();
  if (in_doubt != nullptr) *in_doubt = pending->in_doubt;
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

// ---- open files ----

base::Task<PosixResult<std::unique_ptr<File>>> FileSystem::create(const Caller& caller, Ino parent,
                                                                  std::string_view name,
                                                                  const NewFile& file, int flags) {
  if (too_long(name)) co_return PosixError(ENAMETOOLONG);
  NewFile wanted = file;
  wanted.type = FileType::kRegular;
  wanted.exclusive = file.exclusive || (flags & O_EXCL) != 0;
  wanted.open_flags = flags;
  bool doubt = false;
  const auto made =
      co_await state_->ask_open(state_->make_call(caller, parent, name, wanted, true), &doubt);
  if (made) co_return state_->opened_file(*made, flags);
  if (doubt && made.number() == EEXIST) co_return work_in_doubt("what is there");
  co_return PosixError(made.error());
}

base::Task<PosixResult<std::unique_ptr<File>>> FileSystem::open_file(const Caller& caller, Ino ino,
                                                                     int flags) {
  FilesCall request(FilesMethod::kOpen, true, sizeof(WireAttributes));
  request.caller = caller;
  request.put(OpenRequest{raw(ino), flags, 0});
  const auto opened = co_await state_->ask_open(std::move(request));
  if (!opened) co_return PosixError(opened.error());
  co_return state_->opened_file(*opened, flags);
}

FilesCall FileSystem::State::make_call(const Caller& caller, Ino parent, std::string_view name,
                                       const NewFile& file, bool open) const {
  FilesCall request(FilesMethod::kMake, true, sizeof(WireAttributes));
  request.caller = caller;
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
  request.put(asked).put_name(name).put_name(file.target);
  return request;
}

std::unique_ptr<File> FileSystem::State::opened_file(const Attributes& attributes, int flags) {
  auto file = std::make_unique<File::State>();
  file->id = ++last_file;
  file->system = shared_from_this();
  file->opened.ino = attributes.ino;
  file->opened.flags = flags;
  file->attributes = attributes;
  link->add_open(file->opened);
  return std::unique_ptr<File>(new File(std::move(file)));
}

}  // namespace pmstore::fs
