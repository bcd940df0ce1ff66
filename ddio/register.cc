#include "ddio/register.h"

#include <fmt/format.h>

#include <charconv>

namespace pmstore::ddio {
namespace {

std::optional<uint32_t> whole_number(std::string_view text, int base) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

Status write_raw(Machine& machine, const Register& where, uint64_t value) {
  return where.msr
             ? machine.write_msr(where.cpu, where.number, value)
             : machine.write_config(where.address, where.number, static_cast<uint32_t>(value));
}

Error not_taken(const Register& where, uint64_t value, uint64_t before, uint64_t now) {
  if (now == before) {
    return make_error(
        ErrorCode::kIo,
        fmt::format("{} ignored the write of {:#x} and still is {:#x}: the firmware "
                    "has locked it; {}",
                    where.text(), value, now,
                    where.msr ? "leave --ways out" : "switch DDIO in the firmware's set-up"));
  }
  return make_error(
      ErrorCode::kIo,
      fmt::format("{} is {:#x} after the write of {:#x}: it is not the register that {}",
                  where.text(), now, value,
                  where.msr ? "IIO LLC WAYS is on other CPUs; leave --ways out"
                            : "the recipe takes it for; try another --recipe"));
}

}  // namespace

std::string Register::text() const {
  return msr ? fmt::format("cpu{}+msr{:#x}", cpu, number)
             : fmt::format("{}+{:#x}", address.text(), number);
}

std::optional<Register> parse_register(std::string_view text) {
  const size_t plus = text.find('+');
  if (plus == text.npos) return std::nullopt;
  const std::string_view location = text.substr(0, plus);
  std::string_view number = text.substr(plus + 1);
  Register found;
  found.msr = number.starts_with("msr");
  if (found.msr) number.remove_prefix(3);
  if (!number.starts_with("0x")) return std::nullopt;
  const auto at = whole_number(number.substr(2), 16);
  if (!at) return std::nullopt;
  found.number = *at;
  if (found.msr) {
    if (!location.starts_with("cpu")) return std::nullopt;
    const auto cpu = whole_number(location.substr(3), 10);
    if (!cpu) return std::nullopt;
    found.cpu = *cpu;
    return found;
  }
  const auto address = parse_pci_address(location);
  if (!address || found.number > 0xffc || found.number % 4 != 0) return std::nullopt;
  found.address = *address;
  return found;
}

Result<uint64_t> read_register(const Machine& machine, const Register& where) {
  if (where.msr) return machine.read_msr(where.cpu, where.number);
  PMSTORE_TRY(const uint32_t value, machine.read_config(where.address, where.number));
  if (value == UINT32_MAX) {
    return make_error(ErrorCode::kIo,
                      fmt::format("cannot read {}: all bits are set: nothing answers there; check "
                                  "that the device is still in the machine",
                                  where.text()));
  }
  return value;
}

Status write_register(Machine& machine, const Register& where, uint64_t value) {
  PMSTORE_TRY(const uint64_t before, read_register(machine, where));
  PMSTORE_TRY_STATUS(write_raw(machine, where, value));
  PMSTORE_TRY(const uint64_t now, read_register(machine, where));
  if (now == value) return {};
  return not_taken(where, value, before, now);
}

Status force_register(Machine& machine, const Register& where, uint64_t value,
                      std::optional<uint64_t>* is) {
  constexpr int kReadings = 3;
  const auto before = read_register(machine, where);
  *is = before ? std::optional(*before) : std::nullopt;
  if (before && *before == value) return {};
  const Status written = write_raw(machine, where, value);
  Result<uint64_t> now = read_register(machine, where);
  for (int i = 1; i < kReadings && !now; ++i) now = read_register(machine, where);
  if (now) *is = *now;
  if (now && *now == value) return {};
  if (!written) return written;
  if (!now) return now.error();
  return not_taken(where, value, before ? *before : *now, *now);
}

}  // namespace pmstore::ddio
