// pmstore log create | append | read | follow | trim | seal | delete | list | stat
#include <fmt/format.h>

#include "tools/bytes_text.h"
#include "tools/command_line.h"
#include "tools/log_session.h"
#include "tools/text_table.h"

namespace pmstore::tools {

nlohmann::ordered_json log_json(const log::LogInfo& info) {
  nlohmann::ordered_json damaged = nlohmann::ordered_json::array();
  for (const log::DamagedRange& range : info.damaged) {
    damaged.push_back({{"from_lsn", range.from_lsn}, {"to_lsn", range.to_lsn}});
  }
  return {{"log", info.name},
          {"bytes", info.bytes},
          {"when_full", log::full_policy_name(info.when_full)},
          {"sealed", info.sealed},
          {"exclusive", info.exclusive},
          {"start_lsn", info.start_lsn},
          {"tail_lsn", info.tail_lsn},
          {"used_bytes", info.tail_lsn - info.start_lsn},
          {"next_index", info.next_index},
          {"incarnation", info.incarnation},
          {"damaged", std::move(damaged)}};
}

namespace {

std::string what_of(std::string_view verb, const LogCommandOptions& options) {
  return fmt::format("log {} '{}'", verb, printable(options.name));
}

std::string state_text(const log::LogInfo& info) {
  if (log::is_lost(info)) return "lost";
  std::string text = info.sealed ? "sealed" : info.exclusive ? "exclusive" : "open";
  if (!info.damaged.empty()) text += fmt::format(", {} damaged", info.damaged.size());
  return text;
}

std::string table_of(const std::vector<log::LogInfo>& logs) {
  TextTable table(3);
  table.row({"log", "when full", "state", "bytes", "used", "next index", "start lsn", "tail lsn"});
  for (const log::LogInfo& info : logs) {
    table.row({printable(info.name), std::string(log::full_policy_name(info.when_full)),
               state_text(info), std::to_string(info.bytes),
               std::to_string(info.tail_lsn - info.start_lsn), std::to_string(info.next_index),
               std::to_string(info.start_lsn), std::to_string(info.tail_lsn)});
  }
  return table.text();
}

void print_log(const log::LogInfo& info, bool json) {
  if (json) {
    print_json(log_json(info));
  } else {
    print_text(table_of({info}));
  }
}

base::Task<int> create(log::LogClient& client, const LogCommandOptions& options) {
  const auto made = co_await client.create(options.name, options.log_options());
  if (!made) co_return fail(kProgram, what_of("create", options), made.error());
  print_log(*made, options.session.json);
  co_return kDone;
}

base::Task<int> list(log::LogClient& client, const LogCommandOptions& options) {
  const auto logs = co_await client.list();
  if (!logs) co_return fail(kProgram, "log list", logs.error());
  if (options.session.json) {
    nlohmann::ordered_json array = nlohmann::ordered_json::array();
    for (const log::LogInfo& info : *logs) array.push_back(log_json(info));
    print_json({{"logs", std::move(array)}});
  } else {
    print_text(table_of(*logs));
  }
  co_return kDone;
}

base::Task<int> stat(log::LogClient& client, const LogCommandOptions& options) {
  const auto info = co_await client.open(options.name);
  if (!info) co_return fail(kProgram, what_of("stat", options), info.error());
  print_log(*info, options.session.json);
  co_return kDone;
}

base::Task<int> trim(log::LogClient& client, const LogCommandOptions& options) {
  const std::string what = what_of("trim", options);
  const auto info = co_await client.open(options.name);
  if (!info) co_return fail(kProgram, what, info.error());
  const auto start = options.below_index != 0
                         ? co_await client.trim_below_index(info->id, options.below_index)
                         : co_await client.trim(info->id, options.through_lsn);
  if (!start) co_return fail(kProgram, what, start.error());
  if (options.session.json) {
    print_json({{"log", options.name}, {"start_lsn", *start}});
  } else {
    print_text(fmt::format("the oldest entry is now at lsn {}\n", *start));
  }
  co_return kDone;
}

base::Task<int> seal(log::LogClient& client, const LogCommandOptions& options) {
  const std::string what = what_of("seal", options);
  const auto info = co_await client.open(options.name);
  if (!info) co_return fail(kProgram, what, info.error());
  const Status sealed = co_await client.seal(info->id);
  if (!sealed) co_return fail(kProgram, what, sealed.error());
  if (options.session.json) print_json({{"log", options.name}, {"sealed", true}});
  co_return kDone;
}

base::Task<int> erase(log::LogClient& client, const LogCommandOptions& options) {
  const std::string what = what_of("delete", options);
  const auto info = co_await client.open(options.name);
  if (!info) co_return fail(kProgram, what, info.error());
  const Status erased = co_await client.erase(info->id);
  if (!erased) co_return fail(kProgram, what, erased.error());
  if (options.session.json) print_json({{"log", options.name}, {"deleted", true}});
  co_return kDone;
}

using Body = base::Task<int> (*)(log::LogClient&, const LogCommandOptions&);

class LogCommands {
 public:
  LogCommands(CLI::App& log, Invocation& invocation) : log_(log), invocation_(invocation) {}

  CLI::App& add(const std::string& name, const std::string& about, Body body) {
    CLI::App* const command = log_.add_subcommand(name, about);
    command->callback([=, options = options_, &invocation = invocation_] {
      invocation.run = [=] { return with_log_client(*options, "log " + name, body); };
    });
    options_->session.add_to(*command);
    command->remove_option(command->get_option("--locks"));  // a store's
    return *command;
  }

  CLI::App& add_named(const std::string& name, const std::string& about, Body body) {
    CLI::App& command = add(name, about, body);
    command.add_option("NAME", options_->name, "of the log")->required();
    return command;
  }

  LogCommandOptions& options() { return *options_; }

 private:
  CLI::App& log_;
  Invocation& invocation_;
  std::shared_ptr<LogCommandOptions> options_ = std::make_shared<LogCommandOptions>();
};

void add_shape(CLI::App& command, LogCommandOptions& options) {
  command
      .add_option_function<std::string>(
          "--bytes", [&options](const std::string& text) { options.bytes = *parse_bytes(text); },
          "of persistent memory for the log; an entry takes at most half of it (default: 2M)")
      ->check(parsed_by(parse_bytes, "SIZE"));
  command
      .add_option("--when-full", options.when_full,
                  "back-pressure: appends fail until somebody trims; trim-oldest: the oldest go")
      ->check(parsed_by(log::parse_full_policy, "POLICY"))
      ->capture_default_str();
}

void add_framing(CLI::App& command, LogCommandOptions& options) {
  command
      .add_option("--framing", options.framing,
                  "lines: one entry a line; length: each behind its length, 4 bytes little endian; "
                  "whole: nothing between them")
      ->check(parsed_by(parse_framing, "FRAMING"))
      ->capture_default_str();
}

void add_append(LogCommands& commands) {
  CLI::App& command = commands.add_named(
      "append", "append entries, durably: an argument, or standard input", append_to_log);
  LogCommandOptions& options = commands.options();
  command.add_option_function<std::string>(
      "PAYLOAD",
      [&options](const std::string& payload) {
        options.payload = payload;
        options.has_payload = true;
      },
      "one entry; without it, entries come from standard input");
  add_framing(command, options);
  CLI::Option* const create =
      command.add_flag("--create", options.create, "make the log when it is not there");
  add_shape(command, options);
  command.get_option("--bytes")->needs(create);
  command.get_option("--when-full")->needs(create);
  CLI::Option* const exclusive = command.add_flag(
      "--exclusive", options.exclusive,
      "be the only producer: one-sided where the server's memory and RNIC make that durable");
  command.add_flag("--steal", options.steal, "also when another producer has the log: fence it")
      ->needs(exclusive);
  command
      .add_option("--batch", options.batch,
                  "at most so many entries at a time; never waits for more than have come")
      ->check(CLI::Range(uint32_t{1}, static_cast<uint32_t>(log::kMaxBatchEntries)))
      ->capture_default_str();
  command.footer(
      "Says what is durable, also when it fails half way.\n"
      "example: pmstore log append --uri local:/dev/shm/pool orders --create < orders.txt");
}

void add_reading(LogCommands& commands) {
  LogCommandOptions& options = commands.options();
  const auto add_begin = [&options](CLI::App& command) {
    add_framing(command, options);
    command.add_option("--from-lsn", options.from_lsn, "begin at this entry (default: the oldest)");
    command.add_option("--limit", options.limit, "at most so many entries");
  };
  CLI::App& read = commands.add_named("read", "print the entries that are there", read_log);
  add_begin(read);
  read.add_option("--from-index", options.from_index, "only entries from this index on");
  read.footer(
      "What the medium has lost is left out and said on standard error; the exit status is 1 "
      "then.\n"
      "example: pmstore log read --uri tcp://127.0.0.1:7000 orders --from-index 100 --limit 10");
  CLI::App& follow = commands.add_named("follow", "print entries as they come", follow_log);
  add_begin(follow);
  follow.add_flag("--from-tail", options.from_tail, "only entries that come from now on")
      ->excludes(follow.get_option("--from-lsn"));
  follow
      .add_option("--wait", options.wait_seconds,
                  "end when nothing has come for so many seconds (default: go on until SIGINT, "
                  "or until the log is sealed)")
      ->check(CLI::Range(0.0, 86400.0));
  follow.footer("example: pmstore log follow --uri tcp://127.0.0.1:7000 orders --from-tail");
}

}  // namespace

void add_log_commands(CLI::App& app, Invocation& invocation) {
  CLI::App* const log = app.add_subcommand("log", "append to durable logs, and read them");
  log->require_subcommand(1);
  log->footer(
      "An lsn is the place of an entry in its log; an index counts the entries from 1 on.\n"
      "example: pmstore log append --uri local:/dev/shm/pool orders --create 'one apple'");
  LogCommands commands(*log, invocation);

  CLI::App& made = commands.add_named("create", "make an empty log", create);
  add_shape(made, commands.options());
  made.footer("example: pmstore log create --uri local:/dev/shm/pool orders --bytes 4M");

  add_append(commands);
  add_reading(commands);

  CLI::App& trimmed = commands.add_named("trim", "let the oldest entries go", trim);
  CLI::Option_group* const until = trimmed.add_option_group("until");
  until->add_option("--through-lsn", commands.options().through_lsn,
                    "entries below go; the lsn of an entry, or the tail");
  until->add_option("--below-index", commands.options().below_index, "entries below go");
  until->require_option(1);
  trimmed.footer("example: pmstore log trim --uri tcp://127.0.0.1:7000 orders --below-index 100");

  commands.add_named("seal", "end a log: nothing can be appended any more", seal)
      .footer("example: pmstore log seal --uri tcp://127.0.0.1:7000 orders");
  commands.add_named("delete", "delete a log and what is in it", erase)
      .footer("example: pmstore log delete --uri tcp://127.0.0.1:7000 orders");
  commands.add("list", "print all logs", list)
      .footer("example: pmstore log list --uri tcp://127.0.0.1:7000");
  commands.add_named("stat", "print what is known of a log", stat)
      .footer("example: pmstore log stat --uri tcp://127.0.0.1:7000 orders --json");
}

}  // namespace pmstore::tools
