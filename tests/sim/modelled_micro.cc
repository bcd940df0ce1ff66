#include "tests/sim/modelled_micro.h"

#include <cstdio>
#include <memory>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/executor.h"
#include "model/cluster.h"
#include "model/picoseconds.h"
#include "tests/sim/aliased_range.h"
#include "tools/bench/micro_server.h"
#include "tools/bench/micro_workload.h"

namespace pmstore::sim {
namespace {

using persist::Rule;

constexpr char kServer[] = "local:server";

// Charges a core of the server for what the benchmark's server does to the target memory.
class ChargedCore final : public persist::Observer {
 public:
  ChargedCore(model::Host& host, size_t core) : host_(host), core_(host.core(core)) {}

  void on_store(const void* to, const void*, size_t bytes, bool non_temporal) override {
    model::MemorySystem& memory = host_.memory();
    const auto count = static_cast<uint32_t>(bytes);
    core_.set_free(non_temporal
                       ? memory.cpu_store_non_temporal(core_.number(), core_.free_ps(), to, count)
                       : memory.cpu_store(core_.number(), core_.free_ps(), to, count));
  }
  void on_flush(const void* from, size_t bytes) override {
    core_.set_free(host_.memory().cpu_flush(core_.number(), core_.free_ps(), from,
                                            static_cast<uint32_t>(bytes)));
  }
  void on_drain() override {
    core_.set_free(host_.memory().cpu_drain(core_.number(), core_.free_ps()));
  }
  void on_load(const void* from, size_t bytes) {
    core_.set_free(host_.memory().cpu_load(core_.number(), core_.free_ps(), from,
                                           static_cast<uint32_t>(bytes)));
  }

 private:
  model::Host& host_;
  model::Core& core_;
};

// One server thread.
struct Worker {
  std::unique_ptr<ChargedCore> charged;
  std::unique_ptr<fabric::Device> device;
  std::unique_ptr<tools::MicroServer> server;
};

template <typename T>
T must(Result<T> result) {
  if (!result) std::fprintf(stderr, "%s\n", result.error().message.c_str());
  PMSTORE_CHECK(result, "the measurement can be made");
  return std::move(*result);
}

std::span<std::byte> target_memory() {
  static AliasedRange range(kMicroRangeBytes);
  return range.bytes();
}

model::Topology topology_of(const MicroMachine& machine, const tools::MicroPoint& point) {
  model::Topology topology;
  topology.hosts = 1 + machine.client_hosts;
  topology.sockets = point.rules.has(Rule::kH1) ? 1 : 2;
  topology.ddio = !point.rules.has(Rule::kH3);
  topology.seed = machine.seed;
  return topology;
}

std::vector<Worker> start_server(model::Cluster& cluster, const tools::MicroPoint& point) {
  model::Host& host = cluster.host(0);
  const uint32_t socket = point.rules.has(Rule::kH1) ? 0 : 1;
  const std::span<std::byte> memory = target_memory().first(point.range_bytes);
  tools::MicroMemory target;
  target.bytes = memory;
  target.capability = {persist::Domain::kMemoryController, host.landing(), false};
  target.interleaved = true;
  const bool nvm = tools::micro_medium(point) == tools::MicroMedium::kNvm;
  host.memory().placement().place(memory, nvm ? model::Medium::kNvm : model::Medium::kDram, socket);
  std::vector<Worker> workers(tools::micro_workers(point, point.server_threads));
  const fabric::Uri first = must(fabric::parse_uri(kServer));
  for (uint32_t i = 0; i < workers.size(); ++i) {
    Worker& worker = workers[i];
    worker.charged = std::make_unique<ChargedCore>(host, i);
    target.observer = worker.charged.get();
    target.on_load = [charged = worker.charged.get()](const void* from, size_t bytes) {
      charged->on_load(from, bytes);
    };
    worker.device = must(host.on_core(i).open(fabric::Scheme::kLocal, cluster.executor()));
    tools::MicroServerOptions options;
    (nvm ? options.nvm : options.dram) = target;
    worker.server = must(
        tools::MicroServer::start(*worker.device, options, tools::micro_worker_uri(first, i, 0)));
  }
  for (Worker& worker : workers) worker.server->set_workers(std::vector<uint16_t>(workers.size()));
  return workers;
}

// Client i on host 1 + i % client_hosts, each with a core of its own as long as there are some.
std::vector<std::unique_ptr<fabric::Device>> open_clients(model::Cluster& cluster,
                                                          const tools::MicroPoint& point) {
  std::vector<std::unique_ptr<fabric::Device>> devices;
  const size_t hosts = cluster.hosts() - 1;
  const auto cores = static_cast<size_t>(cluster.parameters().cpu.cores_per_socket);
  for (size_t i = 0; i < point.clients; ++i) {
    model::Host& host = cluster.host(1 + i % hosts);
    devices.push_back(
        must(host.on_core(i / hosts % cores).open(fabric::Scheme::kLocal, cluster.executor())));
  }
  return devices;
}

}  // namespace

MicroFigures run_modelled(const MicroMachine& machine, const tools::MicroPoint& point) {
  base::VirtualClock clock;
  base::Executor executor(clock);
  auto cluster =
      must(model::Cluster::create(executor, machine.parameters, topology_of(machine, point)));
  model::Host& host = cluster->host(0);
  std::vector<Worker> workers = start_server(*cluster, point);
  const auto devices = open_clients(*cluster, point);
  std::vector<fabric::Device*> borrowed;
  for (const auto& device : devices) borrowed.push_back(device.get());

  MicroFigures figures{};
  tools::MicroControl control(point);
  model::DimmCounters dimms_before;
  model::RnicCounters rnic_before;
  uint64_t busy_before_ps = 0;
  uint64_t begin_ns = 0;
  control.on_begin = [&] {
    dimms_before = host.memory().all_dimms();
    rnic_before = host.rnic_counters();
    busy_before_ps = host.busy_ps();
    begin_ns = executor.now_ns();
  };
  control.on_end = [&] {
    figures.rnic = host.rnic_counters();
    figures.dimms = host.memory().all_dimms() - dimms_before;
    const double elapsed_ns = static_cast<double>(executor.now_ns() - begin_ns);
    figures.cpu_share = static_cast<double>(host.busy_ps() - busy_before_ps) / 1000 /
                        (elapsed_ns * static_cast<double>(workers.size()));
  };
  const tools::MicroTally tally = must(executor.run(
      tools::run_micro(executor, borrowed, must(fabric::parse_uri(kServer)), point, control)));
  figures.operations = tally.latency_ns.count();
  figures.rate_m = tally.rate_per_s() / 1e6;
  figures.gb_s = figures.rate_m * point.payload_bytes * 8 / 1000;
  figures.mean_ns = tally.latency_ns.mean();
  host.memory().placement().remove(target_memory().first(point.range_bytes));
  workers.clear();
  return figures;
}

}  // namespace pmstore::sim
