// StripedDataSpace: the DataSpace of several data servers: that of the namespace's own pool, with
// index 0, and any number elsewhere.
//
// New data goes to the servers that are in use and there; which one is the namespace's choice. The
// gate says when no client uses a range any more by what it was told; what a client that is gone
// has posted to a server elsewhere ends when that server has ended its sessions.
// Threads: one executor's. Lifetimes: the local space and the gate outlive it, and it outlives the
// namespace. Errors: as DataSpace.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "fs/data_space.h"
#include "fs/internal/remote_area.h"
#include "fs/local_data_space.h"
#include "fs/quarantine_gate.h"

namespace pmstore::fs {

class StripedDataSpace final : public DataSpace {
 public:
  StripedDataSpace(LocalDataSpace& local, QuarantineGate& gate);

  // A data server elsewhere; its area's size is known. Before claim(), or when it is a new one.
  void add(uint16_t index, std::unique_ptr<internal::RemoteArea> area, DataServerState state);
  void set_state(uint16_t index, DataServerState state);
  // Gives its area, of which all units are free.
  std::unique_ptr<internal::RemoteArea> remove(uint16_t index);
  // nullptr: no server elsewhere has this index.
  internal::RemoteArea* remote(uint16_t index) const;
  DataServerState state(uint16_t index) const;
  uint64_t used_bytes(uint16_t index) const;

  // A client that is forgotten: its sessions with the servers elsewhere are ended.
  void end_client(const ClientId& client);
  // Returns when they have ended, or at that time: a server may be away.
  base::Task<void> clients_ended(uint64_t until_ns);
  base::Task<void> close();

  uint16_t servers() const override { return end_; }
  uint16_t takers() const override;
  uint16_t taker(uint64_t number) const override;
  bool takers_are_away() const override;
  bool is_there(uint16_t server) const override;
  bool gives_away(uint16_t server) const override;
  uint64_t total_bytes() const override;
  uint64_t free_bytes() const override;
  // The pool's own area grows; those elsewhere do not.
  uint64_t growable_bytes() const override;
  base::Task<Status> make_room() override;

  Status claim(const AreaRange& range) override;
  Result<AreaRange> allocate(uint16_t server, uint64_t least, uint64_t most) override;
  std::optional<AreaRange> take_unclean(uint16_t server) override;
  void give_back(const AreaRange& range) override { release(range); }

  uint64_t generation(const AreaRange& range) const override;
  base::Task<Status> change_generations(std::vector<AreaRange> ranges) override;

  base::Task<Status> write(AreaRange range, std::span<const std::byte> bytes) override;
  base::Task<Status> zero(AreaRange range) override;
  base::Task<Status> read(AreaRange range, std::span<std::byte> into) override;

  void retire(const AreaRange& range) override;
  base::Task<Status> clean(AreaRange range) override;
  void release(const AreaRange& range) override;

 private:
  struct Server {
    DataServerState state = DataServerState::kInUse;
    std::unique_ptr<internal::RemoteArea> area;  // empty: the local one
  };
  bool takes(const Server& server) const;
  internal::RemoteArea& area_of(const AreaRange& range) const;

  LocalDataSpace& local_;
  QuarantineGate& gate_;
  std::map<uint16_t, Server> servers_;  // by index
  uint16_t end_ = 1;                    // above all that were ever added
};

}  // namespace pmstore::fs
