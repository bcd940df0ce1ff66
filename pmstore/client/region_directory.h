// RegionDirectory: the numbered pieces of a server's memory that a session may access, as far as
// the server has named them (Method::kRegions).
//
// A piece that is not known is asked for when it is first needed. While the answer is on its way,
// and where there is no such region, what the piece holds is reached by RPC. A region that is known
// can be used as long as the session lives. Bounded: kMostNumbers of each kind. Threads: one.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "base/task.h"
#include "fabric/memory_region.h"
#include "pmstore/layout/protocol.h"

namespace pmstore::internal {

class ClientSession;

class RegionDirectory {
 public:
  static constexpr uint32_t kMostNumbers = 1 << 16;
  // After an answer without the piece that was asked for, the kind is not asked for again so long.
  static constexpr uint64_t kAskAgainNs = 1'000'000'000;

  // nullopt: the piece is not known, or its region is smaller.
  std::optional<fabric::RemoteAddress> find(RegionKind kind, uint64_t number, uint64_t offset,
                                            uint64_t bytes) const {
    const auto& regions = of(kind).regions;
    if (number >= regions.size() || regions[number].bytes < bytes) return std::nullopt;
    if (offset > regions[number].bytes - bytes) return std::nullopt;
    return regions[number].at(offset);
  }
  bool knows(RegionKind kind, uint64_t number) const {
    return find(kind, number, 0, 1).has_value();
  }
  // What the server has named first is kept.
  void learn(RegionKind kind, uint32_t number, const fabric::RemoteRegion& region);

 private:
  friend base::Task<Status> fetch_regions(ClientSession& session, RegionKind kind, uint64_t number);
  struct Kind {
    std::vector<fabric::RemoteRegion> regions;  // no bytes: not known
    bool asking = false;
    uint64_t not_before_ns = 0;
  };
  // Sets Kind::asking as long as it lives.
  class Asking {
   public:
    explicit Asking(Kind& kind) : kind_(kind) { kind_.asking = true; }
    ~Asking() { kind_.asking = false; }
    Asking(const Asking&) = delete;
    Asking& operator=(const Asking&) = delete;

   private:
    Kind& kind_;
  };
  Kind& of(RegionKind kind) { return kinds_[static_cast<size_t>(kind) - 1]; }
  const Kind& of(RegionKind kind) const { return kinds_[static_cast<size_t>(kind) - 1]; }

  std::array<Kind, kRegionKinds> kinds_;
};

// Asks the server for the piece, and those behind it, if it is not known, no other task asks for
// pieces of the kind, and the server has not just said that it has none. So the piece may still be
// unknown afterwards. Errors of RpcClient::call(). Protocol, and the session is dropped: the answer
// does not decode. `session` is borrowed until the task ends; it may be destroyed at any moment.
base::Task<Status> fetch_regions(ClientSession& session, RegionKind kind, uint64_t number);

}  // namespace pmstore::internal
