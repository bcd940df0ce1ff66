#include "tools/bench/micro_server.h"

#include <fmt/format.h>

#include <cstring>

#include "base/atomic_copy.h"
#include "fabric/rpc_layout.h"

namespace pmstore::tools {

using fabric::Access;
using fabric::Connection;

// One kind of memory as this thread serves it. Whether the CPU stores past its caches is the
// client's choice, and a property of a persist::Memory, so there are two.
struct MicroServer::Medium {
  MicroMedium name;
  MicroMemory memory;
  std::unique_ptr<fabric::MemoryRegion> region;
  persist::Memory cached;
  persist::Memory streamed;
  persist::PersistService cached_service;
  persist::PersistService streamed_service;

  Medium(MicroMedium medium, const MicroMemory& target)
      : name(medium),
        memory(target),
        cached(target.bytes, {target.capability.domain, SIZE_MAX}),
        streamed(target.bytes, {target.capability.domain, 0}),
        cached_service(cached, false),
        streamed_service(streamed, true) {
    cached.set_observer(target.observer);
    streamed.set_observer(target.observer);
  }
};

struct MicroServer::Peer final : public fabric::Receiver {
  MicroServer& server;
  Medium* medium = nullptr;
  bool non_temporal = false;
  // One of the two: an RpcPeer owns its connection.
  std::unique_ptr<fabric::RpcPeer> rpc;
  std::unique_ptr<Connection> connection;

  explicit Peer(MicroServer& owner) : server(owner) {}
  void on_immediate(uint32_t) override {}
  void on_disconnect(const Error&) override { server.drop(*this); }
};

MicroServer::MicroServer(fabric::Device& device) : device_(device) {}

MicroServer::~MicroServer() {
  listener_.reset();
  peers_.clear();
  pending_.clear();
}

Status MicroServer::add_medium(MicroMedium name, const MicroMemory& memory) {
  if (memory.bytes.empty()) return {};
  auto medium = std::make_unique<Medium>(name, memory);
  PMSTORE_TRY(medium->region,
              device_.register_memory(memory.bytes, Access::kRemoteRead | Access::kRemoteWrite |
                                                        Access::kRemoteAtomic));
  media_.push_back(std::move(medium));
  return {};
}

Result<std::unique_ptr<MicroServer>> MicroServer::start(fabric::Device& device,
                                                        const MicroServerOptions& options,
                                                        const fabric::Uri& uri) {
  std::unique_ptr<MicroServer> server(new MicroServer(device));
  PMSTORE_TRY_STATUS(server->add_medium(MicroMedium::kDram, options.dram));
  PMSTORE_TRY_STATUS(server->add_medium(MicroMedium::kNvm, options.nvm));
  PMSTORE_TRY(server->listener_, device.listen(uri, *server));
  server->ports_ = {server->uri().port};
  return server;
}

Result<MicroAnswer> MicroServer::accept(const MicroHello& hello, Peer& peer) {
  for (const auto& medium : media_) {
    if (medium->name == static_cast<MicroMedium>(hello.medium)) peer.medium = medium.get();
  }
  if (peer.medium == nullptr) {
    return make_error(ErrorCode::kUnsupported,
                      "this server has no nvm: start it with --pool, or use --medium dram");
  }
  const MicroMemory& memory = peer.medium->memory;
  if (hello.range_bytes > memory.bytes.size()) {
    return make_error(
        ErrorCode::kInvalidArgument,
        fmt::format("a range of {} bytes, but the server's {} has {}: use a smaller "
                    "--range, or start the server with a larger one",
                    hello.range_bytes, medium_name(peer.medium->name), memory.bytes.size()));
  }
  if (hello.single_dimm != 0 && !memory.interleaved) {
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("which DIMM an address of this server's {} is on is not known: "
                                  "that takes nvm on a DAX device, or --model",
                                  medium_name(peer.medium->name)));
  }
  peer.non_temporal = hello.non_temporal != 0;
  MicroAnswer answer{};
  answer.magic = kMicroAnswerMagic;
  answer.domain = static_cast<uint8_t>(memory.capability.domain);
  answer.landing = static_cast<uint8_t>(memory.capability.landing);
  answer.native_flush = memory.capability.native_flush ? 1 : 0;
  answer.interleaved = memory.interleaved ? 1 : 0;
  answer.ordinary_file = memory.ordinary_file ? 1 : 0;
  answer.granted = peer.medium->region->remote();
  answer.workers = static_cast<uint32_t>(ports_.size());
  std::copy(ports_.begin(), ports_.end(), answer.ports);
  if (hello.two_sided != 0) {
    fabric::RpcOptions options;
    options.request_ring_bytes = hello.ring_bytes;
    options.reply_arena_bytes = fabric::kMaxRpcRingBytes;
    options.max_calls = hello.calls;
    PMSTORE_TRY(peer.rpc, fabric::RpcPeer::create(device_, options, hello.replies, *this));
    peer.rpc->owner = &peer;
    answer.requests = peer.rpc->request_region();
  }
  return answer;
}

Result<std::vector<std::byte>> MicroServer::on_hello(uint64_t token,
                                                     std::span<const std::byte> bytes) {
  MicroHello hello;
  if (bytes.size() != sizeof hello) {
    return make_error(ErrorCode::kProtocol, "this is a server of pmstore bench micro");
  }
  std::memcpy(&hello, bytes.data(), sizeof hello);
  if (hello.magic != kMicroHelloMagic) {
    return make_error(ErrorCode::kVersionMismatch,
                      "this is a server of another revision of pmstore bench micro");
  }
  auto peer = std::make_unique<Peer>(*this);
  PMSTORE_TRY(const MicroAnswer answer, accept(hello, *peer));
  pending_[token] = std::move(peer);
  const auto out = std::as_bytes(std::span(&answer, 1));
  return std::vector<std::byte>(out.begin(), out.end());
}

void MicroServer::on_connected(uint64_t token, std::unique_ptr<Connection> connection) {
  const auto found = pending_.find(token);
  std::unique_ptr<Peer> peer = std::move(found->second);
  pending_.erase(found);
  if (peer->rpc) {
    peer->rpc->attach(std::move(connection));
  } else {
    peer->connection = std::move(connection);
    peer->connection->set_receiver(peer.get());
  }
  const Peer* const key = peer.get();
  peers_[key] = std::move(peer);
}

void MicroServer::on_abandoned(uint64_t token) { pending_.erase(token); }

void MicroServer::drop(const Peer& peer) { peers_.erase(&peer); }

void MicroServer::on_peer_gone(fabric::RpcPeer& peer, const Error&) {
  drop(*static_cast<Peer*>(peer.owner));
}

namespace {

// The request's own fields, checked; nothing when they are wrong.
bool decode(std::span<const std::byte> bytes, size_t memory_bytes, MicroRequest& request) {
  if (bytes.size() < sizeof request) return false;
  base::copy_from_shared(&request, bytes.data(), sizeof request);
  return request.offset <= memory_bytes && request.bytes <= memory_bytes - request.offset;
}

void refuse(fabric::RpcCall& call) {
  call.reply_error(make_error(ErrorCode::kProtocol, "malformed request of a benchmark"));
}

}  // namespace

void MicroServer::store(const Peer& peer, fabric::RpcCall call) {
  Medium& medium = *peer.medium;
  MicroRequest request;
  if (!decode(call.request(), medium.memory.bytes.size(), request) ||
      call.request().size() != sizeof request + request.bytes) {
    return refuse(call);
  }
  std::byte* const to = medium.memory.bytes.data() + request.offset;
  const std::byte* const data = call.request().data() + sizeof request;
  if (peer.non_temporal) {
    medium.streamed.write_non_temporal(to, data, request.bytes);
  } else {
    medium.cached.store(to, data, request.bytes);
  }
  call.reply({});
}

void MicroServer::load(const Peer& peer, fabric::RpcCall call) {
  const MicroMemory& memory = peer.medium->memory;
  MicroRequest request;
  if (!decode(call.request(), memory.bytes.size(), request) ||
      call.reply_room().size() < request.bytes) {
    return refuse(call);
  }
  const std::byte* const from = memory.bytes.data() + request.offset;
  if (memory.on_load) memory.on_load(from, request.bytes);
  base::copy_from_shared(call.reply_room().data(), from, request.bytes);
  call.reply_filled(request.bytes);
}

void MicroServer::on_call(fabric::RpcPeer& rpc, fabric::RpcCall call) {
  const Peer& peer = *static_cast<Peer*>(rpc.owner);
  ++served_;
  switch (call.method()) {
    case kMicroEchoMethod: call.reply({}); return;
    case kMicroStoreMethod: store(peer, std::move(call)); return;
    case kMicroLoadMethod: load(peer, std::move(call)); return;
    case persist::kPersistWriteMethod: {
      Medium& medium = *peer.medium;
      auto& service = peer.non_temporal ? medium.streamed_service : medium.cached_service;
      service.on_call(std::move(call), 0, medium.memory.bytes.size());
      return;
    }
    default: refuse(call);
  }
}

fabric::Uri micro_worker_uri(const fabric::Uri& first, uint32_t index, uint16_t port) {
  fabric::Uri uri = first;
  if (index == 0) return uri;
  const bool has_port = uri.scheme == fabric::Scheme::kTcp || uri.scheme == fabric::Scheme::kVerbs;
  if (has_port) {
    uri.port = port;
  } else {
    uri.name += fmt::format(".{}", index);
  }
  return uri;
}

}  // namespace pmstore::tools
