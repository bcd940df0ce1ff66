// pmstore stat
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>

#include "tools/cli/admin_session.h"
#include "tools/cli/pool_space.h"
#include "tools/cli/text_table.h"

namespace pmstore::tools {
namespace {

using Json = nlohmann::ordered_json;

struct StatOptions : AdminCommandOptions {
  bool watch = false;
  double seconds = 0;  // 0: kWatchSeconds
  uint64_t count = 0;  // samples; 0: without end
};

// Two samples that far apart give the rates of a single report.
constexpr double kOnceSeconds = 0.5;
constexpr double kWatchSeconds = 2;

struct Rate {
  const char* name;
  const char* path;  // in the server's report
};
constexpr std::array kRates = {Rate{"commits", "/store/commits"},
                               Rate{"conflicts", "/store/conflicts"},
                               Rate{"applied", "/store/applied"},
                               Rate{"gets", "/store/gets"},
                               Rate{"scans", "/store/scans"},
                               Rate{"calls", "/store/calls"},
                               Rate{"appends", "/store/logs/entries_total"}};

uint64_t number_at(const Json& report, const char* path) {
  const Json::json_pointer at(path);
  if (!report.contains(at) || !report[at].is_number_unsigned()) return 0;
  return report[at].get<uint64_t>();
}

// Per second. A log that was deleted meanwhile takes its entries with it: then 0.
Json rates_between(const Json& first, const Json& second) {
  const double seconds =
      static_cast<double>(number_at(second, "/time_ns") - number_at(first, "/time_ns")) / 1e9;
  Json rates = Json::object();
  for (const auto& [name, path] : kRates) {
    const uint64_t before = number_at(first, path);
    const uint64_t after = std::max(before, number_at(second, path));
    const double rate = seconds > 0 ? static_cast<double>(after - before) / seconds : 0;
    rates[name] = rate;
  }
  return rates;
}

std::string rates_text(const Json& rates) {
  std::string text;
  for (const auto& [name, path] : kRates) {
    text += fmt::format("{}{} {:.0f}/s", text.empty() ? "" : ", ", name, rates[name].get<double>());
  }
  return text;
}

// What each kind has of the pool, and may have.
std::string space_summary(const Json& report) {
  const Json pool = report.value("pool", Json::object());
  std::string text;
  for (const Json& kind :
       space_of(pool.value("extents", Json::array()), pool.value("space_rules", Json::array()),
                report.value("store", Json::object()))) {
    const bool has_rule = kind.contains("reserve_bytes") || kind.contains("limit_bytes");
    if (kind.value("extents", uint64_t{0}) == 0 && !has_rule) continue;
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : "; ", kind.value("kind", ""), space_text(kind));
  }
  return text;
}

std::string report_text(const Json& report, const Json& rates) {
  const auto n = [&report](const char* path) { return number_at(report, path); };
  TextTable table(2);
  std::string listen;
  for (const auto& uri : report.value("listen", Json::array())) {
    listen += (listen.empty() ? "" : " ") + uri.get<std::string>();
  }
  table.row({"listening at", listen});
  table.row({"sessions", fmt::format("{} now, {} since the start; {} fenced, {} of them silent; {} "
                                     "being resolved; {} malformed requests",
                                     n("/store/sessions"), n("/store/sessions_total"),
                                     n("/store/fenced"), n("/store/leases_expired"),
                                     n("/store/resolving"), n("/store/malformed"))});
  table.row({"rates", rates_text(rates)});
  table.row({"since the start",
             fmt::format("commits {}, conflicts {}, applied {}, gets {}, scans {}, calls {}",
                         n("/store/commits"), n("/store/conflicts"), n("/store/applied"),
                         n("/store/gets"), n("/store/scans"), n("/store/calls"))});
  const uint64_t free_bytes = n("/store/free_bytes");
  table.row({"records", fmt::format("{}; {} bytes used, {} free", n("/store/live_records"),
                                    n("/store/records_bytes") - free_bytes, free_bytes)});
  table.row({"shard log", fmt::format("{} of {} bytes used", n("/store/redo/log_used_bytes"),
                                      n("/store/redo/log_bytes"))});
  table.row({"redo rings", fmt::format("{} of {} owned; {} of {} bytes used",
                                       n("/store/redo/owned"), n("/store/redo/rings"),
                                       n("/store/redo/used_bytes"), n("/store/redo/bytes"))});
  table.row({"several servers",
             fmt::format("{} transactions locked, {} prepared and not decided, {} committed and "
                         "remembered; see pmstore tx list",
                         n("/store/two_phase/locked"), n("/store/two_phase/prepared"),
                         n("/store/two_phase/committed"))});
  if (report.contains(Json::json_pointer("/store/logs"))) {
    table.row({"logs", fmt::format("{} with {} entries; {} of {} bytes used", n("/store/logs/logs"),
                                   n("/store/logs/entries_total"), n("/store/logs/used_bytes"),
                                   n("/store/logs/area_bytes"))});
  }
  table.row({"space", space_summary(report)});
  table.row({"memory", fmt::format("index {} bytes, lock words {} bytes", n("/memory/index_bytes"),
                                   n("/memory/lock_word_bytes"))});
  table.row(
      {"recovered", fmt::format("{} transactions, {} damaged records", n("/recovery/transactions"),
                                n("/recovery/damaged_records"))});
  return table.text();
}

// One line for each sample if standard output is no terminal.
std::string line_text(const Json& report, const Json& rates) {
  return fmt::format("sessions {}, {}, records {}, free {} bytes\n",
                     number_at(report, "/store/sessions"), rates_text(rates),
                     number_at(report, "/store/live_records"),
                     number_at(report, "/store/free_bytes"));
}

base::Task<Result<Json>> sample_after(Executor& executor, AdminClient& admin, double seconds) {
  co_await executor.sleep_for(static_cast<uint64_t>(seconds * 1e9));
  co_return parse_report(co_await admin.stat());
}

void show(const StatOptions& options, bool terminal, Json report, const Json& rates) {
  if (options.json) {
    report["rates"] = rates;
    print_json(report);
  } else if (options.watch && !terminal) {
    print_text(line_text(report, rates));
  } else {
    // Moves the cursor to the top left and erases everything below.
    print_text((options.watch ? "\x1b[H\x1b[J" : "") + report_text(report, rates));
  }
  std::fflush(stdout);
}

int show_stat(const StatOptions& options) {
  const std::string what = "stat";
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  return with_admin(options, what, [&](Executor& executor, AdminClient& admin) {
    auto before = executor.run(sample_after(executor, admin, 0));
    if (!before) return fail(kProgram, what, before.error());
    const double seconds = options.watch ? options.seconds : kOnceSeconds;
    const uint64_t samples = options.watch ? options.count : 1;
    for (uint64_t i = 0; samples == 0 || i < samples; ++i) {
      auto now = executor.run(sample_after(executor, admin, seconds));
      if (!now) return fail(kProgram, what, now.error());
      show(options, terminal, *now, rates_between(*before, *now));
      if (std::ferror(stdout) != 0) break;  // the end of the program says so
      before = std::move(now);
    }
    return kDone;
  });
}

}  // namespace

void add_stat_command(CLI::App& app, Invocation& invocation) {
  CLI::App* const command = app.add_subcommand("stat", "what a server is doing");
  auto options = std::make_shared<StatOptions>();
  options->add_to(*command);
  CLI::Option* const watch =
      command
          ->add_option("--watch", options->seconds,
                       "go on, with a report each SECONDS (default 2); in place on a terminal")
          ->expected(0, 1)
          ->check(CLI::Range(0.01, 86400.0));
  command->add_option("--count", options->count, "end after so many reports")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40))
      ->needs(watch);
  command->footer(
      "Rates are between two samples; reads and appends that are one-sided are not seen by the "
      "server.\nexample: pmstore stat --uri tcp://127.0.0.1:7000 --watch 5");
  command->callback([options, watch, &invocation] {
    options->watch = watch->count() > 0;
    if (options->seconds == 0) options->seconds = kWatchSeconds;  // --watch alone
    invocation.run = [options] { return show_stat(*options); };
  });
}

}  // namespace pmstore::tools
