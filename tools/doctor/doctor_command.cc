#include "tools/doctor/doctor_command.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <filesystem>
#include <memory>

#include "persist/pool.h"
#include "pmstore/client.h"
#include "tools/cli/command_line.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/text_table.h"
#include "tools/doctor/doctor.h"

namespace pmstore::tools {
namespace {

struct DoctorOptions {
  std::string machine;
  std::string pool;
  std::string uri;
  double timeout_seconds = 5;
  bool json = false;
};

Result<DoctorPool> look_at_pool(const std::string& path) {
  PMSTORE_TRY(const persist::PoolInfo info, persist::Pool::inspect(path));
  std::error_code error;
  const std::string real_path = std::filesystem::canonical(path, error);
  struct stat status {};
  std::string block_device;
  if (stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode)) {
    block_device = fmt::format("{}:{}", major(status.st_dev), minor(status.st_dev));
  }
  DoctorPool pool{info.path,
                  error ? path : real_path,
                  block_device,
                  info.medium,
                  info.bytes,
                  info.detected_domain,
                  0,
                  info.extents.size()};
  for (const persist::Extent& extent : info.extents) {
    if (extent.offset % 256 != 0) ++pool.misaligned_extents;
  }
  return pool;
}

// The accesses that a connected client has tried, and those that it has not.
std::string tried_text(const PoolProbe& probe, persist::WriteStrategy strategy) {
  std::string text = "memory registered, a commit of nothing";
  text += probe.read ? ", READs of records, lock words and index"
                     : ", no READ (this fabric orders none: clients read by RPC)";
  if (probe.swapped) text += ", a lock word swapped for itself";
  if (probe.wrote) {
    text += fmt::format(", 64 bytes of its own redo ring written back by {}",
                        persist::strategy_name(strategy));
  }
  return text + "; not tried: changing a record";
}

Result<DoctorSession> try_server(const DoctorOptions& options) {
  PMSTORE_TRY(fabric::Uri uri, fabric::parse_uri(options.uri));
  ClientOptions client_options;
  client_options.connect_timeout_ns = static_cast<uint64_t>(options.timeout_seconds * 1e9);
  client_options.call_timeout_ns = client_options.connect_timeout_ns;
  base::RealClock clock;
  Executor executor(clock);
  const auto session = [&]() -> base::Task<Result<DoctorSession>> {
    PMSTORE_CO_TRY(auto client, co_await Client::connect(executor, uri, client_options));
    const auto tried = co_await client->probe();
    if (!tried) {
      co_await client->close();  // gives the client's place back, where the server can be reached
      co_return tried.error();
    }
    const PoolProbe& probe = *tried;
    const SessionInfo info = client->session();
    DoctorSession found{options.uri,
                        std::string(persist::domain_name(info.persist.domain)),
                        std::string(persist::landing_name(info.persist.landing)),
                        std::string(discipline_name(info.discipline)),
                        std::string(persist::strategy_name(info.log_strategy)),
                        tried_text(probe, info.log_strategy)};
    co_await client->close();
    co_return found;
  };
  return executor.run(session());
}

void print_table(const std::vector<Finding>& rows) {
  TextTable table(3);
  for (const Finding& row : rows) {
    table.row({std::string(verdict_name(row.verdict)), row.title, row.seen});
  }
  print_text(table.text());
  for (const Verdict verdict : {Verdict::kCosts, Verdict::kUnknown}) {
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].verdict != verdict) continue;
      // Neighbours for the same reason are told together.
      std::string titles = rows[i].title;
      while (i + 1 < rows.size() && rows[i + 1].verdict == verdict &&
             rows[i + 1].why == rows[i].why && rows[i + 1].fix == rows[i].fix) {
        titles += ", " + rows[++i].title;
      }
      print_text(fmt::format("\n{} ({}): {}\n  {}: {}\n", titles, verdict_name(verdict),
                             rows[i].why, verdict == Verdict::kCosts ? "remedy" : "to find out",
                             rows[i].fix));
    }
  }
}

std::vector<std::string> root_would_add(const std::vector<Finding>& rows) {
  std::vector<std::string> ids;
  for (const Finding& row : rows) {
    if (row.fix == kRunAsRoot) ids.push_back(row.id);
  }
  return ids;
}

int doctor(const DoctorOptions& options) {
  auto facts = gather_facts(options.machine);
  if (!facts) return fail(kProgram, "cannot examine the machine", facts.error());
  facts->pool_path = options.pool;
  facts->server_uri = options.uri;
  if (!options.pool.empty()) facts->pool = look_at_pool(options.pool);
  if (!options.uri.empty()) facts->session = try_server(options);
  const std::vector<Finding> rows = examine(*facts);
  size_t counts[3] = {};
  for (const Finding& row : rows) ++counts[static_cast<size_t>(row.verdict)];
  if (options.json) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Finding& row : rows) {
      list.push_back({{"id", row.id},
                      {"title", row.title},
                      {"verdict", verdict_name(row.verdict)},
                      {"seen", row.seen},
                      {"why", row.why},
                      {"fix", row.fix}});
    }
    print_json({{"ok", counts[0]},
                {"costs", counts[1]},
                {"unknown", counts[2]},
                {"root_would_add", root_would_add(rows)},
                {"rows", list}});
  } else {
    print_table(rows);
  }
  if (counts[1] == 0) return kDone;
  std::fflush(stdout);
  return fail(kProgram, "the check-up found something",
              fmt::format("{} of {} rows cost you, {} are unknown: each names its remedy",
                          counts[1], rows.size(), counts[2]));
}

}  // namespace

void add_doctor_command(CLI::App& app, Invocation& invocation) {
  CLI::App* const command =
      app.add_subcommand("doctor", "wrong settings of this machine, their cost, and the remedy");
  auto options = std::make_shared<DoctorOptions>();
  command->add_option("--pool", options->pool,
                      "also examine this pool; no program may have it open");
  command->add_option("--uri", options->uri, "also connect to the server there, as a client")
      ->check(parsed_by(fabric::parse_uri, "URI"))
      ->check([](const std::string& uri) {
        return uri.starts_with("local:") ? "is no server: opening a pool changes it; name it with "
                                           "--pool"
                                         : std::string();
      });
  command
      ->add_option("--timeout", options->timeout_seconds,
                   "seconds to wait for that server (default 5)")
      ->check(in_range(0.001, 3600.0));
  command->add_option("--machine", options->machine,
                      "a folder with a recorded machine instead of this one (docs/tuning.md)");
  command->add_flag("--json", options->json, "print one JSON object");
  command->footer(
      "Changes nothing. Exit status 0 when nothing costs, 1 when something does. Root sees more: "
      "the state of DDIO, the health of DIMMs.\n"
      "example: pmstore doctor --pool /dev/dax0.0");
  command->callback(
      [options, &invocation] { invocation.run = [options] { return doctor(*options); }; });
}

}  // namespace pmstore::tools
