// Share: one of several parts of what takes too long for every check (tests/drawn draws which).
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstddef>
#include <string>
#include <system_error>

namespace pmstore::tests {

struct Share {
  size_t number = 0;  // below `of`
  size_t of = 1;

  bool has(size_t index) const { return index % of == number; }
};

// "--share NUMBER/OF".
inline void add_share(CLI::App& app, Share& share, const std::string& of_what) {
  const auto parse = [&share](const std::string& text) {
    const char* const end = text.data() + text.size();
    const auto [slash, bad_number] = std::from_chars(text.data(), end, share.number);
    if (bad_number != std::errc{} || slash == end || *slash != '/') return false;
    const auto [rest, bad_of] = std::from_chars(slash + 1, end, share.of);
    return bad_of == std::errc{} && rest == end && share.number < share.of;
  };
  app.add_option_function<std::string>(
         "--share",
         [parse](const std::string& text) {
           if (!parse(text)) throw CLI::ValidationError("--share", text + " is not like 0/4");
         },
         "only one of several shares of the " + of_what + ", as 0/4, 1/4, 2/4 and 3/4")
      ->type_name("NUMBER/OF");
}

}  // namespace pmstore::tests
