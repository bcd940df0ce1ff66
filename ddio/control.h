// Reads, plans, makes and undoes changes of DDIO registers. A change that fails leaves every
// register as it was.
//
// Threads: one at a time; processes exclude each other by the StateFile's lock.
#pragma once

#include <optional>
#include <vector>

#include "ddio/recipe.h"
#include "ddio/register.h"
#include "ddio/root_port.h"
#include "ddio/state_file.h"

namespace pmstore::ddio {

enum class DdioState : uint8_t {
  kOff,     // every bit of the recipe's `off` holds
  kOn,      // Use_Allocating_Flow_Wr is set
  kPartly,  // neither: writes of some kinds may still go into the cache
};
std::string_view ddio_state_name(DdioState state);

struct PortValues {
  uint32_t perfctrlsts0 = 0;
  uint32_t perfctrlsts1 = 0;
};
// Reads the registers of `port`, after check_registers(), whose errors it gives.
Result<PortValues> read_port(const Machine& machine, const PciAddress& port);
DdioState state_of(const PortValues& values, const Recipe& recipe);

// IIO LLC WAYS of each socket where it can be read, with the CPU that read it. `problem` is set to
// the error of a socket where it cannot.
struct SocketWays {
  uint32_t socket = 0;
  uint32_t cpu = 0;
  uint64_t mask = 0;
};
std::vector<SocketWays> read_ways(const Machine& machine, std::optional<Error>* problem);

// The changes at `ports` that switch DDIO on or off by `recipe`, without the registers that have
// the wanted value already. Changes nothing.
Result<std::vector<Change>> plan_switch(const Machine& machine, const std::vector<RootPort>& ports,
                                        const Recipe& recipe, bool switch_on);
// The changes that give devices the topmost `ways` ways of every socket's last-level cache.
// InvalidArgument when `ways` is 0 or more than the cache has.
Result<std::vector<Change>> plan_ways(const Machine& machine, uint32_t ways);

// The changes in `state_file` that hold now: those of an earlier boot do not. Errors of
// StateFile::read().
Result<State> noted_changes(const Machine& machine, const std::string& state_file);

// Makes `changes`: notes them in `file`, durably, then writes and reads back each. When one fails,
// those before are undone, `file` is as before, and the error says so; a register that could not be
// undone is named in the error and stays noted.
Status apply(Machine& machine, const StateFile& file, const std::vector<Change>& changes);

// Sets the registers of `changes` back to what they were before them; of one that has been changed
// otherwise since, only the bits of the mask. Io, after all others were set back, when one cannot
// be, which stays noted, and when that cannot be noted.
Status undo(Machine& machine, const StateFile& file, const std::vector<Change>& changes);

struct Restored {
  std::vector<Change> undone;   // what was set back
  std::vector<Change> already;  // our bits were back by themselves, or a boot has reset them
  std::vector<Change> unread;   // cannot be read, so were left alone, and stay noted
  std::string why_unread;
  bool earlier_boot = false;
};
// Undoes all that `file` holds, as far as it can be read. Conflict, with nothing changed, when a
// register is neither as we left it nor as it was, or still is as an earlier boot has left it,
// unless `force`. With `dry_run`, says what it would do.
Result<Restored> restore(Machine& machine, const StateFile& file, bool force, bool dry_run);

}  // namespace pmstore::ddio
