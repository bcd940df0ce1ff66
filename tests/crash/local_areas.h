// LocalAreas: the DataSpace of several file areas in this process, as a namespace server has it of
// several data servers: a server that is drained gets no new data. The first area grows, where its
// space has something that makes it grow.
//
// Threads: one. Lifetimes: executor and the pools of the areas outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/executor.h"
#include "fs/data_space.h"
#include "fs/file_area.h"
#include "fs/local_data_space.h"
#include "fs/types.h"

namespace pmstore::crash {

class LocalAreas final : public fs::DataSpace {
 public:
  explicit LocalAreas(base::Executor& executor) : executor_(executor) {}
  // Its index is the number of those before it.
  void add(const fs::FileArea& area);
  void set_draining(uint16_t server, bool is_draining) { servers_[server].drains = is_draining; }
  uint64_t used_bytes(uint16_t server) const;
  fs::LocalDataSpace& at(uint16_t server) { return *servers_[server].space; }

  uint16_t servers() const override { return static_cast<uint16_t>(servers_.size()); }
  uint16_t takers() const override;
  uint16_t taker(uint64_t number) const override;
  uint64_t total_bytes() const override;
  uint64_t free_bytes() const override;
  uint64_t growable_bytes() const override;
  base::Task<Status> make_room() override;

  Status claim(const fs::AreaRange& range) override;
  Result<fs::AreaRange> allocate(uint16_t server, uint64_t least, uint64_t most) override;
  std::optional<fs::AreaRange> take_unclean(uint16_t server) override;
  void give_back(const fs::AreaRange& range) override;
  uint64_t generation(const fs::AreaRange& range) const override;
  base::Task<Status> change_generations(std::vector<fs::AreaRange> ranges) override;
  base::Task<Status> write(fs::AreaRange range, std::span<const std::byte> bytes) override;
  base::Task<Status> zero(fs::AreaRange range) override;
  base::Task<Status> read(fs::AreaRange range, std::span<std::byte> into) override;
  base::Task<Status> clean(fs::AreaRange range) override;
  void release(const fs::AreaRange& range) override;

 private:
  struct Server {
    std::unique_ptr<fs::LocalDataSpace> space;
    bool drains = false;
  };
  fs::LocalDataSpace& of(const fs::AreaRange& range) const { return *servers_[range.server].space; }

  base::Executor& executor_;
  std::vector<Server> servers_;
};

}  // namespace pmstore::crash
