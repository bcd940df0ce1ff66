// Of DataLinks: memory of the caller that is registered with the sessions.
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "fs/internal/data_links.h"

namespace pmstore::fs::internal {

base::Task<PosixStatus> DataLinks::register_buffer(std::span<std::byte> memory) {
  const auto behind = registered_.lower_bound(memory.data());
  bool touches = behind != registered_.end() && behind->first < memory.data() + memory.size();
  if (behind != registered_.begin()) {
    const auto before = std::prev(behind);
    touches |= before->first + before->second > memory.data();
  }
  if (memory.empty() || touches) {
    co_return PosixError(EINVAL, "memory is registered once, and is not empty");
  }
  std::vector<Server*> done;
  for (const auto& [index, server] : servers_) {
    if (server->data == nullptr) continue;
    const Status registered = server->data->register_buffer(memory);
    if (!registered) {
      co_await forget_at(std::move(done), memory);
      co_return PosixError(registered.error());
    }
    done.push_back(server.get());
  }
  registered_.emplace(memory.data(), memory.size());
  co_return PosixStatus{};
}

base::Task<void> DataLinks::forget_buffer(std::span<std::byte> memory) {
  const auto found = registered_.find(memory.data());
  PMSTORE_CHECK(found != registered_.end() && found->second == memory.size(),
                "memory is forgotten as it was registered");
  registered_.erase(found);
  std::vector<Server*> servers;
  for (const auto& [index, server] : servers_) {
    if (server->data != nullptr) servers.push_back(server.get());
  }
  co_await forget_at(std::move(servers), memory);
}

// All of them have given it up before the first one is waited for: this task may be destroyed then.
// Accesses that copy end in the memory too.
base::Task<void> DataLinks::forget_at(std::vector<Server*> servers, std::span<std::byte> memory) {
  std::vector<base::Task<void>> tasks;
  for (Server* const server : servers) {
    if (server->refused.erase(memory.data()) != 0) continue;
    tasks.push_back(server->data->forget_buffer(memory));
    tasks.back().start();
  }
  for (Server* const server : servers) co_await server->data->settled();
}

}  // namespace pmstore::fs::internal
