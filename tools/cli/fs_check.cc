// pmstore fs check
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "fs/file_area.h"
#include "fs/namespace.h"
#include "pmstore/server.h"
#include "tools/cli/bytes_text.h"
#include "tools/cli/fs_session.h"

namespace pmstore::tools {
namespace {

// Where there is room for data, which no extent may leave. Of a pool that no server has open,
// before the store is opened: a file system that is damaged may not open. Of a server, everything
// up to the end of its last section.
base::Task<Result<std::vector<fs::AreaRange>>> area_sections(base::Executor& executor,
                                                             const FsOptions& options) {
  const fabric::Uri uri = options.session.parsed_uri();
  std::vector<fs::AreaRange> sections;
  if (uri.scheme == fabric::Scheme::kLocal) {
    PMSTORE_CO_TRY(const auto pool, open_pool(uri.name, {}));
    PMSTORE_CO_TRY(const fs::FileArea area, fs::FileArea::look(*pool));
    for (const fs::AreaSection& section : area.sections()) {
      sections.push_back({0, section.begin(), section.bytes()});
    }
    co_return sections;
  }
  fs::FileSystemOptions connecting = file_system_options(options.session);
  PMSTORE_CO_TRY(const auto files,
                 co_await FileSystem::connect(executor, uri, std::move(connecting)));
  const auto servers = co_await files->data_servers();
  co_await files->close();
  if (!servers) co_return make_error(ErrorCode::kIo, posix_text(servers.error()));
  if (!servers->empty()) sections.push_back({0, 0, servers->front().end});
  co_return sections;
}

// Through the server's tables, while others go on.
base::Task<Result<fs::NamespaceFindings>> look(base::Executor& executor, const FsOptions& options) {
  PMSTORE_CO_TRY(auto sections, co_await area_sections(executor, options));
  ClientOptions connecting = options.session.client_options();
  PMSTORE_CO_TRY(const auto client, co_await Client::connect(executor, options.session.parsed_uri(),
                                                             std::move(connecting)));
  auto findings = co_await fs::check_namespace(*client, std::move(sections), options.repair);
  co_await client->close();
  co_return findings;
}

std::string plural(uint64_t count, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

int say(const fs::NamespaceFindings& findings, const FsOptions& options) {
  if (options.session.json) {
    auto damage = nlohmann::ordered_json::array();
    auto repaired = nlohmann::ordered_json::array();
    for (const std::string& line : findings.damage) damage.push_back(json_bytes(line));
    for (const std::string& line : findings.repaired) repaired.push_back(json_bytes(line));
    print_json({{"sound", findings.found == 0},
                {"inodes", findings.inodes},
                {"directories", findings.directories},
                {"extents", findings.extents},
                {"problems", findings.found},
                {"not_judged", findings.not_judged},
                {"repairs", findings.repairs},
                {"damage", damage},
                {"repaired", repaired}});
  } else {
    for (const std::string& line : findings.damage) print_text(printable(line) + "\n");
    for (const std::string& line : findings.repaired) {
      print_text("repaired: " + printable(line) + "\n");
    }
    if (findings.repairs > findings.repaired.size()) {
      print_text(fmt::format("repaired: {} more\n", findings.repairs - findings.repaired.size()));
    }
    print_text(fmt::format(
        "{}: {}, {}, {}{}\n",
        findings.found == 0 ? "sound" : "damaged: " + plural(findings.found, "problem", "problems"),
        plural(findings.inodes, "inode", "inodes"),
        plural(findings.directories, "directory", "directories"),
        plural(findings.extents, "extent", "extents"),
        findings.not_judged == 0
            ? std::string()
            : fmt::format("; {} more may be wrong, and changed at each look: check again later",
                          findings.not_judged)));
  }
  return findings.found == 0 ? kDone : kFailed;
}

}  // namespace

int check_files(const FsOptions& options) {
  const fabric::Uri uri = options.session.parsed_uri();
  if (options.repair && uri.scheme != fabric::Scheme::kLocal) {
    return fail(kProgram, "fs check",
                "--repair changes records that a server would go on to use; stop the server and "
                "repair its pool with --uri local:POOL");
  }
  base::RealClock clock;
  base::Executor executor(clock);
  const auto findings = executor.run(look(executor, options));
  if (!findings) return fail(kProgram, "fs check", findings.error());
  return say(*findings, options);
}

}  // namespace pmstore::tools
