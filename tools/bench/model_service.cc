#include "tools/bench/model_service.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "base/random.h"
#include "fs/file_area.h"
#include "fs/file_system.h"
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
  topology.sockets = rules_.has(Rule::kH1) ? 1 : 2;
  topology.ddio = !rules_.has(Rule::kH3);
  topology.seed = options.seed;
  PMSTORE_TRY(cluster_, model::Cluster::create(executor_, parameters, topology));

  for (uint32_t i = 0; i < options.data_servers; ++i) {
    Served& served = served_.emplace_back();
    served.host = i;
    std::string name = "model:" + options.model.name;
    if (i > 0) name += fmt::format(":data-{}", i);
    PMSTORE_TRY_STATUS(serve(served, name));
  }
  if (options.data_servers > 1) {
    PMSTORE_TRY_STATUS(add_data_servers());
  }
  mark();
  return {};
}

Status ModelService::serve(Served& served, const std::string& name) {
  const uint64_t bytes = *parse_bytes(options_.model.pool_bytes);
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return make_error(ErrorCode::kIo, std::string("no memory for --model-pool: ") +
                                          std::strerror(errno) + "; make it smaller");
  }
  served.memory = std::unique_ptr<void, Unmap>(memory, Unmap{bytes});
  const std::span<std::byte> region(static_cast<std::byte*>(memory), bytes);
  model::Host& host = cluster_->host(served.host);
  // Without H1 the pool is on the socket that has no RNIC.
  const uint32_t socket = rules_.has(Rule::kH1) ? 0 : 1;
  host.place_nvm(region, socket);
  if (!rules_.has(Rule::kH8)) host.place_atomics_on_nvm(socket);
  PMSTORE_TRY(served.pool, persist::Pool::in_region(region, options_.domain, true,
                                                    rules_.has(Rule::kH4) ? 256 : SIZE_MAX, nullptr,
                                                    rules_.padding()));
  FormatOptions format;
  format.identity = base::mix64(options_.seed + served.host);
  format.rings = std::max(format.rings, options_.clients + kSpareRings);
  format.log_bytes = options_.log_bytes;
  format.file_bytes = options_.file_bytes;
  PMSTORE_TRY_STATUS(fs::format_pool(*served.pool, format));
  host.watch(served.pool->memory(), kServerCore);

  ServerOptions server;
  server.discipline = options_.discipline;
  server.device_landing = host.landing();
  server.devices = &host.on_core(kServerCore);
  PMSTORE_TRY(served.server, executor_.run(Server::start(executor_, *served.pool, server)));
  if (options_.file_bytes > 0) {
    fs::FilesServerOptions files;
    files.devices = server.devices;
    files.identity = format.identity;
    files.data_server = served.host > 0;
    PMSTORE_TRY(served.files, executor_.run(fs::FilesServer::start(executor_, *served.pool,
                                                                   *served.server, files)));
  }
  const fabric::Uri wanted{fabric::Scheme::kLocal, name, 0};
  PMSTORE_TRY(served.uri, executor_.run(served.server->listen(wanted)));
  return {};
}

Status ModelService::add_data_servers() {
  fs::FileSystemOptions with;
  with.devices = &client_core(0);
  with.secret = ClientSecret::of_number(base::mix64(options_.seed) / 2);
  PMSTORE_TRY(const auto files, executor_.run(fs::FileSystem::connect(executor_, uri(), with)));
  for (size_t i = 1; i < served_.size(); ++i) {
    const auto added = executor_.run(files->add_data_server(served_[i].uri.to_string()));
    if (!added) return make_error(ErrorCode::kIo, added.error().to_string());
  }
  executor_.run(files->close());
  return {};
}

ModelService::~ModelService() {
  for (Served& served : served_) {
    served.files.reset();
    served.server.reset();
    if (served.pool != nullptr) cluster_->host(served.host).unwatch(served.pool->memory());
  }
}

Status ModelService::stop() {
  // That of the names first: it tells the others.
  for (Served& served : served_) {
    if (served.files != nullptr) executor_.run(served.files->stop());
  }
  for (Served& served : served_) {
    PMSTORE_TRY_STATUS(executor_.run(served.server->stop()));
  }
  return {};
}

fabric::DeviceOpener& ModelService::client_core(uint32_t number) {
  const uint32_t servers = options_.data_servers;
  const auto client_hosts = static_cast<uint32_t>(cluster_->hosts()) - servers;
  model::Host& host = cluster_->host(servers + number % client_hosts);
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
