#include "service/identity.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <span>

#include "base/sha256.h"

namespace pmstore {
namespace {

constexpr size_t kHalfDigits = 16;

bool parse_half(std::string_view digits, uint64_t& half) {
  const char* const end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), end, half, 16);
  return parsed.ec == std::errc{} && parsed.ptr == end;
}

}  // namespace

std::string ClientId::to_string() const { return fmt::format("{:016x}{:016x}", high, low); }

Result<ClientId> parse_client_id(std::string_view text) {
  ClientId id;
  if (text.size() == 2 * kHalfDigits && parse_half(text.substr(0, kHalfDigits), id.high) &&
      parse_half(text.substr(kHalfDigits), id.low)) {
    return id;
  }
  return make_error(
      ErrorCode::kInvalidArgument,
      fmt::format("'{}' is not a client's id: use its 32 hexadecimal digits", text.substr(0, 64)));
}

ClientSecret ClientSecret::random() {
  ClientSecret secret;
  do {
    secret = {base::random_identity(), base::random_identity()};
  } while (!secret.id().is_somebody());
  return secret;
}

ClientSecret ClientSecret::of_number(uint64_t number) {
  return {base::mix64(number), base::mix64(number + 1) | 1};  // not empty
}

ClientId ClientSecret::id() const {
  const base::Sha256Digest digest = base::sha256(std::as_bytes(std::span(bits_)));
  ClientId id;
  std::memcpy(&id.low, digest.data(), sizeof id.low);
  std::memcpy(&id.high, digest.data() + sizeof id.low, sizeof id.high);
  return id;
}

}  // namespace pmstore
