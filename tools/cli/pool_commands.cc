// pmstore pool create | info | check; convert and limit have files of their own
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "base/size_text.h"
#include "fs/file_area.h"
#include "log/log_check.h"
#include "log/log_store.h"
#include "persist/kept_space_rules.h"
#include "persist/rules.h"
#include "pmstore/check.h"
#include "pmstore/server.h"
#include "pmstore/space_rules.h"
#include "tools/cli/admin_session.h"
#include "tools/cli/bytes_text.h"
#include "tools/cli/command_line.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/index_option.h"
#include "tools/cli/pool_checkpoint.h"
#include "tools/cli/pool_space.h"
#include "tools/cli/session_options.h"
#include "tools/cli/text_table.h"
#include "tools/daemon/pool_service.h"
#include "tools/daemon/served_pool.h"

namespace pmstore::tools {
namespace {

struct CreateOptions {
  std::string path;
  std::string size;  // empty: a DAX device is used as a whole
  std::string ring_bytes = "0";
  std::string shard_log_bytes = "0";
  std::string log_bytes = "0";
  std::string file_bytes = "0";
  std::string record_bytes = "0";
  uint32_t rings = FormatOptions{}.rings;
  std::string rules = "all";
  std::vector<std::string> tables;
  bool force = false;
  bool sparse = false;
  bool json = false;
};

nlohmann::ordered_json info_json(const persist::PoolInfo& info,
                                 const persist::SpaceRules& space_rules) {
  nlohmann::ordered_json extents = nlohmann::ordered_json::array();
  for (const persist::Extent& extent : info.extents) {
    extents.push_back({{"kind", persist::extent_name(extent.kind)},
                       {"offset", extent.offset},
                       {"bytes", extent.bytes}});
  }
  return {{"path", json_bytes(info.path)},
          {"medium", info.medium},
          {"format_version", info.format_version},
          {"bytes", info.bytes},
          {"free_bytes", info.free_bytes},
          {"domain", persist::domain_name(info.detected_domain)},
          {"domain_source", info.domain_source},
          {"rules", persist::rules_text(persist::Rules::all().with_padding(info.padding))},
          {"space", space_of(extents, space_rules_json(space_rules))},
          {"extents", extents}};
}

// As info_json() gives it.
void print_info(const nlohmann::ordered_json& info) {
  const auto number = [](const nlohmann::ordered_json& in, const char* member) {
    return in.value(member, uint64_t{0});
  };
  TextTable table(2);
  table.row({"path", printable(info["path"].is_string() ? info.value("path", "") : "?")});
  table.row({"medium", info.value("medium", "")});
  table.row({"format version", std::to_string(number(info, "format_version"))});
  table.row({"size", base::size_text(number(info, "bytes"))});
  table.row({"free, in one piece", base::size_text(number(info, "free_bytes"))});
  table.row({"persistence domain",
             fmt::format("{} ({})", info.value("domain", ""), info.value("domain_source", ""))});
  table.row({"rules", info.value("rules", "")});
  for (const auto& each : info.value("space", nlohmann::ordered_json::array())) {
    const bool has_rule = each.contains("reserve_bytes") || each.contains("limit_bytes");
    if (number(each, "extents") > 0 || has_rule)
      table.row({"for " + each.value("kind", ""), space_text(each)});
  }
  if (info.contains("space_rules")) {
    table.row({"reserves and limits", info.value("space_rules", "")});
  }
  if (info.contains("checkpoint")) table.row({"checkpoint", info.value("checkpoint", "")});
  print_text(table.text());
}

int create(const CreateOptions& options) {
  std::error_code ignored;
  const bool is_there = std::filesystem::exists(options.path, ignored);
  if (!is_there && options.path.starts_with("/dev/dax")) {
    return fail(kProgram, "pool create",
                printable(options.path) + ": there is no such device: see ndctl list -N");
  }
  if (options.size.empty() && !std::filesystem::is_character_file(options.path, ignored)) {
    fail(kProgram, "wrong usage",
         "--size is missing: a file needs one, for instance --size 256M (only a DAX device is used "
         "as a whole); see pmstore pool create --help");
    return kWrongUsage;
  }
  FormatOptions format;
  format.rings = options.rings;
  format.ring_bytes = *parse_bytes(options.ring_bytes);
  format.shard_log_bytes = *parse_bytes(options.shard_log_bytes);
  format.log_bytes = *parse_bytes(options.log_bytes);
  format.file_bytes = *parse_bytes(options.file_bytes);
  format.record_bytes = *parse_bytes(options.record_bytes);
  format.tables = options.tables;
  const uint64_t bytes = options.size.empty() ? 0 : *parse_bytes(options.size);
  persist::PoolOpenOptions open;
  open.sparse = options.sparse;
  open.padding = persist::parse_pool_rules(options.rules)->padding();
  const auto pool = create_store(options.path, bytes, open, format, options.force);
  if (!pool) return fail_at(kProgram, "cannot create pool", options.path, pool.error());
  const persist::PoolInfo& info = (*pool)->info();
  if (options.json) {
    print_json({{"created", true}, {"pool", info_json(info, {})}, {"tables", options.tables}});
  } else {
    print_text(fmt::format("created {}: {}, {}, domain {}\n", printable(info.path),
                           base::size_text(info.bytes), info.medium,
                           persist::domain_name(info.detected_domain)));
  }
  return kDone;
}

std::string served_text(const ServedAt& served) {
  return fmt::format("process {} at {}", served.pid, fmt::join(served.listen, " "));
}

// The answer of a pool's server, from the first of its addresses that answers.
int served_info(const std::string& path, const ServedAt& served, bool json) {
  const std::string what = "cannot ask the server of pool '" + path + "'";
  base::RealClock clock;
  Executor executor(clock);
  Error last = make_error(ErrorCode::kDisconnected, "it listens nowhere");
  for (const std::string& text : served.listen) {
    const auto uri = fabric::parse_uri(text);
    if (!uri) continue;
    auto admin = executor.run(AdminClient::connect(executor, *uri, {}));
    if (!admin) {
      last = admin.error();
      continue;
    }
    const auto report = parse_report(executor.run((*admin)->stat()));
    if (!report) return fail(kProgram, what, report.error());
    nlohmann::ordered_json info = {{"path", json_bytes(path)}};
    info.update(report->value("pool", nlohmann::ordered_json::object()));
    info["space"] = space_of(info.value("extents", nlohmann::ordered_json::array()),
                             info.value("space_rules", nlohmann::ordered_json::array()),
                             report->value("store", nlohmann::ordered_json::object()));
    info.erase("space_rules");
    info["served"] = {{"pid", served.pid}, {"listen", served.listen}};
    if (json) {
      print_json(info);
    } else {
      print_info(info);
      print_text("served by " + served_text(served) + "\n");
    }
    return kDone;
  }
  return fail(kProgram, what, last.message + " (served by " + served_text(served) + ")");
}

Result<persist::SpaceRules> kept_space_rules(const std::string& path) {
  PMSTORE_TRY(const auto view, persist::Pool::view(path));
  return load_space_rules(*view);
}

// Of a pool with a store.
std::optional<std::string> excess_ring_reserve_of(const std::string& path) {
  const auto view = persist::Pool::view(path);
  if (!view) return std::nullopt;
  auto excess = excess_ring_reserve(**view);
  return excess ? std::move(*excess) : std::nullopt;
}

int info(const std::string& path, bool json) {
  const auto found = persist::Pool::inspect(path);
  if (!found && found.code() == ErrorCode::kBusy) {
    if (const auto served = find_server(path)) return served_info(path, *served, json);
  }
  if (!found) return fail_at(kProgram, "cannot look at pool", path, found.error());
  const auto rules = kept_space_rules(path);
  nlohmann::ordered_json shown = info_json(*found, rules ? *rules : persist::SpaceRules());
  if (!rules) shown["space_rules"] = "unknown: " + rules.error().message;
  if (const auto excess = excess_ring_reserve_of(path)) shown["space_rules"] = *excess;
  add_checkpoint(shown, path, *found);
  json ? print_json(shown) : print_info(shown);
  return kDone;
}

nlohmann::ordered_json logs_json(const log::LogCheckReport& report) {
  return {{"epoch", report.epoch},
          {"area_bytes", report.area_bytes},
          {"largest_free", report.largest_free},
          {"logs", report.logs},
          {"entries", report.entries},
          {"problems", report.problems}};
}

void print_check(const CheckReport& report, const std::optional<log::LogCheckReport>& logs,
                 std::optional<uint64_t> file_bytes) {
  TextTable table(1);
  table.row({"starts of a server", std::to_string(report.epoch)});
  table.row({"closed in order", report.clean ? "yes" : "no"});
  table.row({"tables", std::to_string(report.tables)});
  table.row({"slabs", std::to_string(report.slabs)});
  table.row({"free chunks", std::to_string(report.free_chunks)});
  table.row({"records", std::to_string(report.live_records)});
  table.row({"tombstones", std::to_string(report.tombstones)});
  table.row({"redo rings in use", std::to_string(report.rings_in_use)});
  table.row({"redo entries", std::to_string(report.log_entries)});
  table.row({"records to replay", std::to_string(report.to_replay)});
  table.row({"checkpoint", report.checkpoint});
  if (logs) {
    table.row({"logs", std::to_string(logs->logs)});
    table.row({"log entries", std::to_string(logs->entries)});
    table.row({"largest log that fits", base::size_text(logs->largest_free)});
  }
  if (file_bytes) table.row({"room for file data", base::size_text(*file_bytes)});
  print_text(table.text());
  for (const std::string& problem : report.problems) print_text("problem: " + problem + "\n");
  if (!logs) return;
  for (const std::string& problem : logs->problems) print_text("problem: " + problem + "\n");
}

std::string counted(uint64_t number, std::string_view what) {
  return fmt::format("{} {}{}", number, what, number == 1 ? "" : "s");
}

std::string sound_text(const CheckReport& report, const std::optional<log::LogCheckReport>& logs) {
  std::string text = fmt::format("sound: {} in {}", counted(report.live_records, "record"),
                                 counted(report.tables, "table"));
  if (logs) {
    text += logs->entries == 1 ? ", 1 entry" : fmt::format(", {} entries", logs->entries);
    text += " in " + counted(logs->logs, "log");
  }
  if (report.to_replay > 0) {
    text += fmt::format("; the next start replays {}", counted(report.to_replay, "record"));
  }
  return text + "\n";
}

struct CheckOptions {
  std::string path;
  std::vector<std::string> indexes;
  bool json = false;
};

// A line for each index that was asked for.
std::string index_rows(const CheckReport& report, const std::vector<IndexToCheck>& indexes) {
  std::string rows;
  for (size_t i = 0; i < indexes.size(); ++i) {
    rows += fmt::format("index '{}' of '{}': {}\n", indexes[i].index, indexes[i].base,
                        report.index_entries[i] == 1
                            ? "1 entry"
                            : fmt::format("{} entries", report.index_entries[i]));
  }
  return rows;
}

nlohmann::ordered_json indexes_json(const CheckReport& report,
                                    const std::vector<IndexToCheck>& indexes) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (size_t i = 0; i < indexes.size(); ++i) {
    all.push_back({{"index", json_bytes(indexes[i].index)},
                   {"base", json_bytes(indexes[i].base)},
                   {"entries", report.index_entries[i]}});
  }
  return all;
}

int check(const CheckOptions& options) {
  const std::string& path = options.path;
  std::vector<IndexToCheck> indexes;
  for (const std::string& text : options.indexes) indexes.push_back(*parse_index(text));
  const auto failed = [&](const Error& why) {
    return fail_at(kProgram, "cannot check pool", path, why);
  };
  const auto pool = persist::Pool::view(path);
  if (!pool && pool.code() == ErrorCode::kBusy) {
    if (const auto served = find_server(path)) {
      // A check of a pool that changes would take a turn as long as the pool is large.
      return fail(kProgram, "cannot check pool '" + path + "'",
                  fmt::format("it is served by {}; stop that server to have the pool checked, or "
                              "see what it found when it started: pmstore stat --uri {}",
                              served_text(*served), served->listen.front()));
    }
  }
  if (!pool) return failed(pool.error());
  const auto report = check_store(**pool, indexes);
  if (!report) return failed(report.error());
  std::optional<log::LogCheckReport> logs;
  if (log::LogStore::is_in(**pool)) {
    auto checked = log::check_logs(**pool);
    if (!checked) return failed(checked.error());
    logs = std::move(*checked);
  }
  std::optional<uint64_t> file_bytes;
  if (fs::FileArea::is_in(**pool)) {
    const auto area = fs::FileArea::look(**pool);
    if (!area) return failed(area.error());
    file_bytes = area->bytes();
  }
  std::vector<std::string> problems = report->problems;
  if (logs) problems.insert(problems.end(), logs->problems.begin(), logs->problems.end());
  // Damage of the slabs as a whole ends a check before the indexes.
  const bool compared = report->index_entries.size() == indexes.size();
  if (options.json) {
    print_json({{"path", json_bytes(path)},
                {"sound", problems.empty()},
                {"epoch", report->epoch},
                {"clean", report->clean},
                {"tables", report->tables},
                {"slabs", report->slabs},
                {"free_chunks", report->free_chunks},
                {"live_records", report->live_records},
                {"tombstones", report->tombstones},
                {"rings_in_use", report->rings_in_use},
                {"log_entries", report->log_entries},
                {"to_replay", report->to_replay},
                {"checkpoint", report->checkpoint},
                {"logs", logs ? logs_json(*logs) : nlohmann::ordered_json()},
                {"file_bytes",
                 file_bytes ? nlohmann::ordered_json(*file_bytes) : nlohmann::ordered_json()},
                {"indexes", compared ? indexes_json(*report, indexes) : nlohmann::ordered_json()},
                {"problems", problems}});
  } else {
    print_check(*report, logs, file_bytes);
    if (compared) print_text(index_rows(*report, indexes));
    print_text(problems.empty()
                   ? sound_text(*report, logs)
                   : fmt::format("damaged: {}\n", counted(problems.size(), "problem")));
  }
  if (problems.empty()) return kDone;
  std::fflush(stdout);
  return fail(
      kProgram, "pool '" + path + "' is damaged",
      fmt::format("{}, the first: {}", counted(problems.size(), "problem"), problems.front()));
}

void add_create_command(CLI::App& pool, Invocation& invocation) {
  CLI::App* const make = pool.add_subcommand("create", "make a pool with an empty store in it");
  auto options = std::make_shared<CreateOptions>();
  make->add_option("PATH", options->path, "a file that does not exist yet, or a DAX device")
      ->required()
      ->check(a_path());
  make->add_option("--size", options->size, "of a file, like 256M; a DAX device is used as a whole")
      ->check(parsed_by(parse_bytes, "SIZE"));
  make->add_option(
          "--rings", options->rings,
          "how many clients at the same time under lock discipline rnic, at most: each gets a redo "
          "ring when it comes, while the pool has room; 0: the pool is served under "
          "cpu only, which needs none")
      ->check(in_range(0, 4096))
      ->capture_default_str();
  make->add_option("--ring-bytes", options->ring_bytes,
                   "redo ring of each client; bounds a transaction under lock discipline rnic to "
                   "half of it (default: pool / 128, from 64K to 4M)")
      ->check(parsed_by(parse_bytes, "SIZE"));
  make->add_option("--shard-log-bytes", options->shard_log_bytes,
                   "redo log of all clients under lock discipline cpu; bounds a transaction to a "
                   "little less than half of it (default: pool / 32, from 64K to 16M)")
      ->check(parsed_by(parse_bytes, "SIZE"));
  make->add_option("--log-bytes", options->log_bytes,
                   "space kept for logs from the beginning; they take more when they need it "
                   "(default: 0)")
      ->check(parsed_by(parse_bytes, "SIZE"));
  make->add_option("--file-bytes", options->file_bytes,
                   "room that the data of files begins with; 0: the pool has no file system")
      ->check(parsed_by(parse_bytes, "SIZE"))
      ->capture_default_str();
  make->add_option("--record-bytes", options->record_bytes,
                   "space kept for records from the beginning; they take more when they need it "
                   "(default: a piece, a 32nd to a 16th of the pool)")
      ->check(parsed_by(parse_bytes, "SIZE"));
  make->add_option(
          "--rules", options->rules,
          "which of the rules h5, h6 and h7 (alignment and padding of writes) records, redo "
          "rings and logs of this pool follow: all or none, then changes, like all,-h5; "
          "slots of records and replicated logs always follow them")
      ->check(parsed_by(persist::parse_pool_rules, "RULES"))
      ->capture_default_str();
  make->add_option("--table", options->tables, "make this table; may be given several times")
      ->allow_extra_args(false);
  make->add_flag("--sparse", options->sparse,
                 "reserve no blocks: a file takes them when they are written, and a full file "
                 "system ends the program that writes then");
  make->add_flag("--force", options->force, "overwrite the pool that a DAX device holds");
  make->add_flag("--json", options->json, "print one JSON object");
  make->footer("example: pmstore pool create /dev/shm/pool --size 256M --table accounts");
  make->callback(
      [options, &invocation] { invocation.run = [options] { return create(*options); }; });
}

void add_check_command(CLI::App& pool, Invocation& invocation) {
  CLI::App* const verify =
      pool.add_subcommand("check", "read everything in a pool and list the damage");
  auto checked = std::make_shared<CheckOptions>();
  verify->add_option("PATH", checked->path, "the pool's file or DAX device")
      ->required()
      ->check(a_path());
  verify
      ->add_option("--index", checked->indexes,
                   "compare an index with its table, too; may be given several times")
      ->check(parsed_by(parse_index, "BASE:INDEX:OFFSET+BYTES[:unique]"));
  verify->add_flag("--json", checked->json, "print one JSON object");
  verify->footer(
      "Changes nothing; exit status 1 when something is damaged.\n"
      "example: pmstore pool check /dev/shm/pool\n"
      "         pmstore pool check /dev/shm/pool --index people:people_by_city:0+16");
  verify->callback(
      [checked, &invocation] { invocation.run = [checked] { return check(*checked); }; });
}

}  // namespace

void add_pool_commands(CLI::App& app, Invocation& invocation) {
  CLI::App* const pool = app.add_subcommand("pool", "make and look at pools");
  pool->require_subcommand(1);
  pool->footer("example: pmstore pool create /dev/shm/pool --size 256M");

  add_create_command(*pool, invocation);

  CLI::App* const look = pool->add_subcommand("info", "what a pool is; changes nothing");
  auto path = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  look->add_option("PATH", *path, "the pool's file or DAX device")->required()->check(a_path());
  look->add_flag("--json", *json, "print one JSON object");
  look->footer("example: pmstore pool info /dev/shm/pool");
  look->callback(
      [path, json, &invocation] { invocation.run = [path, json] { return info(*path, *json); }; });

  add_check_command(*pool, invocation);
  add_pool_convert(*pool, invocation);
  add_pool_limit(*pool, invocation);
}

}  // namespace pmstore::tools
