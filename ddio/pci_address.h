// PciAddress: the address of a PCI function. A value.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pmstore::ddio {

struct PciAddress {
  uint32_t domain = 0;
  uint8_t bus = 0;
  uint8_t device = 0;    // 0 to 31
  uint8_t function = 0;  // 0 to 7

  // "0000:17:00.0", the name that sysfs has for it.
  std::string text() const;
  auto operator<=>(const PciAddress&) const = default;
};

// From "0000:17:00.0" or "17:00.0" (domain 0); nothing when it is neither.
std::optional<PciAddress> parse_pci_address(std::string_view text);

}  // namespace pmstore::ddio
