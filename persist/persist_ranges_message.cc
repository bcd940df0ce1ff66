#include "persist/persist_ranges_message.h"

#include "base/atomic_copy.h"

namespace pmstore::persist {

Status decode_persist_ranges(std::span<const std::byte> request, uint64_t granted_bytes,
                             PersistRanges& out) {
  const auto malformed = [] {
    return make_error(ErrorCode::kProtocol, "malformed request to make ranges durable");
  };
  PersistRangesHeader header;
  if (request.size() < sizeof header) return malformed();
  base::copy_from_shared(&header, request.data(), sizeof header);
  const auto rest = request.subspan(sizeof header);
  if (header.magic != kPersistRangesMagic || header.ranges == 0 ||
      header.ranges > kMaxPersistRanges || rest.size() != header.ranges * sizeof(RemoteRange)) {
    return malformed();
  }
  // Copied before it is checked: the ring that it came in stays writable for the client.
  out.count = header.ranges;
  base::copy_from_shared(out.table.data(), rest.data(), rest.size());
  uint64_t all_bytes = 0;
  bool inside = true;
  for (const RemoteRange& range : out.ranges()) {
    if (range.bytes == 0 || range.bytes > kMaxPersistBytes) return malformed();
    all_bytes += range.bytes;
    inside &= range.offset <= granted_bytes && range.bytes <= granted_bytes - range.offset;
  }
  if (all_bytes > kMaxPersistBytes) return malformed();
  if (inside) return {};
  return make_error(ErrorCode::kAccess, "a range to be made durable is outside the granted region");
}

}  // namespace pmstore::persist
