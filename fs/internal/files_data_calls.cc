// Of FilesCalls: the list of data servers, and its changes.
#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "fs/internal/files_calls.h"

namespace pmstore::fs::internal {
namespace {

constexpr int kNoSuchRequest = EBADMSG;
constexpr size_t kMostUriBytes = 255;

PosixError not_to_be_changed() {
  return {EOPNOTSUPP,
          "this file system's data servers cannot be changed: it is not served by "
          "pmstored"};
}

}  // namespace

PosixStatus FilesCalls::data_servers(const FilesRequest& request, Writer& reply) {
  if (!request.body.empty()) return PosixError(kNoSuchRequest);
  std::vector<DataServerInfo> servers;
  if (options_.servers != nullptr) servers = options_.servers->list();
  // Those that are gone come last, as many as fit.
  std::stable_partition(servers.begin(), servers.end(), [](const DataServerInfo& server) {
    return server.state != DataServerState::kGone;
  });
  size_t room = request.room - std::min(request.room, sizeof(DataServersReply));
  DataServersReply head;
  for (const DataServerInfo& server : servers) {
    const size_t bytes = sizeof(WireDataServer) + server.uri.size() + server.problem.size();
    if (bytes > room) break;
    room -= bytes;
    ++head.count;
  }
  reply.put(head);
  for (uint32_t i = 0; i < head.count; ++i) put_data_server(servers[i], reply);
  return {};
}

base::Task<PosixStatus> FilesCalls::add_data_server(const FilesRequest& request, Writer& reply) {
  Reader reader(request.body);
  const auto asked = reader.get<AddDataServerRequest>();
  std::string uri(reader.get_bytes(asked.uri_bytes));
  if (!reader.complete() || uri.empty() || uri.size() > kMostUriBytes) {
    co_return PosixError(kNoSuchRequest);
  }
  if (options_.servers == nullptr) co_return not_to_be_changed();
  const auto added = co_await options_.servers->add(request.caller, std::move(uri));
  if (!added) co_return PosixError(added.error());
  reply.put(DataServerReply{*added});
  co_return PosixStatus{};
}

base::Task<PosixStatus> FilesCalls::drain_data_server(const FilesRequest& request) {
  Reader reader(request.body);
  const auto asked = reader.get<DrainDataServerRequest>();
  if (!reader.complete()) co_return PosixError(kNoSuchRequest);
  if (options_.servers == nullptr) co_return not_to_be_changed();
  co_return co_await options_.servers->drain(request.caller, asked.index, asked.undo != 0);
}

}  // namespace pmstore::fs::internal
