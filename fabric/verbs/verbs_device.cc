// The control path of the device: opening it, memory, connections, listeners. Polling is in
// device_poll.cc.
#include "fabric/verbs/verbs_device.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "fabric/verbs/internal/device.h"
#include "fabric/verbs/internal/handshake.h"
#include "fabric/verbs/internal/listener.h"

namespace pmstore::fabric {

Result<std::unique_ptr<Device>> open_verbs_device(base::Executor& executor) {
  PMSTORE_TRY(std::unique_ptr<Device> device, verbs::VerbsDevice::open(executor));
  return device;
}

namespace verbs {

namespace {

constexpr uint32_t kGenerationMask = (1u << 23) - 1;  // as many bits as a work-request id has
constexpr size_t kMaxConnections = 1u << 24;

std::string memory_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return "unlimited";
  }
  return std::to_string(limit.rlim_cur / 1024) + " KiB";
}

Error registration_error(size_t bytes, int error) {
  std::string message = "cannot register " + std::to_string(bytes) +
                        " bytes with the RDMA device: " + std::strerror(error);
  switch (error) {
    case ENOMEM:
      message += "; the locked-memory limit is " + memory_limit() +
                 ": raise it with `ulimit -l unlimited` or LimitMEMLOCK=infinity";
      break;
    case EOPNOTSUPP:
      message +=
          "; files on a DAX file system cannot be pinned: use device DAX (/dev/daxX.Y), or a "
          "file that is not on DAX";
      break;
    case EFAULT: message += "; the memory must be mapped readable and writable"; break;
    default: message += "; check the RDMA device with ibv_devinfo"; break;
  }
  return make_error(ErrorCode::kIo, std::move(message));
}

int verbs_access(Access access) {
  // Local write is what remote write and atomics require, and what makes it a buffer for READs.
  // Never IBV_ACCESS_RELAXED_ORDERING: a READ behind a WRITE would then prove nothing.
  int flags = IBV_ACCESS_LOCAL_WRITE;
  if (has(access, Access::kRemoteRead)) flags |= IBV_ACCESS_REMOTE_READ;
  if (has(access, Access::kRemoteWrite)) flags |= IBV_ACCESS_REMOTE_WRITE;
  if (has(access, Access::kRemoteAtomic)) flags |= IBV_ACCESS_REMOTE_ATOMIC;
  return flags;
}

}  // namespace

VerbsRegion::VerbsRegion(RegistrationHandle registration, std::span<std::byte> memory,
                         Access access)
    : MemoryRegion(memory, access), registration_(std::move(registration)) {
  remote_.address = reinterpret_cast<uint64_t>(memory.data());
  remote_.bytes = memory.size();
  remote_.key = registration_->rkey;
}

VerbsDevice::VerbsDevice(base::Executor& executor, RdmaDevice rdma)
    : Device(executor),
      rdma_(std::move(rdma)),
      queues_(rdma_.context.get(), rdma_.max_queue_entries) {}

Result<std::unique_ptr<VerbsDevice>> VerbsDevice::open(base::Executor& executor) {
  PMSTORE_TRY(RdmaDevice rdma, open_rdma_device());
  std::unique_ptr<VerbsDevice> device(new VerbsDevice(executor, std::move(rdma)));
  ibv_context* context = device->rdma_.context.get();
  device->pd_.reset(ibv_alloc_pd(context));
  if (!device->pd_) {
    return make_error(ErrorCode::kIo, "no protection domain on RDMA device " + device->rdma_.name +
                                          ": " + std::strerror(errno) + "; check the kernel log");
  }
  const int flags = fcntl(context->async_fd, F_GETFL);
  if (flags < 0 || fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return make_error(ErrorCode::kIo, std::string("events of RDMA device ") + device->rdma_.name +
                                          ": " + std::strerror(errno) + "; check the limits");
  }
  PMSTORE_TRY_STATUS(device->cm_events_.open());
  PMSTORE_TRY_STATUS(device->queues_.open());
  PMSTORE_TRY_STATUS(device->watch_descriptors());
  device->polled_ns_ = executor.now_ns();
  executor.add_poller(device.get());
  return device;
}

Status VerbsDevice::watch_descriptors() {
  const std::pair<int, Signal*> descriptors[] = {{queues_.fd(), &completions_},
                                                 {cm_events_.fd(), &cm_signal_},
                                                 {rdma_.context->async_fd, &async_signal_}};
  for (const auto& [fd, signal] : descriptors) {
    PMSTORE_TRY_STATUS(executor_.watch(fd, EPOLLIN, *signal));
    watched_.push_back(fd);
  }
  return {};
}

VerbsDevice::~VerbsDevice() {
  if (destroyed_ != nullptr) *destroyed_ = true;
  executor_.remove_poller(this);
  for (const int fd : watched_) executor_.unwatch(fd);
  incoming_.clear();
  for (const Entry& entry : table_) {
    PMSTORE_CHECK(entry.connection == nullptr, "connections are destroyed before their device");
  }
}

Result<std::unique_ptr<MemoryRegion>> VerbsDevice::register_memory(std::span<std::byte> memory,
                                                                   Access access) {
  RegistrationHandle registration(
      ibv_reg_mr(pd_.get(), memory.data(), memory.size(), verbs_access(access)));
  if (!registration) return registration_error(memory.size(), errno);
  return std::make_unique<VerbsRegion>(std::move(registration), memory, access);
}

base::Task<Result<std::unique_ptr<Connection>>> VerbsDevice::connect(Uri uri,
                                                                     ConnectOptions options) {
  if (uri.scheme != Scheme::kVerbs || options.hello.size() > kMaxHelloBytes) {
    co_return make_error(ErrorCode::kInvalidArgument,
                         uri.to_string() + ": needs verbs://HOST:PORT and a hello of at most " +
                             std::to_string(kMaxHelloBytes) + " bytes");
  }
  const std::vector<std::byte> hello(options.hello.begin(), options.hello.end());
  const uint64_t deadline_ns = executor_.now_ns() + options.timeout_ns;
  Result<std::vector<SocketAddress>> addresses = resolve_host(uri, false);
  if (!addresses) co_return std::move(addresses.error());
  size_t tried = 0;
  while (true) {
    const uint64_t now_ns = executor_.now_ns();
    Handshake handshake(*this, uri.to_string(), deadline_ns > now_ns ? deadline_ns - now_ns : 0,
                        options.operation_timeout_ns);
    Result<std::unique_ptr<Connection>> result =
        co_await handshake.call((*addresses)[tried], hello);
    if (result || !handshake.unreachable() || ++tried == addresses->size()) co_return result;
  }
}

Result<std::unique_ptr<Listener>> VerbsDevice::listen(const Uri& uri, Acceptor& acceptor) {
  if (uri.scheme != Scheme::kVerbs) {
    return make_error(ErrorCode::kInvalidArgument,
                      uri.to_string() + ": the verbs provider listens at verbs://HOST:PORT");
  }
  PMSTORE_TRY(std::unique_ptr<Listener> listener, VerbsListener::open(*this, uri, acceptor));
  return listener;
}

base::Task<Result<std::unique_ptr<Connection>>> VerbsDevice::loopback() {
  auto connection = VerbsConnection::create(*this, ConnectOptions{}.operation_timeout_ns);
  if (!connection) co_return std::move(connection.error());
  Status status = (*connection)->connect_to_self();
  if (!status) co_return std::move(status.error());
  co_return std::unique_ptr<Connection>(std::move(*connection));
}

Status VerbsDevice::check_device(const rdma_cm_id& id) const {
  const std::string routed = ibv_get_device_name(id.verbs->device);
  if (routed == rdma_.name && id.port_num == rdma_.port) return {};
  return make_error(ErrorCode::kUnsupported,
                    "that address belongs to port " + std::to_string(id.port_num) +
                        " of RDMA device " + routed + ", this program uses port " +
                        std::to_string(rdma_.port) + " of " + rdma_.name +
                        "; set PMSTORE_RDMA_DEVICE, or use an address of that port");
}

ConnectionRef VerbsDevice::add(VerbsConnection* connection) {
  if (free_.empty()) {
    PMSTORE_CHECK(table_.size() < kMaxConnections, "an index has 24 bits in work-request ids");
    table_.emplace_back();
    free_.reserve(table_.size());
    deferred_.reserve(table_.size());
    running_deferred_.reserve(table_.size());
    free_.push_back(static_cast<uint32_t>(table_.size() - 1));
  }
  const uint32_t index = free_.back();
  free_.pop_back();
  table_[index].connection = connection;
  return ConnectionRef{index, table_[index].generation};
}

void VerbsDevice::remove(ConnectionRef ref) {
  Entry& entry = table_[ref.index];
  PMSTORE_CHECK(entry.connection != nullptr && entry.generation == ref.generation,
                "a connection is removed once");
  entry.connection = nullptr;
  entry.generation = (entry.generation + 1) & kGenerationMask;
  free_.push_back(ref.index);
}

void VerbsDevice::remove(Handshake* handshake) { std::erase(handshakes_, handshake); }

void VerbsDevice::forget(const VerbsListener& listener) {
  for (Incoming& incoming : incoming_) {
    if (incoming.handshake->listener() == &listener) incoming.handshake->abandon();
  }
}

void VerbsDevice::accept(const CmEvent& request, VerbsListener& listener) {
  reap();
  if (incoming_.size() >= kMaxIncoming) {
    const Preamble busy{kPreambleMagic, kHandshakeVersion, static_cast<uint16_t>(Rejection::kBusy)};
    rdma_reject(request.id, &busy, sizeof(busy));
    rdma_destroy_id(request.id);
    return;
  }
  constexpr ConnectOptions kDefaults;
  auto handshake = std::make_unique<Handshake>(*this, "a client", kDefaults.timeout_ns,
                                               kDefaults.operation_timeout_ns);
  base::Task<void> task = handshake->answer(request, &listener);
  incoming_.push_back(Incoming{std::move(handshake), std::move(task)});
  incoming_.back().task.start();
}

void VerbsDevice::reap() {
  std::erase_if(incoming_, [](const Incoming& incoming) { return incoming.task.done(); });
}

}  // namespace verbs
}  // namespace pmstore::fabric
