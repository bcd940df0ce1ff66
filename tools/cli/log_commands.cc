// pmstore log create | append | read | follow | trim | seal | delete | list | stat
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tools/cli/bytes_text.h"
#include "tools/cli/command_line.h"
#include "tools/cli/log_session.h"
#include "tools/cli/text_table.h"

namespace pmstore::tools {

nlohmann::ordered_json log_json(const log::LogInfo& info) {
  nlohmann::ordered_json damaged = nlohmann::ordered_json::array();
  for (const log::DamagedRange& range : info.damaged) {
    damaged.push_back({{"from_lsn", range.from_lsn}, {"to_lsn", range.to_lsn}});
  }
  nlohmann::ordered_json object = {{"log", info.name},
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
  if (!info.replicas.empty()) {
    object["membership"] = info.membership;
    object["replicas"] = info.replicas;
  }
  return object;
}

std::string what_of(std::string_view verb, const LogCommandOptions& options) {
  return fmt::format("log {} '{}'", verb, printable(options.name));
}

base::Task<Result<log::LogInfo>> open_single(log::LogClient& client,
                                             const LogCommandOptions& options) {
  auto info = co_await client.open(options.name);
  if (!info || info->replicas.empty()) co_return info;
  co_return make_error(
      ErrorCode::kUnsupported,
      fmt::format("the log is replicated (membership {}: {}): use --replica {} instead of --uri",
                  info->membership, printable(fmt::format("{}", fmt::join(info->replicas, ", "))),
                  printable(options.session.uri)));
}

namespace {

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

}  // namespace

void print_log(const log::LogInfo& info, bool json) {
  if (json) return print_json(log_json(info));
  print_text(table_of({info}));
  if (info.replicas.empty()) return;
  print_text(fmt::format("membership {}: {}\n", info.membership,
                         printable(fmt::format("{}", fmt::join(info.replicas, ", ")))));
}

namespace {

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
  const auto info = co_await open_single(client, options);
  if (!info) co_return fail(kProgram, what, info.error());
  Result<uint64_t> start = uint64_t{0};
  if (options.below_index != 0) {
    start = co_await client.trim_below_index(info->id, options.below_index);
  } else {
    start = co_await client.trim(info->id, options.through_lsn);
  }
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
  const auto info = co_await open_single(client, options);
  if (!info) co_return fail(kProgram, what, info.error());
  const Status sealed = co_await client.seal(info->id);
  if (!sealed) co_return fail(kProgram, what, sealed.error());
  if (options.session.json) print_json({{"log", options.name}, {"sealed", true}});
  co_return kDone;
}

base::Task<int> erase(log::LogClient& client, const LogCommandOptions& options) {
  const std::string what = what_of("delete", options);
  auto info = co_await open_single(client, options);
  if (options.this_replica) info = co_await client.open(options.name);
  if (!info && info.code() == ErrorCode::kUnsupported) {
    co_return fail(kProgram, what,
                   info.error().message + "; --this-replica deletes what this server has of it");
  }
  if (!info) co_return fail(kProgram, what, info.error());
  const Status erased = co_await client.erase(info->id);
  if (!erased) co_return fail(kProgram, what, erased.error());
  if (options.session.json) print_json({{"log", options.name}, {"deleted", true}});
  co_return kDone;
}

using Body = base::Task<int> (*)(log::LogClient&, const LogCommandOptions&);
using ReplicasBody = base::Task<int> (*)(base::Executor&, const LogCommandOptions&);

Result<std::string> check_uri(std::string_view text) {
  PMSTORE_TRY_STATUS(fabric::parse_uri(text));
  return std::string(text);
}

// Checks combinations of the options that say where the log is.
void check_place(const LogCommandOptions& options) {
  if (!options.replicated()) {
    if (options.session.uri.empty()) throw CLI::RequiredError("--uri or --replica");
    return options.session.check_together();
  }
  // A URI from the environment is not meant then.
  if (options.session.uri_given) throw CLI::ExcludesError("--replica", "--uri");
  if (options.this_replica) throw CLI::ExcludesError("--this-replica", "--replica");
  if (options.ride_through_seconds > 0) throw CLI::ExcludesError("--ride-through", "--replica");
  for (size_t i = 0; i < options.replicas.size(); ++i) {
    const std::string& uri = options.replicas[i];
    if (std::count(options.replicas.begin(), options.replicas.end(), uri) > 1) {
      throw CLI::ValidationError("--replica", uri + " is given twice");
    }
    if (options.session.assume_domain.empty() || uri.starts_with("local:")) continue;
    throw CLI::ValidationError("--assume-domain",
                               "only with local:PATH; a server's domain is given to pmstored");
  }
}

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
    command
        ->add_option("--ride-through", options_->ride_through_seconds,
                     "when the server goes away, try to reach it for at most so many seconds, and "
                     "go on (default: end)")
        ->check(in_range(0.0, 3600.0));
    return *command;
  }

  // Of a log that may be replicated; one of the bodies may be missing.
  CLI::App& add_named(const std::string& name, const std::string& about, Body body,
                      ReplicasBody replicas_body) {
    CLI::App& command = add(name, about, body);
    command.callback([=, options = options_, &invocation = invocation_] {
      if (body == nullptr || options->replicated()) {
        invocation.run = [=] { return with_executor(*options, replicas_body); };
      } else {
        invocation.run = [=] { return with_log_client(*options, "log " + name, body); };
      }
    });
    command
        .add_option("--replica", options_->replicas,
                    "of a replicated log, instead of --uri: a server that has it; the others are "
                    "found. May be repeated")
        ->allow_extra_args(false)
        ->check(parsed_by(check_uri, "URI"));
    command.get_option("--uri")->required(false);
    command.parse_complete_callback([options = options_] { check_place(*options); });
    command.add_option("NAME", options_->name, "of the log")->required();
    return command;
  }

  LogCommandOptions& options() { return *options_; }

 private:
  CLI::App& log_;
  Invocation& invocation_;
  std::shared_ptr<LogCommandOptions> options_ = std::make_shared<LogCommandOptions>();
};

void add_steal(CLI::App& command, LogCommandOptions& options) {
  command.add_flag("--steal", options.steal,
                   "also when another producer has the log: fence it (with --replica)");
}

void add_shape(CLI::App& command, LogCommandOptions& options) {
  command
      .add_option_function<std::string>(
          "--bytes", [&options](const std::string& text) { options.bytes = *parse_bytes(text); },
          "of persistent memory for the log; an entry takes at most half of it (default: 2M)")
      ->check(parsed_by(parse_bytes, "SIZE"));
  command
      .add_option(
          "--when-full", options.when_full,
          "back-pressure: appends fail until the log is trimmed; trim-oldest: the oldest go")
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
  CLI::App& command =
      commands.add_named("append", "append entries, durably: an argument, or standard input",
                         append_to_log, append_to_replicas);
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
      "be the only producer: one-sided where the server's memory and RNIC make that durable; "
      "always so with --replica");
  CLI::Option* const steal = command.add_flag("--steal", options.steal,
                                              "also when another producer has the log: fence it");
  command.parse_complete_callback([&options, exclusive, steal] {
    check_place(options);
    if (steal->count() > 0 && exclusive->count() == 0 && !options.replicated()) {
      throw CLI::RequiresError("--steal", "--exclusive or --replica");
    }
    // A producer ends with its connection: where it stood is found by opening another one.
    if (options.exclusive && options.ride_through_seconds > 0) {
      throw CLI::ExcludesError("--ride-through", "--exclusive");
    }
  });
  command
      .add_option("--batch", options.batch,
                  "at most so many entries at a time; never waits for more than have come")
      ->check(in_range(uint32_t{1}, static_cast<uint32_t>(log::kMaxBatchEntries)))
      ->capture_default_str();
  command.footer(
      "Prints which entries are durable, also when it fails half way.\n"
      "example: pmstore log append --uri local:/dev/shm/pool orders --create < orders.txt");
}

void add_reading(LogCommands& commands) {
  LogCommandOptions& options = commands.options();
  const auto add_begin = [&options](CLI::App& command) {
    add_framing(command, options);
    command.add_option("--from-lsn", options.from_lsn, "begin at this entry (default: the oldest)");
    command.add_option("--limit", options.limit, "at most so many entries (default: all)")
        ->check(a_limit());
  };
  CLI::App& read =
      commands.add_named("read", "print the entries that are there", read_log, read_replicas);
  add_begin(read);
  read.add_option("--from-index", options.from_index, "only entries from this index on");
  read.footer(
      "What the medium has lost is left out and said on standard error; the exit status is 1 "
      "then.\n"
      "example: pmstore log read --uri tcp://127.0.0.1:7000 orders --from-index 100 --limit 10");
  CLI::App& follow =
      commands.add_named("follow", "print entries as they come", follow_log, follow_replicas);
  add_begin(follow);
  follow.parse_complete_callback([&options] {
    check_place(options);
    options.follows = true;
  });
  follow.add_flag("--from-tail", options.from_tail, "only entries that come from now on")
      ->excludes(follow.get_option("--from-lsn"));
  follow
      .add_option("--wait", options.wait_seconds,
                  "end when nothing has come for so many seconds (default: go on until SIGINT, "
                  "or until the log is sealed)")
      ->check(in_range(0.0, 86400.0));
  follow.footer("example: pmstore log follow --uri tcp://127.0.0.1:7000 orders --from-tail");
}

void add_members_commands(LogCommands& commands) {
  LogCommandOptions& options = commands.options();
  commands
      .add_named("members", "print the servers that have a replicated log, and their state",
                 nullptr, print_members)
      .footer(
          "Exit status 1 when not all members can be asked, or they do not agree.\n"
          "example: pmstore log members --replica tcp://a:7000 orders");
  const auto add_change = [&](const std::string& name, const std::string& about,
                              ReplicasBody body) -> CLI::App& {
    CLI::App& command = commands.add_named(name, about, nullptr, body);
    command.add_option("MEMBER", options.members, "its URI, as members prints it")
        ->required()
        ->check(parsed_by(check_uri, "URI"));
    add_steal(command, options);
    return command;
  };
  CLI::App& dropped =
      add_change("drop-member", "go on without members of a replicated log; recorded on the others",
                 drop_members);
  dropped.add_flag("--gone", options.gone,
                   "they will never be asked again: also when too few stay to be sure that those "
                   "cannot go on by themselves");
  dropped.footer(
      "What stays must be more than half, or half with the first one.\n"
      "example: pmstore log drop-member --replica tcp://a:7000 orders tcp://c:7000");
  CLI::App& added =
      add_change("add-member", "give a replicated log a new member, or one back that was dropped",
                 add_members);
  added.add_flag("--replace", options.replace,
                 "delete what a dropped member still has of this log, and fill it anew");
  added.footer(
      "example: pmstore log add-member --replica tcp://a:7000 orders tcp://c:7000 --replace");
}

}  // namespace

void add_log_commands(CLI::App& app, Invocation& invocation) {
  CLI::App* const log = app.add_subcommand("log", "append to durable logs, and read them");
  log->require_subcommand(1);
  log->footer(
      "An lsn is the place of an entry in its log; an index counts the entries from 1 on.\n"
      "example: pmstore log append --uri local:/dev/shm/pool orders --create 'one apple'");
  LogCommands commands(*log, invocation);

  CLI::App& made = commands.add_named(
      "create", "make an empty log; with --replica, on all these servers", create, create_replicas);
  add_shape(made, commands.options());
  made.footer(
      "example: pmstore log create --uri local:/dev/shm/pool orders --bytes 4M\n"
      "example: pmstore log create --replica tcp://a:7000 --replica tcp://b:7000 orders");

  add_append(commands);
  add_reading(commands);

  CLI::App& trimmed = commands.add_named("trim", "let the oldest entries go", trim, trim_replicas);
  CLI::Option_group* const until = trimmed.add_option_group("until");
  until->add_option("--through-lsn", commands.options().through_lsn,
                    "entries below go; the lsn of an entry, or the tail");
  until->add_option("--below-index", commands.options().below_index, "entries below go");
  until->require_option(1);
  trimmed.footer("example: pmstore log trim --uri tcp://127.0.0.1:7000 orders --below-index 100");

  CLI::App& sealed = commands.add_named("seal", "end a log: nothing can be appended any more", seal,
                                        seal_replicas);
  add_steal(sealed, commands.options());
  sealed.parse_complete_callback([&options = commands.options()] {
    check_place(options);
    if (options.steal && !options.replicated()) throw CLI::RequiresError("--steal", "--replica");
  });
  sealed.footer(
      "Of a replicated log, one that failed half-way is finished by the next.\n"
      "example: pmstore log seal --uri tcp://127.0.0.1:7000 orders");
  CLI::App& erased =
      commands.add_named("delete", "delete a log and its entries", erase, delete_replicas);
  erased.add_flag("--this-replica", commands.options().this_replica,
                  "with --uri: only what this server has of a replicated log, as after it was "
                  "dropped");
  erased.footer("example: pmstore log delete --uri tcp://127.0.0.1:7000 orders");
  commands.add("list", "print all logs", list)
      .footer("example: pmstore log list --uri tcp://127.0.0.1:7000");
  commands.add_named("stat", "print the state of a log", stat, stat_replicas)
      .footer("example: pmstore log stat --uri tcp://127.0.0.1:7000 orders --json");
  add_members_commands(commands);
}

}  // namespace pmstore::tools
