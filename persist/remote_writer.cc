#include "persist/remote_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"
#include "persist/internal/remote_writer_state.h"

namespace pmstore::persist {

RemoteWriter::RemoteWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
RemoteWriter::~RemoteWriter() = default;

WriteStrategy RemoteWriter::strategy() const { return state_->strategy; }

void RemoteWriter::set_rider(WriteRider& rider) {
  state_->rider = &rider;
  state_->max_pieces = kMaxPieces - 1;
}

Result<std::unique_ptr<RemoteWriter>> RemoteWriter::create(fabric::Device& device,
                                                           fabric::Connection& connection,
                                                           fabric::RpcClient* rpc,
                                                           const fabric::RemoteRegion& region,
                                                           const PersistCapability& server,
                                                           const RemoteWriterOptions& options) {
  PMSTORE_TRY(const WriteStrategy strategy,
              negotiate(options.strategy, server, connection.capabilities()));
  const bool needs_rpc = strategy == WriteStrategy::kTwoSided || options.two_sided_bytes > 0;
  if (needs_rpc && rpc == nullptr) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("write strategy {}{} needs an RPC client: give one", strategy_name(strategy),
                    options.two_sided_bytes > 0 ? " with two_sided_bytes" : ""));
  }
  auto state = std::make_unique<State>(device, connection, rpc, region);
  state->strategy = strategy;
  state->rpc_method = options.rpc_method;
  state->persist_method = options.persist_method;
  state->persist_prefix_bytes = options.persist_prefix.size();
  PMSTORE_CHECK(state->persist_prefix_bytes <= kMaxPersistPrefixBytes, "a prefix has its bound");
  std::copy(options.persist_prefix.begin(), options.persist_prefix.end(),
            state->persist_prefix.begin());
  const bool through_cache =
      server.landing != WriteLanding::kMemory || connection.capabilities().cpu_moves_data;
  if (options.two_sided_bytes > 0 && through_cache)
    state->two_sided_bytes = options.two_sided_bytes;
  if (needs_rpc) {
    state->message_bytes = rpc->max_request_bytes();
    if (state->message_bytes <= kMaxPersistTableBytes) {
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("an RPC request ring for {} bytes is too small for two_sided "
                                    "writes: use at least 4096",
                                    state->message_bytes));
    }
    // Not touched before it is used, so a large one costs nothing.
    state->message = std::unique_ptr<std::byte[]>(new std::byte[state->message_bytes]);
  }
  if (strategy != WriteStrategy::kTwoSided) {
    PMSTORE_TRY(state->landing_region,
                device.register_memory(std::as_writable_bytes(std::span(state->landing)),
                                       fabric::Access::kLocal));
  }
  return std::unique_ptr<RemoteWriter>(new RemoteWriter(std::move(state)));
}

}  // namespace pmstore::persist
