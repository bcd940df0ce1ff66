#include "tools/model_service.h"

#include <cerrno>
#include <cstring>

#include "base/random.h"
#include "tools/session_options.h"

namespace pmstore::tools {
namespace {

using persist::Rule;

constexpr uint32_t kServerCore = 0;
constexpr uint32_t kSpareRings = 4;

}  // namespace

Result<std::unique_ptr<ModelService>> ModelService::start(Executor& executor,
                                                          const ModelServiceOptions& options) {
  std::unique_ptr<ModelService> service(new ModelService(executor));
  PMSTORE_TRY_STATUS(service->open(options));
  return service;
}

Status ModelService::open(const ModelServiceOptions& options) {
  options_ = options;
  PMSTORE_TRY(rules_, options.model.store_rules());
  PMSTORE_TRY(const model::Parameters parameters, options.model.parameters());
  model::Topology topology;
  topology.hosts = options.model.hosts;
  // Without H1 the pool is on the socket that has no RNIC.
  topology.sockets = rules_.has(Rule::kH1) ? 1 : 2;
  topology.ddio = !rules_.has(Rule::kH3);
  topology.seed = options.seed;
  PMSTORE_TRY(cluster_, model::Cluster::create(executor_, parameters, topology));

  const uint64_t bytes = *parse_bytes(options.model.pool_bytes);
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return make_error(ErrorCode::kIo, std::string("no memory for --model-pool: ") +
                                          std::strerror(errno) + "; make it smaller");
  }
  memory_ = std::unique_ptr<void, Unmap>(memory, Unmap{bytes});
  const std::span<std::byte> region(static_cast<std::byte*>(memory), bytes);
  model::Host& host = cluster_->host(0);
  host.place_nvm(region, topology.sockets - 1);
  if (!rules_.has(Rule::kH8)) host.place_atomics_on_nvm(topology.sockets - 1);
  PMSTORE_TRY(pool_, persist::Pool::in_region(region, options.domain, true,
                                              rules_.has(Rule::kH4) ? 256 : SIZE_MAX));
  FormatOptions format;
  format.identity = base::mix64(options.seed);
  format.rings = std::max(format.rings, options.clients + kSpareRings);
  PMSTORE_TRY_STATUS(format_store(*pool_, format));
  host.watch(pool_->memory(), kServerCore);

  ServerOptions server;
  server.discipline = options.discipline;
  server.device_landing = host.landing();
  server.devices = &host.on_core(kServerCore);
  PMSTORE_TRY(server_, executor_.run(Server::start(executor_, *pool_, server)));
  const fabric::Uri wanted{fabric::Scheme::kLocal, "model:" + options.model.name, 0};
  PMSTORE_TRY(uri_, executor_.run(server_->listen(wanted)));
  mark();
  return {};
}

ModelService::~ModelService() {
  server_.reset();
  if (pool_ != nullptr) cluster_->host(0).unwatch(pool_->memory());
}

Status ModelService::stop() { return executor_.run(server_->stop()); }

fabric::DeviceOpener& ModelService::client_core(uint32_t number) {
  const auto client_hosts = static_cast<uint32_t>(cluster_->hosts() - 1);
  model::Host& host = cluster_->host(1 + number % client_hosts);
  return host.on_core(number / client_hosts % host.cores());
}

nlohmann::ordered_json ModelService::config_json() const {
  nlohmann::ordered_json config = {{"machine", options_.model.name},
                                   {"hosts", cluster_->hosts()},
                                   {"rules", persist::rules_text(rules_)},
                                   {"parameters_file", nullptr}};
  if (!options_.model.parameters_file.empty()) {
    config["parameters_file"] = options_.model.parameters_file;
  }
  return config;
}

ModelService::Mark ModelService::now() const {
  model::Host& host = cluster_->host(0);
  return {host.rnic_counters(), host.memory().all_dimms(), host.core(kServerCore).busy_ps(),
          cluster_->events().now_ps()};
}

void ModelService::mark() { mark_ = now(); }

nlohmann::ordered_json ModelService::counters_json() const {
  const Mark end = now();
  const model::DimmCounters dimms = end.dimms - mark_.dimms;
  const auto count = [&](uint64_t model::RnicCounters::*member) {
    return end.rnic.*member - mark_.rnic.*member;
  };
  const auto elapsed_ps = static_cast<double>(std::max<uint64_t>(1, end.now_ps - mark_.now_ps));
  return {{"server_core_busy", static_cast<double>(end.busy_ps - mark_.busy_ps) / elapsed_ps},
          {"rnic_requests", count(&model::RnicCounters::requests)},
          {"rnic_doorbells", count(&model::RnicCounters::doorbells)},
          {"pcie_transactions", end.rnic.pcie_transactions() - mark_.rnic.pcie_transactions()},
          {"qp_misses", count(&model::RnicCounters::qp_misses)},
          {"cache_misses", end.rnic.cache_misses() - mark_.rnic.cache_misses()},
          {"receive_buffer_full", count(&model::RnicCounters::full_buffer)},
          {"nvm_read_requests", dimms.read_requests},
          {"nvm_write_requests", dimms.write_requests},
          {"nvm_media_reads", dimms.media_reads},
          {"nvm_media_writes", dimms.media_writes},
          {"write_amplification", dimms.write_amplification()}};
}

}  // namespace pmstore::tools
