#include "pmstore/admin_client.h"

#include <cstring>

#include "pmstore/layout/admin_protocol.h"
#include "service/link.h"

namespace pmstore {

using base::Task;

struct AdminClient::State {
  Task<Result<std::string>> ask(AdminMethod method, std::span<const std::byte> request);

  std::unique_ptr<fabric::Device> device;
  std::unique_ptr<service::Link> link;
};

AdminClient::AdminClient(std::unique_ptr<State> state) : state_(std::move(state)) {}
AdminClient::~AdminClient() = default;

Task<Result<std::unique_ptr<AdminClient>>> AdminClient::connect(Executor& executor, fabric::Uri uri,
                                                                AdminOptions options) {
  auto state = std::make_unique<State>();
  PMSTORE_CO_TRY(state->device, fabric::open_device(uri.scheme, executor, options.devices));
  service::LinkOptions with;
  with.service = service::ServiceId::kAdmin;
  with.secret = ClientSecret::random();
  with.connect_timeout_ns = options.connect_timeout_ns;
  with.rpc.reply_arena_bytes = 4 * kAdminReplyBytes;
  with.rpc.max_calls = 4;
  with.rpc.call_timeout_ns = options.call_timeout_ns;
  PMSTORE_CO_TRY(state->link,
                 co_await service::Link::open(*state->device, std::move(uri), with, {}));
  co_return std::unique_ptr<AdminClient>(new AdminClient(std::move(state)));
}

Task<Result<std::string>> AdminClient::State::ask(AdminMethod method,
                                                  std::span<const std::byte> request) {
  auto answer = co_await link->call(static_cast<uint16_t>(method), request, kAdminReplyBytes);
  if (!answer) co_return std::move(answer.error());
  const auto bytes = answer->bytes();
  co_return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Task<Result<std::string>> AdminClient::stat() { return state_->ask(AdminMethod::kStat, {}); }

Task<Result<std::string>> AdminClient::sessions(uint32_t first) {
  const AdminSessionsRequest request{first};
  co_return co_await state_->ask(AdminMethod::kSessions, std::as_bytes(std::span(&request, 1)));
}

Task<Result<uint32_t>> AdminClient::kick(ClientId client) {
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
