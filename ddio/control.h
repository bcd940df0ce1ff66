// Reading and changing DDIO: which bits would change, changing them so that every failure leaves
// the registers as they were, and undoing.
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
// Checks that the registers are what recipes take them for, and reads them. As check_registers().
Result<PortValues> read_port(const Machine& machine, const PciAddress& port);
DdioState state_of(const PortValues& values, const Recipe& recipe);

// IIO LLC WAYS of each socket where it can be read, with the CPU that was asked; why it cannot
// elsewhere is in `problem`.
struct SocketWays {
  uint32_t socket = 0;
  uint32_t cpu = 0;
  uint64_t mask = 0;
};
std::vector<SocketWays> read_ways(const Machine& machine, std::optional<Error>* problem);

// What `on` or `off` by `recipe` would change at `ports`; registers that are right already are left
// out. Changes nothing.
Result<std::vector<Change>> plan_switch(const Machine& machine, const std::vector<RootPort>& ports,
                                        const Recipe& recipe, bool on);
// The same for giving devices the topmost `ways` ways of every socket's last-level cache.
// InvalidArgument when it has fewer, or none are asked for.
Result<std::vector<Change>> plan_ways(const Machine& machine, uint32_t ways);

// What `state_file` says that is changed now: what an earlier boot has noted no longer holds. Io as
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
