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
// Reads the escape at the start of `rest` (behind the backslash) and takes it off; adds what it
// means to `bytes`. nullptr, or what is wrong.
const char* read_escape(std::string_view& rest, std::string& bytes);
// The opposite of printable(); other escapes are those of read_escape(). nullptr, or what is wrong.
const char* read_printable(std::string_view text, std::string& bytes);

}  // namespace pmstore::tools
