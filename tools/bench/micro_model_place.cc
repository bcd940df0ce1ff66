// Measurements on a modelled machine: the server on host 0, clients on the others, all in virtual
// time, a machine of its own for each measurement.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "base/clock.h"
#include "model/cluster.h"
#include "model/host.h"
#include "tools/bench/aliased_memory.h"
#include "tools/bench/micro_limit.h"
#include "tools/bench/micro_place.h"
#include "tools/bench/model_service.h"
#include "tools/tune/dimm_samples.h"

namespace pmstore::tools {
namespace {

using model::DimmCounters;
using model::RnicCounters;
using persist::Rule;
using persist::Rules;

constexpr char kServerName[] = "server";
constexpr uint64_t kLandingNs = 1'000'000;
// Until all of the last-level cache is full of what the server's CPU has written to it.
constexpr uint64_t kCachedWarmupNs = 40'000'000;

// Its addresses are a mapping for every 4 MiB, and a process has 65,530 of these.
constexpr uint64_t kMostRange = uint64_t{128} << 30;

Status not_modelled(std::string what) {
  return make_error(ErrorCode::kUnsupported, std::move(what));
}

// Whether device writes go to the cache. Said twice, the option wins; check() refuses a
// contradiction.
bool ddio_of(const MicroPoint& point) { return point.ddio.value_or(!point.rules.has(Rule::kH3)); }

// Charges a core of the server for its accesses to the target memory.
class ChargedCore final : public persist::Observer {
 public:
  ChargedCore(model::Host& host, size_t core, persist::Domain domain)
      : memory_(host.memory()), core_(host.core(core)), domain_(domain) {}

  void on_store(const void* address, const void*, size_t bytes, bool non_temporal) override {
    const auto count = static_cast<uint32_t>(bytes);
    core_.set_free(
        non_temporal
            ? memory_.cpu_store_non_temporal(core_.number(), core_.free_ps(), address, count)
            : memory_.cpu_store(core_.number(), core_.free_ps(), address, count));
  }
  void on_flush(const void* address, size_t bytes) override {
    // Where the caches are durable, a flush does nothing.
    if (domain_ == persist::Domain::kCpuCache) return;
    core_.set_free(
        memory_.cpu_flush(core_.number(), core_.free_ps(), address, static_cast<uint32_t>(bytes)));
  }
  void on_drain() override { core_.set_free(memory_.cpu_drain(core_.number(), core_.free_ps())); }
  void on_load(const void* address, size_t bytes) {
    core_.set_free(
        memory_.cpu_load(core_.number(), core_.free_ps(), address, static_cast<uint32_t>(bytes)));
  }

 private:
  model::MemorySystem& memory_;
  model::Core& core_;
  const persist::Domain domain_;
};

// The counters of the server's host, as if its combining buffers had been written back at this
// moment.
struct Counted {
  std::vector<DimmCounters> dimms;
  uint64_t cached_lines = 0;  // written, and not at a DIMM yet
  RnicCounters rnic;
  double operations = 0;  // that have reached the target memory
};

// One modelled machine with one measurement's server and clients.
class Machine {
 public:
  Machine(const MicroPoint& point, std::span<std::byte> memory)
      : point_(point), memory_(memory), executor_(clock_) {}
  Status start(const model::Parameters& parameters, uint32_t hosts);
  Result<MicroResult> run();
  // The counters of run().
  const std::vector<DimmCounters>& dimms() const { return dimms_; }

 private:
  struct Worker {
    std::unique_ptr<ChargedCore> charged;
    std::unique_ptr<fabric::Device> device;
    std::unique_ptr<MicroServer> server;
  };
  Status start_worker(uint32_t index, uint32_t workers);
  MicroMemory target(ChargedCore& charged) const;
  Counted counted() const;
  double operations() const;
  nlohmann::ordered_json machine_json(const Counted& before, const Counted& after,
                                      double busy_cores) const;

  const MicroPoint& point_;
  const std::span<std::byte> memory_;
  const fabric::Uri uri_{fabric::Scheme::kLocal, kServerName, 0};
  base::VirtualClock clock_;
  base::Executor executor_;
  std::unique_ptr<model::Cluster> cluster_;
  std::vector<Worker> workers_;
  std::vector<std::unique_ptr<fabric::Device>> clients_;
  std::vector<DimmCounters> dimms_;
};

MicroMemory Machine::target(ChargedCore& charged) const {
  MicroMemory target;
  target.bytes = memory_;
  target.capability.domain = point_.domain.value_or(persist::Domain::kMemoryController);
  target.capability.landing = cluster_->host(0).landing();
  target.interleaved = true;
  target.observer = &charged;
  target.on_load = [&charged](const void* address, size_t bytes) {
    charged.on_load(address, bytes);
  };
  return target;
}

Status Machine::start_worker(uint32_t index, uint32_t workers) {
  model::Host& host = cluster_->host(0);
  Worker& worker = workers_.emplace_back();
  const persist::Domain domain = point_.domain.value_or(persist::Domain::kMemoryController);
  worker.charged = std::make_unique<ChargedCore>(host, index, domain);
  PMSTORE_TRY(worker.device, host.on_core(index).open(fabric::Scheme::kLocal, executor_));
  MicroServerOptions options;
  const bool nvm = micro_medium(point_) == MicroMedium::kNvm;
  (nvm ? options.nvm : options.dram) = target(*worker.charged);
  PMSTORE_TRY(worker.server,
              MicroServer::start(*worker.device, options, micro_worker_uri(uri_, index, 0)));
  worker.server->set_workers(std::vector<uint16_t>(workers, 0));
  return {};
}

Status Machine::start(const model::Parameters& parameters, uint32_t hosts) {
  const bool own_socket = point_.rules.has(Rule::kH1);
  model::Topology topology;
  topology.hosts = hosts;
  topology.sockets = own_socket ? 1 : 2;
  topology.ddio = ddio_of(point_);
  topology.seed = point_.seed;
  PMSTORE_TRY(cluster_, model::Cluster::create(executor_, parameters, topology));
  const bool nvm = micro_medium(point_) == MicroMedium::kNvm;
  cluster_->host(0).memory().placement().place(
      memory_, nvm ? model::Medium::kNvm : model::Medium::kDram, own_socket ? 0 : 1);
  for (uint32_t i = 0; i < point_.server_threads; ++i) {
    PMSTORE_TRY_STATUS(start_worker(i, point_.server_threads));
  }
  // Round the client hosts; each client has a core, which it shares only when there are too few.
  const auto cores = static_cast<uint32_t>(parameters.cpu.cores_per_socket);
  for (uint32_t i = 0; i < point_.clients; ++i) {
    model::Host& host = cluster_->host(1 + i % (hosts - 1));
    auto& opener = host.on_core(i / (hosts - 1) % cores);
    PMSTORE_TRY(auto device, opener.open(fabric::Scheme::kLocal, executor_));
    clients_.push_back(std::move(device));
  }
  return {};
}

// Counters are exact if they are divided by the requests that caused them. So requests are counted
// where they reach the server's memory, not at the client: a one-sided request by its pieces there,
// a two-sided one when it is served.
double Machine::operations() const {
  if (!is_one_sided(point_)) {
    uint64_t served = 0;
    for (const Worker& worker : workers_) served += worker.server->served();
    return static_cast<double>(served);
  }
  const RnicCounters rnic = cluster_->host(0).rnic_counters();
  if (point_.op == MicroOp::kRead) return static_cast<double>(rnic.memory_reads);
  const auto mtu = static_cast<uint64_t>(cluster_->parameters().link.mtu_bytes);
  const uint64_t pieces = (micro_bytes(point_) + mtu - 1) / mtu;
  return static_cast<double>(rnic.memory_writes) / static_cast<double>(pieces);
}

Counted Machine::counted() const {
  model::Host& host = cluster_->host(0);
  Counted counted;
  for (size_t i = 0; i < host.memory().dimms(); ++i) {
    counted.dimms.push_back(host.memory().settled_dimm(i));
  }
  counted.cached_lines = host.memory().dirty_nvm_lines();
  counted.rnic = host.rnic_counters();
  counted.operations = operations();
  return counted;
}

Result<MicroResult> Machine::run() {
  model::Host& host = cluster_->host(0);
  std::vector<fabric::Device*> devices;
  for (const auto& device : clients_) devices.push_back(device.get());
  MicroControl control(point_);
  Counted before;
  uint64_t busy_ps = 0;
  uint64_t elapsed_ns = 0;
  control.on_begin = [&] {
    before = counted();
    busy_ps = host.busy_ps();
    elapsed_ns = executor_.now_ns();
  };
  control.on_end = [&] {
    busy_ps = host.busy_ps() - busy_ps;
    elapsed_ns = executor_.now_ns() - elapsed_ns;
  };
  MicroResult result;
  const std::span<fabric::Device* const> all(devices);
  PMSTORE_TRY(result.tally, executor_.run(run_micro(executor_, all, uri_, point_, control)));
  // Until all that was acknowledged has landed.
  const auto land = [](base::Executor& executor) -> base::Task<void> {
    co_await executor.sleep_for(kLandingNs);
  };
  executor_.run(land(executor_));
  const double busy_cores =
      elapsed_ns == 0 ? 0.0 : static_cast<double>(busy_ps) / 1000 / static_cast<double>(elapsed_ns);
  const Counted after = counted();
  for (size_t i = 0; i < after.dimms.size(); ++i) {
    dimms_.push_back(after.dimms[i] - before.dimms[i]);
  }
  result.machine = machine_json(before, after, busy_cores);
  return result;
}

nlohmann::ordered_json Machine::machine_json(const Counted& before, const Counted& after,
                                             double busy_cores) const {
  const double ops = std::max(1.0, after.operations - before.operations);
  const auto per_op = [ops](uint64_t total) { return static_cast<double>(total) / ops; };
  DimmCounters all;
  nlohmann::ordered_json dimms = nlohmann::ordered_json::array();
  for (const DimmCounters& dimm : dimms_) {
    all += dimm;
    dimms.push_back(dimm_json(dimm));
  }
  const auto cached =
      static_cast<double>(after.cached_lines) - static_cast<double>(before.cached_lines);
  const RnicCounters& now = after.rnic;
  const RnicCounters& then = before.rnic;
  nlohmann::ordered_json json = {
      {"nvm_reads_per_op", per_op(all.read_requests)},
      {"nvm_writes_per_op", per_op(all.write_requests)},
      {"media_reads_per_op", per_op(all.media_reads)},
      {"media_writes_per_op", per_op(all.media_writes)},
      {"write_amplification", all.write_amplification()},
      {"nvm_lines_cached_per_op", cached / ops},
      {"server_doorbells_per_op", per_op(now.doorbells - then.doorbells)},
      {"server_pcie_transactions_per_op",
       per_op(now.pcie_transactions() - then.pcie_transactions())},
      {"server_qp_misses_per_op", per_op(now.qp_misses - then.qp_misses)},
      {"server_wqe_misses_per_op", per_op(now.wqe_misses - then.wqe_misses)},
      {"server_translation_misses_per_op",
       per_op(now.translation_misses - then.translation_misses)},
      {"server_busy_cores", busy_cores}};
  if (micro_medium(point_) == MicroMedium::kNvm) json["dimms"] = std::move(dimms);
  return json;
}

// The counters of the server's DIMMs as a recorded trace: a reading before the first measurement
// and one after each, as if one machine had made them all.
class DimmTrace {
 public:
  explicit DimmTrace(std::string path) : path_(std::move(path)) {}
  Status add(double seconds, const std::vector<DimmCounters>& dimms);

 private:
  Status write();

  const std::string path_;
  std::ofstream file_;
  DimmSample sample_;
};

Status DimmTrace::write() {
  file_ << fmt::format("time {:.9f}\n{}", sample_.seconds, ipmctl_text(sample_.dimms));
  file_.flush();
  if (file_) return {};
  return make_error(ErrorCode::kIo, fmt::format("cannot write '{}': {}: check its name and room",
                                                path_, std::strerror(errno)));
}

Status DimmTrace::add(double seconds, const std::vector<DimmCounters>& dimms) {
  if (sample_.dimms.empty()) {
    file_.open(path_, std::ios::trunc);
    for (size_t i = 0; i < dimms.size(); ++i) {
      sample_.dimms.push_back({fmt::format("{:#06x}", i), 0, 0, 0, 0});
    }
    PMSTORE_TRY_STATUS(write());
  }
  sample_.seconds += seconds;
  for (size_t i = 0; i < dimms.size(); ++i) {
    DimmReading& reading = sample_.dimms[i];
    reading.read_requests += dimms[i].read_requests;
    reading.write_requests += dimms[i].write_requests;
    // XPLines, which are counted in 64 bytes; those written count as read, too.
    reading.media_reads += 4 * (dimms[i].media_reads + dimms[i].media_writes);
    reading.media_writes += 4 * dimms[i].media_writes;
  }
  return write();
}

class ModelPlace final : public MicroPlace {
 public:
  ModelPlace(const MicroPlaceOptions& options, const model::Parameters& parameters)
      : options_(options), parameters_(parameters), trace_(options.dimm_trace) {}

  Status check(const MicroPoint& point) const override;
  Result<MicroResult> measure(const MicroPoint& point) override;
  std::optional<MicroLimit> limit(const MicroPoint& point) const override {
    return modelled_limit(parameters_, point);
  }
  Rules fixed_rules() const override { return Rules::none(); }
  nlohmann::ordered_json config() const override;
  std::string name() const override {
    return fmt::format("modelled machine {}, {} hosts", parameters_.name, options_.hosts);
  }

 private:
  const MicroPlaceOptions options_;
  const model::Parameters parameters_;
  std::unique_ptr<AliasedMemory> memory_;
  DimmTrace trace_;
};

Status ModelPlace::check(const MicroPoint& point) const {
  if (point.ddio && point.named_rules.has(Rule::kH3) && *point.ddio == point.rules.has(Rule::kH3)) {
    return not_modelled("rule h3 is DDIO off, and --ddio says the opposite: leave one of them out");
  }
  const auto cores = static_cast<uint32_t>(parameters_.cpu.cores_per_socket);
  if (point.server_threads > cores) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("{} server threads: a socket of this machine has {} cores; use "
                                  "--server-threads 1 to {}",
                                  point.server_threads, cores, cores));
  }
  if (point.range_bytes > kMostRange) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("a range of {} bytes: with --model use at most {}G",
                                  point.range_bytes, kMostRange >> 30));
  }
  if (!options_.dimm_trace.empty() && micro_medium(point) != MicroMedium::kNvm) {
    return not_modelled("--dimm-trace is of nvm, and this goes to dram: leave one of them out");
  }
  if (point.domain == persist::Domain::kNone) {
    return not_modelled("the modelled nvm is never an ordinary file: use domain adr or eadr");
  }
  return {};
}

Result<MicroResult> ModelPlace::measure(const MicroPoint& asked) {
  MicroPoint point = asked;
  const bool cpu_writes = point.op == MicroOp::kWrite && !is_one_sided(point);
  if (point.default_warmup && cpu_writes && !point.persistent && !micro_non_temporal(point)) {
    point.warmup_ns = std::max(point.warmup_ns, kCachedWarmupNs);
  }
  if (!memory_ || memory_->bytes().size() < point.range_bytes) {
    memory_.reset();
    PMSTORE_TRY(memory_, AliasedMemory::create(point.range_bytes));
  }
  Machine machine(point, memory_->bytes().first(point.range_bytes));
  PMSTORE_TRY_STATUS(machine.start(parameters_, options_.hosts));
  PMSTORE_TRY(MicroResult result, machine.run());
  if (!options_.dimm_trace.empty()) {
    PMSTORE_TRY_STATUS(trace_.add(result.tally.seconds(), machine.dimms()));
  }
  return result;
}

nlohmann::ordered_json ModelPlace::config() const {
  nlohmann::ordered_json parameters = nlohmann::ordered_json::object();
  for (const model::ParameterInfo& each : model::describe(parameters_)) {
    parameters[each.name] = each.value;
  }
  return {{"fabric", "model"},
          {"model", parameters_.name},
          {"hosts", options_.hosts},
          {"model_parameters", std::move(parameters)}};
}

}  // namespace

Result<std::unique_ptr<MicroPlace>> open_model_place(const MicroPlaceOptions& options) {
  PMSTORE_TRY(model::Parameters parameters, model::named_parameters(options.model));
  if (!options.model_parameters.empty()) {
    PMSTORE_TRY_STATUS(model::override_parameters(parameters, options.model_parameters));
  }
  if (options.hosts < 2 || options.hosts > model::Cluster::kMaxHosts) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("{} hosts: use 2 (one server, one client) to {}", options.hosts,
                                  model::Cluster::kMaxHosts));
  }
  return std::unique_ptr<MicroPlace>(std::make_unique<ModelPlace>(options, parameters));
}

}  // namespace pmstore::tools
