#include "tests/scenario/fs/model/model_operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <string_view>

namespace pmstore::fs::model {
namespace {

constexpr std::array<std::string_view, kKinds> kKindNames{
    "mkdir",  "create",  "symlink",  "link",     "unlink",      "rmdir",    "rename", "open",
    "close",  "write",   "append",   "read",     "truncate",    "allocate", "stat",   "chmod",
    "chown",  "utimens", "setxattr", "getxattr", "removexattr", "readlink", "list",   "listnext",
    "forget", "crash",   "sync",     "move",     "compare"};

// How often each kind comes, in the order of the names.
constexpr std::array<unsigned, kKinds> kWeights{10, 24, 2, 4, 5, 2, 12, 12, 2, 14, 10, 30, 8, 8, 6,
                                                3,  2,  2, 3, 1, 1, 1,  2,  6, 1,  1,  4,  1, 1};

std::string path_text(const std::vector<uint8_t>& path) {
  std::string text;
  for (const uint8_t name : path) text += fmt::format("/{}", kNames[name]);
  return text;
}

// Mostly the first two names are directories, and the others are files.
std::vector<uint8_t> random_path(base::Random& random, bool of_directory) {
  // One file that both programs use all the time.
  if (!of_directory && random.below(3) == 0) return {2};
  const uint64_t drawn = random.below(8);
  std::vector<uint8_t> path(drawn < 4 ? 1 : drawn < 7 ? 2 : 3);
  for (size_t i = 0; i < path.size(); ++i) {
    const bool any = random.below(10) == 0;
    const bool directory = i + 1 < path.size() || of_directory;
    path[i] = static_cast<uint8_t>(any         ? random.below(kNames.size())
                                   : directory ? random.below(2)
                                               : 2 + random.below(kNames.size() - 2));
  }
  return path;
}

// Small ones, such around the bound of inline data, around units, and a few large ones.
uint64_t random_offset(base::Random& random) {
  switch (random.below(6)) {
    case 0: return random.below(100);
    case 1: return random.below(4200);
    case 2: return 4096 - 3 + random.below(6);
    case 3: return 65536 * (1 + random.below(3)) - 3 + random.below(6);
    case 4: return random.below(300'000);
    default: return random.below(20'000);
  }
}

}  // namespace

std::string Operation::to_string() const {
  std::string text = fmt::format("{} caller={}", kKindNames[static_cast<unsigned>(kind)], caller);
  if (!path.empty()) text += " " + path_text(path);
  if (!to.empty()) text += " to=" + path_text(to);
  text += fmt::format(" slot={} mode={} flag={} bits={:o} offset={} bytes={} fill={}", slot, mode,
                      flag, bits, offset, bytes, fill);
  if (interrupt != 0) text += fmt::format(" interrupt={}", interrupt);
  return text;
}

namespace {

std::optional<std::vector<uint8_t>> path_of(std::string_view text) {
  std::vector<uint8_t> path;
  for (size_t at = 0; at + 1 < text.size(); at += 2) {
    const auto* const name = std::find_if(kNames.begin(), kNames.end(), [&](const char* each) {
      return text[at] == '/' && text[at + 1] == each[0];
    });
    if (name == kNames.end()) return std::nullopt;
    path.push_back(static_cast<uint8_t>(name - kNames.begin()));
  }
  return path;
}

template <typename T>
bool get_number(std::string_view text, T& into, int base = 10) {
  const auto got = std::from_chars(text.data(), text.data() + text.size(), into, base);
  return got.ec == std::errc() && got.ptr == text.data() + text.size();
}

// One word "name=value" of to_string().
bool get_field(std::string_view word, Operation& operation) {
  const size_t equals = word.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string_view name = word.substr(0, equals);
  const std::string_view value = word.substr(equals + 1);
  if (name == "caller") return get_number(value, operation.caller);
  if (name == "slot") return get_number(value, operation.slot) && operation.slot < kSlots;
  if (name == "mode") return get_number(value, operation.mode);
  if (name == "bits") return get_number(value, operation.bits, 8);
  if (name == "offset") return get_number(value, operation.offset);
  if (name == "bytes") return get_number(value, operation.bytes);
  if (name == "interrupt") return get_number(value, operation.interrupt);
  if (name == "flag") {
    operation.flag = value == "true";
    return operation.flag || value == "false";
  }
  if (name == "fill" && value.size() == 1) {
    operation.fill = value[0];
    return true;
  }
  return false;
}

}  // namespace

std::optional<Operation> Operation::parse(std::string_view text) {
  Operation operation;
  for (bool is_first = true; !text.empty(); is_first = false) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (is_first) {
      const auto* const name = std::find(kKindNames.begin(), kKindNames.end(), word);
      if (name == kKindNames.end()) return std::nullopt;
      operation.kind = static_cast<Kind>(name - kKindNames.begin());
    } else if (word.starts_with("/") || word.starts_with("to=/")) {
      const bool is_path = word.starts_with("/");
      auto path = path_of(is_path ? word : word.substr(3));
      if (!path) return std::nullopt;
      (is_path ? operation.path : operation.to) = std::move(*path);
    } else if (!get_field(word, operation)) {
      return std::nullopt;
    }
  }
  return operation;
}

std::string data_of(const Operation& operation) {
  std::string data(operation.bytes, operation.fill);
  for (size_t i = 0; i < data.size(); i += 61) data[i] = static_cast<char>('0' + i / 61 % 10);
  return data;
}

Operation random_operation(base::Random& random) {
  unsigned sum = 0;
  for (const unsigned weight : kWeights) sum += weight;
  uint64_t drawn = random.below(sum);
  unsigned kind = 0;
  while (drawn >= kWeights[kind]) drawn -= kWeights[kind++];
  Operation operation;
  operation.kind = static_cast<Kind>(kind);
  operation.caller = static_cast<uint8_t>(random.below(8) == 0 ? 0 : 1 + random.below(2));
  const bool of_directory =
      operation.kind == Kind::kMakeDirectory || operation.kind == Kind::kRemoveDirectory ||
      operation.kind == Kind::kList || operation.kind == Kind::kListNext || random.below(6) == 0;
  operation.path = random_path(random, of_directory);
  operation.to = random_path(random, of_directory);
  operation.slot = static_cast<uint8_t>(random.below(kSlots));
  operation.mode = static_cast<uint8_t>(random.below(12));
  const bool opens = operation.kind == Kind::kOpen || operation.kind == Kind::kMakeFile;
  if (opens && random.below(3) != 0) operation.mode = 2;  // for reading and writing
  operation.flag = random.below(3) == 0;
  // Mostly such that both programs get on.
  constexpr uint16_t kModes[] = {0777, 0777, 0777, 0777,  0777,  0777,  0777, 0775,
                                 0755, 0700, 0666, 01777, 02777, 06777, 0444};
  operation.bits = kModes[random.below(std::size(kModes))];
  operation.offset = random_offset(random);
  operation.bytes = random_offset(random);
  operation.fill = static_cast<char>('a' + random.below(26));
  const bool may_be_interrupted =
      operation.kind <= Kind::kRename || operation.kind == Kind::kWrite ||
      operation.kind == Kind::kAppend || operation.kind == Kind::kTruncate ||
      operation.kind == Kind::kSetXattr;
  if (may_be_interrupted && random.below(30) == 0) {
    operation.interrupt = 1 + static_cast<uint32_t>(random.below(6));
  }
  return operation;
}

}  // namespace pmstore::fs::model
