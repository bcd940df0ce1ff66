#include <cstring>

#include "base/atomic_copy.h"
#include "base/check.h"
#include "persist/remote_writer.h"

namespace pmstore::persist {
namespace {

struct Decoded {
  size_t pieces = 0;
  PersistWritePiece table[kMaxPersistPieces];
  const std::byte* data = nullptr;
};

// The table is copied before it is checked: the ring that it came in stays writable for the client.
Status decode(std::span<const std::byte> request, uint64_t granted_bytes, Decoded& out) {
  const auto malformed = [] {
    return make_error(ErrorCode::kProtocol, "malformed persistent write");
  };
  PersistWriteHeader header;
  if (request.size() < sizeof header) return malformed();
  base::copy_from_shared(&header, request.data(), sizeof header);
  const auto rest = request.subspan(sizeof header);
  if (header.magic != kPersistWriteMagic || header.pieces == 0 ||
      header.pieces > kMaxPersistPieces ||
      rest.size() < size_t{header.pieces} * sizeof(PersistWritePiece)) {
    return malformed();
  }
  const size_t table_bytes = header.pieces * sizeof(PersistWritePiece);
  out.pieces = header.pieces;
  base::copy_from_shared(out.table, rest.data(), table_bytes);
  out.data = rest.data() + table_bytes;

  uint64_t data_bytes = 0;
  bool inside = true;
  for (size_t i = 0; i < out.pieces; ++i) {
    const PersistWritePiece& piece = out.table[i];
    if (piece.bytes == 0 || piece.reserved != 0) return malformed();
    data_bytes += piece.bytes;
    inside &= piece.offset <= granted_bytes && piece.bytes <= granted_bytes - piece.offset;
  }
  if (data_bytes != rest.size() - table_bytes) return malformed();
  if (!inside) {
    return make_error(ErrorCode::kAccess, "persistent write outside the granted region");
  }
  return {};
}

}  // namespace

namespace {

void acknowledge(Persisted /*pieces*/, fabric::RpcCall& call) { call.reply({}); }

}  // namespace

void PersistService::on_call(fabric::RpcCall call, uint64_t granted_offset,
                             uint64_t granted_bytes) {
  PMSTORE_CHECK(memory_.contains(granted_offset, granted_bytes),
                "a grant outside the pool would let a client write foreign memory");
  Decoded decoded;
  if (Status good = decode(call.request(), granted_bytes, decoded); !good) {
    call.reply_error(good.error());
    return;
  }
  const std::byte* data = decoded.data;
  for (size_t i = 0; i < decoded.pieces; ++i) {
    const PersistWritePiece& piece = decoded.table[i];
    std::byte* to = memory_.at(granted_offset + piece.offset);
    if (rule_h7_) {
      memory_.write_non_temporal(to, data, piece.bytes);
    } else {
      memory_.write(to, data, piece.bytes);
    }
    data += piece.bytes;
  }
  const auto durable = memory_.drain();
  if (!durable) return call.reply_error(durable.error());
  acknowledge(*durable, call);
}

}  // namespace pmstore::persist
