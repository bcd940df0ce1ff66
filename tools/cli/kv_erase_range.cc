// pmstore kv erase-range
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>

#include "tools/cli/command_line.h"
#include "tools/cli/kv_session.h"

namespace pmstore::tools {
namespace {

// So many records are erased by one transaction.
constexpr uint64_t kBatch = 1000;

base::Task<int> erase_range(Client& client, const KvOptions& options) {
  const std::string what = "kv erase-range of table '" + options.table + "'";
  const auto table = co_await client.open_table(options.table);
  if (!table) co_return fail(kProgram, what, table.error());
  if (!is_ordered(*table)) {
    co_return fail(kProgram, what,
                   "a hash table has no order; this needs a table made with `pmstore table create "
                   "--ordered`");
  }
  ErasedRange last;
  last.rest = range_of(options);
  if (!options.all && last.rest.from.empty() && last.rest.to.empty()) {
    co_return fail(kProgram, what, "this is the whole table; say --all if you mean it");
  }
  uint64_t erased = 0;
  const uint64_t limit = options.limit == 0 ? UINT64_MAX : options.limit;
  while (!last.complete && erased < limit) {
    const KeyRange from_here = last.rest;
    const auto most = static_cast<uint32_t>(std::min(kBatch, limit - erased));
    const auto body = [&](Transaction& transaction) -> base::Task<Status> {
      PMSTORE_CO_TRY(last, co_await transaction.erase_range(*table, from_here, most));
      co_return Status{};
    };
    const Status done = co_await retry(client, body);
    if (!done) {
      co_return fail(
          kProgram, what,
          fmt::format("{} records were erased before this: {}", erased, why_text(done.error())));
    }
    erased += last.erased;
  }
  if (options.session.json) {
    print_json({{"erased", erased}, {"complete", last.complete}});
  } else {
    print_text(fmt::format("erased {} record{}\n", erased, erased == 1 ? "" : "s"));
  }
  co_return kDone;
}

}  // namespace

void add_kv_erase_range(CLI::App& kv, Invocation& invocation) {
  auto options = std::make_shared<KvOptions>();
  CLI::App* const command =
      kv.add_subcommand("erase-range", "delete the records of a range of an ordered table");
  command->callback([=, &invocation] {
    invocation.run = [=] { return with_client(*options, "kv erase-range", erase_range); };
  });
  options->session.add_to(*command);
  command->add_option("--table", options->table, "which table")->capture_default_str();
  CLI::Option_group* const range = command->add_option_group("range", "at least one of");
  range->add_option("--prefix", options->prefix, "keys that start so");
  range->add_option("--from", options->from, "from this key on");
  range->add_option("--to", options->to, "up to this key, and without it");
  range->add_flag("--all", options->all, "the whole table")
      ->excludes("--prefix")
      ->excludes("--from")
      ->excludes("--to");
  range->require_option(1, 0);
  command->add_option("--limit", options->limit, "at most so many, the first ones (default: all)")
      ->check(a_limit());
  command->footer(
      "This is not one transaction: each 1,000 records, or fewer where the redo log is small, are "
      "one.\nWhen the command is stopped, those that it has committed are gone and all others are "
      "there;\nrun it again for the rest. Prints how many records it has deleted.\n"
      "example: pmstore kv erase-range --uri tcp://127.0.0.1:7000 --table events --to 2026-10");
}

}  // namespace pmstore::tools
