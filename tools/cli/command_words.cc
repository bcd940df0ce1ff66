#include "tools/cli/command_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "tools/cli/bytes_text.h"

namespace pmstore::tools {
namespace {

// Calls visit(option) for those of the command and of the groups in it, until one is true.
template <typename Visit>
const CLI::Option* find_option(const CLI::App& command, Visit visit) {
  for (const CLI::Option* const option : command.get_options()) {
    if (visit(*option)) return option;
  }
  for (const CLI::App* const group :
       command.get_subcommands([](const CLI::App*) { return true; })) {
    if (!group->get_name().empty()) continue;
    if (const CLI::Option* const option = find_option(*group, visit)) return option;
  }
  return nullptr;
}

const CLI::Option* option_named(const CLI::App& command, const std::string& name) {
  return find_option(command, [&](const CLI::Option& option) {
    return option.nonpositional() && option.check_name(name);
  });
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  find_option(command, [&](const CLI::Option& option) {
    for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
    return false;
  });
  return names;
}

std::vector<std::string> command_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* const one : command.get_subcommands([](const CLI::App*) { return true; })) {
    if (!one->get_name().empty()) names.push_back(one->get_name());
  }
  return names;
}

const CLI::App* command_named(const CLI::App& command, const std::string& name) {
  for (const CLI::App* const one : command.get_subcommands([](const CLI::App*) { return true; })) {
    if (!one->get_name().empty() && one->get_name() == name) return one;
  }
  return nullptr;
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_max() > 0; }
bool is_list(const CLI::Option& option) {
  return option.get_items_expected_max() > 1 ||
         option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
}

bool looks_like_option(const std::string& word) {
  if (word.size() < 2 || word[0] != '-') return false;
  const char second = word[1];
  if (second == '-') return word.size() > 2;
  return second != '!' && second != ' ' && second != '\n' && (second < '0' || second > '9');
}

std::string in_quotes(std::string_view word) { return "'" + printable(word) + "'"; }

std::string or_nearest(std::string_view word, const std::vector<std::string>& names) {
  const std::string meant = nearest(word, names);
  return meant.empty() ? "" : " (did you mean " + meant + "?)";
}

class Words {
 public:
  Words(const CLI::App& app, const std::vector<std::string>& words)
      : command_(&app), words_(words) {}

  WordCheck check() {
    std::string wrong;
    while (wrong.empty() && next_ < words_.size() && !over_) wrong = take(words_[next_++]);
    if (wrong.empty() && !over_ && is_incomplete()) {
      wrong = fmt::format("a command is missing; there are {}",
                          fmt::join(command_names(*command_), ", "));
    }
    return {command_, std::move(wrong)};
  }

 private:
  bool is_incomplete() const { return command_->get_require_subcommand_min() > 0; }

  std::string take(const std::string& word) {
    if (!only_arguments_ && word == "--") {
      only_arguments_ = true;
      return {};
    }
    if (!only_arguments_ && looks_like_option(word)) return take_option(word);
    if (is_incomplete()) return take_command(word);
    return take_argument(word);
  }

  std::string take_command(const std::string& word) {
    if (const CLI::App* const found = command_named(*command_, word)) {
      command_ = found;
      given_.clear();
      return {};
    }
    const std::vector<std::string> names = command_names(*command_);
    const std::string meant = or_nearest(word, names);
    if (!meant.empty()) return "there is no command " + in_quotes(word) + meant;
    return fmt::format("there is no command {}; there are {}", in_quotes(word),
                       fmt::join(names, ", "));
  }

  std::string take_option(const std::string& word) {
    const bool is_long = word.starts_with("--");
    const size_t end = is_long ? std::min(word.find('='), word.size()) : 2;
    const std::string name = word.substr(0, end);
    const CLI::Option* const option = option_named(*command_, name);
    if (option == nullptr) return unknown_option(word, name, is_long);
    if (option == command_->get_help_ptr() || option == command_->get_version_ptr()) {
      over_ = true;
      return {};
    }
    if (given_[option]++ > 0 && !is_list(*option)) return name + " is given twice";
    if (!takes_value(*option)) {
      if (end == word.size()) return {};
      // -rp is -r -p
      return is_long ? name + " takes no value" : take_option("-" + word.substr(end));
    }
    if (end < word.size()) {
      return is_long && end + 1 == word.size() ? name + "= has no value behind it" : "";
    }
    const bool optional = option->get_items_expected_min() == 0;  // --watch [SECONDS]
    if (next_ == words_.size()) return optional ? "" : name + " has no value behind it";
    const std::string& value = words_[next_];
    const bool is_option = value.starts_with("--") &&
                           option_named(*command_, value.substr(0, value.find('='))) != nullptr;
    if (is_option && optional) return {};
    if (is_option) {
      return fmt::format("{} has no value before {} (if that is the value: {}={})", name, value,
                         name, value);
    }
    ++next_;
    while (option->get_allow_extra_args() && next_ < words_.size() &&
           !looks_like_option(words_[next_])) {
      ++next_;
    }
    return {};
  }

  std::string unknown_option(const std::string& word, const std::string& name, bool is_long) const {
    const std::string text = "there is no option " + in_quotes(is_long ? name : word);
    const std::string meant = or_nearest(is_long ? name : word, option_names(*command_));
    if (!meant.empty()) return text + meant;
    const bool has_arguments =
        find_option(*command_, [](const CLI::Option& option) { return option.get_positional(); });
    return has_arguments ? text + "; an argument that begins with - stands behind --" : text;
  }

  std::string take_argument(const std::string& word) {
    size_t room = 0;
    std::string names;
    find_option(*command_, [&](const CLI::Option& option) {
      if (!option.get_positional()) return false;
      room += static_cast<size_t>(option.get_items_expected_max());
      names += " " + option.get_name(true);
      return false;
    });
    if (++arguments_ <= room) return {};
    if (names.empty()) return fmt::format("{} is one word too many", in_quotes(word));
    return fmt::format("{} is one word too many after{}; quote what has spaces in it",
                       in_quotes(word), names);
  }

  const CLI::App* command_;
  const std::vector<std::string>& words_;
  size_t next_ = 0;
  size_t arguments_ = 0;
  bool only_arguments_ = false;
  bool over_ = false;
  std::map<const CLI::Option*, size_t> given_;
};

// How many letters have to be changed, put in, left out or exchanged with the next.
size_t distance(std::string_view word, std::string_view known) {
  std::vector<std::vector<size_t>> least(word.size() + 1, std::vector<size_t>(known.size() + 1));
  for (size_t i = 0; i <= word.size(); ++i) {
    for (size_t j = 0; j <= known.size(); ++j) {
      if (i == 0 || j == 0) {
        least[i][j] = i + j;
        continue;
      }
      const size_t changed = least[i - 1][j - 1] + (word[i - 1] == known[j - 1] ? 0 : 1);
      least[i][j] = std::min({changed, least[i - 1][j] + 1, least[i][j - 1] + 1});
      const bool exchanged =
          i > 1 && j > 1 && word[i - 1] == known[j - 2] && word[i - 2] == known[j - 1];
      if (exchanged) least[i][j] = std::min(least[i][j], least[i - 2][j - 2] + 1);
    }
  }
  return least[word.size()][known.size()];
}

}  // namespace

std::string full_name(const CLI::App& command) {
  if (command.get_parent() == nullptr) return command.get_name();
  return full_name(*command.get_parent()) + " " + command.get_name();
}

std::string nearest(std::string_view word, const std::vector<std::string>& names) {
  constexpr size_t kLongest = 64;  // of a word that somebody mistyped
  if (word.size() > kLongest) return {};
  std::string best;
  size_t least = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& name : names) {
    const bool begun = word.size() >= 3 && name.starts_with(word);
    const size_t changes = begun ? 1 : distance(word, name);
    if (changes < least) {
      least = changes;
      best = name;
    }
  }
  return best;
}

WordCheck check_words(const CLI::App& app, const std::vector<std::string>& words) {
  return Words(app, words).check();
}

}  // namespace pmstore::tools
