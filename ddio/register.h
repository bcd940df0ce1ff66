// Register: one hardware register of a machine, and a change of one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "ddio/machine.h"

namespace pmstore::ddio {

struct Register {
  bool msr = false;
  PciAddress address;   // of 32 bits in its configuration space
  uint32_t cpu = 0;     // or of an MSR: which logical CPU reads and writes it
  uint32_t number = 0;  // offset, or number of the MSR

  // "0000:16:02.0+0x180" or "cpu0+msr0xc8b".
  std::string text() const;
  bool operator==(const Register&) const = default;
};

std::optional<Register> parse_register(std::string_view text);

Result<uint64_t> read_register(const Machine& machine, const Register& where);
// Writes and reads back. Io when refused, and when what is read back is not `value`: the message
// says what the register is then.
Status write_register(Machine& machine, const Register& where, uint64_t value);
// The same when a register has to be set back: it is written even when it cannot be read, and what
// it is then is asked several times. `is` becomes what was read last, or nothing; no error when
// that is `value`.
Status force_register(Machine& machine, const Register& where, uint64_t value,
                      std::optional<uint64_t>* is);

// A change of the whole register; only the bits of `mask` differ.
struct Change {
  Register where;
  uint64_t mask = 0;
  uint64_t before = 0;
  uint64_t after = 0;
  bool operator==(const Change&) const = default;
};

}  // namespace pmstore::ddio
