// FileDataService: grants clients one-sided access to the units of a file area, and writes for them
// where only a CPU can make bytes durable.
//
// A session may hold maps, so it has a lease, and it is the thing that quarantine waits for: when
// it has ended, its connection is destroyed, and nothing of it reaches the area any more.
// end_sessions() makes sure of that for one client. Threads: one executor's. Lifetimes: the space
// outlives it; it outlives its host. A write by message checks its generation words and stores in
// one turn of the executor, so one with an old map stores nothing. Group commit: where a drain is
// an msync, writes that arrive in one turn share one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/running_tasks.h"
#include "fs/file_area.h"
#include "fs/file_data_protocol.h"
#include "fs/internal/area_regions.h"
#include "fs/local_data_space.h"
#include "service/host.h"
#include "service/service.h"

namespace pmstore::fs {

class FileDataService final : public service::Service {
 public:
  static constexpr size_t kMaxSessions = 1024;

  explicit FileDataService(LocalDataSpace& space, size_t max_sessions = kMaxSessions);

  // The area belongs to a namespace server elsewhere, or will: its sessions are let in. Before the
  // host listens. All units of the space are taken: their owner knows which of them are free.
  void serve_owner(const FileArea& area);
  // As it is recorded in the area; of serve_owner() only.
  AreaOwner owner() const { return area_ ? area_->owner() : AreaOwner{}; }
  bool has_owner_session() const { return owner_ != nullptr; }

  // Clients that may reach the area now.
  std::vector<ClientId> clients() const;
  bool has_session(const ClientId& client) const { return sessions_of_.contains(client); }
  // Ends all sessions of the client, whatever it says: on return nothing that it has posted can
  // reach the area any more. Gives how many there were.
  size_t end_sessions(const ClientId& client, SessionEnd why);
  // From now on no client is let in, for this reason, and all sessions have ended.
  void refuse(const Error& why);
  // Called when the last session of a client has ended.
  std::function<void(const ClientId&)> on_client_gone;

  // Makes one section of the space reachable through one device that cannot reach it yet; false:
  // there is none. Errors of Device::register_memory().
  Result<bool> register_one();
  // No device can reach the section any more.
  void withdraw(uint64_t first_unit);
  // A device can.
  bool reaches(uint64_t first_unit) const;

  // Writes by message that were refused because of an old map.
  uint64_t stale_writes() const { return stale_writes_; }

  uint64_t epoch() const override { return space_.area().start(); }
  std::shared_ptr<service::Session> make_session() const override;
  bool needs_lease(const service::Session&) const override { return true; }
  Result<std::vector<std::byte>> admit(service::Session& session,
                                       std::span<const std::byte> body) override;
  void on_call(service::Session& session, fabric::RpcCall call,
               std::span<const std::byte> body) override;
  void on_ended(service::Session& session, std::optional<SessionEnd> why) override;
  void finish() override { commit(); }

 protected:
  base::Task<Result<std::unique_ptr<service::EndpointPart>>> open(
      service::Endpoint& endpoint) override;

 private:
  using AreaRegions = internal::AreaRegions;
  // What an endpoint has of a section. Errors of Device::register_memory().
  Result<const AreaRegions::Section*> regions_of(service::Endpoint& endpoint,
                                                 const LocalDataSpace::Reachable& section) const;
  Status sections(service::Session& session, fabric::RpcCall& call,
                  std::span<const std::byte> body);
  // Room for one more session. BackPressure.
  Status make_place();
  // ---- the owner (file_data_owner.cc) ----
  Result<std::vector<std::byte>> admit_owner(service::Session& session,
                                             const AreaOwnerHello& hello);
  Status check_owner(const ClientId& key, const AreaOwnerHello& hello) const;
  void end_all_clients();
  // As write(); what takes long answers later.
  Status on_owner_call(service::Session& session, fabric::RpcCall& call,
                       std::span<const std::byte> body);
  Status set_words(std::span<const std::byte> body);
  Status end_client(std::span<const std::byte> body);
  Status release(std::span<const std::byte> body);
  Status zero(service::Session& session, fabric::RpcCall& call, std::span<const std::byte> body);
  base::Task<void> zero_parts(std::shared_ptr<service::Session> session, fabric::RpcCall call,
                              AreaZero what);
  // Answers, or gives the error to answer with. Protocol costs the connection.
  Status write(fabric::RpcCall& call, std::span<const std::byte> body);
  Status persist(fabric::RpcCall& call, std::span<const std::byte> body);
  // What was stored or flushed for the call becomes durable, now or with others; then it answers.
  Status drain_for(fabric::RpcCall& call);
  // Runs until it is destroyed with the service.
  base::Task<void> commit_groups();
  // One drain for all that wait for one, and their answers.
  void commit();

  LocalDataSpace& space_;
  const size_t max_sessions_;
  const bool groups_;                    // a drain takes long
  std::vector<fabric::RpcCall> stored_;  // of writes that wait for the drain
  base::WaitList wake_;
  base::Task<void> committing_;
  // With those whose handshake is not over.
  std::unordered_map<ClientId, std::vector<service::Session*>, HashOfClientId> sessions_of_;
  uint64_t stale_writes_ = 0;
  std::optional<Error> refusal_;
  std::optional<FileArea> area_;  // of serve_owner()
  service::Session* owner_ = nullptr;
  uint64_t owner_instance_ = 0;  // of the last one, also while it has no session
  base::RunningTasks zeroing_;   // last: destroyed first
};

}  // namespace pmstore::fs
