// The check-up of a machine: facts and their meaning, row by row. All facts come through
// DoctorFacts, so that recorded machines can be examined.
//
// Threads: one at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddio/machine.h"
#include "fabric/verbs/device_inventory.h"
#include "persist/nvm_inventory.h"
#include "tools/tune/ipmctl_library.h"

namespace pmstore::tools {

enum class Verdict : uint8_t { kOk, kCosts, kUnknown };
std::string_view verdict_name(Verdict verdict);  // "ok", "costs you", "unknown"

struct Finding {
  std::string id;  // "h3", "memlock"
  std::string title;
  Verdict verdict = Verdict::kUnknown;
  std::string seen;
  std::string why;  // why it matters
  std::string fix;  // the command that mends it, or finds it out; empty when ok
};

// Of a pool that was named: what is told apart here.
struct DoctorPool {
  std::string path;
  std::string real_path;     // without symbolic links
  std::string block_device;  // "MAJOR:MINOR" of its file system, when it is a file
  std::string medium;        // as PoolInfo has it
  uint64_t bytes = 0;
  persist::Domain domain = persist::Domain::kNone;
  uint64_t misaligned_extents = 0;  // that do not begin at a multiple of 256 bytes
  uint64_t extents = 0;
};

// The results of the handshake with a named server, and the accesses that succeeded there.
struct DoctorSession {
  std::string uri;
  std::string domain, landing, locks, strategy;
  std::string tried;
};

// The fix of a row that root would know.
inline constexpr char kRunAsRoot[] = "run this as root";

struct DoctorFacts {
  std::unique_ptr<ddio::Machine> machine;
  Result<std::vector<fabric::VerbsDeviceFacts>> rdma;
  Result<std::vector<persist::NvmRegion>> nvm;
  std::optional<Result<DoctorPool>> pool;        // when one was named
  std::string pool_path;                         // as it was named
  std::optional<Result<DoctorSession>> session;  // when one was named
  std::string server_uri;
  std::string no_ipmctl;  // why libipmctl was not asked about DIMMs that libndctl does not know
};

// Asks libipmctl about DIMMs whose health is not known yet.
void fill_health(std::vector<persist::NvmRegion>& regions, const IpmctlLibrary& library);

// Asks the libraries about this machine, or reads what a recorded machine's inventory.json has of
// them (docs/tuning.md). NotFound or InvalidArgument for a folder that is no such machine.
Result<DoctorFacts> gather_facts(const std::string& recorded_machine);

// All rows, in the order in which they are shown.
std::vector<Finding> examine(const DoctorFacts& facts);
// Its parts.
void examine_network(const DoctorFacts& facts, std::vector<Finding>& rows);
void examine_nvm(const DoctorFacts& facts, std::vector<Finding>& rows);
void examine_placement(const DoctorFacts& facts, std::vector<Finding>& rows);
void examine_rules(const DoctorFacts& facts, std::vector<Finding>& rows);

// Appends to the observations or the remedies, unless the text already ends with the addition.
void append(std::string& text, std::string_view more);

// Questions of several rows.
bool has_hardware_rnic(const DoctorFacts& facts);
bool has_software_rnic(const DoctorFacts& facts);
bool has_nvm(const DoctorFacts& facts);

}  // namespace pmstore::tools
