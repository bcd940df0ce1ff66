// pmstored: serves one pool.
#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "base/size_text.h"
#include "fabric/tcp/tcp_device.h"
#include "persist/bus_errors.h"
#include "tools/cli/bytes_text.h"
#include "tools/cli/command_line.h"
#include "tools/cli/console.h"
#include "tools/cli/damage_warning.h"
#include "tools/cli/revision.h"
#include "tools/cli/session_options.h"
#include "tools/cli/standard_descriptors.h"
#include "tools/daemon/daemon_config.h"
#include "tools/daemon/daemon_log.h"
#include "tools/daemon/daemon_watch.h"
#include "tools/daemon/recovery_progress.h"
#include "tools/daemon/recovery_threads.h"
#include "tools/daemon/service_manager.h"
#include "tools/daemon/session_log.h"

using namespace pmstore;
using namespace pmstore::tools;

namespace {

std::atomic<PoolService*> serving{nullptr};
std::atomic<int> told_to_stop{0};  // the signal
std::atomic<bool> hangup{false};
std::atomic<bool> failed{false};

void on_signal(int number) {
  if (number == SIGHUP) {
    hangup.store(true);
    if (PoolService* const service = serving.load()) service->wake();
    return;
  }
  told_to_stop.store(number);
  if (PoolService* const service = serving.load()) service->request_stop();
}

void on_failure() {
  failed.store(true);
  if (PoolService* const service = serving.load()) service->request_stop();
}

// Each client takes a descriptor, or three over shm.
void raise_open_files() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);  // else it stays as it is, and log_start() says what that is
}

int argument_count = 0;
char** arguments = nullptr;

// The present settings of command line and configuration file.
Result<DaemonConfig> reread() {
  CLI::App app{"", "pmstored"};
  DaemonConfig config;
  config.add_to(app);
  PMSTORE_TRY_STATUS(parse_only(app, argument_count, arguments));
  return config;
}

std::string addresses(const PoolService& service) {
  std::vector<std::string> uris;
  for (const fabric::Uri& uri : service.uris()) uris.push_back(uri.to_string());
  return fmt::format("{}", fmt::join(uris, " "));
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
                  {"from_checkpoint", recovery.from_checkpoint},
                  {"duration_ms", static_cast<double>(recovery.duration_us) / 1000.0}}}});
  } else {
    print_text(fmt::format(
        "pmstored: serving {} at {} (domain {}, locks {}); recovered {} transactions in {:.1f} "
        "ms\n",
        printable(pool.path), addresses(service), domain, locks, recovery.transactions_replayed,
        static_cast<double>(recovery.duration_us) / 1000.0));
  }
  std::fflush(stdout);
  warn_of_damage("pmstored", recovery);
  for (const std::string& damage : service.server().damaged_logs()) {
    fail("pmstored", "warning: " + damage, "their media lost data; see pmstore pool check");
  }
}

void warn_of_few_clients(DaemonLog& log, const PoolService& service) {
  constexpr size_t kEnough = 4096;
  const size_t most = fabric::most_tcp_clients();
  const bool tcp = std::any_of(service.uris().begin(), service.uris().end(),
                               [](const auto& uri) { return uri.scheme == fabric::Scheme::kTcp; });
  if (!tcp || most >= kEnough) return;
  log.write(LogLevel::kWarning,
            fmt::format("the limit of open files has room for {} clients over tcp, fewer than {}; "
                        "raise it (ulimit -Hn, LimitNOFILE= of systemd)",
                        most, kEnough));
}

// A limit that is below what records or logs have takes nothing from them.
void warn_of_low_limits(DaemonLog& log, const PoolService& service, const DaemonConfig& config) {
  const std::pair<persist::ExtentKind, const std::string&> limited[] = {
      {persist::ExtentKind::kRecords, config.record_limit},
      {persist::ExtentKind::kLog, config.log_limit}};
  for (const auto& [kind, of_this_run] : limited) {
    const uint64_t most = service.space_rules().of(kind).limit_bytes;
    uint64_t bytes = 0;
    for (const persist::Extent& extent : service.pool_info().extents) {
      if (extent.kind == kind) bytes += extent.bytes;
    }
    if (bytes <= most) continue;
    const std::string limit = of_this_run.empty()
                                  ? "the limit that the pool keeps (pmstore pool limit),"
                                  : fmt::format("--{}-limit", persist::option_word(kind));
    log.write(LogLevel::kWarning,
              fmt::format("extents of kind {} have {}, more than {} {}: they stay, and no more are "
                          "taken",
                          persist::extent_name(kind), base::size_text(bytes), limit,
                          base::size_text(most)));
  }
}

// Where the option of this run does not hold instead of what the pool keeps.
void warn_of_excess_reserve(DaemonLog& log, PoolService& service, const DaemonConfig& config) {
  if (!config.ring_reserve.empty()) return;
  const auto excess = service.excess_ring_reserve();
  if (excess && *excess) log.write(LogLevel::kWarning, **excess);
}

void log_start(DaemonLog& log, PoolService& service) {
  const RecoveryReport& recovery = service.server().recovery();
  log.write(
      LogLevel::kInfo,
      fmt::format("recovered {} transactions and {} records in {:.1f} ms{}; live records: {}",
                  recovery.transactions_replayed, recovery.records_applied,
                  static_cast<double>(recovery.duration_us) / 1000.0,
                  recovery.from_checkpoint ? " from the checkpoint" : "", recovery.live_records));
  if (!recovery.checkpoint_refused.empty()) {
    log.write(LogLevel::kWarning,
              "the checkpoint was not used, all records were read: " + recovery.checkpoint_refused);
  }
  for (const fabric::Uri& uri : service.uris()) {
    log.write(LogLevel::kInfo, "listening at " + uri.to_string());
    if (!is_open_tcp(uri)) continue;
    log.write(LogLevel::kWarning,
              uri.to_string() +
                  " can be reached from other machines, without authentication and encryption: "
                  "everybody there can read and change the pool; listen at 127.0.0.1, or keep "
                  "others out with a firewall");
  }
  warn_of_few_clients(log, service);
  log.write(LogLevel::kDebug, fabric::tcp_sockets_share_calls(service.executor())
                                  ? "tcp sockets share system calls: io_uring"
                                  : "each tcp socket has its own system calls: no io_uring");
  if (!log.to_file()) return;  // else announce() says it on standard error
  if (recovery.damaged_records > 0) {
    log.write(LogLevel::kWarning,
              fmt::format("{} damaged records are treated as deleted; see pmstore pool check",
                          recovery.damaged_records));
  }
  for (const std::string& damage : service.server().damaged_logs()) {
    log.write(LogLevel::kWarning, damage + "; see pmstore pool check");
  }
}

int serve(DaemonConfig& config) {
  DaemonLog log(std::getenv("JOURNAL_STREAM"));
  if (const Status opened = log.open(config.log_file); !opened) {
    return fail("pmstored", "cannot serve '" + config.pool + "'", opened.error());
  }
  log.set_level(*parse_log_level(config.log_level));
  const base::RealClock clock;
  SessionLog sessions(log, clock, on_failure);
  const std::string starts =
      fmt::format("pmstored {} starts with pool {}, process {}", kVersion, config.pool, getpid());
  // On a plain standard error a failure is one line.
  if (!log.to_plain_stderr()) log.write(LogLevel::kInfo, starts);
  ServiceOptions options = config.service_options();
  options.server.observer = &sessions;
  RecoveryThreads threads(config.recovery_threads);
  const ServiceManager manager(std::getenv("NOTIFY_SOCKET"));
  manager.starting("opens pool " + printable(config.pool));
  RecoveryProgress progress(clock, log, manager, printable(config.pool));
  options.server.recovery = {
      .workers = &threads,
      .progress = [&](uint64_t read, uint64_t all) { progress.tell(read, all); },
      .ignore_checkpoint = config.ignore_checkpoint};
  options.on_fenced = [&log](const Error& why) { log.write(LogLevel::kError, why.message); };
  options.on_files_damage = [&log](const std::string& line) {
    log.write(LogLevel::kWarning, "files: " + line);
  };
  auto service = PoolService::start(options);
  if (!service) {
    if (log.to_file()) {
      log.write(LogLevel::kError,
                "cannot serve '" + config.pool + "': " + why_text(service.error()));
    }
    return fail_at("pmstored", "cannot serve", config.pool, service.error());
  }
  if (log.to_plain_stderr()) log.write(LogLevel::kInfo, starts);
  log_start(log, **service);
  warn_of_low_limits(log, **service, config);
  warn_of_excess_reserve(log, **service, config);
  malloc_trim(0);  // what only the start needed
  DaemonWatch watch(config, log, sessions, **service, hangup, reread);
  serving.store(service->get());
  if (told_to_stop.load() != 0 || failed.load()) (*service)->request_stop();  // before that
  announce(**service, config.json);
  manager.ready(fmt::format("serves pool {} at {}", printable(config.pool), addresses(**service)));
  const Status stopped =
      (*service)->run([&] { manager.stopping("stops in order: writes a checkpoint"); });
  serving.store(nullptr);
  sessions.summarize();
  if (!stopped) {
    const std::string what = "'" + config.pool + "' was not closed in order";
    if (log.to_file()) log.write(LogLevel::kError, what + ": " + why_text(stopped.error()));
    return fail("pmstored", what, stopped.error());
  }
  if (const std::string& why = (*service)->server().no_checkpoint(); !why.empty()) {
    log.write(LogLevel::kInfo, "no checkpoint, the next start reads all records: " + why);
  }
  log.write(LogLevel::kInfo,
            fmt::format("stopped in order by SIG{}", sigabbrev_np(told_to_stop.load())));
  return kDone;
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_descriptors(ClosedOutput::kIsDiscarded);
  raise_open_files();
  persist::explain_bus_errors("pmstored");
  // The parent process may ignore SIGCHLD; then this process would not notice the end of a child.
  std::signal(SIGCHLD, SIG_DFL);
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGHUP, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);  // who reads the log may go
  argument_count = argc;
  arguments = argv;
  CLI::App app{"pmstored: serves a pool of persistent memory", "pmstored"};
  DaemonConfig config;
  config.add_to(app);
  app.set_version_flag("--version", std::string("pmstored ") + kVersion);
  app.footer(
      "Prints one line when it serves. SIGTERM and SIGINT end it in order, with status 0.\n"
      "SIGHUP opens the log again and rereads --log-level, --log-file, --outcome-retention-ms.\n"
      "Exit status: 0 done, 1 failed (one line on standard error says why), 2 wrong usage.\n"
      "example: pmstored --pool /dev/shm/pool --create 256M --listen tcp://127.0.0.1:7000\n"
      "example: pmstored --pool /dev/shm/pool --files --file-limit 10G --listen tcp://[::]:7000\n"
      "example: pmstored --pool /dev/shm/pool --record-limit 2G --log-limit 1G "
      "--listen tcp://[::]:7000\n"
      "example: pmstored --pool /dev/shm/pool --log-reserve 256M --listen tcp://[::]:7000");
  Invocation invocation;
  app.callback([&] { invocation.run = [&] { return serve(config); }; });
  return parse_and_run(app, argc, argv, invocation);
}
