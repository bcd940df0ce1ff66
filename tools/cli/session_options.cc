#include "tools/cli/session_options.h"

#include <charconv>

namespace pmstore::tools {

Result<uint64_t> parse_bytes(std::string_view text) {
  const auto wrong = [&] {
    return make_error(ErrorCode::kInvalidArgument,
                      "'" + std::string(text) +
                          "' is not a size; write it like 4096, 64K, 256M "
                          "or 2G");
  };
  uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc()) return wrong();
  const std::string_view unit(rest, static_cast<size_t>(end - rest));
  unsigned shift = 0;
  if (unit == "K" || unit == "KiB") {
    shift = 10;
  } else if (unit == "M" || unit == "MiB") {
    shift = 20;
  } else if (unit == "G" || unit == "GiB") {
    shift = 30;
  } else if (unit == "T" || unit == "TiB") {
    shift = 40;
  } else if (!unit.empty()) {
    return wrong();
  }
  if (number > UINT64_MAX >> shift) return wrong();
  return number << shift;
}

Result<uint64_t> parse_bytes_or_none(std::string_view text) {
  if (text == "none") return UINT64_MAX;
  return parse_bytes(text);
}

Result<LockDiscipline> parse_locks(std::string_view text) {
  for (const auto discipline : {LockDiscipline::kCpu, LockDiscipline::kRnic}) {
    if (text == discipline_name(discipline)) return discipline;
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "'" + std::string(text) + "' is not a lock discipline; use cpu or rnic");
}

fabric::Uri SessionOptions::parsed_uri() const { return *fabric::parse_uri(uri); }

ClientOptions SessionOptions::client_options() const {
  ClientOptions options;
  options.call_timeout_ns = static_cast<uint64_t>(timeout_seconds * 1e9);
  options.connect_timeout_ns = options.call_timeout_ns;
  if (!assume_domain.empty()) options.assume_domain = *persist::parse_domain(assume_domain);
  if (!locks.empty()) {
    options.required_discipline = *parse_locks(locks);
    options.local_discipline = *options.required_discipline;
  }
  return options;
}

}  // namespace pmstore::tools
