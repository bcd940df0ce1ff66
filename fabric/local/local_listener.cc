#include "fabric/local/local_listener.h"

#include <map>

#include "fabric/local/local_connection.h"
#include "fabric/local/local_device.h"

namespace pmstore::fabric {

namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<LocalListening>> names;
};

Registry& registry() {
  static Registry the_registry;
  return the_registry;
}

}  // namespace

std::shared_ptr<LocalListening> find_listening(const std::string& name) {
  std::lock_guard lock(registry().mutex);
  auto found = registry().names.find(name);
  return found == registry().names.end() ? nullptr : found->second;
}

size_t LocalListening::serve() {
  if (!waiting.load(std::memory_order_acquire)) return 0;
  std::vector<std::shared_ptr<LocalHandshake>> work;
  {
    std::lock_guard lock(mutex);
    work.swap(handshakes);
    waiting.store(false, std::memory_order_release);
  }
  for (auto& handshake : work) {
    if (acceptor == nullptr) {  // the listener was destroyed by what the acceptor did
      handshake->refuse(make_error(ErrorCode::kDisconnected, "the listener was closed"));
    } else {
      answer(*handshake);
    }
  }
  return work.size();
}

void LocalListening::answer(LocalHandshake& handshake) {
  const auto connector_gone = [&handshake] {
    return handshake.channel->connector.state.load(std::memory_order_seq_cst) ==
           EndpointState::kClosed;
  };
  if (connector_gone()) return;
  const uint64_t token = next_token++;
  Acceptor& to = *acceptor;
  Result<std::vector<std::byte>> hello = to.on_hello(token, handshake.hello);
  if (hello && hello->size() > kMaxHelloBytes) {
    hello =
        make_error(ErrorCode::kInvalidArgument, "the listener's hello is larger than 4096 bytes");
    to.on_abandoned(token);
  }
  if (!hello) {
    handshake.refuse(std::move(hello.error()));
    return;
  }
  if (connector_gone()) {
    to.on_abandoned(token);
    return;
  }
  Channel& channel = *handshake.channel;
  auto connection =
      std::make_unique<LocalConnection>(*device, handshake.channel, channel.listener,
                                        channel.connector, handshake.operation_timeout_ns);
  connection->meet_peer();
  connection->set_peer_hello(std::move(handshake.hello));
  handshake.answer_hello = std::move(*hello);
  handshake.accept();
  to.on_connected(token, std::move(connection));
}

Result<std::unique_ptr<Listener>> LocalListener::create(LocalDevice& device, const Uri& uri,
                                                        Acceptor& acceptor) {
  auto listening = std::make_shared<LocalListening>();
  listening->device = &device;
  listening->acceptor = &acceptor;
  {
    std::lock_guard lock(registry().mutex);
    if (!registry().names.emplace(uri.name, listening).second) {
      return make_error(ErrorCode::kIo, uri.to_string() + " is already served by this process");
    }
  }
  device.listening_.push_back(listening);
  return std::unique_ptr<Listener>(new LocalListener(device, uri, std::move(listening)));
}

LocalListener::LocalListener(LocalDevice& device, Uri uri,
                             std::shared_ptr<LocalListening> listening)
    : device_(device), uri_(std::move(uri)), listening_(std::move(listening)) {}

LocalListener::~LocalListener() {
  {
    std::lock_guard lock(registry().mutex);
    registry().names.erase(uri_.name);
  }
  listening_->acceptor = nullptr;
  {
    std::lock_guard lock(listening_->mutex);
    listening_->closed = true;
    for (auto& handshake : listening_->handshakes) {
      handshake->refuse(make_error(ErrorCode::kDisconnected, "the listener was closed"));
    }
    listening_->handshakes.clear();
  }
  std::erase(device_.listening_, listening_);
}

}  // namespace pmstore::fabric
