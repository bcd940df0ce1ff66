// RemoteArea: the file area of a data server elsewhere, as the namespace server that owns it sees
// it: which units are free, their generation words, and how to store, read and zero bytes.
//
// Which units are free is known here only; the words are kept here and at the data server. Bytes go
// as a client's do, by FileData; words and zeros go by the owner's session
// (fs/file_data_protocol.h). A session that is lost is made again, also in the background. When the
// data server was started again, or another namespace server had it, all words are renewed and all
// sessions of clients were ended, which the answer to the hello says.
// Invariants: a word of this table is what the data server has or will have, or one that it never
// has; a word never has a value twice. Threads: one executor's. Lifetimes: executor and opener of
// devices outlive it, and it outlives its tasks. Errors: Disconnected, Timeout: the data server is
// away for `patience_ns`; Fenced: a later namespace server has the area, which is told once, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/executor.h"
#include "base/result.h"
#include "base/running_tasks.h"
#include "base/task.h"
#include "fabric/device.h"
#include "fabric/uri.h"
#include "fs/file_data.h"
#include "fs/file_data_protocol.h"
#include "fs/unit_allocator.h"
#include "service/link.h"
#include "service/reconnector.h"

namespace pmstore::fs::internal {

struct RemoteAreaOptions {
  fabric::DeviceOpener* devices = nullptr;
  ClientSecret secret;       // of the owner, as the area knows its id, or will; not empty
  uint64_t file_system = 0;  // whose area it is, or will be
  uint64_t epoch = 0;        // of this start of the namespace server
  uint64_t start = 0;        // drawn by it; the low 48 bits count
  uint16_t server = 0;       // its index there
  uint64_t area = 0;         // identity; 0: of what is found
  uint64_t bytes = 0;        // of its units; 0: of what is found
  uint64_t call_timeout_ns = 5'000'000'000;
  uint64_t connect_timeout_ns = 2'000'000'000;
  uint64_t patience_ns = 3'000'000'000;
};

class RemoteArea final : public service::Reconnector::Target {
 public:
  // Errors of open_device().
  static Result<std::unique_ptr<RemoteArea>> create(base::Executor& executor, fabric::Uri uri,
                                                    RemoteAreaOptions options);
  ~RemoteArea() override;

  // One try, before anything else: the first connected() takes its patience.
  base::Task<Status> try_once() { return connect_once(); }
  // There are sessions on return. Errors of Link::open(), the data server's refusal among them.
  base::Task<Status> connected();
  bool is_connected() const { return usable(); }
  // From now on makes lost sessions again by itself.
  void keep_connected();
  base::Task<void> close();

  const fabric::Uri& uri() const { return uri_; }
  uint64_t area() const { return options_.area; }
  uint64_t bytes() const { return options_.bytes; }

  // ---- which units are free; requires that bytes() is known ----
  bool is_inside(uint64_t offset, uint64_t bytes) const;
  bool claim(uint64_t offset, uint64_t bytes);
  std::optional<UnitAllocator::Run> allocate(uint64_t least_units, uint64_t most_units);
  void release(uint64_t offset, uint64_t bytes);
  uint64_t free_bytes() const { return allocator_->free_units() * kUnitBytes; }

  // 0, which no unit has, while the data server was never there.
  uint64_t word(uint64_t offset) const;
  // Of these units, in bytes of the area. On return no READ of a client gives an old value.
  base::Task<Status> change_words(std::vector<uint64_t> offsets);

  // Durable on return.
  base::Task<Status> write(uint64_t offset, std::span<const std::byte> bytes);
  base::Task<Status> zero(uint64_t offset, uint64_t bytes);
  base::Task<Status> read(uint64_t offset, std::span<std::byte> into);
  // No write() that has ended with an error takes effect any more. Disconnected: one still may.
  base::Task<Status> landed();

  // The client's sessions with the data server are ended, as soon as it is there.
  void end_client(const ClientId& client);
  bool has_ends() const { return end_all_ || !ends_.empty() || is_ending_; }
  // Those of this client may not have ended yet.
  bool has_end_of(const ClientId& client) const {
    return end_all_ || is_ending_ || ends_.contains(client);
  }
  // On success those of all clients that were to be ended have ended. Disconnected: it is away.
  base::Task<Status> clients_ended();
  // The area has no owner any more. Requires that all units are free.
  base::Task<Status> give_up();

  // A later namespace server has the area: this one is to stop. Called from within a task of this
  // object, which it may not destroy.
  std::function<void(const Error&)> on_fenced;
  // The data server was started again: what it had not made durable may be lost. Likewise.
  std::function<void()> on_restarted;

 private:
  using LinkRef = std::shared_ptr<service::Link>;
  static constexpr size_t kMostEnds = 4096;  // of more, all clients are ended

  RemoteArea(base::Executor& executor, fabric::Uri uri, RemoteAreaOptions options,
             std::unique_ptr<fabric::Device> device);

  // As service::Reconnector::Target.
  bool usable() const override { return link_ != nullptr && link_->usable(); }
  base::Task<void> let_go() override { co_return; }
  base::Task<Status> connect_once() override;
  Status take_answer(const service::Link& made);
  base::Task<Status> open_data();

  base::Task<Status> call(uint16_t method, std::vector<std::byte> body);
  // After an access whose words were not right: has the data server been started again?
  base::Task<void> look_again();
  base::Task<void> stay_connected();
  base::Task<void> send_ends();
  MapExtent extent_at(uint64_t offset, uint64_t bytes) const;

  base::Executor& executor_;
  const fabric::Uri uri_;
  RemoteAreaOptions options_;
  uint64_t instance_;
  bool hello_unanswered_ = false;
  std::unique_ptr<fabric::Device> device_;
  std::optional<UnitAllocator> allocator_;  // empty: bytes() is not known
  std::vector<uint64_t> words_;             // by unit
  LinkRef link_;
  std::unique_ptr<FileData> data_;
  std::set<ClientId> ends_;  // to be ended
  bool end_all_ = false;
  bool is_ending_ = false;  // the request for one is under way
  bool sending_ends_ = false;
  base::WaitList end_sent_;
  service::Reconnector reconnector_;
  base::Task<void> staying_connected_;
  base::RunningTasks sending_;  // last: destroyed first
};

}  // namespace pmstore::fs::internal
