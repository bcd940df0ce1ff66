// pmstore pool convert
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>

#include "base/size_text.h"
#include "persist/pool.h"
#include "pmstore/convert.h"
#include "tools/cli/bytes_text.h"
#include "tools/cli/command_line.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"

namespace pmstore::tools {
namespace {

struct ConvertOptions {
  std::string path;
  std::string to;  // empty: in place
  bool json = false;
};

Result<Conversion> convert_in_place(const std::string& path) {
  PMSTORE_TRY(const auto pool, persist::Pool::open(path, {}));
  return convert_pool(*pool);
}

Result<Conversion> convert_copy(const std::string& path, const std::string& to) {
  Conversion conversion;
  std::error_code different;
  if (std::filesystem::equivalent(path, to, different)) {
    return make_error(ErrorCode::kAlreadyExists,
                      "--to names the pool itself: leave it out, or choose another path");
  }
  PMSTORE_TRY_STATUS(persist::Pool::copy(path, to, [&](persist::Pool& copy) -> Status {
    PMSTORE_TRY(conversion, convert_pool(copy));
    return {};
  }));
  return conversion;
}

void print_conversion(const ConvertOptions& options, const Conversion& done) {
  const std::string path = printable(options.path);
  const std::string where =
      options.to.empty() ? path : fmt::format("{}, a copy of {},", printable(options.to), path);
  if (done.from_version == done.to_version) {
    return print_text(options.to.empty()
                          ? fmt::format("{} has format {}: nothing to do\n", where, done.to_version)
                          : fmt::format("copied {} to {}: format {}, nothing to do beside that\n",
                                        path, printable(options.to), done.to_version));
  }
  if (done.rings == done.rings_before) {
    return print_text(fmt::format("converted {} from format {} to {}\n", where, done.from_version,
                                  done.to_version));
  }
  print_text(
      fmt::format("converted {} from format {} to {}: a shard log of {} took the place of {} of "
                  "its {} client rings\n",
                  where, done.from_version, done.to_version, base::size_text(done.shard_log_bytes),
                  done.rings_before - done.rings, done.rings_before));
}

int convert(const ConvertOptions& options) {
  const auto done =
      options.to.empty() ? convert_in_place(options.path) : convert_copy(options.path, options.to);
  if (!done) return fail_at(kProgram, "cannot convert pool", options.path, done.error());
  if (!options.json) {
    print_conversion(options, *done);
    return kDone;
  }
  print_json({{"path", json_bytes(options.to.empty() ? options.path : options.to)},
              {"from_version", done->from_version},
              {"to_version", done->to_version},
              {"rings_before", done->rings_before},
              {"rings", done->rings},
              {"shard_log_bytes", done->shard_log_bytes}});
  return kDone;
}

}  // namespace

void add_pool_convert(CLI::App& pool, Invocation& invocation) {
  CLI::App* const change =
      pool.add_subcommand("convert", "give a pool of an earlier release the present format");
  auto options = std::make_shared<ConvertOptions>();
  change->add_option("PATH", options->path, "the pool's file or DAX device")
      ->required()
      ->check(a_path());
  change
      ->add_option("--to", options->to,
                   "leave the pool as it is, and make a converted copy of it in this new file")
      ->check(a_path());
  change->add_flag("--json", options->json, "print one JSON object");
  change->footer(
      "Works in place, and may be interrupted: run it again. Earlier releases refuse the pool "
      "afterwards.\nWith --to, the new file appears when it is complete.\n"
      "example: pmstore pool convert /dev/shm/pool");
  change->callback(
      [options, &invocation] { invocation.run = [options] { return convert(*options); }; });
}

}  // namespace pmstore::tools
