#include "pmstore/types.h"

#include <array>
#include <charconv>
#include <cstdio>
#include <span>

#include "base/checksum.h"

namespace pmstore {
namespace {

// The whole of `text` as an unsigned decimal number without sign, spaces or prefix.
bool parse_whole(std::string_view text, uint64_t& value) {
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value, 10);
  return parsed.ec == std::errc{} && parsed.ptr == end;
}

}  // namespace

[[gnu::hot]] Status check_key(std::string_view key) {
  if (key.size() - 1 < kMaxKeyBytes) [[likely]]
    return {};
  if (key.empty()) return make_error(ErrorCode::kInvalidArgument, "a key has at least one byte");
  return make_error(ErrorCode::kTooLarge, "a key of " + std::to_string(key.size()) +
                                              " bytes is over the limit of " +
                                              std::to_string(kMaxKeyBytes));
}

[[gnu::hot]] Status check_sizes(std::string_view key, std::string_view value) {
  if (value.size() > kMaxValueBytes) [[unlikely]] {
    return make_error(ErrorCode::kTooLarge, "a value of " + std::to_string(value.size()) +
                                                " bytes is over the limit of " +
                                                std::to_string(kMaxValueBytes));
  }
  return check_key(key);
}

Status check_table_name(std::string_view name) {
  if (name.empty() || name.size() > kMaxTableNameBytes) {
    return make_error(ErrorCode::kInvalidArgument,
                      "a table's name has 1 to " + std::to_string(kMaxTableNameBytes) + " bytes");
  }
  for (size_t i = 0; i < name.size(); ++i) {
    const auto byte = static_cast<unsigned char>(name[i]);
    // U+0080 to U+009F in UTF-8.
    const bool high =
        byte == 0xc2 && i + 1 < name.size() && static_cast<unsigned char>(name[i + 1]) < 0xa0;
    if (byte < 0x20 || byte == 0x7f || high) {
      return make_error(ErrorCode::kInvalidArgument,
                        "a table's name has no control characters, as byte " +
                            std::to_string(i + 1) + " of this one is");
    }
  }
  return {};
}

namespace {

// What a name of a transaction ends with, so that a mistyped one is not taken for another name.
std::string check_digits(std::string_view name) {
  std::array<char, 5> digits{};
  const uint32_t checksum = base::crc32c(std::as_bytes(std::span(name)));
  std::snprintf(digits.data(), digits.size(), "%04x", static_cast<unsigned>(checksum & 0xffff));
  return std::string(digits.data(), 4);
}

}  // namespace

std::string TxId::to_string() const {
  const std::string name = client.to_string() + "-" + std::to_string(sequence);
  return name + "-" + check_digits(name);
}

Result<TxId> parse_tx_id(std::string_view text) {
  constexpr size_t kClientDigits = 32;
  const auto wrong = [&](std::string_view why) {
    return make_error(ErrorCode::kInvalidArgument,
                      "'" + std::string(text.substr(0, 80)) +
                          "' is not the name of a transaction: " + std::string(why));
  };
  constexpr std::string_view kForm =
      "use 32 hexadecimal digits, the number and 4 check digits with dashes between, for instance "
      "0123456789abcdef0123456789abcdef-42-dd5a";
  const size_t last = text.rfind('-');
  uint64_t sequence = 0;
  if (last == std::string_view::npos || last <= kClientDigits || text[kClientDigits] != '-' ||
      !parse_whole(text.substr(kClientDigits + 1, last - kClientDigits - 1), sequence)) {
    return wrong(kForm);
  }
  const auto client = parse_client_id(text.substr(0, kClientDigits));
  if (!client) return wrong(kForm);
  if (text.substr(last + 1) != check_digits(text.substr(0, last))) {
    return wrong("its check digits do not fit; copy all of it, as it was printed");
  }
  return TxId{*client, sequence};
}

std::string_view discipline_name(LockDiscipline discipline) {
  switch (discipline) {
    case LockDiscipline::kCpu: return "cpu";
    case LockDiscipline::kRnic: return "rnic";
  }
  return "unknown";
}

std::string_view miss_path_name(MissPath path) {
  switch (path) {
    case MissPath::kAuto: return "auto";
    case MissPath::kOneSided: return "one-sided";
    case MissPath::kRpc: return "rpc";
  }
  return "unknown";
}

Result<MissPath> parse_miss_path(std::string_view text) {
  for (const MissPath path : {MissPath::kAuto, MissPath::kOneSided, MissPath::kRpc}) {
    if (text == miss_path_name(path)) return path;
  }
  return make_error(ErrorCode::kInvalidArgument, "'" + std::string(text.substr(0, 64)) +
                                                     "' is no way to read: use auto, one-sided or "
                                                     "rpc");
}

std::string_view table_kind_name(TableKind kind) {
  return kind == TableKind::kOrdered ? "ordered" : "hash";
}

// The first key behind those with the prefix is the prefix with its last byte raised; bytes that
// cannot be raised go.
KeyRange KeyRange::with_prefix(std::string_view prefix) {
  KeyRange range{std::string(prefix), std::string(prefix)};
  while (!range.to.empty() && range.to.back() == '\xff') range.to.pop_back();
  if (!range.to.empty()) ++range.to.back();
  return range;
}

}  // namespace pmstore
