#include "fabric/uri.h"

#include <algorithm>
#include <charconv>

namespace pmstore::fabric {

std::string_view scheme_name(Scheme scheme) {
  switch (scheme) {
    case Scheme::kLocal: return "local";
    case Scheme::kTcp: return "tcp";
    case Scheme::kShm: return "shm";
    case Scheme::kVerbs: return "verbs";
  }
  return "?";
}

std::string Uri::to_string() const {
  switch (scheme) {
    case Scheme::kLocal: return "local:" + name;
    case Scheme::kShm: return "shm://" + name;
    default: return std::string(scheme_name(scheme)) + "://" + name + ":" + std::to_string(port);
  }
}

namespace {

Error bad_uri(std::string_view text, std::string_view why) {
  return make_error(ErrorCode::kInvalidArgument,
                    "'" + std::string(text) + "' is not a server address (" + std::string(why) +
                        "); use verbs://HOST:PORT, tcp://HOST:PORT, shm://NAME or local:PATH");
}

Result<Uri> parse_host_port(std::string_view text, Scheme scheme, std::string_view rest) {
  const size_t colon = rest.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return bad_uri(text, "no HOST:PORT");
  const std::string_view digits = rest.substr(colon + 1);
  uint16_t port = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc{} || end != digits.data() + digits.size()) {
    return bad_uri(text, "the port is not a number from 0 to 65535");
  }
  return Uri{scheme, std::string(rest.substr(0, colon)), port};
}

}  // namespace

Result<Uri> parse_uri(std::string_view text) {
  const auto is_control = [](unsigned char byte) { return byte < 0x20 || byte == 0x7f; };
  if (std::any_of(text.begin(), text.end(), is_control)) {
    return bad_uri("...", "it has a control character");
  }
  constexpr std::string_view kLocalPrefix = "local:";
  if (text.starts_with(kLocalPrefix)) {
    if (text.size() == kLocalPrefix.size()) return bad_uri(text, "no PATH");
    return Uri{Scheme::kLocal, std::string(text.substr(kLocalPrefix.size())), 0};
  }
  const size_t mark = text.find("://");
  if (mark == std::string_view::npos) return bad_uri(text, "no scheme");
  const std::string_view scheme = text.substr(0, mark);
  const std::string_view rest = text.substr(mark + 3);
  if (scheme == "verbs") return parse_host_port(text, Scheme::kVerbs, rest);
  if (scheme == "tcp") return parse_host_port(text, Scheme::kTcp, rest);
  if (scheme == "shm") {
    if (rest.empty() || rest.find('/') != std::string_view::npos) {
      return bad_uri(text, "the NAME of a shm server has at least one character and no '/'");
    }
    return Uri{Scheme::kShm, std::string(rest), 0};
  }
  return bad_uri(text, "unknown scheme '" + std::string(scheme) + "'");
}

}  // namespace pmstore::fabric
