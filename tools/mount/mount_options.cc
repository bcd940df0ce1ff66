#include "tools/mount/mount_options.h"

#include <algorithm>
#include <charconv>
#include <iterator>

namespace pmstore::tools {
namespace {

constexpr std::string_view kForKernel[] = {
    "rw",     "ro",   "nosuid", "suid",    "nodev",       "dev",
    "noexec", "exec", "sync",   "dirsync", "allow_other", "default_permissions"};
// Of these, atime means relatime, as on Linux.
constexpr std::string_view kAtime[] = {"atime", "relatime", "diratime"};
constexpr std::string_view kWithoutMeaning[] = {
    "defaults", "auto",       "noauto",        "user",     "nouser",
    "users",    "owner",      "group",         "nofail",   "_netdev",
    "async",    "norelatime", "nostrictatime", "lazytime", "nolazytime"};

template <size_t N>
bool is_one_of(std::string_view word, const std::string_view (&words)[N]) {
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

Error wrong(std::string_view word, std::string_view why) {
  return make_error(ErrorCode::kInvalidArgument,
                    "mount option '" + std::string(word) + "': " + std::string(why));
}

Result<double> seconds_of(std::string_view word, std::string_view value) {
  double seconds = 0;
  const char* const end = value.data() + value.size();
  const auto [rest, error] = std::from_chars(value.data(), end, seconds);
  constexpr double kMost = 1e6;
  if (error != std::errc() || rest != end || !(seconds >= 0 && seconds <= kMost)) {
    return wrong(word, "give a number of seconds from 0 to 1000000");
  }
  return seconds;
}

Status take_with_value(MountOptions& options, std::string_view word) {
  const size_t equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  double* target = nullptr;
  if (name == "timeo") target = &options.soft_seconds;
  if (name == "attr_timeout") target = &options.attribute_seconds;
  if (name == "entry_timeout") target = &options.entry_seconds;
  if (target == nullptr || equals == std::string_view::npos) {
    return wrong(word, "there is no such option; see pmstore fs mount --help");
  }
  PMSTORE_TRY(*target, seconds_of(word, word.substr(equals + 1)));
  return {};
}

Status take_sync(MountOptions& options, std::string_view word) {
  const std::string_view value = word.substr(word.find('=') + 1);
  if (value != "always" && value != "fsync") return wrong(word, "give always or fsync");
  options.sync = value == "fsync" ? fs::DataSync::kFsync : fs::DataSync::kAlways;
  return {};
}

Status take(MountOptions& options, std::string_view word) {
  if (is_one_of(word, kForKernel)) {
    options.kernel.emplace_back(word);
  } else if (word == "single") {
    options.single = true;
  } else if (word == "atomic") {
    options.atomic = true;
  } else if (word.starts_with("sync=")) {
    return take_sync(options, word);
  } else if (word == "noatime" || is_one_of(word, kAtime)) {
    options.atime = word != "noatime";
  } else if (word == "strictatime" || word == "nodiratime") {
    return wrong(word, "there is no such option; give relatime or noatime");
  } else if (word == "hard" || word == "soft") {
    options.hard = word == "hard";
  } else if (word == "remount") {
    return wrong(word, "a mount cannot be changed; unmount it and mount it again");
  } else if (!is_one_of(word, kWithoutMeaning) && !word.starts_with("x-") &&
             !word.starts_with("X-") && !word.starts_with("comment=")) {
    return take_with_value(options, word);
  }
  return {};
}

}  // namespace

Result<MountOptions> parse_mount_options(std::string_view text) {
  MountOptions options;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view word = text.substr(0, comma);
    if (!word.empty()) {
      PMSTORE_TRY_STATUS(take(options, word));
    }
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  const bool is_synchronous =
      std::find(options.kernel.begin(), options.kernel.end(), "sync") != options.kernel.end();
  if (is_synchronous && options.sync == fs::DataSync::kFsync) {
    return wrong("sync", "it says the opposite of sync=fsync: give one of both");
  }
  return options;
}

}  // namespace pmstore::tools
