// pmstore tune counters: what the DIMMs' own counters say, live, during a command, or of a record.
#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>

#include "tools/cli/bytes_text.h"
#include "tools/cli/command_line.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/text_table.h"
#include "tools/tune/dimm_samples.h"
#include "tools/tune/dimm_source.h"
#include "tools/tune/guarded_command.h"
#include "tools/tune/ipmctl_library.h"
#include "tools/tune/tune_command.h"

namespace pmstore::tools {
namespace {

struct CountersOptions {
  std::string trace;
  std::string report;
  std::string libipmctl = kIpmctlLibrary;
  std::string ipmctl;
  double interval_seconds = 1;
  uint64_t count = 0;
  std::vector<std::string> command;
  bool during = false;
  bool json = false;
};

constexpr std::string_view kTuneCounters = "tune counters";

Result<std::string> content_of(const std::string& path) {
  std::stringstream content;
  if (path == "-") {
    content << std::cin.rdbuf();
  } else {
    const std::ifstream file(path);
    if (!file) return make_error(ErrorCode::kIo, "cannot read '" + path + "': check its name");
    content << file.rdbuf();
  }
  return content.str();
}

nlohmann::ordered_json json_of(const DimmDelta& one) {
  return {{"dimm", one.name},
          {"read_requests", one.read_requests},
          {"write_requests", one.write_requests},
          {"media_reads_64b", one.media_reads},
          {"media_writes_64b", one.media_writes},
          {"read_mb_per_s", one.megabytes_per_s(one.read_requests)},
          {"write_mb_per_s", one.megabytes_per_s(one.write_requests)},
          {"media_read_mb_per_s", one.megabytes_per_s(one.media_reads)},
          {"media_write_mb_per_s", one.megabytes_per_s(one.media_writes)},
          {"write_amplification", one.write_amplification()},
          {"read_amplification", one.read_amplification()},
          {"reads_per_write", one.reads_per_write()}};
}

// One interval: the counters, and its number.
struct Interval {
  std::vector<DimmDelta> list;
  double at = 0;     // seconds since the first reading
  std::string name;  // of a report's result
  bool first = true;
};

void print_as_json(const Interval& one) {
  nlohmann::ordered_json dimms = nlohmann::ordered_json::array(), object;
  for (const DimmDelta& dimm : one.list) dimms.push_back(json_of(dimm));
  if (!one.name.empty()) object["name"] = one.name;
  object["at"] = one.at;
  object["seconds"] = one.list.back().seconds;
  object["dimms"] = dimms;
  object["advice"] = advice(one.list.back());
  print_json(object);
}

void print_table(const Interval& one) {
  TextTable table(1);
  table.row({"DIMM", "read MB/s", "write MB/s", "media read MB/s", "media write MB/s",
             "write ampl.", "read ampl.", "reads/write"});
  for (const DimmDelta& dimm : one.list) {
    table.row({dimm.name, fmt::format("{:.1f}", dimm.megabytes_per_s(dimm.read_requests)),
               fmt::format("{:.1f}", dimm.megabytes_per_s(dimm.write_requests)),
               fmt::format("{:.1f}", dimm.megabytes_per_s(dimm.media_reads)),
               fmt::format("{:.1f}", dimm.megabytes_per_s(dimm.media_writes)),
               fmt::format("{:.2f}", dimm.write_amplification()),
               fmt::format("{:.2f}", dimm.read_amplification()),
               fmt::format("{:.2f}", dimm.reads_per_write())});
  }
  print_text(table.text() + advice(one.list.back()) + "\n");
}

std::string quoted(const std::string& text) {
  std::string inside;
  for (const char c : text) inside.append(c == '"' ? 2 : 1, c);
  return '"' + inside + '"';
}

// CSV if standard output is no terminal: a line for each DIMM and interval.
void print_csv(const Interval& one) {
  const bool named = !one.name.empty();
  if (one.first) {
    print_text(named ? "name," : "");
    print_text(
        "at,seconds,dimm,read_requests,write_requests,media_reads_64b,media_writes_64b,"
        "read_mb_per_s,write_mb_per_s,media_read_mb_per_s,media_write_mb_per_s,"
        "write_amplification,read_amplification,reads_per_write\n");
  }
  for (const DimmDelta& dimm : one.list) {
    if (named) print_text(quoted(one.name) + ",");
    // Modelled measurements take microseconds.
    print_text(fmt::format(
        "{:.9f},{:.9f},{},{},{},{},{},{:.4f},{:.4f},{:.4f},{:.4f},{:.4f},{:.4f},{:.4f}\n", one.at,
        dimm.seconds, dimm.name, dimm.read_requests, dimm.write_requests, dimm.media_reads,
        dimm.media_writes, dimm.megabytes_per_s(dimm.read_requests),
        dimm.megabytes_per_s(dimm.write_requests), dimm.megabytes_per_s(dimm.media_reads),
        dimm.megabytes_per_s(dimm.media_writes), dimm.write_amplification(),
        dimm.read_amplification(), dimm.reads_per_write()));
  }
}

// Live, a table replaces the one before it; tables of a recording follow each other.
void show(const Interval& one, const CountersOptions& options, bool live) {
  if (options.json) {
    print_as_json(one);
  } else if (isatty(STDOUT_FILENO) == 1) {
    if (live) {
      print_text("\x1b[H\x1b[J");
    } else if (!one.first) {
      print_text("\n");
    }
    if (!live && !options.during) {
      print_text((one.name.empty() ? fmt::format("after {:.6g} s", one.at) : one.name) + "\n");
    }
    print_table(one);
  } else {
    print_csv(one);
  }
  std::fflush(stdout);
}

Result<std::vector<DimmSample>> trace_of(const CountersOptions& options) {
  PMSTORE_TRY(const std::string text, content_of(options.trace));
  auto samples = parse_trace(text);
  if (samples) return samples;
  return make_error(samples.code(), fmt::format("'{}' is no trace: {}; docs/tuning.md has its form",
                                                options.trace, samples.error().message));
}

Result<int> of_trace(const CountersOptions& options) {
  PMSTORE_TRY(const std::vector<DimmSample> samples, trace_of(options));
  for (size_t i = 1; i < samples.size(); ++i) {
    show({deltas(samples[i - 1], samples[i]), samples[i].seconds - samples.front().seconds, "",
          i == 1},
         options, false);
  }
  return kDone;
}

// A counter of the report; more than this no machine moves, and sums stay within 64 bits.
uint64_t counter_of(const nlohmann::json& dimm, const char* name) {
  const auto& value = dimm.at(name);
  constexpr uint64_t kMost = uint64_t{1} << 48;
  if (value.is_number_unsigned() && value.get<uint64_t>() <= kMost) return value.get<uint64_t>();
  throw std::out_of_range(fmt::format("{} is {}, not a count", name, value.dump()));
}

double seconds_of(const nlohmann::json& result) {
  const double seconds = result.at("seconds");
  if (seconds > 0 && std::isfinite(seconds)) return seconds;
  throw std::out_of_range(fmt::format("seconds is {}, not a duration", seconds));
}

// The counters of the modelled machine's DIMMs, from a report of bench micro. They count media
// traffic in 256 bytes.
Result<int> of_report(const CountersOptions& options) {
  PMSTORE_TRY(const std::string text, content_of(options.report));
  bool first = true;
  try {
    const auto report = nlohmann::json::parse(text);
    for (const auto& result : report.at("results")) {
      DimmSample before, after{seconds_of(result), {}};
      for (const auto& dimm : result.at("machine").at("dimms")) {
        const std::string name = std::to_string(after.dimms.size());
        const uint64_t reads = counter_of(dimm, "NMediaRead");
        const uint64_t writes = counter_of(dimm, "NMediaWrite");
        before.dimms.push_back({name, 0, 0, 0, 0});
        after.dimms.push_back({name, counter_of(dimm, "NReadReq"), counter_of(dimm, "NWriteReq"),
                               4 * (reads + writes), 4 * writes});
      }
      show({deltas(before, after), after.seconds, result.at("name"), first}, options, false);
      first = false;
    }
  } catch (const std::exception& error) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("'{}' is no report of pmstore bench micro --model ... --json: {}",
                                  options.report, error.what()));
  }
  if (first) return make_error(ErrorCode::kInvalidArgument, "the report has no results");
  return kDone;
}

// One that the command writes itself: that of a modelled machine.
Result<int> during_trace(const CountersOptions& options) {
  std::error_code no_file;
  const auto before = std::filesystem::last_write_time(options.trace, no_file);
  GuardedCommand guard;
  PMSTORE_TRY(const int status, guard.run(options.command));
  std::error_code error;
  const auto now = std::filesystem::last_write_time(options.trace, error);
  if (error || (!no_file && now == before)) {
    return make_error(ErrorCode::kIo,
                      fmt::format("the command (exit status {}) has not written '{}': give it the "
                                  "same name: pmstore bench micro --model ... --dimm-trace FILE",
                                  status, printable(options.trace)));
  }
  PMSTORE_TRY(const std::vector<DimmSample> samples, trace_of(options));
  const DimmSample &first = samples.front(), &last = samples.back();
  show({deltas(first, last), last.seconds - first.seconds, "", true}, options, false);
  return status;
}

Result<int> during(const CountersOptions& options) {
  if (!options.trace.empty()) return during_trace(options);
  PMSTORE_TRY(const auto source, open_dimm_source(options.libipmctl, options.ipmctl));
  PMSTORE_TRY(const DimmSample before, source->read());
  GuardedCommand guard;
  PMSTORE_TRY(const int status, guard.run(options.command));
  auto after = source->read();
  if (!after) {
    return make_error(after.code(), fmt::format("{} (the command has run, exit status {})",
                                                after.error().message, status));
  }
  if (Status same = check_same_dimms(before, *after); !same) {
    return make_error(same.code(), fmt::format("{} (the command has run, exit status {})",
                                               same.error().message, status));
  }
  show({deltas(before, *after), after->seconds - before.seconds, "", true}, options, false);
  return status;
}

Result<int> live(const CountersOptions& options) {
  PMSTORE_TRY(const auto source, open_dimm_source(options.libipmctl, options.ipmctl));
  PMSTORE_TRY(DimmSample before, source->read());
  const double begin = before.seconds;
  for (uint64_t i = 0; options.count == 0 || i < options.count; ++i) {
    usleep(static_cast<useconds_t>(options.interval_seconds * 1e6));
    PMSTORE_TRY(DimmSample after, source->read());
    PMSTORE_TRY_STATUS(check_same_dimms(before, after));
    show({deltas(before, after), after.seconds - begin, "", i == 0}, options, true);
    before = std::move(after);
  }
  return kDone;
}

int counters(const CountersOptions& options) {
  const Result<int> done = options.during            ? during(options)
                           : !options.trace.empty()  ? of_trace(options)
                           : !options.report.empty() ? of_report(options)
                                                     : live(options);
  return done ? *done : fail(kProgram, kTuneCounters, done.error());
}

}  // namespace

void add_tune_counters(CLI::App& tune, Invocation& invocation) {
  CLI::App* const app = tune.add_subcommand(
      "counters", "media and request rates of each DIMM, amplification, reads per write");
  auto options = std::make_shared<CountersOptions>();
  CLI::Option* const trace =
      app->add_option("--trace", options->trace,
                      "a recorded trace instead; - is standard input; with --during, the one that "
                      "COMMAND writes");
  CLI::Option* const report = app->add_option(
      "--report", options->report,
      "the modelled DIMMs of a JSON report of bench micro --model; - is standard input");
  report->excludes(trace);
  CLI::Option* const library =
      app->add_option("--libipmctl", options->libipmctl, "the library that is asked")
          ->capture_default_str()
          ->excludes(trace)
          ->excludes(report);
  app->add_option("--ipmctl", options->ipmctl,
                  "ask this program, not the library (default: ipmctl, when there is no library)")
      ->excludes(trace)
      ->excludes(report)
      ->excludes(library);
  CLI::Option* const interval =
      app->add_option("--interval", options->interval_seconds, "seconds between readings")
          ->check(in_range(0.01, 3600.0))
          ->capture_default_str();
  CLI::Option* const count =
      app->add_option("--count", options->count, "so many intervals (default: until interrupted)");
  for (CLI::Option* option : {interval, count}) option->excludes(trace)->excludes(report);
  CLI::Option* const flag =
      app->add_flag("--during", options->during, "once, for the time of COMMAND");
  flag->excludes(report)->excludes(interval)->excludes(count);
  app->add_option("COMMAND", options->command, "after --: the command of --during")->needs(flag);
  app->add_flag("--json", options->json, "print one JSON object for each interval");
  app->footer(
      "A table that replaces itself on a terminal, CSV elsewhere. Asks libipmctl where it is "
      "installed, else ipmctl; both need root.\n"
      "Exit status with --during: the command's.\n"
      "example: pmstore tune counters --during -- pmstore bench micro --pool /dev/dax0.0\n"
      "example: pmstore tune counters --trace t --during -- pmstore bench micro --model optane-cx5 "
      "--dimm-trace t\n"
      "example: pmstore bench micro --model optane-cx5 --json | pmstore tune counters --report -");
  app->callback([options, &invocation] {
    if (options->during && options->command.empty()) {
      throw CLI::ValidationError("--during", "needs a COMMAND after --");
    }
    if (options->during && options->trace == "-") {
      throw CLI::ValidationError("--trace", "with --during it is a file that COMMAND writes");
    }
    invocation.run = [options] { return counters(*options); };
  });
}

void add_tune_commands(CLI::App& app, Invocation& invocation) {
  CLI::App* const tune = app.add_subcommand("tune", "what the memory does, and which rules pay");
  tune->require_subcommand(1);
  tune->footer("example: pmstore tune advise --model optane-cx5");
  add_tune_counters(*tune, invocation);
  add_tune_advise(*tune, invocation);
}

}  // namespace pmstore::tools
