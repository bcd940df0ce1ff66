#include "tools/cli/command_line.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tools/cli/command_words.h"
#include "tools/cli/console.h"

namespace pmstore::tools {

namespace {

// CLI11 makes a large number of a negative one, and the largest of one that is too large.
std::string not_a_number(const std::string& text) {
  uint64_t number = 0;
  if (parse_number(text, number)) return {};
  return "'" + text + "' is not a whole number from 0 to " + std::to_string(UINT64_MAX);
}

// The parser's message, with what the parser does not know.
std::string words_of(const CLI::ParseError& error) {
  const std::string text = error.what();
  return text == "--uri is required" ? text + ", or the environment variable PMSTORE_URI" : text;
}

// CLI11 would read what begins with 0 as octal.
std::string without_zeros(std::string text) {
  const size_t first = text.find_first_not_of('0');
  const bool decimal = first != std::string::npos && text[first] >= '1' && text[first] <= '9';
  return decimal ? text.substr(first) : text;
}

// The options that name a file, of all commands.
constexpr std::array<std::string_view, 12> kPaths = {
    "pool",    "log-file", "journal", "plot",   "model-parameters", "dimm-trace",
    "machine", "state",    "trace",   "report", "libipmctl",        "ipmctl"};

bool names_a_file(const CLI::Option& option) {
  const auto is_path = [](const std::string& name) {
    return std::find(kPaths.begin(), kPaths.end(), name) != kPaths.end();
  };
  const std::vector<std::string>& names = option.get_lnames();
  return std::any_of(names.begin(), names.end(), is_path);
}

void add_checks(CLI::App& app) {
  for (CLI::Option* const option : app.get_options()) {
    const std::string type = option->get_type_name();
    const bool positive = type.starts_with("UINT");
    if (positive || type.starts_with("INT")) option->transform(without_zeros);
    if (positive) option->check(not_a_number);
    if (names_a_file(*option)) option->check(a_path());
  }
  for (CLI::App* const command : app.get_subcommands({})) add_checks(*command);
}

// `pmstore help kv get` is `pmstore kv get --help`, `pmstore version` is `pmstore --version`.
void take_words_for_options(const CLI::App& app, std::vector<std::string>& words) {
  if (words.empty() || app.get_require_subcommand_min() == 0) return;
  if (words[0] == "help") {
    words.erase(words.begin());
    words.push_back("--help");
  } else if (words[0] == "version" && words.size() == 1) {
    words[0] = "--version";
  }
}

int wrong_usage(const CLI::App& app, const CLI::App& command, const std::string& why) {
  fail(app.get_name(), "wrong usage", why + "; see " + full_name(command) + " --help");
  return kWrongUsage;
}

}  // namespace

CLI::Validator a_limit() {
  return CLI::Validator(
      [](std::string& text) {
        uint64_t number = 0;
        if (!parse_number(text, number)) {
          return fmt::format("'{}' is not a whole number from 1 to {}", text, UINT64_MAX);
        }
        return number > 0 ? std::string() : "0 would print nothing; leave it out to have all";
      },
      "at least 1");
}

CLI::Validator one_of(std::vector<std::string> words) {
  const std::string form = fmt::format("{}", fmt::join(words, "|"));
  return CLI::Validator(
      [words = std::move(words)](std::string& text) {
        if (std::find(words.begin(), words.end(), text) != words.end()) return std::string();
        return fmt::format("'{}' is none of {}", text, fmt::join(words, ", "));
      },
      form);
}

CLI::Validator a_path() {
  return CLI::Validator(
      [](std::string& text) { return text.empty() ? "the path is empty" : std::string(); }, "");
}

Status parse_only(CLI::App& app, int argc, char** argv) {
  add_checks(app);
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  take_words_for_options(app, words);
  const WordCheck checked = check_words(app, words);
  if (!checked.wrong.empty()) return make_error(ErrorCode::kInvalidArgument, checked.wrong);
  try {
    std::reverse(words.begin(), words.end());  // as the parser takes them
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    return make_error(ErrorCode::kInvalidArgument, words_of(error));
  }
  return {};
}

namespace {

// The output must have been written: a full disk must not look like success.
int end_of_output(const CLI::App& app, int status) {
  const bool failed_before = std::ferror(stdout) != 0;
  if ((std::fflush(stdout) == 0 && !failed_before) || status != kDone) return status;
  const std::string why = failed_before
                              ? "a part of it is lost: is the disk full, or the pipe's reader gone?"
                              : std::strerror(errno);
  return fail(app.get_name(), "cannot write to standard output", why);
}

}  // namespace

int parse_and_run(CLI::App& app, int argc, char** argv, const Invocation& invocation) {
  add_checks(app);
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  take_words_for_options(app, words);
  const WordCheck checked = check_words(app, words);
  if (!checked.wrong.empty()) return wrong_usage(app, *checked.command, checked.wrong);
  try {
    std::reverse(words.begin(), words.end());  // as the parser takes them
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    print_text(app.help());  // of the chosen subcommand, under its whole name
    return end_of_output(app, kDone);
  } catch (const CLI::CallForVersion& version) {
    print_text(std::string(version.what()) + "\n");
    return end_of_output(app, kDone);
  } catch (const CLI::ParseError& error) {
    return wrong_usage(app, *checked.command, words_of(error));
  }
  return end_of_output(app, invocation.run ? invocation.run() : kDone);
}

}  // namespace pmstore::tools
