#include "fabric/shm/internal/shm_device.h"

#include "fabric/shm/internal/shm_listener.h"

namespace pmstore::fabric::shm {

Result<std::unique_ptr<internal::PolledConnection>> ShmDevice::dial(
    const Uri& uri, const internal::ConnectionOptions& options) {
  PMSTORE_TRY(std::unique_ptr<ShmConnection> connection,
              ShmConnection::dial(*this, uri.name, options));
  return std::unique_ptr<internal::PolledConnection>(std::move(connection));
}

Result<std::unique_ptr<Listener>> ShmDevice::listen(const Uri& uri, Acceptor& acceptor) {
  return ShmListener::open(*this, uri, acceptor);
}

void ShmDevice::withdraw_from_connections(const MemoryRegion& region) {
  for (internal::PolledConnection* connection : connections()) {
    if (connection != nullptr) static_cast<ShmConnection*>(connection)->withdraw_region(region);
  }
}

bool ShmDevice::arm() {
  if (!PolledDevice::arm()) return false;
  for (internal::PolledConnection* connection : connections()) {
    if (static_cast<ShmConnection*>(connection)->arm()) continue;
    disarm();
    return false;
  }
  return true;
}

void ShmDevice::disarm() {
  for (internal::PolledConnection* connection : connections()) {
    static_cast<ShmConnection*>(connection)->disarm();
  }
  PolledDevice::disarm();
}

}  // namespace pmstore::fabric::shm
