// The clients of the remote-access benchmark: connecting, and what all of them share.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "fabric/rpc_layout.h"
#include "tools/bench/micro_link.h"
#include "tools/bench/micro_server.h"

namespace pmstore::tools {
namespace {

constexpr uint64_t kLookNs = 20'000;

uint64_t ring_bytes(uint64_t messages, uint64_t message_bytes) {
  const uint64_t bytes =
      2 * messages * persist::round_up(message_bytes, fabric::kRpcUnit) + fabric::kMinRpcRingBytes;
  return std::min<uint64_t>(bytes, fabric::kMaxRpcRingBytes);
}

fabric::RpcOptions rpc_options(const MicroPoint& point) {
  const uint64_t data = micro_bytes(point);
  const uint32_t read = point.op == MicroOp::kRead ? static_cast<uint32_t>(data) : 0;
  fabric::RpcOptions options;
  options.request_ring_bytes = static_cast<uint32_t>(ring_bytes(
      point.window, sizeof(fabric::RpcRequestHeader) + persist::kMaxPersistTableBytes + data));
  options.reply_arena_bytes =
      static_cast<uint32_t>(ring_bytes(point.window, fabric::rpc_reply_room(read)));
  options.max_calls = point.window;
  return options;
}

}  // namespace

void MicroControl::fail(Error why) {
  {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(why);
  }
  stop();
}

std::optional<Error> MicroControl::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

void MicroTally::merge(const MicroTally& other) {
  latency_ns.merge(other.latency_ns);
  counters += other.counters;
  begin_ns = std::min(begin_ns, other.begin_ns);
  end_ns = std::max(end_ns, other.end_ns);
  server = other.server;
  ordinary_file = other.ordinary_file;
  strategy = other.strategy;
}

double MicroTally::seconds() const {
  return end_ns <= begin_ns ? 0 : static_cast<double>(end_ns - begin_ns) / 1e9;
}

double MicroTally::rate_per_s() const {
  const double time = seconds();
  return time > 0 ? static_cast<double>(latency_ns.count()) / time : 0;
}

MicroClient::MicroClient(fabric::Device& device, const MicroPoint& point, uint32_t index)
    : device_(device),
      point_(point),
      index_(index),
      bytes_(micro_bytes(point)),
      slots_(point.window / point.batch),
      buffer_bytes_(persist::round_up(sizeof(MicroRequest) + bytes_, 64) * point.batch),
      all_ended_(device.executor()) {
  // Every client does its share, the first ones of the remainder.
  ops_left_ = point.ops / point.clients + (index < point.ops % point.clients ? 1 : 0);
  warm_ops_ = ops_left_ / 10;
}

MicroClient::~MicroClient() = default;

base::Task<Status> MicroClient::connect_route(Link& link, fabric::Uri uri) {
  Link::Route& route = *link.routes.emplace_back(std::make_unique<Link::Route>());
  MicroHello hello{};
  hello.magic = kMicroHelloMagic;
  hello.medium = static_cast<uint8_t>(micro_medium(point_));
  hello.two_sided = is_one_sided(point_) ? 0 : 1;
  hello.non_temporal = micro_non_temporal(point_) ? 1 : 0;
  hello.single_dimm = point_.single_dimm ? 1 : 0;
  hello.range_bytes = point_.range_bytes;
  if (hello.two_sided != 0) {
    const fabric::RpcOptions options = rpc_options(point_);
    PMSTORE_CO_TRY(route.rpc, fabric::RpcClient::create(device_, options));
    hello.ring_bytes = options.request_ring_bytes;
    hello.calls = options.max_calls;
    hello.replies = route.rpc->reply_region();
  }
  fabric::ConnectOptions options;
  options.hello = std::as_bytes(std::span(&hello, 1));
  PMSTORE_CO_TRY(route.connection, co_await device_.connect(std::move(uri), std::move(options)));
  const auto bytes = route.connection->peer_hello();
  if (bytes.size() == sizeof route.answer) std::memcpy(&route.answer, bytes.data(), bytes.size());
  if (route.answer.magic != kMicroAnswerMagic || route.answer.workers == 0 ||
      route.answer.workers > kMostServerThreads) {
    co_return make_error(ErrorCode::kVersionMismatch,
                         "this is not a server of this revision of pmstore bench micro; start one "
                         "with pmstore bench micro --serve URI");
  }
  if (route.rpc) {
    PMSTORE_CO_TRY_STATUS(route.rpc->attach(*route.connection, route.answer.requests));
  }
  tally_.server = {static_cast<persist::Domain>(route.answer.domain),
                   static_cast<persist::WriteLanding>(route.answer.landing),
                   route.answer.native_flush != 0};
  tally_.ordinary_file = route.answer.ordinary_file != 0;
  if (point_.persistent) {
    persist::RemoteWriterOptions writer;
    writer.strategy = micro_strategy(point_);
    PMSTORE_CO_TRY(route.writer,
                   persist::RemoteWriter::create(device_, *route.connection, route.rpc.get(),
                                                 route.answer.granted, tally_.server, writer));
    tally_.strategy = route.writer->strategy();
  }
  if (point_.op == MicroOp::kAtomic &&
      route.connection->capabilities().atomics == fabric::AtomicScope::kNone) {
    co_return make_error(ErrorCode::kUnsupported,
                         "this fabric has no remote atomics: use local, verbs or --model");
  }
  co_return Status{};
}

base::Task<Status> MicroClient::connect_link(Link& link, uint64_t stream,
                                             const fabric::Uri& server) {
  // The first route asks thread 0 how many threads there are.
  PMSTORE_CO_TRY_STATUS(co_await connect_route(link, server));
  link.of_dimm.fill(link.routes.front().get());
  if (is_one_sided(point_)) co_return Status{};
  const MicroAnswer answer = link.routes.front()->answer;
  const uint32_t workers = micro_workers(point_, answer.workers);
  const bool owners = answer.interleaved != 0 && micro_has_owners(point_);
  std::vector<Link::Route*> of_worker(workers, nullptr);
  of_worker[0] = link.routes.front().get();
  for (uint64_t dimm = 0; dimm < kInterleavedDimms; ++dimm) {
    const auto worker = owners ? micro_owner(point_, workers, stream, dimm)
                               : static_cast<uint32_t>(stream % workers);
    if (of_worker[worker] == nullptr) {
      PMSTORE_CO_TRY_STATUS(
          co_await connect_route(link, micro_worker_uri(server, worker, answer.ports[worker])));
      of_worker[worker] = link.routes.back().get();
    }
    link.of_dimm[dimm] = of_worker[worker];
  }
  const auto unused = [&](const auto& route) {
    return std::find(link.of_dimm.begin(), link.of_dimm.end(), route.get()) == link.of_dimm.end();
  };
  std::erase_if(link.routes, unused);  // the one that was asked, at most
  co_return Status{};
}

base::Task<Status> MicroClient::connect(fabric::Uri server) {
  memory_.resize(buffer_bytes_ * slots_ * point_.connections + 64);
  PMSTORE_CO_TRY(region_, device_.register_memory(memory_, fabric::Access::kLocal));
  const uint64_t streams = uint64_t{point_.clients} * point_.connections;
  for (uint32_t i = 0; i < point_.connections; ++i) {
    // Connections go round the server threads.
    const uint64_t stream = uint64_t{index_} * point_.connections + i;
    auto link = std::make_unique<Link>(point_, stream, streams, i);
    PMSTORE_CO_TRY_STATUS(co_await connect_link(*link, stream, server));
    links_.push_back(std::move(link));
  }
  co_return Status{};
}

base::Task<bool> MicroClient::meet() {
  MicroControl& control = *control_;
  base::Executor& executor = device_.executor();
  control.connected_.fetch_add(1);
  while (control.connected_.load() < control.clients_) {
    if (control.stopped()) co_return false;
    co_await executor.sleep_for(kLookNs);
  }
  uint64_t start_ns = 0;
  const uint64_t now_ns = std::max<uint64_t>(1, executor.now_ns());
  if (control.start_ns_.compare_exchange_strong(start_ns, now_ns)) start_ns = now_ns;
  warm_until_ns_ = start_ns + point_.warmup_ns;
  end_ns_ = warm_until_ns_ + point_.measured_ns;
  co_return !control.stopped();
}

base::Task<void> MicroClient::run(fabric::Uri server, MicroControl& control) {
  control_ = &control;
  Status connected = co_await connect(std::move(server));
  if (!connected) {
    control.fail(std::move(connected.error()));
    co_return;
  }
  if (co_await meet()) co_await work();
}

fabric::Counters MicroClient::counters() const {
  fabric::Counters sum;
  for (const auto& link : links_) {
    for (const auto& route : link->routes) sum += route->connection->counters();
  }
  return sum;
}

base::Task<Result<MicroTally>> run_micro(base::Executor& executor,
                                         std::span<fabric::Device* const> devices,
                                         fabric::Uri server, const MicroPoint& point,
                                         MicroControl& control) {
  PMSTORE_CO_TRY_STATUS(check_point(point));
  std::vector<std::unique_ptr<MicroClient>> clients;
  base::WaitList ended(executor);
  uint32_t left = point.clients;
  const auto one = [](MicroClient& client, fabric::Uri uri, MicroControl& shared, uint32_t& running,
                      base::WaitList& waiters) -> base::Task<void> {
    co_await client.run(std::move(uri), shared);
    if (--running == 0) waiters.notify_all();
  };
  for (uint32_t i = 0; i < point.clients; ++i) {
    clients.push_back(std::make_unique<MicroClient>(*devices[i % devices.size()], point, i));
    executor.spawn(one(*clients.back(), server, control, left, ended));
  }
  while (left > 0) co_await ended.wait();
  if (auto error = control.error()) co_return std::move(*error);
  MicroTally all;
  for (const auto& client : clients) all.merge(client->tally());
  co_return all;
}

}  // namespace pmstore::tools
