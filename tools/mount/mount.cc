#include "tools/mount/mount.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstring>

namespace pmstore::tools {
namespace {

// What libfuse said last: it prints where others give an error.
std::string& last_message() {
  static std::string message;
  return message;
}

void keep_message(fuse_log_level level, const char* format, va_list arguments) {
  if (level > FUSE_LOG_ERR) return;
  char line[512];
  std::vsnprintf(line, sizeof line, format, arguments);
  std::string_view text = line;
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  if (text.starts_with("fuse: ")) text.remove_prefix(6);
  last_message() = text;
}

// The kernel's options, with a comma or backslash in a value escaped as libfuse wants it.
std::string escaped(const std::string& value) {
  std::string text;
  for (const char c : value) {
    if (c == ',' || c == '\\') text += '\\';
    text += c;
  }
  return text;
}

Error cannot_mount(std::string why) { return make_error(ErrorCode::kIo, std::move(why)); }

void init(void* mount, fuse_conn_info* connection) {
  static_cast<Mount*>(mount)->prepare_connection(*connection);
}

// The kernel counts what it knows of an inode; nothing is kept here for that.
void on_forget(fuse_req_t request, fuse_ino_t, uint64_t) { fuse_reply_none(request); }
void on_forget_multi(fuse_req_t request, size_t, fuse_forget_data*) { fuse_reply_none(request); }

ssize_t read_question(int descriptor, void* to, size_t room, void*) {
  return ::read(descriptor, to, std::min(room, Mount::kMessageBytes));
}

ssize_t write_answer(int descriptor, iovec* parts, int count, void* mount) {
  static_cast<Mount*>(mount)->complete_greeting({parts, static_cast<size_t>(count)});
  return ::writev(descriptor, parts, count);
}

}  // namespace

fs::Caller caller_of(fuse_req_t request) {
  const fuse_ctx* const context = fuse_req_ctx(request);
  fs::Caller caller{.uid = context->uid, .gid = context->gid, .groups = {}};
  if (caller.uid == 0) return caller;
  constexpr int kMostGroups = 64;  // of one message to the server
  gid_t groups[kMostGroups];
  const int count = fuse_req_getgroups(request, kMostGroups, groups);
  for (int i = 0; i < std::min(count, kMostGroups); ++i) caller.groups.push_back(groups[i]);
  return caller;
}

Mount::Mount(base::Executor& executor, fs::FileSystem& files, const MountOptions& options)
    : executor_(executor),
      files_(files),
      options_(options),
      operations_(executor),
      changes_(executor) {
  executor_.add_poller(this);
}

Mount::~Mount() {
  files_.set_cache(nullptr);
  operations_.give_up_all();
  unmount();
  if (session_ != nullptr) fuse_session_destroy(session_);
  executor_.remove_poller(this);
}

Result<std::unique_ptr<Mount>> Mount::start(base::Executor& executor, fs::FileSystem& files,
                                            const MountOptions& options, const std::string& source,
                                            const std::string& directory) {
  std::unique_ptr<Mount> mount(new Mount(executor, files, options));
  PMSTORE_TRY_STATUS(mount->mount(source, directory));
  return mount;
}

Status Mount::mount(const std::string& source, const std::string& directory) {
  fuse_set_log_func(keep_message);
  last_message().clear();
  fuse_lowlevel_ops calls{};
  calls.init = init;
  calls.forget = on_forget;
  calls.forget_multi = on_forget_multi;
  add_name_calls(calls);
  add_attribute_calls(calls);
  add_file_calls(calls);
  add_directory_calls(calls);
  add_lock_calls(calls);
  std::string words = "subtype=pmstore,fsname=" + escaped(source);
  for (const std::string& word : options_.kernel) words += "," + word;
  std::string program = "pmstore";
  std::string option = "-o";
  char* arguments[] = {program.data(), option.data(), words.data(), nullptr};
  fuse_args parsed = FUSE_ARGS_INIT(3, arguments);
  session_ = fuse_session_new(&parsed, &calls, sizeof calls, this);
  fuse_opt_free_args(&parsed);
  if (session_ == nullptr) return cannot_mount("libfuse refuses: " + last_message());
  if (fuse_session_mount(session_, directory.c_str()) != 0) {
    const std::string why = last_message().empty() ? std::strerror(errno) : last_message();
    return cannot_mount(why);
  }
  mounted_ = true;
  descriptor_ = fuse_session_fd(session_);
  const int flags = fcntl(descriptor_, F_GETFL);
  if (flags < 0 || fcntl(descriptor_, F_SETFL, flags | O_NONBLOCK) != 0) {
    return cannot_mount(std::strerror(errno));
  }
  const fuse_custom_io io{
      .writev = write_answer, .read = read_question, .splice_receive = {}, .splice_send = {}};
  if (fuse_session_custom_io(session_, &io, descriptor_) != 0) {
    return cannot_mount("libfuse refuses: " + last_message());
  }
  PMSTORE_TRY_STATUS(executor_.watch(descriptor_, EPOLLIN, *this));
  watched_ = true;
  if (options_.uses_delegations()) {
    PMSTORE_TRY(invalidator_, Invalidator::start(executor_, descriptor_));
    files_.set_cache(this);
  }
  return {};
}

// libfuse 3.14 does not know this: set-id bits are dropped here (drop_set_ids()). Otherwise the
// kernel changes the mode in the name of the program that writes, which may not do that, and asks
// for security.capability before each write.
void Mount::complete_greeting(std::span<iovec> answer) {
  if (greeted_ || !initialized_) return;
  greeted_ = true;
  const auto* const asked = static_cast<const std::byte*>(message_.mem) + sizeof(fuse_in_header);
  fuse_init_in offer{};
  std::memcpy(&offer, asked, offsetof(fuse_init_in, flags2));
  if ((offer.flags & FUSE_HANDLE_KILLPRIV_V2) == 0) return;
  PMSTORE_CHECK(answer.size() == 2 && answer[1].iov_len >= offsetof(fuse_init_out, max_background),
                "the first answer is that of FUSE_INIT");
  fuse_init_out said{};
  std::memcpy(&said, answer[1].iov_base, offsetof(fuse_init_out, max_background));
  said.flags |= FUSE_HANDLE_KILLPRIV_V2;
  std::memcpy(answer[1].iov_base, &said, offsetof(fuse_init_out, max_background));
}

void Mount::prepare_connection(fuse_conn_info& connection) {
  // Data goes from memory to memory here: a pipe between would be one copy more.
  connection.want &=
      ~static_cast<unsigned>(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
  // Attributes that come with names are only worth their transfer if the kernel may believe them.
  const bool caches = options_.attribute_seconds > 0;
  const auto with_names = static_cast<unsigned>(FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO);
  connection.want &= ~with_names;
  if (caches) connection.want |= connection.capable & with_names;
  if (options_.single) connection.want |= connection.capable & FUSE_CAP_CACHE_SYMLINKS;
  connection.max_write = kMostRequestBytes;
  connection.max_background = 64;
  connection.congestion_threshold = 48;
  connection.time_gran = 1;
  initialized_ = true;
}

// Of a file that other mounts change, only the server knows what it has: the kernel keeps no pages
// of it. Maps for reading are possible all the same; shared writable ones are refused by the
// kernel.
void Mount::describe_opened(fuse_file_info& file, bool cached, bool keeps) const {
  PMSTORE_CHECK(cached || !keeps, "what is read past the pages keeps none");
  file.direct_io = options_.single || cached ? 0 : 1;
  file.keep_cache = options_.single || keeps ? 1 : 0;
}

base::Task<void> Mount::invalidate(fs::Ino ino) {
  if (invalidator_ != nullptr) co_await invalidator_->invalidate(raw(ino));
}

void Mount::on_ready(uint32_t) { readable_ = true; }

bool Mount::arm() {
  if (stop_requested_.load() && !ended_) return false;
  return !operations_.has_finished() && !(readable_ && !ended_ && has_room());
}

bool Mount::has_room() const {
  return operations_.running() < kMostOperations && buffers_.used_bytes() < kMostDataBytes;
}

size_t Mount::poll() {
  // Of the data that was given up, its buffers are kept: not without bound.
  const bool may_give_up = buffers_.retired_bytes() < kMostDataBytes / 2;
  size_t done = operations_.reap(may_give_up);
  if (done > 0) changes_.notify_all();
  if (stop_requested_.load() && !ended_) {
    end();
    ++done;
  }
  if (ended_ || !watched_) return done;
  if (has_room() == waits_for_room_) {
    waits_for_room_ = !waits_for_room_;
    executor_.change_watch(descriptor_, waits_for_room_ ? 0 : uint32_t{EPOLLIN}, *this);
  }
  // A busy executor looks at its descriptors now and then only: a question would wait for that.
  if (++polls_ % kPollsPerLook == 0) readable_ = true;
  return done + receive();
}

size_t Mount::receive() {
  constexpr size_t kPerTurn = 16;
  size_t received = 0;
  while (readable_ && !ended_ && received < kPerTurn && has_room()) {
    if (!message_memory_) message_memory_.emplace(buffers_.lend(kMessageBytes));
    message_.mem = message_memory_->bytes().data();
    const int bytes = fuse_session_receive_buf(session_, &message_);
    if (bytes == -EINTR) continue;
    if (bytes <= 0) {
      readable_ = false;
      if (bytes != -EAGAIN) end();  // unmounted, or the kernel has ended the connection
      break;
    }
    const bool was_initialized = initialized_;
    fuse_session_process_buf(session_, &message_);
    ++received;
    if (initialized_ != was_initialized) changes_.notify_all();
    if (fuse_session_exited(session_) != 0) end();
  }
  return received;
}

DataBuffers::Buffer Mount::take_message() {
  PMSTORE_CHECK(message_memory_.has_value(), "a question's memory is taken once");
  DataBuffers::Buffer taken(std::move(*message_memory_));
  message_memory_.reset();
  return taken;
}

void Mount::end() {
  ended_ = true;
  if (watched_) executor_.unwatch(descriptor_);
  watched_ = false;
  changes_.notify_all();
}

void Mount::stop() {
  stop_requested_.store(true);
  executor_.wake();
}

base::Task<bool> Mount::until_ready() {
  while (!initialized_ && !ended_) co_await changes_.wait();
  co_return !ended_;
}

base::Task<void> Mount::until_ended() {
  while (!ended_) co_await changes_.wait();
}

base::Task<void> Mount::drain(uint64_t patience_ns) {
  if (!ended_) end();
  const uint64_t until_ns = executor_.now_ns() + patience_ns;
  constexpr uint64_t kLookAgainNs = 1'000'000;
  while (operations_.running() > 0 && executor_.now_ns() < until_ns) {
    co_await executor_.sleep_for(kLookAgainNs);
  }
  operations_.give_up_all();
  files_.set_cache(nullptr);
  // What a server that is away does not hear of it forgets later, with this client.
  base::Task<void> closing = close_all();
  closing.start();
  while (!closing.done() && executor_.now_ns() < until_ns) {
    co_await executor_.sleep_for(kLookAgainNs);
  }
}

base::Task<void> Mount::close_all() {
  for (const auto& opened : open_files_.remove_all()) (void)co_await opened->file->close();
}

void Mount::unmount() {
  if (watched_) executor_.unwatch(descriptor_);
  watched_ = false;
  invalidator_.reset();  // it has the descriptor, too
  if (mounted_) fuse_session_unmount(session_);
  mounted_ = false;
}

}  // namespace pmstore::tools
