// Invariant: a register that differs from how it was found is in the state file, with the value
// that it had before our first change of it.
#include "ddio/control.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "base/check.h"

namespace pmstore::ddio {
namespace {

constexpr const char* kBootId = "/proc/sys/kernel/random/boot_id";

Register config_register(const PciAddress& port, uint32_t offset) {
  Register where;
  where.address = port;
  where.number = offset;
  return where;
}

Register ways_register(uint32_t cpu) {
  Register where;
  where.msr = true;
  where.cpu = cpu;
  where.number = kIioLlcWays;
  return where;
}

// The first logical CPU of each socket.
std::map<uint32_t, uint32_t> first_cpus(const Machine& machine) {
  std::map<uint32_t, uint32_t> first;
  const auto names = machine.list("/sys/devices/system/cpu");
  if (!names) return first;
  for (const std::string& name : *names) {
    uint32_t cpu = 0, socket = 0;
    if (!name.starts_with("cpu") || name.size() == 3) continue;
    const auto [end, error] = std::from_chars(name.data() + 3, name.data() + name.size(), cpu);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    const auto text =
        machine.read_text("/sys/devices/system/cpu/" + name + "/topology/physical_package_id");
    if (!text) continue;  // offline
    std::from_chars(text->data(), text->data() + text->size(), socket);
    const auto [at, added] = first.emplace(socket, cpu);
    if (!added) at->second = std::min(at->second, cpu);
  }
  return first;
}

Error no_sockets() {
  return make_error(ErrorCode::kIo,
                    "no CPU in /sys/devices/system/cpu says which socket it is on: check that /sys "
                    "is mounted");
}

std::string boot_of(const Machine& machine) {
  const auto boot = machine.read_text(kBootId);
  return boot ? *boot : "unknown";
}

void append(std::string& list, const std::string& more) {
  list += list.empty() ? more : "; " + more;
}

bool differs(const Change& change) { return ((change.before ^ change.after) & change.mask) != 0; }

Change* entry_of(State& state, const Register& where) {
  const auto at = std::find_if(state.changes.begin(), state.changes.end(),
                               [&](const Change& one) { return one.where == where; });
  return at == state.changes.end() ? nullptr : &*at;
}

// The state to be noted before `changes` are made. A register that is noted already keeps what it
// was before our first change; one that goes back to that stays noted until it is done.
State noted(State state, const std::vector<Change>& changes) {
  for (const Change& change : changes) {
    Change* const entry = entry_of(state, change.where);
    if (entry == nullptr) {
      state.changes.push_back(change);
      continue;
    }
    // Bits outside our changes may have been changed by another program since.
    entry->before = (entry->before & entry->mask) | (change.before & ~entry->mask);
    entry->mask |= change.mask;
    if (((entry->before ^ change.after) & entry->mask) != 0) entry->after = change.after;
  }
  return state;
}

// The state once `changes`, which are noted in it, were made.
State made(State state, const std::vector<Change>& changes) {
  for (const Change& change : changes) {
    Change* const entry = entry_of(state, change.where);
    if (entry == nullptr) continue;
    entry->mask |= change.mask;
    entry->after = change.after;
  }
  std::erase_if(state.changes, [](const Change& one) { return !differs(one); });
  return state;
}

// Makes `changes`, the last one first, whatever fails: what fails is described, its index is put
// into `failed`, and its `after` becomes what the register is now, as far as that can be known.
std::string set_back(Machine& machine, std::vector<Change>& changes, std::vector<size_t>* failed) {
  std::string failures;
  for (size_t i = changes.size(); i-- > 0;) {
    Change& change = changes[i];
    std::optional<uint64_t> is;
    const Status done = force_register(machine, change.where, change.after, &is);
    if (done) continue;
    failures += "; " + done.error().message;
    failed->push_back(i);
    const uint64_t left_at = is.value_or(change.before);
    change.mask |= change.after ^ left_at;
    change.after = left_at;
  }
  return failures;
}

// Undoes `changes`, the last of which has failed for the reason `why`; `before` is what was noted
// when they began.
Error given_up(Machine& machine, const StateFile& file, const State& before,
               const std::vector<Change>& changes, const Error& why) {
  std::vector<Change> back;
  for (const Change& change : changes) {
    back.push_back({change.where, change.mask, change.after, change.before});
  }
  std::vector<size_t> failed;
  const std::string failures = set_back(machine, back, &failed);
  std::vector<Change> left;
  for (const size_t i : failed) {
    left.push_back({back[i].where, back[i].mask, changes[i].before, back[i].after});
  }
  const Status saved = file.save(made(noted(before, left), left));
  std::string message = why.message;
  message += left.empty() ? "; every register is as it was before"
                          : "; and setting back has failed too" + failures +
                                "; 'pmstore ddio restore --apply' tries again";
  if (!saved) message += "; " + saved.error().message;
  return make_error(why.code, message);
}

}  // namespace

std::string_view ddio_state_name(DdioState state) {
  switch (state) {
    case DdioState::kOff: return "off";
    case DdioState::kOn: return "on";
    case DdioState::kPartly: return "partly";
  }
  return "?";
}

Result<PortValues> read_port(const Machine& machine, const PciAddress& port) {
  PMSTORE_TRY_STATUS(check_registers(machine, port));
  PMSTORE_TRY(const uint64_t first, read_register(machine, config_register(port, kPerfCtrlSts0)));
  PMSTORE_TRY(const uint64_t second, read_register(machine, config_register(port, kPerfCtrlSts1)));
  return PortValues{static_cast<uint32_t>(first), static_cast<uint32_t>(second)};
}

DdioState state_of(const PortValues& values, const Recipe& recipe) {
  if (values.perfctrlsts0 & kUseAllocatingFlowWr) return DdioState::kOn;
  const bool off = std::all_of(recipe.off.begin(), recipe.off.end(), [&](const RegisterEdit& edit) {
    const uint32_t value = edit.offset == kPerfCtrlSts0 ? values.perfctrlsts0 : values.perfctrlsts1;
    return (value & edit.mask) == edit.value;
  });
  return off ? DdioState::kOff : DdioState::kPartly;
}

std::vector<SocketWays> read_ways(const Machine& machine, std::optional<Error>* problem) {
  std::vector<SocketWays> found;
  const auto cpus = first_cpus(machine);
  if (cpus.empty()) *problem = no_sockets();
  for (const auto& [socket, cpu] : cpus) {
    const auto mask = read_register(machine, ways_register(cpu));
    if (mask) {
      found.push_back({socket, cpu, *mask});
    } else {
      *problem = mask.error();
    }
  }
  return found;
}

Result<std::vector<Change>> plan_switch(const Machine& machine, const std::vector<RootPort>& ports,
                                        const Recipe& recipe, bool switch_on) {
  std::vector<Change> changes;
  for (const RootPort& port : ports) {
    PMSTORE_TRY_STATUS(check_registers(machine, port.address));
    for (const RegisterEdit& edit : switch_on ? recipe.on : recipe.off) {
      const Register where = config_register(port.address, edit.offset);
      PMSTORE_TRY(const uint64_t before, read_register(machine, where));
      PMSTORE_CHECK((edit.value & ~edit.mask) == 0, "a recipe changes only the bits of its mask");
      const uint64_t after = (before & ~uint64_t{edit.mask}) | edit.value;
      if (after != before) changes.push_back({where, edit.mask, before, after});
    }
  }
  return changes;
}

Result<std::vector<Change>> plan_ways(const Machine& machine, uint32_t ways) {
  PMSTORE_TRY(const std::string text,
              machine.read_text("/sys/devices/system/cpu/cpu0/cache/index3/ways_of_associativity"));
  uint32_t all = 0;
  std::from_chars(text.data(), text.data() + text.size(), all);
  if (ways < 1 || ways > all || all > 32) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("cannot give devices {} ways: the last-level cache has {}; use "
                                  "1 to {}",
                                  ways, all, all));
  }
  const uint64_t every = (uint64_t{1} << all) - 1;
  const uint64_t mask = every & ~((uint64_t{1} << (all - ways)) - 1);
  std::vector<Change> changes;
  const auto cpus = first_cpus(machine);
  if (cpus.empty()) return no_sockets();
  for (const auto& [socket, cpu] : cpus) {
    const Register where = ways_register(cpu);
    PMSTORE_TRY(const uint64_t before, read_register(machine, where));
    const uint64_t after = (before & ~every) | mask;
    if (after != before) changes.push_back({where, every, before, after});
  }
  return changes;
}

Result<State> noted_changes(const Machine& machine, const std::string& state_file) {
  PMSTORE_TRY(State state, StateFile::read(state_file));
  const std::string boot = boot_of(machine);
  if (state.boot != boot) state = State{boot, {}};
  return state;
}

Status apply(Machine& machine, const StateFile& file, const std::vector<Change>& changes) {
  PMSTORE_TRY(const State before, noted_changes(machine, file.path()));

  for (const Change& change : changes) {
    PMSTORE_TRY(const uint64_t now, read_register(machine, change.where));
    if (now != change.before) {
      return make_error(ErrorCode::kConflict,
                        fmt::format("{} is {:#x} and was {:#x} a moment ago: another program "
                                    "changes it; nothing was changed, try again",
                                    change.where.text(), now, change.before));
    }
  }
  for (const Change& change : changes) {
    PMSTORE_CHECK(((change.before ^ change.after) & ~change.mask) == 0,
                  "a change is within its mask");
  }
  const State during = noted(before, changes);
  PMSTORE_TRY_STATUS(file.save(during));
  for (size_t i = 0; i < changes.size(); ++i) {
    const Status done = write_register(machine, changes[i].where, changes[i].after);
    if (!done) {
      return given_up(machine, file, before,
                      {changes.begin(), changes.begin() + static_cast<long>(i) + 1}, done.error());
    }
  }
  const State after = made(during, changes);
  return after.changes == during.changes ? Status() : file.save(after);
}

Status undo(Machine& machine, const StateFile& file, const std::vector<Change>& changes) {
  std::vector<Change> back;
  for (const Change& change : changes) {
    const auto is = read_register(machine, change.where);
    const uint64_t now = is ? *is : change.after;
    // Changed otherwise in the meantime: only our bits are ours to undo.
    const uint64_t wanted =
        now == change.after ? change.before : (now & ~change.mask) | (change.before & change.mask);
    back.push_back({change.where, change.mask, now, wanted});
  }
  // Registers are set back even when that cannot be noted.
  const auto state = noted_changes(machine, file.path());
  State during;
  Status noting = state ? Status() : Status(state.error());
  if (state) {
    during = noted(*state, back);
    if (during.changes != state->changes) noting = file.save(during);
  }
  std::vector<size_t> failed;
  const std::string failures = set_back(machine, back, &failed);
  if (state) noting = file.save(made(during, back));
  if (failed.empty() && noting) return {};
  std::string message = failed.empty() ? "every register is as it was before"
                                       : "setting back has failed" + failures +
                                             "; 'pmstore ddio restore --apply' tries again";
  if (!noting) message += "; " + noting.error().message;
  return make_error(ErrorCode::kIo, message);
}

Result<Restored> restore(Machine& machine, const StateFile& file, bool force, bool dry_run) {
  PMSTORE_TRY(const State state, file.load());
  Restored result;
  const std::string boot = boot_of(machine);
  result.earlier_boot = !state.changes.empty() && state.boot != boot;
  for (const Change& change : state.changes) {
    const auto is = read_register(machine, change.where);
    if (!is) {
      result.unread.push_back(change);
      append(result.why_unread, is.error().message);
      continue;
    }
    const uint64_t now = *is;
    if (((now ^ change.before) & change.mask) == 0) {
      result.already.push_back(change);
    } else if (force) {
      result.undone.push_back({change.where, change.mask, change.before, now});
    } else if (result.earlier_boot && ((now ^ change.after) & change.mask) != 0) {
      result.already.push_back(change);  // reset to something else
    } else if (result.earlier_boot) {
      return make_error(ErrorCode::kConflict,
                        fmt::format("{} is {:#x} as we left it, but the machine was booted since: "
                                    "that boot has not reset it, or the firmware sets it so; "
                                    "nothing was changed, --force sets it to {:#x}",
                                    change.where.text(), now, change.before));
    } else if (now == change.after) {
      result.undone.push_back({change.where, change.mask, change.before, now});
    } else {
      return make_error(ErrorCode::kConflict,
                        fmt::format("{} is {:#x}, but we left it at {:#x}: another program has "
                                    "changed it; nothing was changed, --force sets it to {:#x}",
                                    change.where.text(), now, change.after, change.before));
    }
  }
  if (dry_run) return result;
  if (result.earlier_boot) {
    // What is undone is of this boot from here on; what could not be read stays of that one, unless
    // both are there.
    State now{result.undone.empty() ? state.boot : boot, result.unread};
    if (result.undone.empty()) {
      PMSTORE_TRY_STATUS(file.save(now));
      return result;
    }
    for (const Change& change : state.changes) {
      const bool undone = std::any_of(result.undone.begin(), result.undone.end(),
                                      [&](const Change& one) { return one.where == change.where; });
      if (undone) now.changes.push_back(change);
    }
    PMSTORE_TRY_STATUS(file.save(now));
  }
  PMSTORE_TRY_STATUS(undo(machine, file, result.undone));
  // Those that were back by themselves are no longer noted either.
  PMSTORE_TRY(State rest, file.load());
  std::erase_if(rest.changes, [&](const Change& one) {
    return std::find(result.already.begin(), result.already.end(), one) != result.already.end();
  });
  PMSTORE_TRY_STATUS(file.save(rest));
  return result;
}

}  // namespace pmstore::ddio
