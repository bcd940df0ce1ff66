// The script of `pmstore kv txn`: one operation a line.
//
//   script  = *( line "\n" )
//   line    = [ operation ] [ "#" comment ]
//   operation = "get" word | "put" word word | "insert" word word | "del" word | "check" word word
//   word    = 1*( any byte but space, tab, '"' and '#' ) | '"' *( byte | escape ) '"'
//   escape  = "\n" | "\t" | "\r" | "\"" | "\\" | "\x" HEX HEX
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace pmstore::tools {

struct ScriptStep {
  enum class Kind { kGet, kPut, kInsert, kDel, kCheck };
  Kind kind;
  std::string key;
  std::string value;  // put, insert, check
  size_t line;        // counted from 1
};

std::string_view step_name(ScriptStep::Kind kind);

// InvalidArgument with the number of the wrong line and the reason; TooLarge with the number of a
// line whose key or value no record can have.
Result<std::vector<ScriptStep>> parse_script(std::string_view text);

}  // namespace pmstore::tools
