// Of FileSystem: the list of data servers, and its changes; registered memory.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "fs/internal/file_system_state.h"

namespace pmstore::fs {

using internal::FilesCall;

namespace {

constexpr uint32_t kServerListBytes = 64 * 1024;
constexpr size_t kMostUriBytesSent = 255;

}  // namespace

base::Task<PosixResult<std::vector<DataServerInfo>>> FileSystem::data_servers() {
  const FilesCall request(FilesMethod::kDataServers, false, kServerListBytes);
  const auto answered = co_await state_->link->call(request);
  if (!answered) co_return PosixError(answered.error());
  fabric::MessageReader reader = answered->reader();
  const auto head = reader.get<DataServersReply>();
  std::vector<DataServerInfo> servers;
  for (uint32_t i = 0; i < head.count; ++i) {
    auto server = get_data_server(reader);
    if (!server) co_return state_->link->malformed("a list of data servers");
    servers.push_back(std::move(*server));
  }
  if (!reader.complete()) co_return state_->link->malformed("a list of data servers");
  std::sort(servers.begin(), servers.end(),
            [](const DataServerInfo& a, const DataServerInfo& b) { return a.index < b.index; });
  co_return servers;
}

base::Task<PosixResult<uint16_t>> FileSystem::add_data_server(std::string uri) {
  if (uri.empty() || uri.size() > kMostUriBytesSent) co_return PosixError(EINVAL);
  FilesCall request(FilesMethod::kAddDataServer, true, sizeof(DataServerReply));
  request.caller = state_->options.caller;
  AddDataServerRequest asked;
  asked.uri_bytes = static_cast<uint16_t>(uri.size());
  request.put(asked).put_name(uri);
  bool doubt = false;
  const auto answered = co_await state_->link->call(request, &doubt);
  if (!answered && doubt && answered.error().number == EEXIST) {
    co_return work_in_doubt("the data server");
  }
  if (!answered) co_return PosixError(answered.error());
  fabric::MessageReader reader = answered->reader();
  const auto reply = reader.get<DataServerReply>();
  if (!reader.complete()) co_return state_->link->malformed("an added data server");
  co_return static_cast<uint16_t>(reply.index);
}

base::Task<PosixStatus> FileSystem::drain_data_server(uint16_t index, bool undo) {
  FilesCall request(FilesMethod::kDrainDataServer, true, 0);
  request.caller = state_->options.caller;
  DrainDataServerRequest asked;
  asked.index = index;
  asked.undo = undo ? 1 : 0;
  request.put(asked);
  co_return co_await state_->ask(std::move(request));
}

// ---- registered memory ----

base::Task<PosixStatus> FileSystem::register_buffer(std::span<std::byte> memory) {
  if (state_->closed) co_return PosixError(EIO, "the client was closed; connect another one");
  co_return co_await state_->io->register_buffer(memory);
}

base::Task<PosixStatus> FileSystem::forget_buffer(std::span<std::byte> memory) {
  if (!state_->io->is_registered(memory)) {
    co_return PosixError(EINVAL, "memory is forgotten as it was registered");
  }
  co_await state_->io->forget_buffer(memory);
  co_return PosixStatus{};
}

}  // namespace pmstore::fs
