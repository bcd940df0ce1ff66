#include "model/device.h"

#include "model/cluster.h"
#include "model/connection.h"
#include "model/host.h"

namespace pmstore::model {

namespace {

// Passes handshakes on, and puts the modelled end around each connection.
class ModelListener final : public fabric::Listener, private fabric::Acceptor {
 public:
  ModelListener(ModelDevice& device, fabric::Acceptor& acceptor)
      : device_(device), acceptor_(acceptor) {}

  fabric::Acceptor& as_acceptor() { return *this; }
  void start(std::unique_ptr<fabric::Listener> inner) { inner_ = std::move(inner); }
  const fabric::Uri& uri() const override { return inner_->uri(); }

 private:
  Result<std::vector<std::byte>> on_hello(uint64_t token,
                                          std::span<const std::byte> hello) override {
    return acceptor_.on_hello(token, hello);
  }
  void on_connected(uint64_t token, std::unique_ptr<fabric::Connection> connection) override {
    auto adopted = device_.adopt(std::move(connection));
    if (adopted == nullptr) return acceptor_.on_abandoned(token);
    acceptor_.on_connected(token, std::move(adopted));
  }
  void on_abandoned(uint64_t token) override { acceptor_.on_abandoned(token); }

  ModelDevice& device_;
  fabric::Acceptor& acceptor_;
  std::unique_ptr<fabric::Listener> inner_;
};

}  // namespace

ModelRegion::ModelRegion(ModelDevice& device, std::unique_ptr<fabric::MemoryRegion> inner,
                         fabric::Access access)
    : MemoryRegion(inner->bytes(), access), device_(device), inner_(std::move(inner)) {
  remote_ = inner_->remote();
  device_.host().add_registered(bytes(), access, device_.core().number());
}

ModelRegion::~ModelRegion() { device_.host().remove_registered(bytes()); }

ModelDevice::ModelDevice(Cluster& cluster, Host& host, Core& core, Rnic& rnic)
    : Device(cluster.executor()),
      cluster_(cluster),
      host_(host),
      core_(core),
      rnic_(rnic),
      inner_(std::make_unique<fabric::LocalDevice>(cluster.executor())),
      number_(cluster.add_device(this)) {}

ModelDevice::~ModelDevice() { cluster_.remove_device(this); }

Result<std::unique_ptr<fabric::MemoryRegion>> ModelDevice::register_memory(
    std::span<std::byte> memory, fabric::Access access) {
  PMSTORE_TRY(auto inner, inner_->register_memory(memory, access));
  return std::unique_ptr<fabric::MemoryRegion>(new ModelRegion(*this, std::move(inner), access));
}

std::unique_ptr<ModelConnection> ModelDevice::adopt(std::unique_ptr<fabric::Connection> local) {
  std::unique_ptr<fabric::LocalConnection> inner(
      static_cast<fabric::LocalConnection*>(local.release()));
  QueuePair* const qp = cluster_.queue_pair(*this, *inner);
  if (qp == nullptr) return nullptr;
  return std::make_unique<ModelConnection>(*this, std::move(inner), *qp);
}

base::Task<Result<std::unique_ptr<fabric::Connection>>> ModelDevice::connect(
    fabric::Uri uri, fabric::ConnectOptions options) {
  // The hello is borrowed only until the first suspension of the local provider's connect().
  const std::vector<std::byte> hello(options.hello.begin(), options.hello.end());
  options.hello = hello;
  co_await executor_.sleep_for(static_cast<uint64_t>(cluster_.parameters().rnic.connect_ns));
  auto local = co_await inner_->connect(uri, options);
  if (!local) co_return std::move(local.error());
  std::unique_ptr<ModelConnection> connection = adopt(std::move(*local));
  if (connection == nullptr) {
    co_return make_error(ErrorCode::kUnsupported,
                         uri.to_string() + " is not on a modelled host; serve it on one of them");
  }
  co_return std::unique_ptr<fabric::Connection>(std::move(connection));
}

Result<std::unique_ptr<fabric::Listener>> ModelDevice::listen(const fabric::Uri& uri,
                                                              fabric::Acceptor& acceptor) {
  auto listener = std::make_unique<ModelListener>(*this, acceptor);
  PMSTORE_TRY(auto inner, inner_->listen(uri, listener->as_acceptor()));
  listener->start(std::move(inner));
  return std::unique_ptr<fabric::Listener>(std::move(listener));
}

base::Task<Result<std::unique_ptr<fabric::Connection>>> ModelDevice::loopback() {
  auto local = co_await inner_->loopback();
  if (!local) co_return std::move(local.error());
  co_return std::unique_ptr<fabric::Connection>(adopt(std::move(*local)));
}

}  // namespace pmstore::model
