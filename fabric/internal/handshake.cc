#include "fabric/internal/handshake.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace pmstore::fabric::internal {

Error HandshakeMessage::to_error() const {
  return make_error(refusal, std::string(reinterpret_cast<const char*>(body.data()), body.size()));
}

std::vector<std::byte> encode(const HandshakeMessage& message) {
  PMSTORE_CHECK(
      message.endpoint.size() <= kMaxEndpointBytes && message.body.size() <= kMaxBodyBytes,
      "the peer would refuse a longer message as malformed");
  HandshakeHeader header{};
  header.magic = kHandshakeMagic;
  header.version = kHandshakeVersion;
  header.kind = static_cast<uint16_t>(message.kind);
  if (message.kind == MessageKind::kRefuse) {
    header.error_code = static_cast<uint32_t>(message.refusal);
  }
  header.endpoint_bytes = static_cast<uint16_t>(message.endpoint.size());
  header.body_bytes = static_cast<uint16_t>(message.body.size());
  std::vector<std::byte> bytes(sizeof header + message.endpoint.size() + message.body.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  std::byte* rest = bytes.data() + sizeof header;
  rest = std::transform(message.endpoint.begin(), message.endpoint.end(), rest,
                        [](char c) { return static_cast<std::byte>(c); });
  std::copy(message.body.begin(), message.body.end(), rest);
  return bytes;
}

std::vector<std::byte> encode_refusal(const Error& error) {
  HandshakeMessage message{MessageKind::kRefuse, {}, {}, error.code};
  const size_t bytes = std::min(error.message.size(), kMaxBodyBytes);
  message.body.resize(bytes);
  std::memcpy(message.body.data(), error.message.data(), bytes);
  return encode(message);
}

bool is_refusal(std::span<const std::byte> bytes) {
  HandshakeHeader header;
  if (bytes.size() < sizeof header) return false;
  std::memcpy(&header, bytes.data(), sizeof header);
  return header.kind == static_cast<uint16_t>(MessageKind::kRefuse);
}

Result<HandshakeMessage> decode(std::span<const std::byte> bytes) {
  HandshakeHeader header;
  if (bytes.size() < sizeof header) {
    return make_error(ErrorCode::kProtocol, "the peer sent a handshake that is truncated");
  }
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kHandshakeMagic) {
    return make_error(ErrorCode::kVersionMismatch,
                      "the peer does not speak pmstore's handshake; check the address");
  }
  if (header.version != kHandshakeVersion) {
    return make_error(ErrorCode::kVersionMismatch,
                      "the peer speaks handshake version " + std::to_string(header.version) +
                          ", this is version " + std::to_string(kHandshakeVersion) +
                          "; run the same pmstore release on both sides");
  }
  const bool known_kind = header.kind >= static_cast<uint16_t>(MessageKind::kHello) &&
                          header.kind <= static_cast<uint16_t>(MessageKind::kWelcome);
  if (!known_kind || header.endpoint_bytes > kMaxEndpointBytes ||
      header.body_bytes > kMaxBodyBytes ||
      header.error_code > static_cast<uint32_t>(base::kLastErrorCode) ||
      bytes.size() != sizeof header + header.endpoint_bytes + header.body_bytes) {
    return make_error(ErrorCode::kProtocol, "the peer sent a malformed handshake");
  }
  HandshakeMessage message;
  message.kind = static_cast<MessageKind>(header.kind);
  message.refusal = static_cast<ErrorCode>(header.error_code);
  const auto endpoint = bytes.subspan(sizeof header, header.endpoint_bytes);
  message.endpoint.assign(reinterpret_cast<const char*>(endpoint.data()), endpoint.size());
  const auto body = bytes.subspan(sizeof header + header.endpoint_bytes);
  message.body.assign(body.begin(), body.end());
  return message;
}

}  // namespace pmstore::fabric::internal
