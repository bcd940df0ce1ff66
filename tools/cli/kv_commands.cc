// pmstore kv get | put | del | outcome; see also kv_load.cc, kv_scan.cc, kv_erase_range.cc,
// kv_txn.cc
#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "tools/cli/bytes_text.h"
#include "tools/cli/command_line.h"
#include "tools/cli/kv_session.h"
#include "tools/cli/text_table.h"

namespace pmstore::tools {

Result<std::string> read_argument(const std::string& argument, bool literal, size_t limit_bytes) {
  if (literal || (argument != "-" && !argument.starts_with('@'))) return argument;
  const std::string path = argument == "-" ? "/dev/stdin" : argument.substr(1);
  std::FILE* const file = argument == "-" ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    return make_error(ErrorCode::kIo, "cannot read '" + path + "': " + std::strerror(errno));
  }
  std::string bytes(limit_bytes + 1, '\0');
  bytes.resize(std::fread(bytes.data(), 1, bytes.size(), file));
  const bool failed = std::ferror(file) != 0;
  const int why = errno;
  if (file != stdin) std::fclose(file);
  if (failed)
    return make_error(ErrorCode::kIo, "cannot read '" + path + "': " + std::strerror(why));
  if (bytes.size() > limit_bytes) {
    return make_error(ErrorCode::kTooLarge,
                      fmt::format("'{}' has more than {} bytes", path, limit_bytes));
  }
  return bytes;
}

namespace {

// The records that are there are printed, and all keys that are not are named in one error.
base::Task<int> get_several(Client& client, TableId table, const KvOptions& options) {
  if (options.raw) co_return fail(kProgram, "kv get", "--raw prints the value of one key");
  const std::vector<std::string_view> keys(options.keys.begin(), options.keys.end());
  const auto values = co_await client.get_many(table, keys);
  if (!values) co_return fail(kProgram, "kv get", values.error());
  nlohmann::ordered_json records = nlohmann::ordered_json::array();
  std::string absent;
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::optional<std::string>& value = (*values)[i];
    if (!value) absent += (absent.empty() ? "'" : ", '") + printable(keys[i]) + "'";
    if (options.session.json) {
      records.push_back({{"key", json_bytes(keys[i])},
                         {"value", value ? json_bytes(*value) : nlohmann::ordered_json(nullptr)}});
    } else if (value) {
      print_text(printable(keys[i]) + "\t" + printable(*value) + "\n");
    }
  }
  if (options.session.json) print_json({{"records", records}});
  if (absent.empty()) co_return kDone;
  co_return fail(kProgram, "kv get", absent + " not found in table '" + options.table + "'");
}

base::Task<int> get(Client& client, const KvOptions& options) {
  const std::string what = "kv get '" + printable(options.keys[0]) + "'";
  auto table = co_await client.open_table(options.table);
  if (!table) co_return fail(kProgram, what, table.error());
  if (options.keys.size() > 1) co_return co_await get_several(client, *table, options);
  auto value = co_await client.get(*table, options.keys[0]);
  if (!value && value.code() == ErrorCode::kNotFound) {
    co_return fail(kProgram, what, "not found in table '" + options.table + "'");
  }
  if (!value) co_return fail(kProgram, what, value.error());
  if (options.session.json) {
    print_json({{"key", json_bytes(options.keys[0])}, {"value", json_bytes(*value)}});
  } else {
    print_text(*value);
    if (!options.raw) print_text("\n");
  }
  co_return kDone;
}

base::Task<int> put(Client& client, const KvOptions& options) {
  const std::string what = "kv put '" + printable(options.key) + "'";
  auto value = read_argument(options.value, options.literal, kMaxValueBytes);
  if (!value) co_return fail(kProgram, what, value.error());
  // Checked before the table is made, so that a refused command leaves nothing.
  if (auto sizes = check_sizes(options.key, *value); !sizes) {
    co_return fail(kProgram, what, sizes.error());
  }
  const WriteSize size{options.key.size(), value->size()};
  if (auto room = client.check_room({&size, 1}); !room) {
    co_return fail(kProgram, what, room.error());
  }
  auto table = co_await client.open_table(options.table, true);
  if (!table) co_return fail(kProgram, what, table.error());
  const Status done = co_await client.put(*table, options.key, *value);
  if (!done) co_return fail(kProgram, what, done.error());
  if (options.session.json) {
    print_json({{"key", json_bytes(options.key)}, {"value_bytes", value->size()}});
  }
  co_return kDone;
}

base::Task<int> del(Client& client, const KvOptions& options) {
  const std::string what = "kv del '" + printable(options.key) + "'";
  auto table = co_await client.open_table(options.table);
  if (!table) co_return fail(kProgram, what, table.error());
  const Status done = co_await client.erase(*table, options.key);
  if (!done && done.code() == ErrorCode::kNotFound) {
    co_return fail(kProgram, what, "not found in table '" + options.table + "'");
  }
  if (!done) co_return fail(kProgram, what, done.error());
  if (options.session.json) print_json({{"key", json_bytes(options.key)}, {"deleted", true}});
  co_return kDone;
}

base::Task<int> outcome(Client& client, const KvOptions& options) {
  const TxId id = *parse_tx_id(options.transaction);
  auto found = co_await client.outcome(id);
  if (!found) co_return fail(kProgram, "kv outcome " + options.transaction, found.error());
  const bool committed = *found == Outcome::kCommitted;
  if (options.session.json) {
    print_json({{"transaction", id.to_string()}, {"outcome", committed ? "committed" : "aborted"}});
  } else {
    print_text(committed ? "committed\n" : "aborted: it did not happen and never will\n");
  }
  co_return kDone;
}

using Body = base::Task<int> (*)(Client&, const KvOptions&);

CLI::App* add(CLI::App& kv, const std::string& name, const std::string& about, Body body,
              const std::shared_ptr<KvOptions>& options, Invocation& invocation) {
  CLI::App* const command = kv.add_subcommand(name, about);
  command->callback([=, &invocation] {
    invocation.run = [=] { return with_client(*options, "kv " + name, body); };
  });
  options->session.add_to(*command);
  return command;
}

void add_table(CLI::App& command, KvOptions& options, const std::string& about) {
  command.add_option("--table", options.table, about)->capture_default_str();
}

}  // namespace

void add_kv_commands(CLI::App& app, Invocation& invocation) {
  CLI::App* const kv = app.add_subcommand("kv", "read and write records");
  kv->require_subcommand(1);
  kv->footer(
      "In JSON, keys and values that are not valid UTF-8 are {\"base64\": \"...\"} instead of a "
      "string.\nexample: pmstore kv put --uri local:/dev/shm/pool name value");

  auto options = std::make_shared<KvOptions>();
  CLI::App* command =
      add(*kv, "get", "print the value of a key, or of several", get, options, invocation);
  add_table(*command, *options, "where to look");
  command->add_option("KEY", options->keys, "several: KEY<tab>VALUE a line, as scan prints them")
      ->required();
  command->add_flag("--raw", options->raw, "the value's bytes only, without a newline behind them");
  command->footer(
      "example: pmstore kv get --uri tcp://127.0.0.1:7000 name\n"
      "         pmstore kv get --uri tcp://127.0.0.1:7000 alice bob carol");

  command = add(*kv, "put", "set the value of a key", put, options, invocation);
  add_table(*command, *options, "made when it is not there");
  command->add_option("KEY", options->key)->required();
  command->add_option("VALUE", options->value, "the value; - for standard input, @FILE for a file")
      ->required();
  command->add_flag("--literal", options->literal, "VALUE is the value, also when it is - or @...");
  command->footer("example: pmstore kv put --uri tcp://127.0.0.1:7000 name @photo.jpg");

  command = add(*kv, "del", "delete a key", del, options, invocation);
  add_table(*command, *options, "where to look");
  command->add_option("KEY", options->key)->required();
  command->footer("example: pmstore kv del --uri tcp://127.0.0.1:7000 name");

  add_kv_load(*kv, invocation);
  add_kv_scan(*kv, invocation);
  add_kv_erase_range(*kv, invocation);

  command = add(*kv, "outcome", "did a transaction commit?", outcome, options, invocation);
  command
      ->add_option(
          "TRANSACTION", options->transaction,
          "its name, as an error message gave it: 0123456789abcdef0123456789abcdef-42-dd5a")
      ->required()
      ->check(parsed_by(parse_tx_id, "TRANSACTION"));
  command->footer(
      "example: pmstore kv outcome --uri tcp://127.0.0.1:7000 "
      "0123456789abcdef0123456789abcdef-42-dd5a");

  add_kv_txn(*kv, invocation);
}

}  // namespace pmstore::tools
