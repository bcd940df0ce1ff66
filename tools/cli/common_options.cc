// The options that several subcommands have.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "persist/strategy.h"
#include "tools/bench/bench_options.h"
#include "tools/cli/command_line.h"
#include "tools/cli/poll_option.h"

namespace pmstore::tools {

void SessionOptions::add_to(CLI::App& command) {
  CLI::Option* const where =
      command
          .add_option("--uri", uri,
                      "the store: tcp://HOST:PORT, shm://NAME, verbs://HOST:PORT, or local:PATH, "
                      "which opens the pool in this process; default: $PMSTORE_URI")
          ->required()
          ->check(parsed_by(fabric::parse_uri, "URI"));
  // The parser gives every option that was not used its environment's value, also those of commands
  // that were not called, whose variables may be the called one's. So only this command's, and only
  // once it is called.
  command.preparse_callback([where](size_t) { where->envname("PMSTORE_URI"); });
  command
      .add_option("--assume-domain", assume_domain,
                  "with local:PATH, treat the pool's memory as this persistence domain instead of "
                  "the detected one: none, adr, eadr")
      ->check(parsed_by(persist::parse_domain, "DOMAIN"));
  command
      .add_option("--locks", locks,
                  "with local:PATH, the side that changes lock words: cpu (default) or rnic; else, "
                  "refuse a "
                  "server with the other one")
      ->check(parsed_by(parse_locks, "DISCIPLINE"));
  command
      .add_option("--timeout", timeout_seconds,
                  "seconds to wait for a connection or an answer (default 5)")
      ->check(in_range(0.001, 3600.0));
  command.add_flag("--json", json, "print one JSON object");
  where->each([this, &command, where](const std::string&) {
    const auto& given = command.parse_order();
    uri_given = std::find(given.begin(), given.end(), where) != given.end();
  });
  command.parse_complete_callback([this] { check_together(); });
}

void SessionOptions::check_together() const {
  if (assume_domain.empty() || parsed_uri().scheme == fabric::Scheme::kLocal) return;
  throw CLI::ValidationError("--assume-domain",
                             "only with local:PATH; a server's domain is given to pmstored");
}

void ModelOptions::add_to(CLI::App& command) {
  CLI::Option* const model =
      command
          .add_option("--model", name,
                      fmt::format("run on a modelled machine in virtual time, instead of --uri: {}",
                                  fmt::join(model::parameter_set_names(), ", ")))
          ->check(parsed_by(model::named_parameters, "NAME"));
  command.add_option("--hosts", hosts, "of the model: one serves, the others are clients")
      ->check(in_range(2u, model::Cluster::kMaxHosts))
      ->needs(model)
      ->capture_default_str();
  command
      .add_option("--model-parameters", parameters_file,
                  "a TOML file that changes parameters of the model")
      ->needs(model);
  command
      .add_option("--rules", rules,
                  "of the model: which of the rules h1 to h9 hold; h1, h3, h4, h8 and h9 can be "
                  "switched (all, none, all,-h3, none,+h1)")
      ->check(parsed_by(persist::parse_rules, "RULES"))
      ->needs(model)
      ->capture_default_str();
  command.add_option("--model-pool", pool_bytes, "size of the modelled server's pool")
      ->check(parsed_by(parse_bytes, "BYTES"))
      ->needs(model)
      ->capture_default_str();
}

void add_place_to(CLI::App& command, SessionOptions& session, ModelOptions& model) {
  session.add_to(command);
  model.add_to(command);
  command.get_option("--uri")->required(false);
  command.parse_complete_callback([&session, &model] { check_place(session, model); });
}

void check_place(SessionOptions& session, const ModelOptions& model) {
  if (!model.on() && session.uri.empty()) throw CLI::RequiredError("--uri or --model");
  if (!model.on()) return session.check_together();
  // A URI from the environment is not meant then.
  if (session.uri_given) throw CLI::ExcludesError("--model", "--uri");
  session.uri = "local:model:" + model.name;
}

void BenchOptions::add_to(CLI::App& command, const std::string& threads_option) {
  add_place_to(command, session, model);
  command
      .add_option(threads_option, threads,
                  "connections, each with a thread; local:PATH with more than one is served by one "
                  "thread more")
      ->check(in_range(1, 256))
      ->capture_default_str();
  command.add_option("--coroutines", coroutines, "transactions at a time on each connection")
      ->check(in_range(1, 1024))
      ->capture_default_str();
  CLI::Option* const by_time =
      command.add_option("--seconds", seconds, "how long")->check(in_range(0.01, 86400.0));
  by_time->capture_default_str();
  command.add_option("--ops", ops, "so many operations altogether, instead of a time")
      ->check(in_range(uint64_t{1}, uint64_t{1} << 40))
      ->excludes(by_time);
  command.add_option("--seed", seed, "of the random choices")->capture_default_str();
  command.add_option("--client-id", client_id,
                     "make the first connection's secret from this number, the next ones count on: "
                     "the same number is the same client again, and whoever guesses it can be that "
                     "client, so use it in tests only (default: a random secret)");
  command
      .add_option("--ride-through", ride_through_seconds,
                  "go on when the server is away, for at most so many seconds")
      ->check(in_range(0.0, 3600.0));
  command
      .add_option(
          "--strategy", strategy,
          "how redo records get to a server whose locks are rnic: auto, naive, outstanding, "
          "doorbell, flush, two_sided")
      ->check(parsed_by(persist::parse_strategy, "STRATEGY"))
      ->capture_default_str();
  CLI::Option* const no_reads =
      command.add_flag("--no-one-sided-reads", no_one_sided, "read by RPC only");
  command
      .add_option("--misses", misses,
                  "how to read a record whose place is not in the cache: auto, one-sided, rpc")
      ->check(parsed_by(parse_miss_path, "PATH"))
      ->excludes(no_reads)
      ->capture_default_str();
  command.add_option("--poll", poll, kPollHelp)
      ->check(parsed_by(parse_poll, "MODE"))
      ->capture_default_str();
  command
      .add_option("--location-cache", cache_entries, "places of records that a client remembers")
      ->check(in_range(uint64_t{0}, uint64_t{1} << 28))
      ->capture_default_str();
}

}  // namespace pmstore::tools
