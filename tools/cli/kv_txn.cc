// pmstore kv txn: a script of operations as one transaction.
#include <fmt/format.h>

#include <map>

#include "tools/cli/bytes_text.h"
#include "tools/cli/command_line.h"
#include "tools/cli/kv_script.h"
#include "tools/cli/kv_session.h"

namespace pmstore::tools {
namespace {

constexpr size_t kMaxScriptBytes = 16u << 20;

struct Run {
  std::vector<std::optional<std::string>> values;  // of each step; of a get: nullopt is "not there"
  std::string why_not;  // the line at which the script gave up, and why; empty: it did not
};

// "line 3: put 'alice'"
std::string name_of(const ScriptStep& step) {
  return fmt::format("line {}: {} '{}'", step.line, step_name(step.kind), printable(step.key));
}

base::Task<Status> run_steps(Transaction& transaction, TableId table,
                             const std::vector<ScriptStep>& steps, Run& run) {
  run = Run{};
  for (const ScriptStep& step : steps) {
    std::optional<std::string>& value = run.values.emplace_back();
    switch (step.kind) {
      case ScriptStep::Kind::kPut: transaction.put(table, step.key, step.value); continue;
      case ScriptStep::Kind::kInsert: transaction.insert(table, step.key, step.value); continue;
      case ScriptStep::Kind::kDel: transaction.erase(table, step.key); continue;
      case ScriptStep::Kind::kGet:
      case ScriptStep::Kind::kCheck: break;
    }
    auto got = co_await transaction.get(table, step.key);
    if (!got && got.code() != ErrorCode::kNotFound) {
      run.why_not = fmt::format("{}: {}", name_of(step), why_text(got.error()));
      co_return std::move(got.error());
    }
    if (got) value = std::move(*got);
    if (step.kind == ScriptStep::Kind::kCheck && value != step.value) {
      run.why_not = fmt::format("{}: {}, not '{}'; nothing was changed", name_of(step),
                                value ? "it is '" + printable(*value) + "'" : "it is not there",
                                printable(step.value));
      co_return make_error(ErrorCode::kInvalidArgument, run.why_not);
    }
  }
  co_return Status{};
}

void print_run(const std::vector<ScriptStep>& steps, const Run& run, TxId id, bool json) {
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (size_t i = 0; i < steps.size(); ++i) {
    const ScriptStep& step = steps[i];
    const std::optional<std::string>& value = run.values[i];
    if (json) {
      nlohmann::ordered_json result = {{"op", step_name(step.kind)}, {"key", json_bytes(step.key)}};
      if (step.kind == ScriptStep::Kind::kGet) {
        result["value"] = value ? json_bytes(*value) : nlohmann::ordered_json(nullptr);
      }
      results.push_back(std::move(result));
    } else if (step.kind == ScriptStep::Kind::kGet) {
      print_text(printable(step.key) + "\t" + (value ? printable(*value) : "(not found)") + "\n");
    }
  }
  const bool wrote = id.client.is_somebody();
  if (json) {
    nlohmann::ordered_json object = {{"committed", true}, {"results", std::move(results)}};
    if (wrote) object["transaction"] = id.to_string();
    print_json(object);
  } else {
    print_text(wrote ? "committed " + id.to_string() + "\n" : "committed, nothing written\n");
  }
}

// The effect of the first `count` steps on a new table: the last write of each key.
Status check_room(const Client& client, const std::vector<ScriptStep>& steps, size_t count) {
  std::map<std::string_view, size_t> left;
  for (size_t i = 0; i < count; ++i) {
    const ScriptStep& step = steps[i];
    switch (step.kind) {
      case ScriptStep::Kind::kPut:
      case ScriptStep::Kind::kInsert: left[step.key] = step.value.size(); break;
      case ScriptStep::Kind::kDel: left.erase(step.key); break;
      case ScriptStep::Kind::kGet:
      case ScriptStep::Kind::kCheck: break;
    }
  }
  std::vector<WriteSize> writes;
  for (const auto& [key, value_bytes] : left) writes.push_back({key.size(), value_bytes});
  return client.check_room(writes);
}

// A step with which a script that is too large becomes so.
const ScriptStep& passes_room(const Client& client, const std::vector<ScriptStep>& steps) {
  size_t fits = 0;  // so many steps
  size_t passes = steps.size();
  while (passes - fits > 1) {
    const size_t middle = fits + (passes - fits) / 2;
    (check_room(client, steps, middle) ? fits : passes) = middle;
  }
  return steps[passes - 1];
}

// Which insert or del the store has refused, in words; as the store is now, which may be different
// from what the transaction met: then nothing.
base::Task<std::string> refused_step(Client& client, TableId table,
                                     const std::vector<ScriptStep>& steps) {
  std::map<std::string_view, bool> present;  // after the steps before
  for (const ScriptStep& step : steps) {
    const bool insert = step.kind == ScriptStep::Kind::kInsert;
    const bool del = step.kind == ScriptStep::Kind::kDel;
    if (insert || del) {
      auto known = present.find(step.key);
      if (known == present.end()) {
        const auto got = co_await client.get(table, step.key);
        if (!got && got.code() != ErrorCode::kNotFound) co_return std::string();
        known = present.emplace(step.key, got.has_value()).first;
      }
      if (known->second == insert) {
        co_return fmt::format("{}: the key is {}; nothing was changed", name_of(step),
                              insert ? "there already" : "not there");
      }
    }
    if (insert || del || step.kind == ScriptStep::Kind::kPut) present[step.key] = !del;
  }
  co_return std::string();
}

// Like retry(), but keeps the name of the transaction that committed.
base::Task<int> txn(Client& client, const KvOptions& options,
                    const std::vector<ScriptStep>& steps) {
  bool writes = false;
  for (const ScriptStep& step : steps) {
    writes |= step.kind == ScriptStep::Kind::kPut || step.kind == ScriptStep::Kind::kInsert;
  }
  // Checked before the table is made, so that a refused command leaves nothing.
  if (auto room = check_room(client, steps, steps.size()); !room) {
    co_return fail(kProgram, "kv txn",
                   name_of(passes_room(client, steps)) + ": " + room.error().message);
  }
  auto table = co_await client.open_table(options.table, writes);
  if (!table) co_return fail(kProgram, "kv txn", table.error());
  Run run;
  TxId id;
  auto body = [&](Transaction& transaction) -> base::Task<Status> {
    auto status = co_await run_steps(transaction, *table, steps, run);
    if (status) status = co_await transaction.commit();
    id = transaction.id();
    co_return status;
  };
  Status done;
  constexpr unsigned kAttempts = 1000;
  uint64_t pause_ns = 1000;
  for (unsigned attempt = 0; attempt < kAttempts; ++attempt) {
    Transaction transaction = client.begin();
    done = co_await body(transaction);
    if (done || done.code() != ErrorCode::kConflict) break;
    co_await client.executor().sleep_for(client.executor().random().below(pause_ns));
    if (pause_ns < 1'000'000) pause_ns *= 2;
  }
  const bool refused =
      !done && (done.code() == ErrorCode::kAlreadyExists || done.code() == ErrorCode::kNotFound);
  if (refused && run.why_not.empty()) run.why_not = co_await refused_step(client, *table, steps);
  if (!done && !run.why_not.empty()) co_return fail(kProgram, "kv txn", run.why_not);
  if (refused) {
    co_return fail(kProgram, "kv txn",
                   "a key to insert was there, or one to delete was not; nothing was changed");
  }
  if (!done) co_return fail(kProgram, "kv txn", done.error());
  print_run(steps, run, id, options.session.json);
  co_return kDone;
}

int run_txn(const KvOptions& options) {
  const std::string& file = options.script_file;
  const auto text = options.script_text
                        ? Result<std::string>(*options.script_text)
                        : read_argument(file == "-" ? file : "@" + file, false, kMaxScriptBytes);
  if (!text) return fail(kProgram, "kv txn", text.error());
  const auto steps = parse_script(*text);
  if (!steps) return fail(kProgram, "kv txn", steps.error());
  return with_client(options, "kv txn", [&](Client& client, const KvOptions& resolved) {
    return txn(client, resolved, *steps);
  });
}

}  // namespace

void add_kv_txn(CLI::App& kv, Invocation& invocation) {
  auto options = std::make_shared<KvOptions>();
  CLI::App* const command = kv.add_subcommand("txn", "run a script as one transaction");
  options->session.add_to(*command);
  command->add_option("--table", options->table, "made when the script writes and it is not there")
      ->capture_default_str();
  CLI::Option* const file = command->add_option("FILE", options->script_file,
                                                "the script; - is standard input (default)");
  command->add_option("-e,--execute", options->script_text, "the script itself")->excludes(file);
  command->footer(
      "The script has one operation a line: get K, put K V, insert K V (fails when K is there), "
      "del\n"
      "K (fails when it is not), check K V (nothing happens unless K has the value V). All of it\n"
      "happens, or nothing. Words may be \"quoted\", with \\n \\t \\r \\\" \\\\ \\xHH in them; # "
      "starts a comment.\n"
      "example: printf 'check alice 100\\nput alice 90\\nput bob 10\\n' | pmstore kv txn --uri "
      "tcp://127.0.0.1:7000");
  command->callback(
      [options, &invocation] { invocation.run = [options] { return run_txn(*options); }; });
}

}  // namespace pmstore::tools
