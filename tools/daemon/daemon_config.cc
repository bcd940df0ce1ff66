#include "tools/daemon/daemon_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <toml++/toml.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "service/host.h"
#include "tools/cli/command_line.h"
#include "tools/cli/poll_option.h"
#include "tools/cli/session_options.h"
#include "tools/daemon/daemon_log.h"

namespace pmstore::tools {
namespace {

constexpr std::array<std::string_view, 29> kKeys = {"pool",
                                                    "listen",
                                                    "create",
                                                    "locks",
                                                    "assume-domain",
                                                    "ddio",
                                                    "lease-ms",
                                                    "outcome-retention-ms",
                                                    "json",
                                                    "sparse",
                                                    "log-file",
                                                    "log-level",
                                                    "poll",
                                                    "io-uring",
                                                    "most-clients",
                                                    "message-memory",
                                                    "data-server",
                                                    "recovery-threads",
                                                    "ignore-checkpoint",
                                                    "files",
                                                    "file-limit",
                                                    "record-limit",
                                                    "log-limit",
                                                    "record-reserve",
                                                    "ring-reserve",
                                                    "log-reserve",
                                                    "file-reserve",
                                                    "max-inodes",
                                                    "max-opens"};

Result<uint64_t> parse_message_memory(std::string_view text) {
  PMSTORE_TRY(const uint64_t bytes, parse_bytes(text));
  if (bytes >= service::HostOptions::kLeastMessageBytes) return bytes;
  return make_error(
      ErrorCode::kInvalidArgument,
      fmt::format("{} is too little for a server's messages: use at least 64M", text));
}

CLI::ConfigError config_error(const std::string& why) {
  return CLI::ConfigError("config file: " + why, CLI::ExitCodes::ConfigError);
}

// "a string", "a list of strings", ...: what a key of this option takes.
std::string_view expected_kind(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (option.get_items_expected_max() == 0) return "true or false";
  if (option.get_items_expected_max() > 1) return "a string, or a list of strings";
  if (type.starts_with("UINT") || type.starts_with("INT")) return "a whole number";
  if (type.starts_with("FLOAT")) return "a number";
  return type.find("SIZE") != std::string::npos ? "a size, like 4096 or \"256M\"" : "a string";
}

std::string_view found_kind(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::string: return "a string";
    case toml::node_type::integer: return "a whole number";
    case toml::node_type::floating_point: return "a number with a fraction";
    case toml::node_type::boolean: return "true or false";
    case toml::node_type::array: return "a list";
    case toml::node_type::table: return "a table";
    default: return "a date or a time";
  }
}

// Gives CLI11 the keys of a TOML file. Everything about a value is said with its key and line.
class TomlFile final : public CLI::Config {
 public:
  explicit TomlFile(const CLI::App& app) : app_(app) {}
  std::string to_config(const CLI::App*, bool, bool, std::string) const override { return {}; }
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    std::vector<CLI::ConfigItem> found;
    const toml::table table = parse(input);
    for (const auto& [key, node] : table) {
      if (std::find(kKeys.begin(), kKeys.end(), key.str()) == kKeys.end()) {
        throw config_error(fmt::format("line {}: there is no key '{}'; there are {}", line(node),
                                       key.str(), fmt::join(kKeys, ", ")));
      }
      CLI::ConfigItem item;
      item.name = std::string(key.str());
      CLI::Option& option = *const_cast<CLI::Option*>(app_.get_option("--" + item.name));
      const toml::array* const list = node.as_array();
      if (list != nullptr && option.get_items_expected_max() > 1) {
        for (const toml::node& element : *list) {
          item.inputs.push_back(text_of(item.name, element, option));
        }
      } else {
        item.inputs.push_back(text_of(item.name, node, option));
      }
      found.push_back(std::move(item));
    }
    return found;
  }

 private:
  static unsigned line(const toml::node& node) { return node.source().begin.line; }

  static std::string text_of(std::string_view key, const toml::node& node, CLI::Option& option) {
    const std::string_view expected = expected_kind(option);
    std::string text;
    bool right = false;
    if (const auto string = node.value_exact<std::string>()) {
      text = *string;
      right = expected.starts_with("a string") || expected.starts_with("a size");
    } else if (const auto number = node.value_exact<int64_t>()) {
      text = std::to_string(*number);
      right = expected.starts_with("a whole") || expected.starts_with("a number") ||
              expected.starts_with("a size");
    } else if (const auto fraction = node.value_exact<double>()) {
      text = fmt::format("{}", *fraction);
      right = expected.starts_with("a number");
    } else if (const auto flag = node.value_exact<bool>()) {
      text = *flag ? "true" : "false";
      right = expected == "true or false";
    }
    if (!right) {
      throw config_error(fmt::format("line {}: '{}': expected {}, found {}", line(node), key,
                                     expected, found_kind(node)));
    }
    if (const std::string wrong = refused(option, text); !wrong.empty()) {
      throw config_error(fmt::format("line {}: '{}': {}", line(node), key, wrong));
    }
    return text;
  }

  // The result of the option's own checks.
  static std::string refused(CLI::Option& option, std::string text) {
    for (int i = 0;; ++i) {
      const CLI::Validator* check = nullptr;
      try {
        check = option.get_validator(i);
      } catch (const CLI::OptionNotFound&) {
        return {};
      }
      if (std::string wrong = (*check)(text); !wrong.empty()) return wrong;
    }
  }

  static toml::table parse(std::istream& input) {
    try {
      return toml::parse(input);
    } catch (const toml::parse_error& error) {
      throw config_error(
          fmt::format("line {}: {}", error.source().begin.line, error.description()));
    }
  }

  const CLI::App& app_;
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

Result<std::string> parse_config_path(std::string_view text) {
  const std::string path(text);
  struct stat status {};
  std::string why = path.empty() ? "the path is empty" : "";
  if (why.empty() && stat(path.c_str(), &status) != 0) why = std::strerror(errno);
  if (why.empty() && S_ISDIR(status.st_mode)) why = "it is a directory";
  if (why.empty() && access(path.c_str(), R_OK) != 0) why = std::strerror(errno);
  if (why.empty()) return path;
  return make_error(ErrorCode::kInvalidArgument, "cannot read '" + path + "': " + why);
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
      ->allow_extra_args(false)
      ->check(parsed_by(parse_served_uri, "URI"));
  CLI::Option* const make =
      app.add_option("--create", create,
                     "make the pool with this size when the path does not exist")
          ->check(parsed_by(parse_bytes, "SIZE"));
  app.add_flag("--sparse", sparse,
               "with --create: reserve no blocks; a full file system ends the server later")
      ->needs(make);
  app.add_option(
         "--locks", locks,
         "the side that changes lock words: cpu (the server), rnic (remote atomics), or auto")
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
  add_files_to(app);
  add_limits_to(app);
  app.add_option("--poll", poll, kPollHelp)
      ->check(parsed_by(parse_poll, "MODE"))
      ->capture_default_str();
  app.add_option("--io-uring", io_uring,
                 "serve many tcp sockets with one system call: auto (where the kernel allows it) "
                 "or never")
      ->check(parsed_by(parse_io_uring, "auto|never"))
      ->capture_default_str();
  app.add_option("--lease-ms", lease_ms,
                 "a client or producer with a lease that is silent this long is cut off")
      ->check(in_range(10u, 3'600'000u))
      ->capture_default_str();
  app.add_option(
         "--most-clients", most_clients,
         "so many clients of the store, and of the logs, at the same time under lock discipline "
         "cpu; under rnic, as many of the store as the pool has rings")
      ->check(in_range(1u, 32'767u))
      ->capture_default_str();
  app.add_option("--message-memory", message_memory,
                 "memory for the requests and answers of all clients together, at least 64M; while "
                 "they take more, no new client is let in, and silent ones that hold some are cut "
                 "off")
      ->check(parsed_by(parse_message_memory, "SIZE"))
      ->capture_default_str();
  app.add_option("--outcome-retention-ms", outcome_retention_ms,
                 "outcomes of a vanished client are kept at least this long")
      ->check(in_range(0u, 86'400'000u))
      ->capture_default_str();
  add_own_to(app);
  app.add_flag("--json", json, "print the pool and the addresses as one JSON object");
  app.set_config("--config", "", "read a TOML file whose keys are these options, without --")
      ->check(parsed_by(parse_config_path, "FILE"));
  app.config_formatter(std::make_shared<TomlFile>(app));
}

void DaemonConfig::add_files_to(CLI::App& app) {
  app.add_flag("--data-server", data_server, "serve data of files whose names are elsewhere");
  app.add_flag(
      "--files", files,
      "serve files also in a pool that was made without --file-bytes: it gets room for them");
  app.add_option("--file-limit", file_limit,
                 "data of files takes no more of the pool than this; what the pool was made with "
                 "stays; none: what there is (default: what the pool keeps, see pmstore pool "
                 "limit)")
      ->check(parsed_by(parse_bytes_or_none, "SIZE"));
  app.add_option("--max-inodes", max_inodes,
                 "make no file or directory beyond so many (ENOSPC); 0: as many as fit")
      ->check(in_range<uint64_t>(0, uint64_t{1} << 48))
      ->capture_default_str();
  app.add_option("--max-opens", max_opens,
                 "open no file beyond so many pairs of a file and a client (ENFILE)")
      ->check(in_range<uint64_t>(1, 1u << 30))
      ->capture_default_str();
  // By value: a configuration file may say data-server = false.
  app.parse_complete_callback([this] {
    const bool is_bounded = max_inodes != 0 || max_opens != DaemonConfig{}.max_opens;
    if (data_server && (is_bounded || files || !file_limit.empty())) {
      throw CLI::ExcludesError("--data-server", "--files, --file-limit, --max-inodes, --max-opens");
    }
  });
}

void DaemonConfig::add_limits_to(CLI::App& app) {
  app.add_option("--record-limit", record_limit,
                 "records take no more of the pool than this; what they have already stays; none: "
                 "what there is (default: what the pool keeps, see pmstore pool limit)")
      ->check(parsed_by(parse_bytes_or_none, "SIZE"));
  app.add_option("--log-limit", log_limit,
                 "logs take no more of the pool than this; what they have already stays; none: "
                 "what there is (default: what the pool keeps)")
      ->check(parsed_by(parse_bytes_or_none, "SIZE"));
  const auto add = [&app](const std::string& name, std::string& value, const std::string& whom) {
    app.add_option(name, value,
                   "others leave so much of the pool to " + whom +
                       ", with what it has already (default: what the pool keeps)")
        ->check(parsed_by(parse_bytes, "SIZE"));
  };
  add("--record-reserve", record_reserve, "records");
  add("--ring-reserve", ring_reserve, "redo rings of clients under lock discipline rnic");
  add("--log-reserve", log_reserve, "logs");
  add("--file-reserve", file_reserve, "data of files");
}

// What concerns the process, not its clients.
void DaemonConfig::add_own_to(CLI::App& app) {
  app.add_option("--recovery-threads", recovery_threads,
                 "so many threads read the records of the pool, or its checkpoint, at the start "
                 "(default: one for each core)")
      ->check(in_range(1u, 64u));
  app.add_flag(
      "--ignore-checkpoint", ignore_checkpoint,
      "read all records at the start, as after a crash, and no byte of the checkpoint: for "
      "a medium with an error where the checkpoint lies");
  app.add_option("--log-file", log_file,
                 "append the log to this file, which SIGHUP opens again (default: standard error)");
  app.add_option("--log-level", log_level,
                 "write lines of this level and above: error, warning, info, debug")
      ->check(parsed_by(parse_log_level, "LEVEL"))
      ->capture_default_str();
}

ServiceOptions DaemonConfig::service_options() const {
  ServiceOptions options;
  options.pool = pool;
  for (const std::string& uri : listen) options.listen.push_back(*fabric::parse_uri(uri));
  if (!create.empty()) options.create_bytes = *parse_bytes(create);
  options.open.sparse = sparse;
  options.data_server = data_server;
  options.max_inodes = max_inodes;
  options.max_opens = max_opens;
  options.files = files;
  add_space_rules_to(options.server);
  if (!assume_domain.empty()) options.open.assume_domain = *persist::parse_domain(assume_domain);
  if (locks != "auto") options.server.discipline = *parse_locks(locks);
  options.server.device_landing =
      ddio == "off" ? persist::WriteLanding::kMemory : persist::WriteLanding::kLastLevelCache;
  options.executor.poll = *parse_poll(poll);
  options.executor.io_uring = *parse_io_uring(io_uring);
  options.server.lease_ms = lease_ms;
  options.server.most_clients = most_clients;
  options.server.message_bytes = *parse_bytes(message_memory);
  options.server.outcome_retention_ms = outcome_retention_ms;
  return options;
}

void DaemonConfig::add_space_rules_to(ServerOptions& options) const {
  if (!file_limit.empty()) options.most_file_bytes = *parse_bytes_or_none(file_limit);
  if (!record_limit.empty()) options.most_record_bytes = *parse_bytes_or_none(record_limit);
  if (!log_limit.empty()) options.most_log_bytes = *parse_bytes_or_none(log_limit);
  if (!record_reserve.empty()) options.record_reserve_bytes = *parse_bytes(record_reserve);
  if (!ring_reserve.empty()) options.ring_reserve_bytes = *parse_bytes(ring_reserve);
  if (!log_reserve.empty()) options.log_reserve_bytes = *parse_bytes(log_reserve);
  if (!file_reserve.empty()) options.file_reserve_bytes = *parse_bytes(file_reserve);
}

std::vector<DaemonConfig::Difference> DaemonConfig::differences(const DaemonConfig& next) const {
  std::vector<Difference> found;
  const auto compare = [&found](std::string_view name, const auto& now, const auto& then,
                                bool may_change) {
    if (now != then)
      found.push_back({name, fmt::format("'{}'", now), fmt::format("'{}'", then), may_change});
  };
  compare("log-file", log_file, next.log_file, true);
  compare("log-level", log_level, next.log_level, true);
  compare("outcome-retention-ms", outcome_retention_ms, next.outcome_retention_ms, true);
  compare("pool", pool, next.pool, false);
  compare("listen", fmt::format("{}", fmt::join(listen, " ")),
          fmt::format("{}", fmt::join(next.listen, " ")), false);
  compare("locks", locks, next.locks, false);
  compare("assume-domain", assume_domain, next.assume_domain, false);
  compare("ddio", ddio, next.ddio, false);
  compare("poll", poll, next.poll, false);
  compare("io-uring", io_uring, next.io_uring, false);
  // A client was told its lease when it connected.
  compare("lease-ms", lease_ms, next.lease_ms, false);
  compare("most-clients", most_clients, next.most_clients, false);
  compare("message-memory", message_memory, next.message_memory, false);
  compare("recovery-threads", recovery_threads, next.recovery_threads, false);
  compare("ignore-checkpoint", ignore_checkpoint, next.ignore_checkpoint, false);
  compare("create", create, next.create, false);
  compare("sparse", sparse, next.sparse, false);
  compare("data-server", data_server, next.data_server, false);
  compare("max-inodes", max_inodes, next.max_inodes, false);
  compare("max-opens", max_opens, next.max_opens, false);
  compare("files", files, next.files, false);
  compare("file-limit", file_limit, next.file_limit, false);
  compare("record-limit", record_limit, next.record_limit, false);
  compare("log-limit", log_limit, next.log_limit, false);
  compare("record-reserve", record_reserve, next.record_reserve, false);
  compare("ring-reserve", ring_reserve, next.ring_reserve, false);
  compare("log-reserve", log_reserve, next.log_reserve, false);
  compare("file-reserve", file_reserve, next.file_reserve, false);
  compare("json", json, next.json, false);
  return found;
}

}  // namespace pmstore::tools
