// pmstore fs check
#include <fmt/format.h>

#include "fs/namespace.h"
#include "tools/cli/bytes_text.h"
#include "tools/cli/fs_session.h"

namespace pmstore::tools {
namespace {

// Through the server's tables, while others go on.
base::Task<Result<fs::NamespaceFindings>> look(FileSystem& files, const FsOptions& options) {
  const auto usage = co_await files.usage();
  if (!usage) co_return make_error(ErrorCode::kIo, posix_text(usage.error()));
  PMSTORE_CO_TRY(const auto client,
                 co_await Client::connect(files.executor(), options.session.parsed_uri(),
                                          options.session.client_options()));
  auto findings = co_await fs::check_namespace(*client, usage->data_bytes, options.repair);
  co_await client->close();
  co_return findings;
}

std::string plural(uint64_t count, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

int say(const fs::NamespaceFindings& findings, const FsOptions& options) {
  const bool mended = options.repair && findings.repaired.size() >= findings.found;
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
                {"damage", damage},
                {"repaired", repaired}});
  } else {
    for (const std::string& line : findings.damage) print_text(printable(line) + "\n");
    for (const std::string& line : findings.repaired) {
      print_text("repaired: " + printable(line) + "\n");
    }
    print_text(fmt::format(
        "{}: {}, {}, {}\n",
        findings.found == 0 ? "sound" : "damaged: " + plural(findings.found, "problem", "problems"),
        plural(findings.inodes, "inode", "inodes"),
        plural(findings.directories, "directory", "directories"),
        plural(findings.extents, "extent", "extents")));
  }
  return findings.found == 0 || mended ? kDone : kFailed;
}

}  // namespace

base::Task<int> check_files(FileSystem& files, const FsOptions& options) {
  const auto findings = co_await look(files, options);
  if (!findings) co_return fail(kProgram, "fs check", findings.error());
  co_return say(*findings, options);
}

}  // namespace pmstore::tools
