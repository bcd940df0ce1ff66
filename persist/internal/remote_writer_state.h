// The inside of RemoteWriter.
//
// Invariants: `message` exists exactly if some write may go two-sided, `landing_region` exactly if
// some write may go one-sided. One message buffer serves all writes: it is filled and copied by
// RpcClient::call() without a suspension in between.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "persist/remote_writer.h"

namespace pmstore::persist {

struct RemoteWriter::State {
  // What a READ brings here is never looked at, so writes in flight may share a line; there are
  // several only so that they rarely do.
  struct alignas(64) LandingLine {
    std::array<std::byte, 64> bytes{};
  };
  static constexpr size_t kLandingLines = 64;

  // What is posted with one doorbell.
  // kWritesAndLooks: without a step that makes anything durable.
  enum class Chain : uint8_t { kWrites, kRead, kWritesAndRead, kWritesAndFlushes, kWritesAndLooks };

  // What write() was asked for; borrowed until it returns.
  struct Request {
    std::span<const RemotePiece> pieces;
    std::span<const RemoteLook> looks;
  };

  // How far the pieces of a two-sided write have got.
  struct Cursor {
    size_t piece = 0;
    uint32_t done_bytes = 0;  // of that piece
  };

  State(fabric::Device& writer_device, fabric::Connection& server_connection,
        fabric::RpcClient* rpc_client, const fabric::RemoteRegion& target)
      : device(writer_device), connection(server_connection), rpc(rpc_client), region(target) {}

  Status check(const Request& request) const;
  bool goes_two_sided(std::span<const RemotePiece> pieces) const;
  // Fills `message` from where `cursor` is and moves it; gives the size.
  size_t encode(std::span<const RemotePiece> pieces, Cursor& cursor);

  // Puts into `batch` what the rider carries, if it does.
  bool board();
  // Posts it by itself, if there is room.
  void send_rider_ahead();
  // Makes `batch` and posts it: one doorbell. BackPressure when there is no room.
  Status try_post(Chain chain, const Request& request, fabric::Completion& completion);
  // The same, waiting while there is none: up to kRoomTimeoutNs. Each try makes the batch anew.
  auto post_when_room(Chain chain, Request request, fabric::Completion& completion) {
    return connection.post_when_room(kRoomTimeoutNs, [this, chain, request, &completion] {
      return try_post(chain, request, completion);
    });
  }
  // Posts and waits: one round trip.
  base::Task<Status> execute(Chain chain, Request request);
  base::Task<Status> write_outstanding(Request request);
  base::Task<Status> write_two_sided(std::span<const RemotePiece> pieces);
  Status check(std::span<const RemoteRange> ranges) const;
  Status check_visible(const Request& request) const;
  Status check_then_persist(const Request& request) const;
  // Makes the batch and posts it: READ of the last bytes of the last range, or FLUSH of all.
  Status try_post_persist(std::span<const RemoteRange> ranges, fabric::Completion& completion);
  auto post_persist_when_room(std::span<const RemoteRange> ranges, fabric::Completion& completion) {
    return connection.post_when_room(kRoomTimeoutNs, [this, ranges, &completion] {
      return try_post_persist(ranges, completion);
    });
  }
  base::Task<Status> persist_one_sided(std::span<const RemoteRange> ranges);
  // Fills `message` from `range` on, from the byte `done_bytes` of it, and moves both; gives the
  // size.
  size_t encode_ranges(std::span<const RemoteRange> ranges, size_t& range, uint64_t& done_bytes);
  base::Task<Status> persist_two_sided(std::span<const RemoteRange> ranges);

  fabric::Device& device;
  fabric::Connection& connection;
  fabric::RpcClient* rpc;
  fabric::RemoteRegion region;
  WriteStrategy strategy = WriteStrategy::kTwoSided;
  uint16_t rpc_method = kPersistWriteMethod;
  uint16_t persist_method = 0;
  std::array<std::byte, kMaxPersistPrefixBytes> persist_prefix{};
  size_t persist_prefix_bytes = 0;
  WriteRider* rider = nullptr;
  size_t max_pieces = kMaxPieces;
  uint32_t two_sided_bytes = 0;  // 0: only if that is the strategy
  std::array<LandingLine, kLandingLines> landing;
  std::unique_ptr<fabric::MemoryRegion> landing_region;
  size_t next_landing = 0;
  fabric::Batch batch;  // made and posted without a suspension in between; too large for a frame
  std::unique_ptr<std::byte[]> message;
  size_t message_bytes = 0;
};

}  // namespace pmstore::persist
