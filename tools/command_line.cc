#include "tools/command_line.h"

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "tools/console.h"

namespace pmstore::tools {

namespace {

// CLI11 makes a large number of a negative one, and the largest of one that is too large.
std::string not_a_number(const std::string& text) {
  const bool hex = text.starts_with("0x");
  uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] =
      std::from_chars(text.data() + (hex ? 2 : 0), end, number, hex ? 16 : 10);
  if (error == std::errc() && rest == end) return {};
  return "'" + text + "' is not a whole number from 0 to " + std::to_string(UINT64_MAX);
}

void check_numbers(CLI::App& app) {
  for (CLI::Option* const option : app.get_options()) {
    if (option->get_type_name().starts_with("UINT")) option->check(not_a_number);
  }
  for (CLI::App* const command : app.get_subcommands({})) check_numbers(*command);
}

}  // namespace

int parse_and_run(CLI::App& app, int argc, char** argv, const Invocation& invocation) {
  check_numbers(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    print_text(app.help());  // of the chosen subcommand, under its whole name
    return kDone;
  } catch (const CLI::CallForVersion& version) {
    print_text(std::string(version.what()) + "\n");
    return kDone;
  } catch (const CLI::ParseError& error) {
    fail(app.get_name(), "wrong usage", std::string(error.what()) + "; see --help");
    return kWrongUsage;
  }
  const int status = invocation.run ? invocation.run() : kDone;
  // What was printed has to have arrived: a full disk must not look like success.
  if (std::fflush(stdout) != 0 && status == kDone) {
    return fail(app.get_name(), "cannot write to standard output", std::strerror(errno));
  }
  return status;
}

}  // namespace pmstore::tools
