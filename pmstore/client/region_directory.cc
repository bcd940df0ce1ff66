#include "pmstore/client/region_directory.h"

#include <span>

#include "pmstore/client/client_session.h"

namespace pmstore::internal {

void RegionDirectory::learn(RegionKind kind, uint32_t number, const fabric::RemoteRegion& region) {
  if (number >= kMostNumbers) return;
  auto& regions = of(kind).regions;
  if (regions.size() <= number) regions.resize(number + 1);
  if (regions[number].bytes == 0) regions[number] = region;
}

base::Task<Status> fetch_regions(ClientSession& session, RegionKind kind, uint64_t number) {
  RegionDirectory& directory = session.regions();
  RegionDirectory::Kind& known = directory.of(kind);
  if (directory.knows(kind, number) || number >= RegionDirectory::kMostNumbers) co_return Status{};
  if (known.asking || session.executor().now_ns() < known.not_before_ns) co_return Status{};
  const RegionDirectory::Asking asking(known);
  const auto first = static_cast<uint32_t>(number);
  std::array<std::byte, sizeof(RequestPrefix) + sizeof(RegionsRequest)> room;
  MessageWriter request(room);
  request.put(session.prefix());
  request.put(RegionsRequest{first, kind, {}, 0});
  constexpr uint32_t kRoom = sizeof(RegionsReply) + kMostRegionsInReply * sizeof(NumberedRegion);
  const auto answer = co_await session.rpc().call(static_cast<uint16_t>(Method::kRegions),
                                                  request.message(), kRoom);
  if (!answer) co_return Error(answer.error());
  MessageReader reader(answer->bytes());
  const auto reply = reader.get<RegionsReply>();
  uint64_t next = first;
  for (uint32_t i = 0; i < reply.count && !reader.failed(); ++i) {
    const auto each = reader.get<NumberedRegion>();
    if (reader.failed() || each.number < next || each.region.bytes == 0) {
      co_return session.malformed_reply("a request for regions");
    }
    next = uint64_t{each.number} + 1;
    directory.learn(kind, each.number, each.region);
  }
  if (!reader.complete()) co_return session.malformed_reply("a request for regions");
  if (!directory.knows(kind, number)) {
    known.not_before_ns = session.executor().now_ns() + RegionDirectory::kAskAgainNs;
  }
  co_return Status{};
}

}  // namespace pmstore::internal
