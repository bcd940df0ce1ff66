// pmstore table list | create | drop | stat
#include <fmt/format.h>

#include <algorithm>

#include "tools/cli/bytes_text.h"
#include "tools/cli/command_line.h"
#include "tools/cli/kv_session.h"
#include "tools/cli/text_table.h"

namespace pmstore::tools {
namespace {

std::string what_of(std::string_view verb, const KvOptions& options) {
  return fmt::format("table {} '{}'", verb, printable(options.table));
}

base::Task<int> list(Client& client, const KvOptions& options) {
  auto tables = co_await client.list_tables();
  if (!tables) co_return fail(kProgram, "table list", tables.error());
  std::sort(tables->begin(), tables->end(),
            [](const TableInfo& a, const TableInfo& b) { return a.name < b.name; });
  if (options.session.json) {
    nlohmann::ordered_json array = nlohmann::ordered_json::array();
    for (const TableInfo& table : *tables) {
      array.push_back({{"table", json_bytes(table.name)},
                       {"id", raw(table.id)},
                       {"kind", table_kind_name(kind_of(table.id))}});
    }
    print_json({{"tables", std::move(array)}});
    co_return kDone;
  }
  TextTable text(1);
  text.row({"table", "id", "kind"});
  for (const TableInfo& table : *tables) {
    text.row({printable(table.name), std::to_string(raw(table.id)),
              std::string(table_kind_name(kind_of(table.id)))});
  }
  print_text(text.text());
  co_return kDone;
}

base::Task<int> create(Client& client, const KvOptions& options) {
  const TableKind kind = options.ordered ? TableKind::kOrdered : TableKind::kHash;
  const auto table = co_await client.create_table(options.table, kind);
  if (!table) co_return fail(kProgram, what_of("create", options), table.error());
  if (options.session.json) {
    print_json({{"table", json_bytes(options.table)},
                {"id", raw(*table)},
                {"kind", table_kind_name(kind_of(*table))}});
  }
  co_return kDone;
}

base::Task<int> drop(Client& client, const KvOptions& options) {
  const Status dropped = co_await client.drop_table(options.table);
  if (!dropped) co_return fail(kProgram, what_of("drop", options), dropped.error());
  if (options.session.json) {
    print_json({{"table", json_bytes(options.table)}, {"dropped", true}});
  }
  co_return kDone;
}

base::Task<int> stat(Client& client, const KvOptions& options) {
  const std::string what = what_of("stat", options);
  const auto table = co_await client.open_table(options.table);
  if (!table) co_return fail(kProgram, what, table.error());
  const auto usage = co_await client.table_usage(*table);
  if (!usage) co_return fail(kProgram, what, usage.error());
  if (options.session.json) {
    print_json({{"table", json_bytes(options.table)},
                {"id", raw(*table)},
                {"records", usage->records},
                {"key_bytes", usage->key_bytes},
                {"value_bytes", usage->value_bytes},
                {"slot_bytes", usage->slot_bytes}});
    co_return kDone;
  }
  TextTable text(1);
  text.row({"table", "id", "records", "key bytes", "value bytes", "slot bytes"});
  text.row({printable(options.table), std::to_string(raw(*table)), std::to_string(usage->records),
            std::to_string(usage->key_bytes), std::to_string(usage->value_bytes),
            std::to_string(usage->slot_bytes)});
  print_text(text.text());
  co_return kDone;
}

using Body = base::Task<int> (*)(Client&, const KvOptions&);

CLI::App& add(CLI::App& tables, const std::string& name, const std::string& about, Body body,
              const std::shared_ptr<KvOptions>& options, Invocation& invocation) {
  CLI::App* const command = tables.add_subcommand(name, about);
  command->callback([=, &invocation] {
    invocation.run = [=] { return with_client(*options, "table " + name, body); };
  });
  options->session.add_to(*command);
  return *command;
}

}  // namespace

void add_table_commands(CLI::App& app, Invocation& invocation) {
  CLI::App* const tables = app.add_subcommand("table", "list, create and drop tables");
  tables->require_subcommand(1);
  tables->footer("example: pmstore table list --uri local:/dev/shm/pool");
  auto options = std::make_shared<KvOptions>();
  options->table.clear();
  add(*tables, "list", "print the names, ids and kinds of all tables", list, options, invocation)
      .footer("example: pmstore table list --uri tcp://127.0.0.1:7000");
  CLI::App& made =
      add(*tables, "create", "make a table that is not there yet", create, options, invocation);
  made.add_flag("--ordered", options->ordered,
                "keep its keys in order, so that ranges of them can be scanned");
  made.footer(
      "example: pmstore table create --uri tcp://127.0.0.1:7000 accounts\n"
      "         pmstore table create --uri tcp://127.0.0.1:7000 --ordered events");
  CLI::App& dropped = add(*tables, "drop", "delete a table with all its records, durably", drop,
                          options, invocation);
  dropped.footer(
      "There is no way back. Clients that use the table are told that it is not there any more.\n"
      "example: pmstore table drop --uri tcp://127.0.0.1:7000 accounts");
  CLI::App& counted =
      add(*tables, "stat", "count a table's records and bytes", stat, options, invocation);
  counted.footer(
      "Looks at every record of the pool.\n"
      "example: pmstore table stat --uri tcp://127.0.0.1:7000 accounts");
  for (CLI::App* const command : {&made, &dropped, &counted}) {
    command->add_option("NAME", options->table, "of the table")->required();
  }
}

}  // namespace pmstore::tools
