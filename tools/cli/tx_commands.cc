// pmstore tx list | settle | force: transactions of several servers that are not decided
#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "fabric/uri.h"
#include "pmstore/joint_commit.h"
#include "tools/cli/command_line.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/text_table.h"

namespace pmstore::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kConfirmed = "lost-for-ever";

struct TxOptions {
  std::vector<std::string> uris;
  double timeout_seconds = 5;
  bool json = false;
  std::string decision;
  std::string transaction;
  std::string confirmed;
  std::vector<std::string> lost;

  void add_to(CLI::App& command) {
    command
        .add_option("URI", uris,
                    "the servers: tcp://HOST:PORT, shm://NAME, verbs://HOST:PORT or local:PATH")
        ->required()
        ->check(parsed_by(fabric::parse_uri, "URI"));
    command
        .add_option("--timeout", timeout_seconds,
                    "seconds to wait for a connection or an answer (default 5)")
        ->check(CLI::Range(0.001, 3600.0));
    command.add_flag("--json", json, "print JSON");
  }
};

// Clients of the servers that could be reached.
class Servers {
 public:
  Servers(Executor& executor, const TxOptions& options) : executor_(executor) {
    ClientOptions with;
    with.call_timeout_ns = static_cast<uint64_t>(options.timeout_seconds * 1e9);
    with.connect_timeout_ns = with.reconnect_timeout_ns = with.call_timeout_ns;
    for (const std::string& uri : options.uris) {
      auto client = executor.run(Client::connect(executor, *fabric::parse_uri(uri), with));
      if (client) {
        clients_.push_back(std::move(*client));
        uris_.push_back(uri);
      } else {
        note(uri, client.error());
      }
    }
  }
  ~Servers() {
    for (const auto& client : clients_) executor_.run(client->close());
  }
  Servers(const Servers&) = delete;
  Servers& operator=(const Servers&) = delete;

  std::vector<Client*> clients() const {
    std::vector<Client*> all;
    for (const auto& client : clients_) all.push_back(client.get());
    return all;
  }
  const std::string& uri(size_t server) const { return uris_[server]; }
  void note(const std::vector<Status>& asked) {
    for (size_t i = 0; i < asked.size(); ++i) {
      if (!asked[i]) note(uris_[i], asked[i].error());
    }
  }
  void note(const std::string& uri, const Error& why) {
    away_.push_back(fmt::format("{}: {}", uri, why_text(why)));
  }
  // Servers that could not be asked, with the reasons.
  const std::vector<std::string>& away() const { return away_; }

 private:
  Executor& executor_;
  std::vector<std::unique_ptr<Client>> clients_;
  std::vector<std::string> uris_;
  std::vector<std::string> away_;
};

std::string plural(uint64_t count, std::string_view one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
}

// One line for all that is left to do.
int end_with(const Servers& servers, std::string_view what, std::string problem) {
  for (const std::string& each : servers.away()) {
    problem += (problem.empty() ? "" : "; ") + each;
  }
  return problem.empty() ? kDone : fail(kProgram, what, problem);
}

template <typename Body>
int with_servers(const TxOptions& options, std::string_view what, Body body) {
  base::RealClock clock;
  Executor executor(clock);
  Servers servers(executor, options);
  if (servers.clients().empty()) return end_with(servers, what, "");
  return body(executor, servers);
}

std::string server_of(const Servers& servers, const OpenTransactions& open, uint64_t pool) {
  for (const OpenTransaction& each : open.transactions) {
    if (each.pool == pool) return servers.uri(each.server);
  }
  return fmt::format("pool {:016x}", pool);
}

Json json_of(const Servers& servers, const OpenTransactions& open) {
  Json all = Json::array();
  for (const OpenTransaction& each : open.transactions) {
    Json others = Json::array();
    for (const OpenTransaction::Part& other : each.others) {
      others.push_back({{"pool", fmt::format("{:016x}", other.pool)},
                        {"server", server_of(servers, open, other.pool)},
                        {"transaction", other.name.to_string()}});
    }
    all.push_back({{"server", servers.uri(each.server)},
                   {"pool", fmt::format("{:016x}", each.pool)},
                   {"transaction", each.name.to_string()},
                   {"coordinator", each.name.client.to_string()},
                   {"state", each.committed ? "committed" : "prepared"},
                   {"age_ms", each.age_ms},
                   {"keys_locked", each.locked},
                   {"others", std::move(others)}});
  }
  return {{"transactions", std::move(all)}, {"not_asked", servers.away()}};
}

std::string text_of(const Servers& servers, const OpenTransactions& open) {
  TextTable table(3, TextTable::LastColumn::kLeft);
  table.row({"server", "transaction", "state", "age s", "keys locked", "also at"});
  for (const OpenTransaction& each : open.transactions) {
    std::string others;
    for (const OpenTransaction::Part& other : each.others) {
      others += (others.empty() ? "" : ", ") + server_of(servers, open, other.pool);
    }
    table.row({servers.uri(each.server), each.name.to_string(),
               each.committed ? "committed" : "prepared",
               fmt::format("{:.1f}", static_cast<double>(each.age_ms) / 1000),
               std::to_string(each.locked), others});
  }
  return table.text();
}

int list_transactions(const TxOptions& options) {
  const std::string what = "tx list";
  return with_servers(options, what, [&](Executor& executor, Servers& servers) {
    const auto open = executor.run(open_transactions(servers.clients()));
    if (!open) return fail(kProgram, what, open.error());
    servers.note(open->servers);
    if (options.json) {
      print_json(json_of(servers, *open));
    } else {
      print_text(text_of(servers, *open));
    }
    return end_with(servers, what, "");
  });
}

void print_settled(const TxOptions& options, const Servers& servers, const Settled& settled) {
  if (options.json) {
    print_json({{"committed", settled.committed},
                {"aborted", settled.aborted},
                {"waiting", settled.waiting},
                {"remembered", settled.remembered},
                {"contradicted", settled.contradicted},
                {"not_asked", servers.away()}});
    return;
  }
  print_text(fmt::format("committed {}, aborted {}; {} not decided, {} committed and remembered\n",
                         settled.committed, settled.aborted, settled.waiting, settled.remembered));
}

int settle_transactions(const TxOptions& options) {
  const std::string what = "tx settle";
  return with_servers(options, what, [&](Executor& executor, Servers& servers) {
    const auto settled = executor.run(settle(servers.clients()));
    if (!settled) return fail(kProgram, what, settled.error());
    servers.note(settled->servers);
    print_settled(options, servers, *settled);
    std::string problem;
    if (settled->waiting > 0) {
      problem = plural(settled->waiting, "transaction") +
                " not decided: a participant is not among these servers or cannot be asked, or "
                "the coordinator is connected; see pmstore tx list";
    }
    if (settled->contradicted > 0) {
      problem += (problem.empty() ? "" : "; ") + plural(settled->contradicted, "transaction") +
                 " committed at one server and aborted at another one, by a decision that was "
                 "forced or in a pool that was put back; see pmstore tx list, and look at what it "
                 "would have written";
    }
    return end_with(servers, what, problem);
  });
}

Result<uint64_t> parse_pool_identity(std::string_view text) {
  uint64_t pool = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), pool, 16);
  if (failed == std::errc() && end == text.data() + text.size() && text.size() == 16) return pool;
  return make_error(ErrorCode::kInvalidArgument,
                    "'" + std::string(text) +
                        "' is not the identity of a pool; pmstore tx list shows it, 16 "
                        "hexadecimal digits");
}

int force_transaction(const TxOptions& options) {
  const std::string what = fmt::format("tx force {} '{}'", options.decision, options.transaction);
  const ForcedDecision decision = options.decision == "abort"    ? ForcedDecision::kAbort
                                  : options.decision == "commit" ? ForcedDecision::kCommit
                                                                 : ForcedDecision::kForget;
  return with_servers(options, what, [&](Executor& executor, Servers& servers) {
    std::vector<uint64_t> lost;
    for (const std::string& each : options.lost) lost.push_back(*parse_pool_identity(each));
    const auto forced = executor.run(force_decision(
        servers.clients(), *parse_tx_id(options.transaction), decision, std::move(lost)));
    if (!forced) return end_with(servers, what, why_text(forced.error()));
    servers.note(forced->servers);
    print_settled(options, servers, *forced);
    return kDone;  // that a server is away is why it was forced
  });
}

Result<std::string> parse_confirmation(std::string_view text) {
  if (text == kConfirmed) return std::string(text);
  return make_error(ErrorCode::kInvalidArgument,
                    "'" + std::string(text) +
                        "' confirms nothing; write --confirm lost-for-ever when a participant "
                        "never comes back");
}

void add_force(CLI::App& tx, Invocation& invocation) {
  CLI::App* const force =
      tx.add_subcommand("force", "decide a transaction one of whose servers is lost for ever");
  auto options = std::make_shared<TxOptions>();
  force
      ->add_option("DECISION", options->decision,
                   "abort; commit; or forget, of a commit that is remembered")
      ->required()
      ->check(CLI::IsMember({"abort", "commit", "forget"}));
  force->add_option("TRANSACTION", options->transaction, "its name, as tx list shows it")
      ->required()
      ->check(parsed_by(parse_tx_id, "TRANSACTION"));
  options->add_to(*force);
  force
      ->add_option("--lost", options->lost,
                   "the pool of a server that is lost, as tx list shows it; once for each")
      ->required()
      ->allow_extra_args(false)
      ->check(parsed_by(parse_pool_identity, "POOL"));
  force
      ->add_option("--confirm", options->confirmed,
                   "lost-for-ever: the lost server may have decided otherwise, and told a client")
      ->required()
      ->check(parsed_by(parse_confirmation, "WORD"));
  force->footer(
      "Give all of its servers that are left.\n"
      "example: pmstore tx force abort 0123456789abcdef0123456789abcdef-42-dd5a "
      "tcp://127.0.0.1:7000 --lost 00c0ffee00c0ffee --confirm lost-for-ever");
  force->callback([options, &invocation] {
    invocation.run = [options] { return force_transaction(*options); };
  });
}

}  // namespace

void add_tx_commands(CLI::App& app, Invocation& invocation) {
  CLI::App* const tx =
      app.add_subcommand("tx", "transactions of several servers that are not decided");
  tx->require_subcommand(1);
  tx->footer("example: pmstore tx list tcp://127.0.0.1:7000 tcp://127.0.0.1:7001");

  CLI::App* const all = tx->add_subcommand("list", "what waits for a decision at these servers");
  auto listed = std::make_shared<TxOptions>();
  listed->add_to(*all);
  all->footer("example: pmstore tx list tcp://127.0.0.1:7000 tcp://127.0.0.1:7001");
  all->callback(
      [listed, &invocation] { invocation.run = [listed] { return list_transactions(*listed); }; });

  CLI::App* const some = tx->add_subcommand(
      "settle", "decide what the votes of all participants decide, and unlock it");
  auto settled = std::make_shared<TxOptions>();
  settled->add_to(*some);
  some->footer("example: pmstore tx settle tcp://127.0.0.1:7000 tcp://127.0.0.1:7001");
  some->callback([settled, &invocation] {
    invocation.run = [settled] { return settle_transactions(*settled); };
  });

  add_force(*tx, invocation);
}

}  // namespace pmstore::tools
