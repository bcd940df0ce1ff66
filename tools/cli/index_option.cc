#include "tools/cli/index_option.h"

#include <string>
#include <vector>

#include "tools/cli/command_line.h"

namespace pmstore::tools {
namespace {

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t end = text.find(at);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

Result<IndexToCheck> parse_index(std::string_view text) {
  const Error wrong = make_error(
      ErrorCode::kInvalidArgument,
      "'" + std::string(text) +
          "' is not an index; give BASE:INDEX:OFFSET+BYTES, or BASE:INDEX:OFFSET+BYTES:unique, "
          "like people:people_by_city:0+16");
  const auto parts = split(text, ':');
  const bool unique = parts.size() == 4 && parts[3] == "unique";
  if (parts.size() != 3 && !unique) return wrong;
  const auto numbers = split(parts[2], '+');
  IndexField field;
  const bool sound = !parts[0].empty() && !parts[1].empty() && numbers.size() == 2 &&
                     parse_number(numbers[0], field.offset) &&
                     parse_number(numbers[1], field.bytes) && field.bytes > 0;
  if (!sound) return wrong;
  return IndexToCheck{std::string(parts[0]),
                      std::string(parts[1]),
                      {unique ? IndexKind::kUnique : IndexKind::kMany, key_of_field(field)}};
}

}  // namespace pmstore::tools
