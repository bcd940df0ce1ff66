#include "tools/bench/micro_options.h"

#include <fmt/format.h>

#include "model/cluster.h"
#include "tools/cli/command_line.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/session_options.h"

namespace pmstore::tools {
namespace {

constexpr double kMostSeconds = 86400;

void add_place(CLI::App& command, MicroOptions& options) {
  MicroPlaceOptions& place = options.place;
  CLI::Option* const uri =
      command.add_option("--uri", place.uri, "a server that pmstore bench micro --serve runs")
          ->check(parsed_by(fabric::parse_uri, "URI"));
  command
      .add_option("--fabric", place.fabric,
                  "without --uri, a server of our own: local (a thread), or tcp, shm, verbs (a "
                  "process)")
      ->check(one_of({"local", "tcp", "shm", "verbs"}))
      ->capture_default_str()
      ->excludes(uri);
  command
      .add_option("--address", place.address,
                  "address of this machine, for a server of our own with tcp or verbs")
      ->capture_default_str();
  command.add_option("--pool", place.pool,
                     "nvm of a server of our own: a pool made for the run, in a file that is not "
                     "there yet, or on a DAX device");
  command.add_flag("--force", place.force, "overwrite the pool on the DAX device");
  command
      .add_option("--memory", options.memory,
                  "size of each memory of a server of our own (default: --range)")
      ->check(parsed_by(parse_bytes, "SIZE"));
}

void add_model(CLI::App& command, MicroOptions& options) {
  MicroPlaceOptions& place = options.place;
  CLI::Option* const model =
      command
          .add_option("--model", place.model,
                      "no real machine: a modelled one, in virtual time; the same seed and options "
                      "give the same figures")
          ->check(parsed_by(model::named_parameters, "NAME"));
  command
      .add_option("--model-parameters", place.model_parameters,
                  "a TOML file that changes parameters of the modelled machine")
      ->needs(model);
  command.add_option("--hosts", place.hosts, "modelled hosts: one server, the others clients")
      ->check(in_range(2u, model::Cluster::kMaxHosts))
      ->needs(model)
      ->capture_default_str();
  for (const char* real : {"--uri", "--fabric", "--address", "--pool", "--force", "--memory"}) {
    model->excludes(real);
  }
}

// The load that saturates a modelled server, and a sufficient duration.
constexpr uint32_t kModelServerThreads = 24;
constexpr uint64_t kModelRange = uint64_t{4} << 30;
constexpr double kModelSeconds = 0.005;
// Until the ways of the cache that devices may write are full.
constexpr double kModelWarmupSeconds = 0.005;

}  // namespace

void MicroOptions::add_to(CLI::App& command) {
  add_place(command, *this);
  add_model(command, *this);
  command.add_option("--range", range, "bytes of the target memory that are used (default: 64M)")
      ->check(parsed_by(parse_bytes, "SIZE"));
  command
      .add_option("--ddio", ddio,
                  "on or off; real machine: whether its RNIC's writes go to the cache, which is "
                  "believed; modelled machine: sets it")
      ->check(one_of({"on", "off"}));
  command.add_option("--clients", point.clients, "clients, each a thread with a device of its own")
      ->check(in_range(1, 4096))
      ->capture_default_str();
  command.add_option("--connections", point.connections, "of each client")
      ->check(in_range(1, 65536))
      ->capture_default_str();
  command.add_option("--window", point.window, "requests outstanding on each connection")
      ->check(in_range(1, 65536))
      ->capture_default_str();
  command.add_option("--server-threads", point.server_threads, "that take two-sided requests")
      ->check(in_range(size_t{1}, kMostServerThreads))
      ->capture_default_str();
  command
      .add_option("--writers-per-dimm", point.writers_per_dimm,
                  "rule h2: at most so many server threads write to one DIMM")
      ->check(in_range(1, 64))
      ->capture_default_str();
  CLI::Option* const by_time =
      command.add_option("--seconds", seconds, "how long each measurement is, after a warm-up")
          ->check(in_range(1e-6, kMostSeconds));
  by_time->capture_default_str();
  command
      .add_option("--warmup", warmup,
                  "seconds before that are not counted (default: a fifth; with --model " +
                      model_warmup + ")")
      ->check(in_range(0.0, kMostSeconds));
  command.add_option("--ops", point.ops, "so many requests each, instead of a time")
      ->check(in_range(uint64_t{1}, uint64_t{1} << 40))
      ->excludes(by_time)
      ->excludes("--warmup");
  command.add_option("--seed", point.seed, "of the random addresses")->capture_default_str();
  command.add_flag("--json", json, "print one JSON object");
}

void MicroOptions::add_picture(CLI::App& command, const std::string& draws) {
  CLI::Option* const plot = command.add_option("--plot", picture.path,
                                               "draw the rates as FILE.png or FILE.svg: " + draws);
  command.add_flag("--plot-latency", picture.latency, "draw also p50 and p99 of the latency")
      ->needs(plot);
}

namespace {

Error useless(std::string what) { return make_error(ErrorCode::kInvalidArgument, std::move(what)); }

// An option that could not act is refused, not ignored.
Status check_given(const CLI::App& command, const MicroOptions& options) {
  const auto given = [&](const char* option) { return command.count(option) > 0; };
  const MicroPlaceOptions& place = options.place;
  if (!place.uri.empty()) {
    for (const char* option : {"--pool", "--memory", "--force", "--address", "--server-threads"}) {
      if (!given(option)) continue;
      return useless(
          fmt::format("{} is for a server of our own: give it to pmstore bench micro "
                      "--serve, or leave --uri out",
                      option));
    }
  }
  const bool has_address = place.fabric == "tcp" || place.fabric == "verbs";
  if (given("--address") && !has_address) {
    return useless(
        fmt::format("{} has no addresses: use --address with --fabric tcp or verbs", place.fabric));
  }
  if (place.force && place.pool.empty()) {
    return useless("--force is about the pool on a DAX device: use it with --pool");
  }
  return {};
}

}  // namespace

Status MicroOptions::complete(const CLI::App& command) {
  PMSTORE_TRY_STATUS(check_given(command, *this));
  if (!memory.empty()) {
    PMSTORE_TRY(place.memory_bytes, parse_bytes(memory));
  }
  if (!range.empty()) {
    PMSTORE_TRY(point.range_bytes, parse_bytes(range));
  }
  if (!ddio.empty()) point.ddio = ddio == "on";
  if (!assume_domain.empty()) {
    PMSTORE_TRY(point.domain, persist::parse_domain(assume_domain));
  }
  double warmup_seconds = seconds / 5;
  if (on_model()) {
    const auto take_default = [&](const char* option, auto& value, auto model_default) {
      if (command.count(option) == 0) value = model_default;
    };
    take_default("--clients", point.clients, model_clients);
    take_default("--server-threads", point.server_threads, kModelServerThreads);
    take_default("--range", point.range_bytes, kModelRange);
    take_default("--seconds", seconds, kModelSeconds);
    warmup_seconds = kModelWarmupSeconds;
  }
  if (warmup >= 0) warmup_seconds = warmup;
  point.default_warmup = warmup < 0;
  point.measured_ns = static_cast<uint64_t>(seconds * 1e9);
  point.warmup_ns = static_cast<uint64_t>(warmup_seconds * 1e9);
  return {};
}

Result<std::unique_ptr<MicroPlace>> MicroOptions::open_place() const {
  return on_model() ? open_model_place(place) : open_real_place(place);
}

Result<std::vector<MicroRow>> measure_all(MicroPlace& place, const std::vector<MicroCase>& cases,
                                          bool keep_going) {
  std::vector<MicroRow> rows;
  for (const MicroCase& each : cases) {
    PMSTORE_TRY_STATUS(check_point(each.point));
    MicroRow row{each, std::nullopt, {}, place.limit(each.point)};
    if (const Status possible = place.check(each.point); !possible) {
      if (!keep_going) return possible.error();
      row.refused = possible.error().message;
    }
    rows.push_back(std::move(row));
  }
  ProgressLine line;
  for (size_t i = 0; i < rows.size(); ++i) {
    MicroRow& row = rows[i];
    if (!row.refused.empty()) continue;
    line.update(fmt::format("{}/{}: {}", i + 1, rows.size(), row.measured.name));
    auto result = place.measure(row.measured.point);
    if (result) {
      row.result = std::move(*result);
    } else if (keep_going && result.code() == ErrorCode::kUnsupported) {
      row.refused = result.error().message;
    } else {
      return std::move(result.error());
    }
  }
  return rows;
}

int fail_command(std::string_view what, const Error& why) {
  fail(kProgram, what, why);
  return why.code == ErrorCode::kInvalidArgument ? kWrongUsage : kFailed;
}

}  // namespace pmstore::tools
