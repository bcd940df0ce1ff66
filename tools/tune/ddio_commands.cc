// pmstore ddio status | on | off | restore
#include <fmt/format.h>

#include <bit>
#include <memory>

#include "ddio/control.h"
#include "tools/cli/command_line.h"
#include "tools/cli/commands.h"
#include "tools/cli/console.h"
#include "tools/cli/text_table.h"
#include "tools/tune/guarded_command.h"

namespace pmstore::tools {
namespace {

using nlohmann::ordered_json;

struct DdioOptions {
  std::vector<std::string> rnics;
  std::string recipe;
  std::string machine;
  std::string state;
  std::vector<std::string> command;
  uint32_t ways = 0;
  bool force = false;
  bool apply = false;
  bool json = false;
};

// Everything that the subcommands begin with.
struct Situation {
  std::unique_ptr<ddio::Machine> machine;
  ddio::Cpu cpu;
  const ddio::Recipe* recipe = nullptr;
  ddio::KnownPorts known;
  std::string state_file;
};

Result<std::unique_ptr<ddio::Machine>> machine_of(const DdioOptions& options) {
  if (options.machine.empty()) return ddio::this_machine();
  return ddio::recorded_machine(options.machine);
}

Result<Situation> look(const DdioOptions& options) {
  Situation found;
  PMSTORE_TRY(found.machine, machine_of(options));
  found.state_file = options.state.empty() ? found.machine->default_state_file() : options.state;
  std::vector<ddio::Rnic> rnics;
  for (const std::string& name : options.rnics) {
    PMSTORE_TRY(const ddio::Rnic rnic, ddio::find_rnic(*found.machine, name));
    rnics.push_back(rnic);
  }
  std::vector<std::string> software;
  if (options.rnics.empty()) rnics = ddio::list_rnics(*found.machine, &software);
  if (rnics.empty()) {
    return make_error(
        ErrorCode::kNotFound,
        software.empty()
            ? "there is no RDMA device: load its driver, or name a network device or PCI address "
              "with --rnic"
            : fmt::format("{} is a software RNIC: it writes with a CPU, always into its cache; "
                          "there is nothing to switch",
                          software.front()));
  }
  PMSTORE_TRY(found.cpu, ddio::identify_cpu(*found.machine));
  PMSTORE_TRY(found.recipe, ddio::choose_recipe(found.cpu, options.recipe, options.force));
  found.known = ddio::find_known_ports(*found.machine, found.cpu, rnics,
                                       options.force && !options.recipe.empty());
  return found;
}

// For on and off: every RNIC that is meant can be switched.
Status check_all_known(const Situation& situation) {
  const ddio::KnownPorts& known = situation.known;
  if (known.others.empty()) return {};
  Error why = known.others.front().why;
  if (!known.ports.empty()) {
    why.message += "; the others can be switched:";
    for (const ddio::RootPort& port : known.ports) {
      for (const ddio::Rnic& rnic : port.rnics) why.message += " --rnic " + rnic.name;
    }
  }
  return why;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text.append(text.empty() ? "" : " ").append(word);
  return text.empty() ? "-" : text;
}

std::string rnic_name(const ddio::Rnic& rnic) {
  const std::string address = rnic.address.text();
  return rnic.name == address ? address : fmt::format("{}({})", rnic.name, address);
}

std::vector<std::string> rnic_names(const ddio::RootPort& port) {
  std::vector<std::string> names;
  for (const ddio::Rnic& rnic : port.rnics) names.push_back(rnic_name(rnic));
  return names;
}

std::vector<std::string> beside_names(const ddio::RootPort& port) {
  std::vector<std::string> names;
  for (const ddio::PciAddress& address : port.beside) names.push_back(address.text());
  return names;
}

ordered_json changes_json(const std::vector<ddio::Change>& changes) {
  ordered_json list = ordered_json::array();
  for (const ddio::Change& change : changes) {
    list.push_back({{"register", change.where.text()},
                    {"mask", fmt::format("{:#x}", change.mask)},
                    {"before", fmt::format("{:#x}", change.before)},
                    {"after", fmt::format("{:#x}", change.after)}});
  }
  return list;
}

std::string changes_text(const std::vector<ddio::Change>& changes, bool backwards) {
  TextTable table(1);
  table.row({"register", "bits", backwards ? "is" : "before", backwards ? "becomes" : "after"});
  for (const ddio::Change& change : changes) {
    table.row({change.where.text(), fmt::format("{:#x}", change.mask),
               fmt::format("{:#x}", backwards ? change.after : change.before),
               fmt::format("{:#x}", backwards ? change.before : change.after)});
  }
  return table.text();
}

// --- status

struct PortReport {
  const ddio::RootPort* port;
  Result<ddio::PortValues> values;
};

ordered_json rnic_json(const ddio::Rnic& rnic) {
  return {{"name", rnic.name}, {"address", rnic.address.text()}};
}

ordered_json port_json(const PortReport& report, const ddio::Recipe& recipe) {
  ordered_json rnics = ordered_json::array();
  for (const ddio::Rnic& rnic : report.port->rnics) rnics.push_back(rnic_json(rnic));
  ordered_json object = {{"port", report.port->address.text()},
                         {"rnics", rnics},
                         {"beside", beside_names(*report.port)}};
  if (report.port->numa_node) object["numa_node"] = *report.port->numa_node;
  if (report.values) {
    object["ddio"] = ddio::ddio_state_name(ddio::state_of(*report.values, recipe));
    object["perfctrlsts_0"] = fmt::format("{:#x}", report.values->perfctrlsts0);
    object["perfctrlsts_1"] = fmt::format("{:#x}", report.values->perfctrlsts1);
  } else {
    object["ddio"] = "unknown";
    object["error"] = report.values.error().message;
  }
  return object;
}

ordered_json other_json(const ddio::KnownPorts::Other& other) {
  return {{"port", nullptr},
          {"rnics", ordered_json::array({rnic_json(other.rnic)})},
          {"beside", ordered_json::array()},
          {"ddio", "unknown"},
          {"error", other.why.message}};
}

std::string ports_text(const std::vector<PortReport>& reports,
                       const std::vector<ddio::KnownPorts::Other>& others,
                       const ddio::Recipe& recipe) {
  TextTable table(4);
  table.row({"root port", "RNIC", "also behind it", "DDIO", "PERFCTRLSTS_0", "PERFCTRLSTS_1",
             "NUMA node"});
  for (const PortReport& report : reports) {
    const auto& values = report.values;
    const auto state = values ? ddio::ddio_state_name(ddio::state_of(*values, recipe)) : "unknown";
    const auto& node = report.port->numa_node;
    table.row({report.port->address.text(), joined(rnic_names(*report.port)),
               joined(beside_names(*report.port)), std::string(state),
               values ? fmt::format("{:#x}", values->perfctrlsts0) : "-",
               values ? fmt::format("{:#x}", values->perfctrlsts1) : "-",
               node ? std::to_string(*node) : "-"});
  }
  for (const auto& other : others) {
    table.row({"-", rnic_name(other.rnic), "-", "unknown", "-", "-",
               other.rnic.numa_node ? std::to_string(*other.rnic.numa_node) : "-"});
  }
  return table.text();
}

// How much of the cache devices may use; nothing where the register is not known to work.
struct WaysReport {
  std::vector<ddio::SocketWays> sockets;
  std::optional<Error> problem;
};

void print_status(const Situation& situation, const std::vector<PortReport>& reports,
                  const WaysReport& ways, const ddio::State& state, bool json) {
  if (json) {
    ordered_json ports = ordered_json::array(), sockets = ordered_json::array();
    for (const PortReport& report : reports) ports.push_back(port_json(report, *situation.recipe));
    for (const auto& other : situation.known.others) ports.push_back(other_json(other));
    for (const ddio::SocketWays& socket : ways.sockets) {
      sockets.push_back({{"socket", socket.socket}, {"mask", fmt::format("{:#x}", socket.mask)}});
    }
    ordered_json object = {{"cpu", situation.cpu.text()},
                           {"recipe", situation.recipe->name},
                           {"recipe_source", situation.recipe->source},
                           {"ports", ports},
                           {"llc_ways", sockets},
                           {"changed_by_us", changes_json(state.changes)}};
    if (ways.problem) object["llc_ways_error"] = ways.problem->message;
    print_json(object);
    return;
  }
  print_text(ports_text(reports, situation.known.others, *situation.recipe));
  print_text(fmt::format("CPU: {}\nrecipe: {} ({})\n", situation.cpu.text(), situation.recipe->name,
                         situation.recipe->source));
  for (const ddio::SocketWays& socket : ways.sockets) {
    print_text(
        fmt::format("socket {}: devices may allocate into {} ways of the last-level cache "
                    "({:#x})\n",
                    socket.socket, std::popcount(socket.mask), socket.mask));
  }
  if (ways.problem) {
    print_text("ways of the last-level cache: unknown: " + ways.problem->message + "\n");
  }
  if (!state.changes.empty()) {
    print_text("changed by us, undone by 'pmstore ddio restore --apply':\n" +
               changes_text(state.changes, false));
  }
}

int status(const DdioOptions& options) {
  const auto situation = look(options);
  if (!situation) return fail(kProgram, "cannot tell the state of DDIO", situation.error());
  std::vector<PortReport> reports;
  std::optional<Error> problem;
  for (const auto& other : situation->known.others) problem = other.why;
  for (const ddio::RootPort& port : situation->known.ports) {
    reports.push_back({&port, ddio::read_port(*situation->machine, port.address)});
    if (!reports.back().values) problem = reports.back().values.error();
  }
  WaysReport ways;
  if (situation->cpu.known != nullptr && situation->cpu.known->llc_ways) {
    ways.sockets = ddio::read_ways(*situation->machine, &ways.problem);
  }
  const auto state = ddio::noted_changes(*situation->machine, situation->state_file);
  print_status(*situation, reports, ways, state ? *state : ddio::State(), options.json);
  std::fflush(stdout);
  if (problem) return fail(kProgram, "cannot tell the state of DDIO", *problem);
  if (!state) return fail(kProgram, "cannot tell what was changed", state.error());
  return kDone;
}

// --- on, off

Result<std::vector<ddio::Change>> plan(const Situation& situation, const DdioOptions& options,
                                       bool on) {
  PMSTORE_TRY_STATUS(check_all_known(situation));
  PMSTORE_TRY(auto changes,
              ddio::plan_switch(*situation.machine, situation.known.ports, *situation.recipe, on));
  if (options.ways == 0) return changes;
  PMSTORE_TRY(const auto ways, ddio::plan_ways(*situation.machine, options.ways));
  changes.insert(changes.end(), ways.begin(), ways.end());
  return changes;
}

void print_plan(const Situation& situation, const std::vector<ddio::Change>& changes,
                const DdioOptions& options) {
  std::vector<std::string> beside;
  for (const ddio::RootPort& port : situation.known.ports) {
    const auto names = beside_names(port);
    beside.insert(beside.end(), names.begin(), names.end());
  }
  if (options.json) {
    print_json({{"applied", options.apply},
                {"recipe", situation.recipe->name},
                {"changes", changes_json(changes)},
                {"also_affected", beside},
                {"state_file", situation.state_file}});
    return;
  }
  if (changes.empty()) {
    print_text("nothing to change: every register is so already\n");
    return;
  }
  print_text(changes_text(changes, false));
  if (!beside.empty()) print_text("this also affects " + joined(beside) + "\n");
  print_text(options.apply ? "changed; 'pmstore ddio restore --apply' undoes it\n"
                           : "nothing was changed: --apply does it\n");
}

// Holds `file` all the time, so that no other program switches meanwhile.
int with_command(Situation& situation, const DdioOptions& options,
                 const std::vector<ddio::Change>& changes, const ddio::StateFile& file,
                 GuardedCommand& guard) {
  const auto ended = guard.run(options.command);
  const Status undone = ddio::undo(*situation.machine, file, changes);
  if (!undone) return fail(kProgram, "cannot undo the change of DDIO", undone.error());
  if (!ended) return fail(kProgram, "DDIO is as it was before", ended.error());
  return *ended;
}

int set(const DdioOptions& options, bool on) {
  const std::string what = on ? "cannot switch DDIO on" : "cannot switch DDIO off";
  auto situation = look(options);
  if (!situation) return fail(kProgram, what, situation.error());
  GuardedCommand guard;
  std::unique_ptr<ddio::StateFile> file;
  if (options.apply) {
    auto opened = ddio::StateFile::open(situation->state_file);
    if (!opened) return fail(kProgram, what, opened.error());
    file = std::move(*opened);
  }
  const auto changes = plan(*situation, options, on);
  if (!changes) return fail(kProgram, what, changes.error());
  if (options.apply) {
    const Status done = ddio::apply(*situation->machine, *file, *changes);
    if (!done) return fail(kProgram, what, done.error());
  }
  if (!options.command.empty()) return with_command(*situation, options, *changes, *file, guard);
  print_plan(*situation, *changes, options);
  return kDone;
}

// --- restore

int restore(const DdioOptions& options) {
  const std::string what = "cannot restore DDIO";
  const auto machine = machine_of(options);
  if (!machine) return fail(kProgram, what, machine.error());
  const std::string path = options.state.empty() ? (*machine)->default_state_file() : options.state;
  const auto content = ddio::StateFile::read(path);
  if (!content) return fail(kProgram, what, content.error());
  ddio::Restored restored;
  if (!content->changes.empty()) {
    GuardedCommand guard;
    const auto file = ddio::StateFile::open(path);
    if (!file) return fail(kProgram, what, file.error());
    auto done = ddio::restore(**machine, **file, options.force, !options.apply);
    if (!done) return fail(kProgram, what, done.error());
    restored = std::move(*done);
  }
  if (options.json) {
    print_json({{"applied", options.apply},
                {"restored", changes_json(restored.undone)},
                {"already", changes_json(restored.already)},
                {"left_alone", changes_json(restored.unread)},
                {"earlier_boot", restored.earlier_boot}});
  } else if (!restored.undone.empty()) {
    print_text(changes_text(restored.undone, true));
    print_text(options.apply ? "restored\n" : "nothing was changed: --apply does it\n");
  } else if (restored.unread.empty()) {
    print_text(restored.earlier_boot
                   ? "what was changed was changed before the last boot, which has reset it\n"
                   : "nothing to restore: no register is changed\n");
  }
  if (restored.unread.empty()) return kDone;
  std::fflush(stdout);
  return fail(kProgram, "cannot restore all of DDIO",
              restored.why_unread +
                  "; what cannot be read stays noted: "
                  "'pmstore ddio restore --apply' tries again");
}

// --- options

void add_place(CLI::App& command, DdioOptions& options) {
  command.add_option("--machine", options.machine,
                     "a folder with a recorded machine instead of this one (docs/ddio.md)");
  command.add_option("--state", options.state,
                     "file that says what was changed (default: /run/pmstore/ddio.state)");
  command.add_flag("--json", options.json, "print one JSON object");
}

void add_choice(CLI::App& command, DdioOptions& options) {
  command
      .add_option("--rnic", options.rnics,
                  "only the root port of this one: RDMA device, network device or PCI address; "
                  "may be given several times (default: every RDMA device)")
      ->type_size(1)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command.add_option("--recipe", options.recipe,
                     "which bits: rpma, no-snoop or bit7 (default: the CPU family's own)");
  command.add_flag("--force", options.force,
                   "with --recipe: also on a CPU or at a root port where none is known to work");
}

void add_switch(CLI::App& parent, Invocation& invocation, bool on) {
  CLI::App* const command = parent.add_subcommand(
      on ? "on" : "off", on ? "RNICs write into the cache" : "RNICs write to memory");
  auto options = std::make_shared<DdioOptions>();
  add_choice(*command, *options);
  add_place(*command, *options);
  command->add_flag("--apply", options->apply, "do it; without it, only say what would change");
  if (on) {
    command
        ->add_option("--ways", options->ways,
                     "and let devices allocate into so many ways of the last-level cache, on "
                     "every socket")
        ->check(in_range(1, 32));
  }
  command->add_option("COMMAND", options->command,
                      "after --: run this, and undo the change when it has ended, however it does");
  command->footer(
      fmt::format("Exit status with COMMAND: its own, or 1 when the change could not be undone.\n"
                  "example: pmstore ddio {} --rnic mlx5_0\n"
                  "example: pmstore ddio {} --apply -- pmstore bench micro",
                  on ? "on" : "off", on ? "on" : "off"));
  command->callback([options, on, &invocation] {
    if (!options->command.empty() && !options->apply) {
      throw CLI::ValidationError("COMMAND", "needs --apply: without it nothing is changed");
    }
    if (!options->command.empty() && options->json) {
      throw CLI::ValidationError("--json", "not with COMMAND, whose output it would be among");
    }
    invocation.run = [options, on] { return set(*options, on); };
  });
}

}  // namespace

void add_ddio_commands(CLI::App& app, Invocation& invocation) {
  CLI::App* const group =
      app.add_subcommand("ddio", "see and switch whether RNICs write into the CPU's cache");
  group->require_subcommand(1);
  group->footer("example: pmstore ddio status");

  CLI::App* const look_at = group->add_subcommand("status", "what it is; changes nothing");
  auto options = std::make_shared<DdioOptions>();
  add_choice(*look_at, *options);
  add_place(*look_at, *options);
  look_at->footer("example: pmstore ddio status --rnic mlx5_0");
  look_at->callback(
      [options, &invocation] { invocation.run = [options] { return status(*options); }; });

  add_switch(*group, invocation, true);
  add_switch(*group, invocation, false);

  CLI::App* const back = group->add_subcommand("restore", "undo everything that on and off did");
  auto what = std::make_shared<DdioOptions>();
  add_place(*back, *what);
  back->add_flag("--apply", what->apply, "do it; without it, only say what would change");
  back->add_flag("--force", what->force, "also a register that another program has changed since");
  back->footer("example: pmstore ddio restore --apply");
  back->callback([what, &invocation] { invocation.run = [what] { return restore(*what); }; });
}

}  // namespace pmstore::tools
