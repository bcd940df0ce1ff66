#include "ddio/pci_address.h"

#include <fmt/format.h>

#include <charconv>

namespace pmstore::ddio {
namespace {

// A number of exactly the digits of `text`, at most `most`.
std::optional<uint32_t> hexadecimal(std::string_view text, size_t least_digits, size_t most_digits,
                                    uint32_t most) {
  if (text.size() < least_digits || text.size() > most_digits) return std::nullopt;
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size() || value > most) return std::nullopt;
  return value;
}

}  // namespace

std::string PciAddress::text() const {
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", domain, bus, device, function);
}

std::optional<PciAddress> parse_pci_address(std::string_view text) {
  std::optional<uint32_t> domain = 0;
  const size_t first = text.find(':');
  if (first != text.rfind(':')) {
    domain = hexadecimal(text.substr(0, first), 4, 8, UINT32_MAX);
    text.remove_prefix(first + 1);
  }
  const size_t colon = text.find(':');
  const size_t dot = text.find('.');
  if (colon == text.npos || dot == text.npos || dot < colon) return std::nullopt;
  const auto bus = hexadecimal(text.substr(0, colon), 2, 2, 0xff);
  const auto device = hexadecimal(text.substr(colon + 1, dot - colon - 1), 2, 2, 31);
  const auto function = hexadecimal(text.substr(dot + 1), 1, 1, 7);
  if (!domain || !bus || !device || !function) return std::nullopt;
  return PciAddress{*domain, static_cast<uint8_t>(*bus), static_cast<uint8_t>(*device),
                    static_cast<uint8_t>(*function)};
}

}  // namespace pmstore::ddio
