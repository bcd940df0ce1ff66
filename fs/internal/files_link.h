// FilesLink: a client's session with the file service: made again when it is lost, with the files
// that are open, and with the news that it is told.
//
// A request that changes something has a number and is executed once, also when its answer is lost
// and it is sent again, as long as the server knows this client (its ticket). After a restart of
// the server a request that was sent before is in doubt: call() says so, or does not send again
// what must not be done twice.
// Invariants: one session at a time; `confirmed` news never fall; the message is laid out and given
// to RpcClient::call() without a suspension in between. Threads: the executor's. Lifetimes: the
// executor, the device and the host of this link outlive it; its tasks may be destroyed at any
// suspension.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "base/executor.h"
#include "fabric/device.h"
#include "fs/file_system.h"
#include "fs/files_protocol.h"
#include "fs/internal/file_locks.h"
#include "service/link.h"
#include "service/reconnector.h"

namespace pmstore::fs::internal {

// A file that this client has open, as the server is to know after a restart.
struct OpenedFile {
  Ino ino{};
  int flags = 0;
  bool lost = false;  // the server does not have it open any more
};

struct FilesCall {
  FilesMethod method{};
  Caller caller = {};
  std::vector<std::byte> body = {};      // the struct of the method, and names
  std::span<const std::byte> data = {};  // behind it; borrowed
  uint32_t reply_bytes = 0;              // the most that it gives, beside an error's message
  uint32_t mark = 0;                     // NewFile::mark
  bool changes = false;                  // it has a number
  bool may_be_repeated_in_doubt = true;  // at a server that may have executed it before
  // It gives up what the server keeps for this client. Without an answer it is owed: the next
  // session begins with it. A server that has forgotten this client is not asked: in doubt, EBADF.
  bool gives_up = false;

  FilesCall(FilesMethod which, bool changing, uint32_t room)
      : method(which), reply_bytes(room), changes(changing) {}
  template <typename T>
  FilesCall& put(const T& value) {
    return put_bytes(service::bytes_of(value));
  }
  FilesCall& put_name(std::string_view name) { return put_bytes(std::as_bytes(std::span(name))); }

 private:
  // Not by insert(): g++ 12 takes its copy for one behind the end.
  FilesCall& put_bytes(std::span<const std::byte> bytes) {
    if (bytes.empty()) return *this;
    const size_t at = body.size();
    body.resize(at + bytes.size());
    std::memcpy(body.data() + at, bytes.data(), bytes.size());
    return *this;
  }
};

class FilesLink final : public service::Reconnector::Target {
 public:
  using LinkRef = std::shared_ptr<service::Link>;
  // Its bytes lie in memory of the session.
  struct Reply {
    LinkRef link;
    fabric::RpcReply reply;
    std::span<const std::byte> body;  // what the method gives
    fabric::MessageReader reader() const { return fabric::MessageReader(body); }
  };
  // News.
  struct Heard {
    uint64_t through = 0;
    bool all = false;  // everything that this client has
    std::vector<Ino> changed;
    std::vector<Ino> recalled;
  };
  // Who uses the link: is told of what it hears.
  class Host {
   public:
    virtual ~Host() = default;
    // The server has forgotten this client: no map is right any more, and sessions with data
    // servers are to be made again.
    virtual void on_forgotten() = 0;
    // These delegations are not used for anything new from here on.
    virtual void revoke(const Heard& news) = 0;
    // These maps are not to be used any more, nor what was cached under these delegations. Gives
    // the data servers at which an access by them may still land; nothing else of them is left. For
    // those the news are not confirmed, and it is called again.
    virtual base::Task<UnlandedWrites> drop(Heard news) = 0;
    // Is there a delegation, so that its recall is to be heard of at once?
    virtual bool has_delegations() const = 0;
  };

  FilesLink(base::Executor& executor, fabric::Device& device, fabric::Uri uri,
            const FileSystemOptions& options, Host& host);
  ~FilesLink() override;

  // Errors of service::Link::open(); Protocol: another file system is served there now.
  base::Task<Status> connect_once() override;
  // In order: the server forgets this client at once. Later calls are EIO.
  base::Task<void> close();

  // `in_doubt`, if given: the request may have been executed before, by a server that has forgotten
  // this client since; its result is that of the repetition. EIO: the server is away, or has left
  // the request in doubt: the message says which.
  base::Task<PosixResult<Reply>> call(const FilesCall& request, bool* in_doubt = nullptr);

  // From now until removed the file is told to a server that has forgotten it.
  void add_open(OpenedFile& file) { opened_.insert(&file); }
  void remove_open(OpenedFile& file) { opened_.erase(&file); }
  // What this client holds, as that server is to know, too. The holder is OpenOwner{}.
  FileLocks& locks() { return locks_; }

  uint64_t identity() const { return welcome_.identity; }
  uint64_t ticket() const { return welcome_.ticket; }
  uint64_t sessions() const { return sessions_; }
  uint64_t confirmed() const { return confirmed_; }
  // Through which news delegations were revoked.
  uint64_t revoked() const { return revoked_; }
  // By this client's clock, the server has not forgotten it, and has recalled nothing that this
  // client has not heard of; nor will it have forgotten it within `for_ns`.
  bool is_sure(uint64_t for_ns = 0) const { return executor_.now_ns() + for_ns < sure_until_ns_; }
  // By this client's clock, the server knows it: so its locks and maps are its own.
  bool is_known() const { return executor_.now_ns() < known_until_ns_; }
  // Asks the server, which takes as long as any call. Errors of call().
  base::Task<PosixStatus> ask_whether_known();
  // A delegation was given.
  void listen();
  // A write of this client was given up: the server hears of the file at least once, so that it
  // knows that the file may have changed.
  void note_doubt(Ino ino) {
    if (doubts_.size() < kMaxUnlandedWrites) doubts_.insert(ino);  // as many are named as any file
    holds_back_ = true;
  }
  fabric::Counters counters() const;
  const ClientSecret& secret() const { return secret_; }
  PosixError malformed(std::string_view what);

 private:
  class Numbered;
  class Dropping;
  struct Reclaim {
    uint64_t number = 0;
    uint32_t opens = 0;
    int flags = 0;
  };
  bool usable() const override { return link_ != nullptr && link_->usable(); }
  base::Task<void> let_go() override { co_return; }
  void drop_link();
  Status take_welcome(const service::Link& opened);
  base::Task<Status> reclaim_opens(service::Link& on);
  base::Task<Status> await_reclaim(service::Link& on, Ino ino);
  base::Task<Status> reclaim_locks(service::Link& on);
  base::Task<Status> send_owed(service::Link& on);
  // One that gives up, and has got no answer from the server that it was begun at.
  void owe(const FilesCall& request, Numbered& numbered);
  // `doubt`: a server that has stopped since, or has forgotten this client, may have executed it.
  base::Task<Result<fabric::RpcReply>> send(service::Link& on, const FilesCall& request,
                                            uint64_t number, bool doubt = false);
  Result<std::span<const std::byte>> lay_out(const service::Link& on, const FilesCall& request,
                                             uint64_t number, bool doubt);
  PosixResult<Reply> open_reply(LinkRef on, fabric::RpcReply reply);
  void note_news(uint64_t newest);
  base::Task<void> follow_news();
  // With `waits`, the server may answer when it recalls something.
  base::Task<Status> fetch_news(bool waits);
  static Result<Heard> news_of(std::span<const std::byte> answer);
  void note_sure(const service::Link& on, uint64_t sent_ns, uint64_t news);
  // Through this number, but for these.
  base::Task<Status> confirm_beside(service::Link& on, uint64_t through, UnlandedWrites unlanded);
  base::Task<void> listen_to_recalls();
  base::Task<void> keep_informed();

  base::Executor& executor_;
  fabric::Device& device_;
  const fabric::Uri uri_;
  const FileSystemOptions& options_;
  Host& host_;
  const ClientSecret secret_;
  const uint64_t instance_;
  LinkRef link_;
  FilesWelcome welcome_;
  uint64_t sessions_ = 0;
  uint64_t calls_ = 0;
  fabric::Counters ended_;  // of earlier sessions
  // Numbers of requests. Invariant: the answers of all others through last_number_ are known.
  uint64_t last_number_ = 0;
  std::set<uint64_t> under_way_;
  const std::shared_ptr<uint64_t> known_through_ = std::make_shared<uint64_t>(0);
  base::WaitList answered_;  // notified when under_way_ has less
  uint64_t draw_number();
  // Would the next number be too far behind the oldest under way?
  bool is_far_ahead() const {
    return !under_way_.empty() && last_number_ + 1 - *under_way_.begin() >= kMaxUnanswered;
  }
  void ended(uint64_t number);
  void note_known();
  std::set<OpenedFile*> opened_;
  std::map<Ino, Reclaim> reclaims_;  // still to be told to the server
  FileLocks locks_;
  std::vector<FileLocks::Held> lock_reclaims_;  // likewise
  struct Owed {
    FilesCall request;
    uint64_t number = 0;
  };
  // As many at most as this client had open or locked. Of the present ticket.
  std::deque<Owed> owed_;
  uint64_t heard_ = 0;  // of news
  uint64_t confirmed_ = 0;
  bool untold_ = false;  // no request has said `confirmed_` yet
  bool is_informed() const { return heard_ <= confirmed_ && !untold_; }
  bool following_ = false;
  bool listening_ = false;
  uint64_t revoked_ = 0;  // heard_ and what was asked for: at least confirmed_
  uint64_t sure_until_ns_ = 0;
  uint64_t known_until_ns_ = 0;
  bool holds_back_ = false;  // the server knows of writes that may land, or is to know
  std::set<Ino> doubts_;     // the server does not know of
  bool dropping_ = false;    // one at a time: a later kConfirm says what is so later
  base::WaitList dropped_;
  std::unique_ptr<std::byte[]> message_;
  size_t message_bytes_ = 0;
  service::Reconnector reconnector_;
  base::Task<void> news_;
  base::Task<void> informed_;
  base::Task<void> listens_;
};

}  // namespace pmstore::fs::internal
