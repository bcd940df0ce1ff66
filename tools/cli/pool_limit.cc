// pmstore pool limit
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "base/size_text.h"
#include "persist/kept_space_rules.h"
#include "persist/pool.h"
#include "pmstore/check.h"
#include "pmstore/space_rules.h"
#include "tools/cli/bytes_text.h"
#include "tools/cli/command_line.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/pool_space.h"
#include "tools/cli/session_options.h"
#include "tools/cli/text_table.h"
#include "tools/daemon/served_pool.h"

namespace pmstore::tools {
namespace {

struct LimitOptions {
  std::string path;
  // As SpaceRules::kKinds; empty: stays as it is.
  std::array<std::string, persist::SpaceRules::kKinds.size()> reserves;
  std::array<std::string, persist::SpaceRules::kKinds.size()> limits;
  bool json = false;
  bool changes() const {
    const auto given = [](const std::string& text) { return !text.empty(); };
    return std::any_of(reserves.begin(), reserves.end(), given) ||
           std::any_of(limits.begin(), limits.end(), given);
  }
};

void change(persist::SpaceRules& rules, const LimitOptions& options) {
  for (size_t i = 0; i < persist::SpaceRules::kKinds.size(); ++i) {
    persist::SpaceRule& rule = rules.of(persist::SpaceRules::kKinds[i]);
    if (!options.reserves[i].empty()) rule.reserve_bytes = *parse_bytes(options.reserves[i]);
    if (!options.limits[i].empty()) rule.limit_bytes = *parse_bytes_or_none(options.limits[i]);
  }
}

// Changes what the pool keeps. Rules that are damaged in both copies begin anew.
Result<persist::SpaceRules> keep(const LimitOptions& options) {
  persist::PoolOpenOptions open;
  open.accept = check_startable;
  PMSTORE_TRY(const auto pool, persist::Pool::open(options.path, open));
  const auto before = load_space_rules(*pool);
  if (!before && before.code() != ErrorCode::kBadPool) return before.error();
  persist::SpaceRules rules = before ? *before : persist::SpaceRules();
  change(rules, options);
  PMSTORE_TRY_STATUS(keep_space_rules(*pool, rules));
  return rules;
}

void print_rules(const std::string& path, const persist::SpaceRules& rules) {
  print_text("kept in " + printable(path) + ", from the next start on:\n");
  TextTable table(2);
  for (const persist::ExtentKind kind : persist::SpaceRules::kKinds) {
    const persist::SpaceRule& rule = rules.of(kind);
    std::string text = "reserved " + base::size_text(rule.reserve_bytes);
    if (rule.limit_bytes != UINT64_MAX) {
      text += ", limited to " + base::size_text(rule.limit_bytes);
    }
    table.row({std::string(persist::extent_name(kind)), text});
  }
  print_text(table.text());
}

int limit(const LimitOptions& options) {
  const std::string what = "cannot change what pool '" + options.path + "' keeps";
  if (!options.changes()) {
    fail(kProgram, "wrong usage",
         "give at least one reserve or limit, for instance --log-reserve 1G; pmstore pool info "
         "shows those that a pool keeps; see pmstore pool limit --help");
    return kWrongUsage;
  }
  const auto kept = keep(options);
  if (!kept && kept.code() == ErrorCode::kBusy) {
    if (const auto served = find_server(options.path)) {
      return fail(kProgram, what,
                  fmt::format("it is served by process {} at {}; stop that server first, or start "
                              "it again with these options, for one run",
                              served->pid, fmt::join(served->listen, " ")));
    }
  }
  if (!kept) return fail(kProgram, what, kept.error());
  if (options.json) {
    print_json({{"path", json_bytes(options.path)}, {"space_rules", space_rules_json(*kept)}});
  } else {
    print_rules(options.path, *kept);
  }
  return kDone;
}

}  // namespace

void add_pool_limit(CLI::App& pool, Invocation& invocation) {
  CLI::App* const set =
      pool.add_subcommand("limit", "reserve space of a pool for a kind of data, or bound it");
  auto options = std::make_shared<LimitOptions>();
  set->add_option("PATH", options->path, "the pool's file or DAX device")
      ->required()
      ->check(a_path());
  constexpr std::array<const char*, 4> kWhom = {
      "records", "redo rings of clients under lock discipline rnic", "logs", "data of files"};
  static_assert(kWhom.size() == persist::SpaceRules::kKinds.size());
  for (size_t i = 0; i < kWhom.size(); ++i) {
    const persist::ExtentKind kind = persist::SpaceRules::kKinds[i];
    const std::string word(persist::option_word(kind));
    set->add_option("--" + word + "-reserve", options->reserves[i],
                    fmt::format("others leave so much of the pool to {}, with what it has already; "
                                "0: nothing",
                                kWhom[i]))
        ->check(parsed_by(parse_bytes, "SIZE"));
    // Rings are bounded in number: pool create --rings.
    if (kind == persist::ExtentKind::kRings) continue;
    set->add_option(
           "--" + word + "-limit", options->limits[i],
           fmt::format("no more of the pool than this for {}; none: what there is", kWhom[i]))
        ->check(parsed_by(parse_bytes_or_none, "SIZE"));
  }
  set->add_flag("--json", options->json, "print one JSON object");
  set->footer(
      "The pool keeps them: they hold from the next start on, for pmstored, and for records,\n"
      "files and logs of local:PATH. An option of pmstored holds instead for one run. What is\n"
      "there stays.\n"
      "example: pmstore pool limit /dev/shm/pool --log-reserve 256M --record-limit 1G");
  set->callback([options, &invocation] { invocation.run = [options] { return limit(*options); }; });
}

}  // namespace pmstore::tools
