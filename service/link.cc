#include "service/link.h"

#include <utility>

#include "base/executor.h"
#include "fabric/message.h"

namespace pmstore::service {

base::Task<Result<std::unique_ptr<Link>>> Link::open(fabric::Device& device, fabric::Uri uri,
                                                     LinkOptions options,
                                                     std::span<const std::byte> body) {
  std::unique_ptr<Link> link(new Link(device.executor()));
  PMSTORE_CO_TRY(link->rpc_, fabric::RpcClient::create(device, options.rpc));
  link->known_through_ = options.known_through;
  Hello hello;
  hello.client = options.secret.id();
  hello.secret = options.secret;
  hello.reply_region = link->rpc_->reply_region();
  hello.service = options.service;
  const std::vector<std::byte> message = encode(hello, body);
  fabric::ConnectOptions how;
  how.hello = message;
  how.timeout_ns = options.connect_timeout_ns;
  how.operation_timeout_ns = options.rpc.call_timeout_ns;
  PMSTORE_CO_TRY(link->connection_, co_await device.connect(std::move(uri), how));
  PMSTORE_CO_TRY(link->welcome_, decode_welcome(link->connection_->peer_hello(), options.service));
  PMSTORE_CO_TRY_STATUS(link->rpc_->attach(*link->connection_, link->welcome_.request_region));
  co_return std::move(link);
}

Link::~Link() {
  lease_ = {};
  if (connection_ != nullptr) connection_->set_receiver(nullptr);
  connection_.reset();
}

Error Link::why_unusable() const {
  if (connection_->broken()) return connection_->why_broken();
  return make_error(ErrorCode::kDisconnected, "the connection was given up after an error");
}

base::Task<Result<fabric::RpcReply>> Link::call(uint16_t method, std::span<const std::byte> body,
                                                uint32_t reply_capacity) {
  std::vector<std::byte> request(sizeof(RequestPrefix) + body.size());
  fabric::MessageWriter writer(request);
  writer.put(prefix());
  writer.put_bytes({reinterpret_cast<const char*>(body.data()), body.size()});
  co_return co_await rpc_->call(method, request, reply_capacity);
}

void Link::keep_lease() {
  if (welcome_.lease_ms == 0) return;
  lease_ = send_pings(uint64_t{welcome_.lease_ms} * 1'000'000 / 3);
  lease_.start();
}

base::Task<void> Link::send_pings(uint64_t interval_ns) {
  uint64_t sent = 0;
  while (usable()) {
    co_await executor_.sleep_for(interval_ns);
    if (!usable()) co_return;  // whoever calls next is told what has happened
    // Only requests count: the server does not see one-sided operations.
    const uint64_t& now_sent = connection_->counters().server_messages;
    if (std::exchange(sent, now_sent) != now_sent) continue;
    const auto pong = co_await call(kPingMethod, {}, 0);
    if (!pong) drop();
    sent = now_sent;
  }
}

}  // namespace pmstore::service
