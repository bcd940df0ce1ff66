// Keys and values are bytes; people and JSON want text. In JSON, bytes that are valid UTF-8 are a
// string and all others {"base64": "..."}; for people, what cannot be printed is \xHH.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace pmstore::tools {

bool is_utf8(std::string_view bytes);
std::string base64(std::string_view bytes);
nlohmann::ordered_json json_bytes(std::string_view bytes);
// One line, with control characters, backslashes and bytes that are not UTF-8 escaped.
std::string printable(std::string_view bytes);

}  // namespace pmstore::tools
