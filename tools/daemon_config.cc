#include "tools/daemon_config.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "tools/command_line.h"
#include "tools/session_options.h"

namespace pmstore::tools {
namespace {

constexpr std::array<std::string_view, 10> kKeys = {
    "pool",          "listen", "create",   "locks",
    "assume-domain", "ddio",   "lease-ms", "outcome-retention-ms",
    "json",          "sparse"};

CLI::ConfigError config_error(const std::string& why) {
  return CLI::ConfigError("config file: " + why, CLI::ExitCodes::ConfigError);
}

std::string text_of(std::string_view key, const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto number = node.value_exact<int64_t>()) return std::to_string(*number);
  if (const auto flag = node.value_exact<bool>()) return *flag ? "true" : "false";
  throw config_error(
      fmt::format("the value of '{}' is neither a string, a number, true nor false", key));
}

// Gives CLI11 the keys of a TOML file, so that they pass the checks that flags pass.
class TomlFile final : public CLI::Config {
 public:
  std::string to_config(const CLI::App*, bool, bool, std::string) const override { return {}; }
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::vector<CLI::ConfigItem> found;
    for (const auto& [key, node] : parse(input)) {
      if (std::find(kKeys.begin(), kKeys.end(), key.str()) == kKeys.end()) {
        throw config_error(
            fmt::format("there is no key '{}'; there are {}", key.str(), fmt::join(kKeys, ", ")));
      }
      CLI::ConfigItem item;
      item.name = std::string(key.str());
      if (const toml::array* const list = node.as_array()) {
        for (const toml::node& element : *list) item.inputs.push_back(text_of(key.str(), element));
      } else {
        item.inputs.push_back(text_of(key.str(), node));
      }
      found.push_back(std::move(item));
    }
    return found;
  }

 private:
  static toml::table parse(std::istream& input) {
    try {
      return toml::parse(input);
    } catch (const toml::parse_error& error) {
      throw config_error(
          fmt::format("line {}: {}", error.source().begin.line, error.description()));
    }
  }
};

Result<std::string> parse_locks_or_auto(std::string_view text) {
  if (text == "auto" || parse_locks(text)) return std::string(text);
  return make_error(ErrorCode::kInvalidArgument,
                    "'" + std::string(text) + "' is not auto, cpu or rnic");
}

Result<fabric::Uri> parse_served_uri(std::string_view text) {
  PMSTORE_TRY(auto uri, fabric::parse_uri(text));
  if (uri.scheme != fabric::Scheme::kLocal) return uri;
  return make_error(ErrorCode::kInvalidArgument,
                    "'" + std::string(text) +
                        "' could be reached from inside this process only; listen at tcp://, "
                        "shm:// or verbs://");
}

Result<std::string> parse_on_off(std::string_view text) {
  if (text == "on" || text == "off") return std::string(text);
  return make_error(ErrorCode::kInvalidArgument, "'" + std::string(text) + "' is not on or off");
}

}  // namespace

void DaemonConfig::add_to(CLI::App& app) {
  app.add_option("--pool", pool, "the pool: a file or a DAX device")->required();
  app.add_option("--listen", listen,
                 "where to serve: tcp://HOST:PORT, shm://NAME or verbs://HOST:PORT; may be given "
                 "several times")
      ->required()
      ->check(parsed_by(parse_served_uri, "URI"));
  CLI::Option* const make =
      app.add_option("--create", create,
                     "make the pool with this size when the path does not exist")
          ->check(parsed_by(parse_bytes, "SIZE"));
  app.add_flag("--sparse", sparse,
               "with --create: reserve no blocks; a full file system ends the server later")
      ->needs(make);
  app.add_option("--locks", locks,
                 "who changes lock words: cpu (the server), rnic (remote atomics), or auto")
      ->check(parsed_by(parse_locks_or_auto, "auto|cpu|rnic"))
      ->capture_default_str();
  app.add_option("--assume-domain", assume_domain,
                 "treat the pool's memory as this persistence domain instead of the detected one: "
                 "none, adr, eadr; data is at risk when it is not true")
      ->check(parsed_by(persist::parse_domain, "DOMAIN"));
  app.add_option(
         "--ddio", ddio,
         "whether the RNIC's writes land in the CPU's cache (on, the safe assumption) or in "
         "memory (off)")
      ->check(parsed_by(parse_on_off, "on|off"))
      ->capture_default_str();
  app.add_option("--lease-ms", lease_ms, "a client silent this long is cut off")
      ->check(CLI::Range(10u, 3'600'000u))
      ->capture_default_str();
  app.add_option("--outcome-retention-ms", outcome_retention_ms,
                 "outcomes of a vanished client are kept at least this long")
      ->check(CLI::Range(0u, 86'400'000u))
      ->capture_default_str();
  app.add_flag("--json", json, "say what is served as one JSON object");
  app.set_config("--config", "", "read a TOML file whose keys are these options, without --");
  app.config_formatter(std::make_shared<TomlFile>());
}

ServiceOptions DaemonConfig::service_options() const {
  ServiceOptions options;
  options.pool = pool;
  for (const std::string& uri : listen) options.listen.push_back(*fabric::parse_uri(uri));
  if (!create.empty()) options.create_bytes = *parse_bytes(create);
  options.open.sparse = sparse;
  if (!assume_domain.empty()) options.open.assume_domain = *persist::parse_domain(assume_domain);
  if (locks != "auto") options.server.discipline = *parse_locks(locks);
  options.server.device_landing =
      ddio == "off" ? persist::WriteLanding::kMemory : persist::WriteLanding::kLastLevelCache;
  options.server.lease_ms = lease_ms;
  options.server.outcome_retention_ms = outcome_retention_ms;
  return options;
}

}  // namespace pmstore::tools
