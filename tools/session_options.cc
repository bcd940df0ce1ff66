#include "tools/session_options.h"

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "tools/console.h"

namespace pmstore::tools {

Result<uint64_t> parse_bytes(std::string_view text) {
  const auto wrong = [&] {
    return make_error(ErrorCode::kInvalidArgument,
                      "'" + std::string(text) +
                          "' is not a size; write it like 4096, 64K, 256M "
                          "or 2G");
  };
  uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc()) return wrong();
  const std::string_view unit(rest, static_cast<size_t>(end - rest));
  unsigned shift = 0;
  if (unit == "K" || unit == "KiB") {
    shift = 10;
  } else if (unit == "M" || unit == "MiB") {
    shift = 20;
  } else if (unit == "G" || unit == "GiB") {
    shift = 30;
  } else if (unit == "T" || unit == "TiB") {
    shift = 40;
  } else if (!unit.empty()) {
    return wrong();
  }
  if (number > UINT64_MAX >> shift) return wrong();
  return number << shift;
}

Result<LockDiscipline> parse_locks(std::string_view text) {
  for (const auto discipline : {LockDiscipline::kCpu, LockDiscipline::kRnic}) {
    if (text == discipline_name(discipline)) return discipline;
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "'" + std::string(text) + "' is not a lock discipline; use cpu or rnic");
}

int parse_and_run(CLI::App& app, int argc, char** argv, const Invocation& invocation) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const CLI::App* chosen = &app;
    while (!chosen->get_subcommands().empty()) chosen = chosen->get_subcommands().front();
    print_text(chosen->help());
    return kDone;
  } catch (const CLI::CallForVersion& version) {
    print_text(std::string(version.what()) + "\n");
    return kDone;
  } catch (const CLI::ParseError& error) {
    fail(app.get_name(), "wrong usage", std::string(error.what()) + "; see --help");
    return kWrongUsage;
  }
  const int status = invocation.run ? invocation.run() : kDone;
  // What was printed has to have arrived: a full disk must not look like success.
  if (std::fflush(stdout) != 0 && status == kDone) {
    return fail(app.get_name(), "cannot write to standard output", std::strerror(errno));
  }
  return status;
}

void SessionOptions::add_to(CLI::App& command) {
  CLI::Option* const where =
      command
          .add_option("--uri", uri,
                      "the store: tcp://HOST:PORT, shm://NAME, verbs://HOST:PORT, or local:PATH, "
                      "which opens the pool in this process; default: $PMSTORE_URI")
          ->required()
          ->check(parsed_by(fabric::parse_uri, "URI"));
  // The parser gives every option that was not used its environment's value, also those of commands
  // that were not called, whose variables may be the called one's. So only this command's, and only
  // once it is called.
  command.preparse_callback([where](size_t) { where->envname("PMSTORE_URI"); });
  command
      .add_option("--assume-domain", assume_domain,
                  "with local:PATH, treat the pool's memory as this persistence domain instead of "
                  "the detected one: none, adr, eadr")
      ->check(parsed_by(persist::parse_domain, "DOMAIN"));
  command
      .add_option("--locks", locks,
                  "with local:PATH, who changes lock words: cpu (default) or rnic; else, refuse a "
                  "server with the other one")
      ->check(parsed_by(parse_locks, "DISCIPLINE"));
  command
      .add_option("--timeout", timeout_seconds,
                  "seconds to wait for a connection or an answer (default 5)")
      ->check(CLI::Range(0.001, 3600.0));
  command.add_flag("--json", json, "print one JSON object");
}

fabric::Uri SessionOptions::parsed_uri() const { return *fabric::parse_uri(uri); }

ClientOptions SessionOptions::client_options() const {
  ClientOptions options;
  options.call_timeout_ns = static_cast<uint64_t>(timeout_seconds * 1e9);
  options.connect_timeout_ns = options.call_timeout_ns;
  if (!assume_domain.empty()) options.assume_domain = *persist::parse_domain(assume_domain);
  if (!locks.empty()) {
    options.required_discipline = *parse_locks(locks);
    options.local_discipline = *options.required_discipline;
  }
  return options;
}

}  // namespace pmstore::tools
