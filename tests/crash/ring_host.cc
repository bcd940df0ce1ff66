#include "tests/crash/ring_host.h"

#include <cstring>
#include <span>
#include <utility>

#include "base/check.h"
#include "tests/crash/ring_content.h"

namespace pmstore::crash {
namespace {

constexpr fabric::RpcOptions kRpc{.request_ring_bytes = 64 << 10, .reply_arena_bytes = 16 << 10};
constexpr uint32_t kStagingBytes = 32 << 10;

template <typename T>
std::vector<std::byte> bytes_of(const T& value) {
  const auto bytes = std::as_bytes(std::span<const T, 1>(&value, 1));
  return {bytes.begin(), bytes.end()};
}

template <typename T>
T value_of(std::span<const std::byte> bytes) {
  T value;
  PMSTORE_CHECK(bytes.size() == sizeof value, "both ends are in this file");
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

}  // namespace

// ---- the server ----

RingHost::RingHost(model::Host& host, base::Executor& executor, persist::Memory& memory,
                   const Options& options)
    : memory_(memory),
      capability_{options.domain, host.landing(), false},
      writes_(memory, options.rule_h7) {
  ring_.emplace(log::Ring::format(memory, 0, kRingBytes, kRingSalt).value());
  device_ = fabric::open_device(fabric::Scheme::kLocal, executor, &host).value();
  data_ = device_
              ->register_memory({memory.at(ring_->data_offset()), ring_->position().data_bytes},
                                fabric::Access::kRemoteRead | fabric::Access::kRemoteWrite)
              .value();
  listener_ = device_->listen({fabric::Scheme::kLocal, "crash-ring", 0}, *this).value();
}

RingHost::~RingHost() {
  listener_.reset();
  fence();
}

Result<std::vector<std::byte>> RingHost::on_hello(uint64_t, std::span<const std::byte> hello) {
  const auto client = value_of<Hello>(hello);
  fence();
  PMSTORE_TRY_STATUS(ring_->walk([](const log::EntryView&) {}));
  PMSTORE_TRY_STATUS(ring_->take_over(client.owner));
  PMSTORE_TRY(peer_, fabric::RpcPeer::create(*device_, kRpc, client.replies, *this));
  return bytes_of(Answer{peer_->request_region(), data_->remote(), ring_->position(), capability_});
}

void RingHost::on_connected(uint64_t, std::unique_ptr<fabric::Connection> connection) {
  peer_->attach(std::move(connection));
}

void RingHost::on_call(fabric::RpcPeer&, fabric::RpcCall call) {
  if (call.method() == persist::kPersistWriteMethod) {
    return writes_.on_call(std::move(call), ring_->data_offset(), ring_->position().data_bytes);
  }
  const Status done = truncate(call);
  done ? call.reply({}) : call.reply_error(done.error());
}

Status RingHost::truncate(const fabric::RpcCall& call) {
  const auto wanted = value_of<Truncate>(call.request());
  PMSTORE_TRY_STATUS(ring_->note_tail(wanted.tail_lsn));
  PMSTORE_TRY(const auto applied, memory_.drain());
  return ring_->truncate(applied, wanted.start_lsn, wanted.expired_below_sequence);
}

// ---- the client ----

base::Task<Result<std::unique_ptr<RingLink>>> RingLink::connect(
    fabric::DeviceOpener& host, base::Executor& executor, const fabric::Uri& uri, uint64_t owner,
    persist::RemoteWriterOptions writer) {
  std::unique_ptr<RingLink> link(new RingLink());
  PMSTORE_CO_TRY(link->device_, fabric::open_device(fabric::Scheme::kLocal, executor, &host));
  PMSTORE_CO_TRY(link->rpc_, fabric::RpcClient::create(*link->device_, kRpc));
  const auto hello = bytes_of(RingHost::Hello{link->rpc_->reply_region(), owner});
  fabric::ConnectOptions options;
  options.hello = hello;
  PMSTORE_CO_TRY(link->connection_, co_await link->device_->connect(uri, options));
  const auto answer = value_of<RingHost::Answer>(link->connection_->peer_hello());
  PMSTORE_CO_TRY_STATUS(link->rpc_->attach(*link->connection_, answer.requests));
  PMSTORE_CO_TRY(link->writer_,
                 persist::RemoteWriter::create(*link->device_, *link->connection_, link->rpc_.get(),
                                               answer.data, answer.capability, writer));
  PMSTORE_CO_TRY(link->appender_, log::RemoteAppender::create(*link->device_, *link->writer_,
                                                              answer.position, kStagingBytes));
  co_return std::move(link);
}

base::Task<Status> RingLink::truncate(uint64_t start_lsn, uint64_t expired_below_sequence) {
  const auto request = bytes_of(
      RingHost::Truncate{appender_->position().tail_lsn, start_lsn, expired_below_sequence});
  auto done = co_await rpc_->call(RingHost::kTruncate, request, 0);
  if (!done) co_return std::move(done.error());
  co_return appender_->truncated(start_lsn);
}

}  // namespace pmstore::crash
