// pmstored: serves one pool.
#include <fmt/format.h>

#include <atomic>
#include <csignal>

#include "persist/bus_errors.h"
#include "tools/bytes_text.h"
#include "tools/command_line.h"
#include "tools/console.h"
#include "tools/daemon_config.h"
#include "tools/damage_warning.h"
#include "tools/revision.h"
#include "tools/session_options.h"
#include "tools/standard_descriptors.h"

using namespace pmstore;
using namespace pmstore::tools;

namespace {

std::atomic<PoolService*> serving{nullptr};
std::atomic<bool> told_to_stop{false};

void on_signal(int) {
  told_to_stop.store(true);
  if (PoolService* const service = serving.load()) service->request_stop();
}

void announce(const PoolService& service, bool json) {
  const persist::PoolInfo& pool = service.pool_info();
  const RecoveryReport& recovery = service.server().recovery();
  const std::string_view domain = persist::domain_name(pool.domain);
  const std::string_view locks = discipline_name(service.server().discipline());
  std::vector<std::string> uris;
  for (const fabric::Uri& uri : service.uris()) uris.push_back(uri.to_string());
  if (json) {
    print_json({{"pool", json_bytes(pool.path)},
                {"listen", uris},
                {"domain", domain},
                {"domain_detected", persist::domain_name(pool.detected_domain)},
                {"locks", locks},
                {"revision", kRevision},
                {"recovery",
                 {{"transactions", recovery.transactions_replayed},
                  {"log_entries", recovery.entries_read},
                  {"records_applied", recovery.records_applied},
                  {"live_records", recovery.live_records},
                  {"damaged_records", recovery.damaged_records},
                  {"duration_ms", static_cast<double>(recovery.duration_us) / 1000.0}}}});
  } else {
    print_text(fmt::format(
        "pmstored: serving {} at {} (domain {}, locks {}); recovered {} transactions in {:.1f} "
        "ms\n",
        printable(pool.path), fmt::join(uris, " "), domain, locks, recovery.transactions_replayed,
        static_cast<double>(recovery.duration_us) / 1000.0));
  }
  std::fflush(stdout);
  warn_of_damage("pmstored", recovery);
  for (const std::string& damage : service.server().damaged_logs()) {
    fail("pmstored", "warning: " + damage, "their media lost data; see pmstore pool check");
  }
}

int serve(const DaemonConfig& config) {
  auto service = PoolService::start(config.service_options());
  if (!service) return fail_at("pmstored", "cannot serve", config.pool, service.error());
  serving.store(service->get());
  if (told_to_stop.load()) (*service)->request_stop();  // the signal came before
  announce(**service, config.json);
  const Status stopped = (*service)->run();
  serving.store(nullptr);
  if (stopped) return kDone;
  return fail("pmstored", "'" + config.pool + "' was not closed in order", stopped.error());
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_descriptors();
  persist::explain_bus_errors("pmstored");
  // Who starts us may ignore it, and then the end of a child would not be noticed.
  std::signal(SIGCHLD, SIG_DFL);
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  CLI::App app{"pmstored: serves a pool of persistent memory", "pmstored"};
  DaemonConfig config;
  config.add_to(app);
  app.set_version_flag("--version", std::string("pmstored ") + kVersion);
  app.footer(
      "Prints one line when it serves. SIGTERM and SIGINT end it in order, with status 0.\n"
      "Exit status: 0 done, 1 failed (one line on standard error says why), 2 wrong usage.\n"
      "example: pmstored --pool /dev/shm/pool --create 256M --listen tcp://127.0.0.1:7000");
  Invocation invocation;
  app.callback([&] { invocation.run = [&] { return serve(config); }; });
  return parse_and_run(app, argc, argv, invocation);
}
