// pmstore session list | kick, and what all commands of an administrator share
#include <fmt/format.h>

#include "tools/cli/admin_session.h"
#include "tools/cli/text_table.h"

namespace pmstore::tools {

Result<fabric::Uri> parse_server_uri(std::string_view text) {
  PMSTORE_TRY(auto uri, fabric::parse_uri(text));
  if (uri.scheme != fabric::Scheme::kLocal) return uri;
  return make_error(ErrorCode::kInvalidArgument,
                    "'" + std::string(text) +
                        "' has no server; give the address of a pmstored: tcp://, shm:// or "
                        "verbs://");
}

void AdminCommandOptions::add_to(CLI::App& command) {
  CLI::Option* const where =
      command
          .add_option("--uri", uri,
                      "the server: tcp://HOST:PORT, shm://NAME or verbs://HOST:PORT; default: "
                      "$PMSTORE_URI")
          ->required()
          ->check(parsed_by(parse_server_uri, "URI"));
  // As SessionOptions::add_to().
  command.preparse_callback([where](size_t) { where->envname("PMSTORE_URI"); });
  command
      .add_option("--timeout", timeout_seconds,
                  "seconds to wait for a connection or an answer (default 5)")
      ->check(CLI::Range(0.001, 3600.0));
  command.add_flag("--json", json, "print JSON");
}

AdminOptions AdminCommandOptions::admin_options() const {
  AdminOptions options;
  options.call_timeout_ns = static_cast<uint64_t>(timeout_seconds * 1e9);
  options.connect_timeout_ns = options.call_timeout_ns;
  return options;
}

Result<nlohmann::ordered_json> parse_report(const Result<std::string>& text) {
  if (!text) return text.error();
  auto report = nlohmann::ordered_json::parse(*text, nullptr, false);
  if (report.is_object()) return report;
  return make_error(ErrorCode::kProtocol,
                    "the server's report cannot be read; use a pmstore of the server's release");
}

base::Task<Result<std::vector<nlohmann::ordered_json>>> all_sessions(AdminClient& admin) {
  std::vector<nlohmann::ordered_json> all;
  uint32_t from = 0;
  do {
    PMSTORE_CO_TRY(const auto page, parse_report(co_await admin.sessions(from)));
    const auto next = page.value("next", 0u);
    for (const auto& session : page.value("sessions", nlohmann::ordered_json::array())) {
      all.push_back(session);
    }
    // Ends when the server's cursor does not grow.
    from = next > from ? next : 0;
  } while (from != 0);
  co_return all;
}

namespace {

Result<ClientId> parse_session_id(std::string_view text) {
  const auto id = parse_client_id(text);
  if (id && id->is_somebody()) return id;
  return make_error(
      ErrorCode::kInvalidArgument,
      "'" + std::string(text) + "' is not the id of a session; see pmstore session list");
}

std::string member_seconds(const nlohmann::ordered_json& session, const char* member) {
  return fmt::format("{:.1f}", static_cast<double>(session.value(member, uint64_t{0})) / 1000);
}

// A member that not all kinds of sessions have.
std::string member_number(const nlohmann::ordered_json& session, const char* member) {
  return session.contains(member) ? std::to_string(session.value(member, uint64_t{0})) : "-";
}

int list_sessions(const AdminCommandOptions& options) {
  const std::string what = "session list";
  return with_admin(options, what, [&](Executor& executor, AdminClient& admin) {
    const auto sessions = executor.run(all_sessions(admin));
    if (!sessions) return fail(kProgram, what, sessions.error());
    if (options.json) {
      print_json({{"sessions", *sessions}});
      return kDone;
    }
    TextTable table(9);
    table.row(
        {"id", "kind", "through", "age s", "idle s", "calls", "ring", "transactions", "locks"});
    for (const auto& session : *sessions) {
      table.row({session.value("id", ""), session.value("kind", ""), session.value("via", ""),
                 member_seconds(session, "age_ms"), member_seconds(session, "idle_ms"),
                 member_number(session, "calls"), member_number(session, "ring"),
                 member_number(session, "transactions"), member_number(session, "locks")});
    }
    print_text(table.text());
    return kDone;
  });
}

int kick_sessions(const AdminCommandOptions& options, const std::string& id) {
  const std::string what = "session kick '" + id + "'";
  return with_admin(options, what, [&](Executor& executor, AdminClient& admin) {
    const auto kicked = executor.run(admin.kick(*parse_session_id(id)));
    if (!kicked) return fail(kProgram, what, kicked.error());
    if (*kicked == 0) {
      return fail(kProgram, what, "there is no such session; see pmstore session list");
    }
    if (options.json) {
      print_json({{"kicked", *kicked}});
    } else {
      print_text(fmt::format("ended {} session{} of {}\n", *kicked, *kicked == 1 ? "" : "s", id));
    }
    return kDone;
  });
}

}  // namespace

void add_session_commands(CLI::App& app, Invocation& invocation) {
  CLI::App* const session =
      app.add_subcommand("session", "the clients that are connected to a server");
  session->require_subcommand(1);
  session->footer("example: pmstore session list --uri tcp://127.0.0.1:7000");

  CLI::App* const all = session->add_subcommand("list", "the sessions of a server");
  auto listed = std::make_shared<AdminCommandOptions>();
  listed->add_to(*all);
  all->footer("example: pmstore session list --uri tcp://127.0.0.1:7000");
  all->callback(
      [listed, &invocation] { invocation.run = [listed] { return list_sessions(*listed); }; });

  CLI::App* const end = session->add_subcommand(
      "kick", "end a client's sessions; a client that is still used connects again");
  auto kicked = std::make_shared<AdminCommandOptions>();
  auto id = std::make_shared<std::string>();
  end->add_option("ID", *id, "the client, as session list shows it")
      ->required()
      ->check(parsed_by(parse_session_id, "ID"));
  kicked->add_to(*end);
  end->footer(
      "example: pmstore session kick --uri tcp://127.0.0.1:7000 "
      "bca112e9988ac6592f8fc66365de909b");
  end->callback([kicked, id, &invocation] {
    invocation.run = [kicked, id] { return kick_sessions(*kicked, *id); };
  });
}

}  // namespace pmstore::tools
