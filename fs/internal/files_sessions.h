// The inside of FilesService: its sessions as a service::Service.
//
// Invariants: a session's client is in clients(), unless it was forgotten; then the session has
// ended. A handler that is suspended counts in Session::active, keeps its session and its client,
// and is destroyed by stop(). Threads: the executor's.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "fs/files_service.h"
#include "fs/internal/files_calls.h"
#include "fs/internal/files_clients.h"

namespace pmstore::fs::internal {

struct FilesSession final : service::Session {
  FilesClientRef files;  // the client
  uint64_t calls = 0;
};

class FilesSessions final : public service::Service {
 public:
  using Body = std::span<const std::byte>;

  FilesSessions(base::Executor& executor, const FilesServiceOptions& options);

  void open(Namespace& names, DataServers* servers);
  void stop();
  void refuse(const Error& why);
  FilesClients& clients() { return clients_; }
  const FilesClients& clients() const { return clients_; }
  uint64_t repeated() const { return repeated_; }
  uint64_t deaf() const { return deaf_; }
  uint64_t recalls() const { return delegations_.recalls(); }
  bool stopped() const { return stopped_; }
  // As FilesService has it.
  void note_lost_data() { delegations_.all_changed(); }

  std::function<void(ClientId)> end_data_sessions;
  std::function<base::Task<void>(uint64_t)> data_sessions_ended;
  std::function<void(ClientId, uint16_t)> end_data_sessions_at;
  std::function<bool(ClientId, uint16_t)> have_ended_at;

  // As service::Service.
  uint64_t epoch() const override { return options_.epoch; }
  std::shared_ptr<service::Session> make_session() const override {
    return std::make_shared<FilesSession>();
  }
  // Its silence keeps freed space in quarantine.
  bool needs_lease(const service::Session&) const override { return true; }
  Result<std::vector<std::byte>> admit(service::Session& session, Body body) override;
  void on_call(service::Session& session, fabric::RpcCall call, Body body) override;
  bool on_known_through(service::Session& session, uint64_t number) override;
  void on_ended(service::Session& session, std::optional<SessionEnd> why) override;

 private:
  class Active;
  uint64_t lease_ns() const { return uint64_t{options_.lease_ms} * 1'000'000; }
  void run(base::Task<void> task);
  void forgotten(FilesClient& client);
  base::Task<void> forget_opens(FilesClientRef client);
  // Writes of clients that may land at a data server for too long.
  void look_at_held_back();
  // The client is not held back any more where its sessions were ended.
  void note_ended(FilesClient& client);
  // Ends when the client knows that it was forgotten, or caches nothing by its own clock.
  base::Task<void> caches_nothing(const FilesClient& client);
  // Runs while there are clients.
  base::Task<void> watch();
  void start_watch();
  base::Task<void> serve(std::shared_ptr<FilesSession> session, fabric::RpcCall call,
                         RequestHead head, FilesRequest request);
  base::Task<void> serve_number(FilesSession& session, fabric::RpcCall& call,
                                const RequestHead& head, const FilesRequest& request);
  base::Task<void> execute(FilesSession& session, fabric::RpcCall& call,
                           const FilesRequest& request);
  void serve_news(FilesSession& session, fabric::RpcCall& call, const RequestHead& head);
  void serve_confirm(FilesSession& session, fabric::RpcCall& call, Body body);
  // A request for news whose answer waits for a recall, or for its time.
  struct Parked {
    explicit Parked(base::Executor& executor) : wake(executor) {}
    base::WaitList wake;  // a recall, the end of the session or of the time
    bool ends = false;    // others of the session need its room
    base::Task<void> timer;
    base::Task<void> answer;
  };
  // False: the session has one already.
  bool park(std::shared_ptr<FilesSession> session, fabric::RpcCall& call, const RequestHead& head,
            uint64_t until_ns);
  base::Task<void> await_news(Parked& parked, std::shared_ptr<FilesSession> session,
                              fabric::RpcCall call, RequestHead head, uint64_t until_ns);
  base::Task<void> wake_at(Parked& parked, uint64_t at_ns);
  // What waits for this session is answered: FilesCalls::kCallsPerWait.
  void end_waits(FilesSession& session);
  // Lays out the whole answer in `room`; gives its bytes, or 0: the request does not decode.
  base::Task<size_t> answer(const FilesRequest& request, std::span<std::byte> room);

  base::Executor& executor_;
  const FilesServiceOptions options_;
  FilesClients clients_;
  FileLocks locks_;
  Delegations delegations_;
  std::vector<FilesClientRef> fading_;  // forgotten, but may use what they have cached
  std::optional<FilesCalls> calls_;     // empty: the namespace is not open
  Namespace* names_ = nullptr;
  bool stopped_ = false;
  std::optional<Error> refusal_;
  uint64_t repeated_ = 0;
  uint64_t deaf_ = 0;
  bool watching_ = false;
  std::list<base::Task<void>> tasks_;
  // By session, which the answer's task keeps. Beside tasks_, which each request looks through.
  std::unordered_map<const FilesSession*, Parked> parked_;
};

}  // namespace pmstore::fs::internal
