#include "tools/cli/bytes_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace pmstore::tools {
namespace {

// The length of the UTF-8 character that `bytes` starts with; 0 when it starts with none.
size_t character_bytes(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char first = at(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xc2 && first <= 0xdf   ? 2
                        : first >= 0xe0 && first <= 0xef ? 3
                        : first >= 0xf0 && first <= 0xf4 ? 4
                                                         : 0;
  if (length == 0 || bytes.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
  }
  // No overlong forms, no surrogates, nothing above U+10FFFF.
  const unsigned char second = at(1);
  if (first == 0xe0 && second < 0xa0) return 0;
  if (first == 0xed && second > 0x9f) return 0;
  if (first == 0xf0 && second < 0x90) return 0;
  if (first == 0xf4 && second > 0x8f) return 0;
  return length;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

bool is_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t length = character_bytes(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

std::string base64(std::string_view bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    const size_t present = std::min<size_t>(3, bytes.size() - i);
    for (size_t j = 0; j < 3; ++j) {
      group = group << 8 | (j < present ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    }
    for (size_t j = 0; j < 4; ++j) {
      text += j <= present ? kDigits[(group >> (18 - 6 * j)) & 63] : '=';
    }
  }
  return text;
}

nlohmann::ordered_json json_bytes(std::string_view bytes) {
  if (is_utf8(bytes)) return std::string(bytes);
  return {{"base64", base64(bytes)}};
}

std::string printable(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const size_t length = character_bytes(bytes);
    const auto first = static_cast<unsigned char>(bytes[0]);
    if (length == 0 || first < 0x20 || first == 0x7f || first == '\\') {
      text += first == '\\' ? "\\\\" : fmt::format("\\x{:02x}", first);
      bytes.remove_prefix(1);
    } else {
      text += bytes.substr(0, length);
      bytes.remove_prefix(length);
    }
  }
  return text;
}

const char* read_escape(std::string_view& rest, std::string& bytes) {
  if (rest.empty()) return "a backslash at the end of the line";
  const char c = rest.front();
  rest.remove_prefix(1);
  switch (c) {
    case 'n': bytes += '\n'; return nullptr;
    case 't': bytes += '\t'; return nullptr;
    case 'r': bytes += '\r'; return nullptr;
    case '"':
    case '\\': bytes += c; return nullptr;
    case 'x': {
      if (rest.size() < 2 || hex_digit(rest[0]) < 0 || hex_digit(rest[1]) < 0) {
        return "\\x needs two hexadecimal digits";
      }
      bytes += static_cast<char>(hex_digit(rest[0]) * 16 + hex_digit(rest[1]));
      rest.remove_prefix(2);
      return nullptr;
    }
    default: return "an unknown escape; there are \\n \\t \\r \\\" \\\\ \\xHH";
  }
}

const char* read_printable(std::string_view text, std::string& bytes) {
  bytes.clear();
  while (!text.empty()) {
    const size_t plain = std::min(text.find('\\'), text.size());
    bytes += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
    text.remove_prefix(1);
    if (const char* wrong = read_escape(text, bytes)) return wrong;
  }
  return nullptr;
}

}  // namespace pmstore::tools
