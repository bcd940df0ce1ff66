// Delegations: which clients may cache data and size of open files, at the server.
//
// A file that one client has open, or that no client has open for writing, may be cached by all
// clients that have it open and ask for it. An open that conflicts with that recalls it from
// everybody: news tell the clients, and each says that it caches nothing of it any more when it
// confirms them. The open waits for that (FilesCalls). From then on the file is shared: no
// client caches it until all have closed it. A client that was forgotten caches until its owner
// says drop(): by its own clock it is sure for a lease behind the last request that was answered.
//
// Invariants: of a file that is shared, who `caches` was recalled; a client that has a file open
// for writing beside others is at a shared file. Bounded by the pairs of clients and open files
// that the namespace admits. Threads: the executor's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <unordered_map>

#include "base/executor.h"
#include "fs/files_protocol.h"
#include "fs/internal/file_changes.h"
#include "fs/namespace.h"
#include "fs/types.h"

namespace pmstore::fs::internal {

class Delegations {
 public:
  // `starts`: of the server.
  explicit Delegations(uint64_t starts = 0) : changes_(starts) {}

  // `client` has the file open once more, with the right to write if `writes`. True: it may cache
  // it from now on, which it does only if it `wants` to.
  bool opened(OpenOwner client, Ino ino, bool writes, bool wants);
  // As often as opened(). With the last one the client caches it no more.
  void closed(OpenOwner client, Ino ino);
  // Nobody caches it from here on, until all have closed it.
  void share(Ino ino);
  // Nothing of the client is open any more.
  void drop(OpenOwner client);
  // Nobody cached the file, or could have, when the client was given it for writing.
  void admit(OpenOwner client, Ino ino);
  bool is_admitted(OpenOwner client, Ino ino) const;
  // The client changes the file, which it need not have open, until end_change().
  void begin_change(OpenOwner client, Ino ino);
  void end_change(OpenOwner client, Ino ino);
  // The file is shared, and another client than this may still use what it has cached.
  bool is_cached_beside(OpenOwner client, Ino ino) const;
  // The client may use what it has cached of some file.
  bool caches(OpenOwner client) const;
  // The client has confirmed these news, and caches nothing that they recall. A file in which
  // writes of it may still land counts as cached until none may land at any of the data servers:
  // that is said again without the file, or landed().
  void confirmed(OpenOwner client, uint64_t through, const UnlandedWrites* unlanded = nullptr,
                 uint64_t now_ns = 0);
  // None lands at this data server any more.
  void landed(OpenOwner client, uint16_t server);
  // Recalls that are held back there since then, by confirmed(), or longer, wait for it no more.
  void give_up(OpenOwner client, uint16_t server, uint64_t since_ns);
  // There are recalls for the client in news behind these.
  bool must_hear(OpenOwner client, uint64_t confirmed) const;
  size_t files() const { return files_.size(); }
  // By the clock of changes: now, and when another client could change the file last. One whose
  // write may still land changes it later than any time.
  uint64_t changes() const { return changes_.now(); }
  uint64_t changed_by_others(OpenOwner client, Ino ino) const;
  // A data server may have lost what it had not made durable, of any file.
  void all_changed() { changes_.begin_all(); }
  uint64_t recalls() const { return recalls_; }

  // Makes the news of a recall; gives their number.
  std::function<uint64_t(Ino)> on_recall;

 private:
  struct Opener {
    uint32_t opens = 0;     // and changes
    uint32_t changes = 0;   // under way
    bool writes = false;    // until it has closed all of them
    bool admitted = false;  // as a writer, likewise
    bool caches = false;
  };
  struct OfFile {
    std::map<OpenOwner, Opener> openers;
    bool shared = false;
  };
  struct OfClient {
    std::set<Ino> files;
    std::multimap<uint64_t, Ino> recalls;  // by the number of their news; not confirmed
    // Whose recalls are confirmed, but for writes under way, and the data servers of these, with
    // the time from which on that is known.
    std::map<Ino, std::map<uint16_t, uint64_t>> unlanded;
  };
  // At the servers for which `has_landed` says so, by server, file, and since when it is known.
  using HasLanded = std::function<bool(uint16_t, Ino, uint64_t)>;
  void note_landed(OpenOwner client, OfClient& of_client, const HasLanded& has_landed);
  // Of what was `listed`, writes may still land in these files only, if in any.
  void end_listed(OpenOwner client, const UnlandedFiles& listed, const UnlandedFiles* still);
  void list(OpenOwner client, const UnlandedWrites& unlanded);
  Opener& enter(OpenOwner client, Ino ino);
  // Recalls the file if who has it open conflicts with each other.
  void settle(OpenOwner client, Ino ino);
  void recall(Ino ino, OfFile& file);

  std::unordered_map<Ino, OfFile> files_;
  std::unordered_map<OpenOwner, OfClient> clients_;
  // Where writes of clients may land, as each has said last; also in files that it has closed.
  std::unordered_map<OpenOwner, UnlandedWrites> listed_;
  FileChanges changes_;
  uint64_t recalls_ = 0;
};

// While it lives, a client changes size or rights of a file which it need not have open.
class ChangeUnderWay {
 public:
  ChangeUnderWay(Delegations& delegations, OpenOwner client, Ino ino)
      : delegations_(delegations), client_(client), ino_(ino) {
    delegations_.begin_change(client_, ino_);
  }
  ChangeUnderWay(const ChangeUnderWay&) = delete;
  ChangeUnderWay& operator=(const ChangeUnderWay&) = delete;
  ~ChangeUnderWay() { delegations_.end_change(client_, ino_); }

 private:
  Delegations& delegations_;
  const OpenOwner client_;
  const Ino ino_;
};

}  // namespace pmstore::fs::internal
