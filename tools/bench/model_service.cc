#include "tools/bench/model_service.h"

#include <cerrno>
#include <cstring>

#include "base/random.h"
#include "fs/file_area.h"
#include "tools/cli/session_options.h"

namespace pmstore::tools {
namespace {

using persist::Rule;

constexpr uint32_t kServerCore = 0;
constexpr uint32_t kSpareRings = 4;

}  // namespace

nlohmann::ordered_json dimm_json(const model::DimmCounters& dimm) {
  return {{"NReadReq", dimm.read_requests},
          {"NWriteReq", dimm.write_requests},
          {"NMediaRead", dimm.media_reads},
          {"NMediaWrite", dimm.media_writes}};
}

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
                                              rules_.has(Rule::kH4) ? 256 : SIZE_MAX, nullptr,
                                              rules_.padding()));
  FormatOptions format;
  format.identity = base::mix64(options.seed);
  format.rings = std::max(format.rings, options.clients + kSpareRings);
  format.log_bytes = options.log_bytes;
  format.file_bytes = options.file_bytes;
  PMSTORE_TRY_STATUS(fs::format_pool(*pool_, format));
  host.watch(pool_->memory(), kServerCore);

  ServerOptions server;
  server.discipline = options.discipline;
  server.device_landing = host.landing();
  server.devices = &host.on_core(kServerCore);
  PMSTORE_TRY(server_, executor_.run(Server::start(executor_, *pool_, server)));
  if (options.file_bytes > 0) {
    fs::FilesServerOptions files;
    files.devices = server.devices;
    files.identity = format.identity;
    PMSTORE_TRY(files_, executor_.run(fs::FilesServer::start(executor_, *pool_, *server_, files)));
  }
  const fabric::Uri wanted{fabric::Scheme::kLocal, "model:" + options.model.name, 0};
  PMSTORE_TRY(uri_, executor_.run(server_->listen(wanted)));
  mark();
  return {};
}

ModelService::~ModelService() {
  files_.reset();
  server_.reset();
  if (pool_ != nullptr) cluster_->host(0).unwatch(pool_->memory());
}

Status ModelService::stop() {
  if (files_ != nullptr) executor_.run(files_->stop());
  return executor_.run(server_->stop());
}

fabric::DeviceOpener& ModelService::client_core(uint32_t number) {
  const auto client_hosts = static_cast<uint32_t>(cluster_->hosts() - 1);
  model::Host& host = cluster_->host(1 + number % client_hosts);
  return host.on_core(number / client_hosts % host.cores());
}

nlohmann::ordered_json ModelService::config_json() const {
  nlohmann::ordered_json config = {{"machine", options_.model.name},
                                   {"hosts", cluster_->hosts()},
                                   {"rules", persist::rules_text(rules_)},
                                   {"kept_rules", nlohmann::ordered_json::array()},
                                   {"parameters_file", nullptr}};
  if (!options_.model.parameters_file.empty()) {
    config["parameters_file"] = options_.model.parameters_file;
  }
  for (const Rule rule : options_.model.kept_rules()) {
    config["kept_rules"].push_back(persist::rule_name(rule));
  }
  return config;
}

ModelService::Mark ModelService::now() const {
  model::Host& host = cluster_->host(0);
  Mark mark{
      host.rnic_counters(), {}, host.core(kServerCore).busy_ps(), cluster_->events().now_ps()};
  for (size_t i = 0; i < host.memory().dimms(); ++i) {
    mark.dimms.push_back(host.memory().settled_dimm(i));
  }
  return mark;
}

ModelService::Mark ModelService::Mark::operator-(const Mark& other) const {
  Mark result = *this;
  result.rnic -= other.rnic;
  for (size_t i = 0; i < dimms.size(); ++i) result.dimms[i] = dimms[i] - other.dimms[i];
  result.busy_ps -= other.busy_ps;
  result.now_ps -= other.now_ps;
  return result;
}

void ModelService::mark() {
  mark_ = now();
  paused_.reset();
}

void ModelService::pause() { paused_ = now(); }

void ModelService::resume() {
  mark_ = now() - (*paused_ - mark_);
  paused_.reset();
}

ModelService::Mark ModelService::counted() const { return (paused_ ? *paused_ : now()) - mark_; }

model::DimmCounters ModelService::dimms() const {
  model::DimmCounters all;
  for (const model::DimmCounters& dimm : counted().dimms) all += dimm;
  return all;
}

nlohmann::ordered_json ModelService::counters_json() const {
  const Mark counts = counted();
  nlohmann::ordered_json dimms_array = nlohmann::ordered_json::array();
  for (const model::DimmCounters& dimm : counts.dimms) dimms_array.push_back(dimm_json(dimm));
  const model::RnicCounters& rnic = counts.rnic;
  const auto elapsed_ps = static_cast<double>(std::max<uint64_t>(1, counts.now_ps));
  return {{"server_core_busy", static_cast<double>(counts.busy_ps) / elapsed_ps},
          {"rnic_requests", rnic.requests},
          {"rnic_doorbells", rnic.doorbells},
          {"pcie_transactions", rnic.pcie_transactions()},
          {"qp_misses", rnic.qp_misses},
          {"cache_misses", rnic.cache_misses()},
          {"receive_buffer_full", rnic.full_buffer},
          {"write_amplification", dimms().write_amplification()},
          {"dimms", std::move(dimms_array)}};
}

}  // namespace pmstore::tools
