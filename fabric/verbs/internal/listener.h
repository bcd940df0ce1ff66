// VerbsListener: an rdma_cm id that listens. See fabric/device.h.
#pragma once

#include <netinet/in.h>

#include <memory>
#include <vector>

#include "fabric/device.h"
#include "fabric/verbs/internal/cm_events.h"

namespace pmstore::fabric::verbs {

class VerbsDevice;

// HOST:PORT as addresses that can be tried in turn. Blocks while the resolver asks the network, so
// servers are best named by address. NotFound is not used: an unknown host is Disconnected.
struct SocketAddress {
  sockaddr_storage storage;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};
Result<std::vector<SocketAddress>> resolve_host(const Uri& uri, bool passive);

class VerbsListener final : public Listener, public CmTarget {
 public:
  static Result<std::unique_ptr<VerbsListener>> open(VerbsDevice& device, const Uri& uri,
                                                     Acceptor& acceptor);
  ~VerbsListener() override;

  const Uri& uri() const override { return uri_; }
  Acceptor& acceptor() { return acceptor_; }
  void on_cm_event(const CmEvent& event) override;

 private:
  VerbsListener(VerbsDevice& device, Uri uri, Acceptor& acceptor);
  Status bind(const SocketAddress& address);

  VerbsDevice& device_;
  Uri uri_;
  Acceptor& acceptor_;
  CmEvents::Key key_;
  CmIdHandle id_;
};

}  // namespace pmstore::fabric::verbs
