// Measurements on real machines: client threads here, the server here or elsewhere.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "tools/bench/micro_child.h"
#include "tools/bench/micro_place.h"
#include "tools/cli/bytes_text.h"

namespace pmstore::tools {
namespace {

using fabric::Scheme;
using persist::Rule;
using persist::Rules;

constexpr Rules kFixed = Rules::none().with(Rule::kH1).with(Rule::kH3);

Status unsupported(std::string what) {
  return make_error(ErrorCode::kUnsupported, std::move(what));
}

class RealPlace final : public MicroPlace {
 public:
  explicit RealPlace(const MicroPlaceOptions& options) : options_(options) {}
  Status prepare();

  Status check(const MicroPoint& point) const override;
  Result<MicroResult> measure(const MicroPoint& point) override;
  Rules fixed_rules() const override { return kFixed; }
  nlohmann::ordered_json config() const override;
  std::string name() const override {
    return remote_ ? printable(options_.uri) : std::string(fabric::scheme_name(scheme_));
  }

 private:
  MicroServiceOptions service_options(const MicroPoint& point) const;
  Result<fabric::Uri> server_for(const MicroPoint& point);
  Result<MicroTally> run_threads(const fabric::Uri& server, const MicroPoint& point) const;

  const MicroPlaceOptions options_;
  Scheme scheme_ = Scheme::kLocal;
  std::optional<fabric::Uri> remote_;
  std::optional<MicroServiceOptions> running_;  // what service_ or child_ was started with
  std::unique_ptr<MicroService> service_;
  std::unique_ptr<MicroChild> child_;
};

Status RealPlace::prepare() {
  if (!options_.uri.empty()) {
    PMSTORE_TRY(remote_, fabric::parse_uri(options_.uri));
    scheme_ = remote_->scheme;
    if (scheme_ == Scheme::kLocal) {
      return make_error(ErrorCode::kInvalidArgument,
                        "local has no server elsewhere: leave --uri out, or use tcp, shm or verbs");
    }
    return {};
  }
  for (const Scheme scheme : {Scheme::kLocal, Scheme::kTcp, Scheme::kShm, Scheme::kVerbs}) {
    if (options_.fabric != fabric::scheme_name(scheme)) continue;
    scheme_ = scheme;
    return {};
  }
  return make_error(
      ErrorCode::kInvalidArgument,
      fmt::format("fabric '{}' is unknown: use local, tcp, shm or verbs", options_.fabric));
}

Status RealPlace::check(const MicroPoint& point) const {
  if (point.named_rules.has(Rule::kH1)) {
    return unsupported(
        "h1 cannot be switched on this fabric: start the server under numactl on the socket that "
        "you want, or use --model");
  }
  if (point.named_rules.has(Rule::kH3)) {
    return unsupported(
        "h3 cannot be switched on this fabric: DDIO is a setting of the server's machine, which "
        "its administrator changes; tell the server by --ddio off, or use --model");
  }
  if (remote_ && (point.domain || point.ddio)) {
    return unsupported(
        "what the memory of a server elsewhere is, its own command line says: give --assume-domain "
        "and --ddio to pmstore bench micro --serve");
  }
  const bool nvm = micro_medium(point) == MicroMedium::kNvm && point.op != MicroOp::kEcho;
  if (!remote_ && nvm && options_.pool.empty()) {
    return unsupported(fmt::format(
        "there is no nvm here{}: use --pool PATH (a new file, or a DAX device) or --model",
        point.op == MicroOp::kAtomic ? " for atomics without h8" : ""));
  }
  return {};
}

MicroServiceOptions RealPlace::service_options(const MicroPoint& point) const {
  MicroServiceOptions service;
  service.listen.scheme = scheme_;
  switch (scheme_) {
    case Scheme::kLocal:
    case Scheme::kShm: service.listen.name = fmt::format("pmstore-micro-{}", getpid()); break;
    case Scheme::kTcp:
    case Scheme::kVerbs: service.listen.name = options_.address; break;
  }
  service.threads = point.server_threads;
  service.bytes = std::max(options_.memory_bytes, point.range_bytes);
  service.pool = options_.pool;
  // A pool of an earlier measurement of this run may go.
  service.force = options_.force || (running_ && !running_->pool.empty());
  service.assume_domain = point.domain;
  service.ddio = point.ddio.value_or(true);
  return service;
}

Result<fabric::Uri> RealPlace::server_for(const MicroPoint& point) {
  if (remote_) return *remote_;
  const MicroServiceOptions wanted = service_options(point);
  if (!running_ || !running_->same_server(wanted)) {
    service_.reset();
    child_.reset();
    if (scheme_ == Scheme::kLocal) {
      PMSTORE_TRY(service_, MicroService::start(wanted));
    } else {
      PMSTORE_TRY(child_, MicroChild::start(wanted));
    }
    running_ = wanted;
  }
  return service_ ? service_->uri() : child_->uri();
}

Result<MicroTally> RealPlace::run_threads(const fabric::Uri& server,
                                          const MicroPoint& point) const {
  MicroControl control(point);
  std::vector<MicroTally> tallies(point.clients);
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < point.clients; ++i) {
    threads.emplace_back([&, i] {
      base::RealClock clock;
      base::Executor executor(clock);
      auto device = fabric::open_device(scheme_, executor);
      if (!device) return control.fail(std::move(device.error()));
      MicroClient client(**device, point, i);
      executor.run(client.run(server, control));
      tallies[i] = client.tally();
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (auto error = control.error()) return std::move(*error);
  MicroTally all;
  for (const MicroTally& tally : tallies) all.merge(tally);
  return all;
}

Result<MicroResult> RealPlace::measure(const MicroPoint& point) {
  PMSTORE_TRY(const fabric::Uri server, server_for(point));
  MicroResult result;
  PMSTORE_TRY(result.tally, run_threads(server, point));
  return result;
}

nlohmann::ordered_json RealPlace::config() const {
  nlohmann::ordered_json config = {{"fabric", fabric::scheme_name(scheme_)}};
  if (remote_) config["uri"] = json_bytes(options_.uri);
  if (!options_.pool.empty()) config["pool"] = json_bytes(options_.pool);
  return config;
}

}  // namespace

Result<std::unique_ptr<MicroPlace>> open_real_place(const MicroPlaceOptions& options) {
  auto place = std::make_unique<RealPlace>(options);
  PMSTORE_TRY_STATUS(place->prepare());
  return std::unique_ptr<MicroPlace>(std::move(place));
}

}  // namespace pmstore::tools
