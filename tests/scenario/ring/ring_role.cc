#include "tests/scenario/ring/ring_role.h"

#include <cstring>

#include "base/atomic_copy.h"
#include "tests/scenario/ring/ring_protocol.h"

namespace pmstore::scenario {
namespace {

constexpr uint64_t kOffset = 512;
constexpr uint32_t kSalt = 0xc0ffee;

// As in a guest with eADR: one-sided writes are durable, and the server's CPU can write too.
constexpr persist::PersistCapability kCapability{persist::Domain::kCpuCache,
                                                 persist::WriteLanding::kCpu, false};

}  // namespace

RingRole::~RingRole() {
  listener_.reset();
  disconnect_all();
  data_.reset();
  tail_region_.reset();
}

Result<fabric::Uri> RingRole::start(base::Executor& executor, const fabric::Uri& uri,
                                    const std::vector<std::string>&) {
  bytes_.resize(kOffset + kScenarioRingBytes);
  memory_ = std::make_unique<persist::Memory>(
      bytes_, persist::MemoryOptions{.domain = kCapability.domain, .non_temporal_bytes = 256});
  writes_.emplace(*memory_);
  PMSTORE_TRY(auto ring, log::Ring::format(*memory_, kOffset, kScenarioRingBytes, kSalt));
  ring_.emplace(std::move(ring));
  PMSTORE_TRY(device_, fabric::open_device(uri.scheme, executor, TestMachine::target_host()));
  PMSTORE_TRY(data_, device_->register_memory(
                         {memory_->at(ring_->data_offset()), ring_->position().data_bytes},
                         fabric::Access::kRemoteRead | fabric::Access::kRemoteWrite));
  PMSTORE_TRY(tail_region_, device_->register_memory(std::as_writable_bytes(std::span(&tail_, 1)),
                                                     fabric::Access::kRemoteWrite));
  PMSTORE_TRY(listener_, device_->listen(uri, *this));
  return listener_->uri();
}

Result<std::vector<std::byte>> RingRole::on_hello(uint64_t token,
                                                  std::span<const std::byte> hello) {
  RingHello client;
  if (hello.size() != sizeof client) return make_error(ErrorCode::kProtocol, "not a log scenario");
  std::memcpy(&client, hello.data(), sizeof client);
  disconnect_all();
  PMSTORE_TRY_STATUS(ring_->walk([](const log::EntryView&) {}));
  PMSTORE_TRY_STATUS(ring_->take_over(client.owner));
  RingAnswer answer;
  PMSTORE_TRY(answer.requests, expect_client(token, *device_, client.replies));
  answer.data = data_->remote();
  answer.tail = tail_region_->remote();
  answer.position = ring_->position();
  answer.capability = kCapability;
  return harness::message_of(answer);
}

void RingRole::on_call(fabric::RpcPeer&, fabric::RpcCall call) {
  switch (call.method()) {
    case kReadRing: return read_ring(std::move(call));
    case kTruncateRing: return truncate_ring(std::move(call));
    case kReadTail: return read_tail(std::move(call));
    case persist::kPersistWriteMethod:
      return writes_->on_call(std::move(call), ring_->data_offset(), ring_->position().data_bytes);
    default: call.reply_error(make_error(ErrorCode::kUnsupported, "no such method"));
  }
}

void RingRole::read_ring(fabric::RpcCall call) {
  std::vector<FoundEntry> found;
  auto reader = log::Ring::open(*memory_, kOffset, kScenarioRingBytes, kSalt);
  Status walked = reader ? reader->walk([&](const log::EntryView& entry) {
    found.push_back({entry.lsn, entry.sequence, payload_checksum(entry.payload)});
  })
                         : Status(reader.error());
  if (!walked) return call.reply_error(walked.error());
  call.reply(std::as_bytes(std::span(found)));
}

void RingRole::read_tail(fabric::RpcCall call) {
  uint64_t tail = 0;
  base::copy_from_shared(&tail, &tail_, sizeof tail);
  call.reply(std::as_bytes(std::span(&tail, 1)));
}

void RingRole::truncate_ring(fabric::RpcCall call) {
  TruncateRing wanted{};
  if (call.request().size() == sizeof wanted) {
    std::memcpy(&wanted, call.request().data(), sizeof wanted);
  }
  Status done = ring_->note_tail(wanted.tail_lsn);
  if (done) done = ring_->truncate(memory_->drain().value(), wanted.start_lsn, 0);
  if (!done) return call.reply_error(done.error());
  call.reply({});
}

}  // namespace pmstore::scenario
