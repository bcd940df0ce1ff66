// FilesClients: what the file service keeps of each client, over the ends of its sessions: which of
// its requests were executed, and through which news its maps are right.
//
// A client that loses its connection comes back within a lease and finds everything as it was:
// files that it has open, locks, answers that it did not get. When it does not, or when it does not
// confirm news for two leases, it is forgotten: the owner of this object closes its files and ends
// its sessions with data servers. News are changes of maps that a client must not use any more.
//
// Invariants: a number of a client is executed at most once; `confirmed` of a client never falls,
// and is at most newest(), and at no data server above it. Bounded: kAnswers for each client;
// kNews; clients that are away: of more, those who went first are forgotten first, and those of the
// same secret before others. Threads: one.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/executor.h"
#include "base/task.h"
#include "fs/files_protocol.h"
#include "fs/namespace.h"
#include "fs/types.h"
#include "service/session.h"

namespace pmstore::fs::internal {

struct FilesClient : std::enable_shared_from_this<FilesClient> {
  using Answer = std::vector<std::byte>;

  explicit FilesClient(base::Executor& executor) : idle(executor), answered(executor) {}

  ClientId id;
  uint64_t instance = 0;  // programs that follow each other may be the same client
  OpenOwner owner{};      // of its open files
  uint64_t ticket = 0;
  service::Session* session = nullptr;  // empty: it is away
  uint64_t away_since_ns = 0;
  bool forgotten = false;
  unsigned active = 0;  // requests that are being executed, also of sessions that have ended
  base::WaitList idle;  // notified when there is none

  // Of its requests with a number. No answer: it is being executed.
  std::map<uint64_t, std::optional<Answer>> executed;
  uint64_t known_through = 0;
  base::WaitList answered;

  uint64_t confirmed = 0;
  // A data server at which writes by maps from before may still land.
  struct HeldBack {
    uint64_t confirmed = 0;  // there
    uint64_t since_ns = 0;
    bool ending = false;  // its sessions there are being ended
  };
  std::map<uint16_t, HeldBack> held_back;  // by its index
  uint64_t confirmed_at(uint16_t server) const {
    const auto held = held_back.find(server);
    return held == held_back.end() ? confirmed : held->second.confirmed;
  }
  // When the first news behind `confirmed` was made, as far as it was kept when look() noticed.
  std::optional<uint64_t> behind_since_ns;
  // By its own clock it may use what it has cached until then, at the latest.
  uint64_t caches_until_ns = 0;
  bool has_maps = false;  // it has asked for one, or has had a delegation
};

using FilesClientRef = std::shared_ptr<FilesClient>;

class FilesClients {
 public:
  static constexpr size_t kAnswers = kMaxUnanswered;
  static constexpr size_t kNews = 4096;
  static constexpr size_t kRetired = 1u << 20;

  // `max_away`: at least as many as there are sessions, so that all may lose theirs at once.
  FilesClients(base::Executor& executor, uint64_t lease_ns, size_t max_away)
      : executor_(executor), lease_ns_(lease_ns), max_away_(max_away), changed_(executor) {}

  // Its session begins; the one before has ended. It has sent requests through number `last_sent`
  // in earlier ones.
  FilesClientRef came(ClientId id, uint64_t instance, uint64_t last_sent,
                      service::Session& session);
  // The client with this origin; empty: it is unknown, or was forgotten.
  FilesClientRef find(ClientId id, uint64_t instance) const;
  // One with this origin was forgotten, but what it asked for is still being executed.
  bool lingers(ClientId id, uint64_t instance);
  // Its session has ended.
  void left(FilesClient& client);
  // Of now. The owner's on_forget() runs before the waiters of all_confirmed().
  void forget(FilesClient& client);
  // Forgets who was away for a lease, and gives those who have not confirmed for two: their owner
  // ends their sessions and forgets them.
  std::vector<FilesClientRef> look();
  bool empty() const { return clients_.empty(); }
  size_t size() const { return clients_.size(); }
  std::vector<service::Session*> sessions() const;

  // ---- requests with a number ----

  enum class Number : uint8_t { kNew, kRunning, kAnswered, kKnown, kTooMany };
  // kNew: it is being executed from here on.
  Number begin(FilesClient& client, uint64_t number);
  void answer(FilesClient& client, uint64_t number, FilesClient::Answer answer);
  // It was not executed, and will not be: its session has ended.
  void drop(FilesClient& client, uint64_t number);
  void known(FilesClient& client, uint64_t through);

  // ---- news ----

  uint64_t newest() const { return first_news_ + news_.size() - 1; }
  // A map has changed, or a delegation is recalled.
  void add_news(Ino ino, bool recall = false);
  // False: it says more than there is.
  bool confirm(FilesClient& client, uint64_t through);
  // The same, but for what lies at these data servers.
  bool confirm_beside(FilesClient& client, uint64_t through, const UnlandedWrites& unlanded);
  // For two leases; those whose sessions there are being ended among them.
  std::vector<std::pair<FilesClientRef, uint16_t>> held_back_long() const;
  // Nothing of the client lands there any more by a map from before now.
  void landed(FilesClient& client, uint16_t server);
  struct News {
    uint64_t through = 0;
    bool all = false;  // more than is kept, or than `most`
    std::vector<Ino> changed;
    std::vector<Ino> recalled;
  };
  News news_after(uint64_t confirmed, size_t most) const;
  // The news of now tell of this range; those that come later do not concern it.
  void retire(const AreaRange& range);
  // All who may have a map with the range have confirmed the news that tell of it, or were
  // forgotten. Of a range that was not retired: those of now.
  base::Task<void> all_confirmed(AreaRange range);

  // Closes the client's files, and ends its sessions with data servers: on return none of its
  // writes takes effect any more.
  std::function<void(FilesClient&)> on_forget;

 private:
  struct Change {
    Ino ino{};
    uint64_t made_ns = 0;
    bool recall = false;
  };
  using Origin = std::pair<ClientId, uint64_t>;
  bool is_behind(const FilesClient& client, uint64_t through, uint64_t confirmed) const {
    return client.has_maps && confirmed < through;
  }
  uint64_t made_ns(uint64_t number) const;

  base::Executor& executor_;
  const uint64_t lease_ns_;
  const size_t max_away_;
  std::map<Origin, FilesClientRef> clients_;
  std::vector<FilesClientRef> lingering_;  // forgotten, with requests under way
  uint64_t last_owner_ = 0;
  // Numbers are from 1 on; the first that is kept is first_news_.
  uint64_t first_news_ = 1;
  std::deque<Change> news_;
  // Of ranges that are to be cleaned, by server and offset: the newest news when they were retired.
  std::map<std::pair<uint16_t, uint64_t>, uint64_t> retired_;
  base::WaitList changed_;  // confirmed, or forgotten
};

}  // namespace pmstore::fs::internal
