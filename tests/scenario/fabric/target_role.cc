#include "tests/scenario/fabric/target_role.h"

#include <cstring>

#include "base/atomic_copy.h"
#include "base/checksum.h"

namespace pmstore::scenario {

using fabric::Access;

namespace {

template <typename T>
std::span<const std::byte> as_bytes(const T& value) {
  return std::as_bytes(std::span<const T, 1>(&value, 1));
}

template <typename T>
bool decode(std::span<const std::byte> from, T& to) {
  if (from.size() < sizeof(T)) return false;
  std::memcpy(&to, from.data(), sizeof(T));
  return true;
}

}  // namespace

Status TargetRole::add_memory(size_t bytes, Access access) {
  memory_.push_back({std::vector<std::byte>(bytes), nullptr});
  PMSTORE_TRY(memory_.back().region, device_->register_memory(memory_.back().bytes, access));
  return {};
}

Result<fabric::Uri> TargetRole::start(base::Executor& executor, const fabric::Uri& uri,
                                      const std::vector<std::string>&) {
  executor_ = &executor;
  PMSTORE_TRY(device_, fabric::open_device(uri.scheme, executor, TestMachine::target_host()));
  PMSTORE_TRY_STATUS(
      add_memory(kSharedBytes, Access::kRemoteRead | Access::kRemoteWrite | Access::kRemoteAtomic));
  PMSTORE_TRY_STATUS(add_memory(kOtherBytes, Access::kRemoteRead));
  PMSTORE_TRY_STATUS(add_memory(kOtherBytes, Access::kRemoteWrite));
  PMSTORE_TRY_STATUS(add_memory(kOtherBytes, Access::kLocal));
  PMSTORE_TRY_STATUS(add_memory(kOtherBytes, Access::kLocal));  // what send_to_raw() sends from
  PMSTORE_TRY(listener_, device_->listen(uri, *this));
  return listener_->uri();
}

TargetRole::~TargetRole() {
  listener_.reset();
  raws_.clear();
  disconnect_all();
}

Result<std::vector<std::byte>> TargetRole::on_hello(uint64_t token,
                                                    std::span<const std::byte> hello) {
  ClientHello client;
  if (!decode(hello, client) || client.magic != kHelloMagic) {
    return make_error(ErrorCode::kProtocol, "not a scenario");
  }
  if (client.kind == ConnectionKind::kRefuseMe)
    return make_error(ErrorCode::kVersionMismatch, kRefusal);
  TargetHello answer;
  answer.connection_id = token;
  answer.shared = memory_[0].region->remote();
  answer.read_only = memory_[1].region->remote();
  answer.write_only = memory_[2].region->remote();
  answer.no_access = memory_[3].region->remote();
  if (client.kind == ConnectionKind::kControl) {
    PMSTORE_TRY(answer.requests, expect_client(token, *device_, client.replies));
  }
  return harness::message_of(answer);
}

void TargetRole::on_connected(uint64_t token, std::unique_ptr<fabric::Connection> connection) {
  if (in_handshake(token)) return RpcTestServer::on_connected(token, std::move(connection));
  Raw& raw = raws_[token];
  raw.role = this;
  raw.connection = std::move(connection);
  raw.connection->set_receiver(&raw);
}

void TargetRole::on_abandoned(uint64_t token) {
  RpcTestServer::on_abandoned(token);
  ++lost_;
}

void TargetRole::Raw::on_immediate(uint32_t immediate) {
  ++state.immediates;
  state.last_immediate = immediate;
  if (role->cpu_) role->cpu_->look_at_least(immediate);
}

void TargetRole::Raw::on_disconnect(const Error&) {
  state.disconnected = 1;
  ++role->lost_;
  connection.reset();
}

void TargetRole::on_peer_gone(fabric::RpcPeer& peer, const Error& why) {
  ++lost_;
  RpcTestServer::on_peer_gone(peer, why);
}

uint64_t TargetRole::checksum(const ChecksumRequest& what) const {
  if (what.region >= memory_.size()) return 0;
  const auto& bytes = memory_[what.region].bytes;
  if (what.offset > bytes.size() || what.bytes > bytes.size() - what.offset) return 0;
  // Somebody may be writing, which is what some scenarios are about.
  std::vector<std::byte> copy(what.bytes);
  base::copy_from_shared(copy.data(), bytes.data() + what.offset, what.bytes);
  return base::checksum64(copy, 0);
}

void TargetRole::serve_memory(fabric::RpcCall call) {
  if (call.method() == kChecksum) {
    ChecksumRequest what{};
    decode(call.request(), what);
    const uint64_t sum = checksum(what);
    call.reply(as_bytes(sum));
    return;
  }
  FillRequest fill{};
  if (!decode(call.request(), fill) || fill.offset + fill.bytes > kSharedBytes) {
    call.reply_error(make_error(ErrorCode::kInvalidArgument, "fill outside the region"));
    return;
  }
  const std::vector<std::byte> pattern(fill.bytes, std::byte{fill.value});
  base::copy_to_shared(memory_[0].bytes.data() + fill.offset, pattern.data(), fill.bytes);
  call.reply({});
}

void TargetRole::send_to_raw(fabric::RpcCall call) {
  SendRequest send{};
  decode(call.request(), send);
  auto found = raws_.find(send.id);
  if (found == raws_.end() || found->second.connection == nullptr || send.bytes > kOtherBytes) {
    call.reply_error(make_error(ErrorCode::kNotFound, "no such raw connection"));
    return;
  }
  Memory& from = memory_[4];
  std::memset(from.bytes.data(), send.value, send.bytes);
  fabric::Batch batch;
  batch.write_immediate({from.bytes.data(), send.bytes, from.region.get()}, send.to.at(0),
                        send.immediate);
  if (Status posted = found->second.connection->post(batch, nullptr); !posted) {
    call.reply_error(posted.error());
    return;
  }
  call.reply({});
}

void TargetRole::serve_raw(fabric::RpcCall call) {
  uint64_t id = 0;
  decode(call.request(), id);
  auto found = raws_.find(id);
  if (found == raws_.end()) {
    call.reply_error(make_error(ErrorCode::kNotFound, "no such raw connection"));
    return;
  }
  if (call.method() == kRawState) {
    call.reply(as_bytes(found->second.state));
    return;
  }
  found->second.connection.reset();
  const uint64_t sum = checksum({0, 0, kSharedBytes});
  call.reply(as_bytes(sum));
}

void TargetRole::serve_cpu(fabric::RpcCall call) {
  if (call.method() == kStartCpu) {
    CpuTask task{};
    decode(call.request(), task);
    cpu_ = TargetCpu::start(*executor_, memory_[0].bytes, task);
    if (!cpu_) {
      call.reply_error(make_error(ErrorCode::kInvalidArgument, "work outside the region"));
      return;
    }
    call.reply({});
    return;
  }
  const CpuReport report = cpu_ ? cpu_->report() : CpuReport{};
  cpu_.reset();
  call.reply(as_bytes(report));
}

void TargetRole::on_call(fabric::RpcPeer& peer, fabric::RpcCall call) {
  switch (call.method()) {
    case kEcho: call.reply(call.request()); return;
    case kFail: {
      FailRequest fail{};
      decode(call.request(), fail);
      const auto message = call.request().subspan(sizeof(fail));
      call.reply_error(make_error(static_cast<ErrorCode>(fail.code),
                                  {reinterpret_cast<const char*>(message.data()), message.size()}));
      return;
    }
    case kHold: held_.push_back(std::move(call)); return;
    case kReleaseHeld:
      for (; !held_.empty(); held_.pop_back()) held_.back().reply(held_.back().request());
      call.reply({});
      return;
    case kNeverAnswer: never_answered_.push_back(std::move(call)); return;
    case kDropUnanswered: return;
    case kFillShared:
    case kChecksum: serve_memory(std::move(call)); return;
    case kRawState:
    case kDestroyRaw: serve_raw(std::move(call)); return;
    case kSendToRaw: send_to_raw(std::move(call)); return;
    case kStartCpu:
    case kStopCpu: serve_cpu(std::move(call)); return;
    case kDestroyMe: disconnect(peer); return;
    case kLive: {
      LiveReply live{clients(), 0, lost_};
      for (auto& [id, raw] : raws_) live.raw += raw.connection != nullptr;
      call.reply(as_bytes(live));
      return;
    }
    default: call.reply_error(make_error(ErrorCode::kUnsupported, "no such method"));
  }
}

}  // namespace pmstore::scenario
