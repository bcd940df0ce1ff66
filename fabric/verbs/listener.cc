#include "fabric/verbs/internal/listener.h"

#include <netdb.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fabric/verbs/internal/device.h"

namespace pmstore::fabric::verbs {

Result<std::vector<SocketAddress>> resolve_host(const Uri& uri, bool passive) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  addrinfo* list = nullptr;
  const int error = getaddrinfo(uri.name.c_str(), std::to_string(uri.port).c_str(), &hints, &list);
  if (error != 0) {
    return make_error(passive ? ErrorCode::kIo : ErrorCode::kDisconnected,
                      "unknown host in " + uri.to_string() + ": " + gai_strerror(error) +
                          "; give a name that resolves, or an address");
  }
  std::vector<SocketAddress> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    SocketAddress address{};
    std::memcpy(&address.storage, entry->ai_addr,
                std::min<size_t>(entry->ai_addrlen, sizeof(address.storage)));
    addresses.push_back(address);
  }
  freeaddrinfo(list);
  return addresses;
}

VerbsListener::VerbsListener(VerbsDevice& device, Uri uri, Acceptor& acceptor)
    : device_(device),
      uri_(std::move(uri)),
      acceptor_(acceptor),
      key_(device.cm_events().add(this)) {}

VerbsListener::~VerbsListener() {
  device_.cm_events().remove(key_);
  device_.forget(*this);
}

Status VerbsListener::bind(const SocketAddress& address) {
  const auto refused = [&](const char* what_to_do) {
    return make_error(ErrorCode::kIo, "cannot listen at " + uri_.to_string() + ": " +
                                          std::strerror(errno) + "; " + what_to_do);
  };
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(device_.cm_events().channel(), &id, nullptr, RDMA_PS_TCP) != 0) {
    return refused("check /dev/infiniband/rdma_cm");
  }
  id_.reset(id);
  CmEvents::bind(id, key_);
  SocketAddress writable = address;
  if (rdma_bind_addr(id, writable.get()) != 0) {
    return refused(errno == EADDRINUSE
                       ? "choose another port, or end the program that uses it"
                       : "choose an address of an RDMA device of this machine (see `rdma link`)");
  }
  if (id->verbs != nullptr) {  // nullptr: all addresses, so each request is checked by itself
    PMSTORE_TRY_STATUS(device_.check_device(*id));
  }
  if (rdma_listen(id, static_cast<int>(VerbsDevice::kMaxIncoming)) != 0) {
    return refused("choose another port, or end the program that uses it");
  }
  uri_.port = ntohs(rdma_get_src_port(id));
  return {};
}

Result<std::unique_ptr<VerbsListener>> VerbsListener::open(VerbsDevice& device, const Uri& uri,
                                                           Acceptor& acceptor) {
  PMSTORE_TRY(const std::vector<SocketAddress> addresses, resolve_host(uri, true));
  Status status;
  for (const SocketAddress& address : addresses) {
    std::unique_ptr<VerbsListener> listener(new VerbsListener(device, uri, acceptor));
    status = listener->bind(address);
    if (status) return listener;
  }
  return std::move(status.error());
}

void VerbsListener::on_cm_event(const CmEvent& event) {
  if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST) device_.accept(event, *this);
}

}  // namespace pmstore::fabric::verbs
