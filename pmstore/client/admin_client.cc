#include "pmstore/admin_client.h"

#include <cstring>

#include "base/random.h"
#include "fabric/message.h"
#include "fabric/rpc.h"
#include "pmstore/layout/admin_protocol.h"

namespace pmstore {

using base::Task;

struct AdminClient::State {
  // The connection goes before the memory that its peer can still reach.
  ~State() {
    if (connection != nullptr) connection->set_receiver(nullptr);
    connection.reset();
  }
  Task<Result<std::string>> ask(AdminMethod method, std::span<const std::byte> request);

  std::unique_ptr<fabric::Device> device;
  std::unique_ptr<fabric::RpcClient> rpc;
  std::unique_ptr<fabric::Connection> connection;
};

AdminClient::AdminClient(std::unique_ptr<State> state) : state_(std::move(state)) {}
AdminClient::~AdminClient() = default;

Task<Result<std::unique_ptr<AdminClient>>> AdminClient::connect(Executor& executor, fabric::Uri uri,
                                                                AdminOptions options) {
  auto state = std::make_unique<State>();
  PMSTORE_CO_TRY(state->device, fabric::open_device(uri.scheme, executor, options.devices));
  fabric::RpcOptions rpc_options;
  rpc_options.reply_arena_bytes = 4 * kAdminReplyBytes;
  rpc_options.max_calls = 4;
  rpc_options.call_timeout_ns = options.call_timeout_ns;
  PMSTORE_CO_TRY(state->rpc, fabric::RpcClient::create(*state->device, rpc_options));
  AdminHello hello;
  hello.client = base::random_identity();
  hello.reply_region = state->rpc->reply_region();
  fabric::ConnectOptions connect_options;
  connect_options.hello = std::as_bytes(std::span(&hello, 1));
  connect_options.timeout_ns = options.connect_timeout_ns;
  connect_options.operation_timeout_ns = options.call_timeout_ns;
  PMSTORE_CO_TRY(state->connection,
                 co_await state->device->connect(std::move(uri), connect_options));
  AdminAnswer answer;
  const std::span<const std::byte> given = state->connection->peer_hello();
  if (given.size() == sizeof answer) std::memcpy(&answer, given.data(), sizeof answer);
  if (given.size() != sizeof answer || answer.magic != kAdminMagic ||
      answer.version != kAdminVersion) {
    co_return make_error(ErrorCode::kVersionMismatch,
                         "the server answers an administrator in another way; use a pmstore of the "
                         "server's release");
  }
  PMSTORE_CO_TRY_STATUS(state->rpc->attach(*state->connection, answer.request_region));
  co_return std::unique_ptr<AdminClient>(new AdminClient(std::move(state)));
}

Task<Result<std::string>> AdminClient::State::ask(AdminMethod method,
                                                  std::span<const std::byte> request) {
  auto answer = co_await rpc->call(static_cast<uint16_t>(method), request, kAdminReplyBytes);
  if (!answer) co_return std::move(answer.error());
  const auto bytes = answer->bytes();
  co_return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Task<Result<std::string>> AdminClient::stat() { return state_->ask(AdminMethod::kStat, {}); }

Task<Result<std::string>> AdminClient::sessions(uint32_t first) {
  const AdminSessionsRequest request{first};
  co_return co_await state_->ask(AdminMethod::kSessions, std::as_bytes(std::span(&request, 1)));
}

Task<Result<uint32_t>> AdminClient::kick(uint64_t client) {
  const AdminKickRequest request{client};
  PMSTORE_CO_TRY(const std::string reply,
                 co_await state_->ask(AdminMethod::kKick, std::as_bytes(std::span(&request, 1))));
  AdminKickReply kicked{};
  if (reply.size() != sizeof kicked) {
    co_return make_error(ErrorCode::kProtocol, "the server's reply to a kick is malformed");
  }
  std::memcpy(&kicked, reply.data(), sizeof kicked);
  co_return kicked.kicked;
}

}  // namespace pmstore
