#include "service/hello.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace pmstore::service {
namespace {

template <typename T>
std::vector<std::byte> joined(const T& head, std::span<const std::byte> body) {
  std::vector<std::byte> bytes(sizeof head + body.size());
  std::memcpy(bytes.data(), &head, sizeof head);
  if (!body.empty()) std::memcpy(bytes.data() + sizeof head, body.data(), body.size());
  return bytes;
}

// Fields that the message does not reach are 0.
template <typename T>
T beginning_of(std::span<const std::byte> message) {
  T head;
  std::memset(static_cast<void*>(&head), 0, sizeof head);
  if (message.empty()) return head;
  std::memcpy(&head, message.data(), std::min(message.size(), sizeof head));
  return head;
}

template <typename T>
bool all_zero(const T& fields) {
  return std::all_of(std::begin(fields), std::end(fields), [](auto field) { return field == 0; });
}

Error bad_welcome(std::string_view what) {
  return make_error(ErrorCode::kProtocol,
                    fmt::format("the server's handshake {}; is it a pmstore server of this "
                                "version?",
                                what));
}

}  // namespace

std::vector<std::byte> encode(const Hello& head, std::span<const std::byte> body) {
  return joined(head, body);
}

std::vector<std::byte> encode(const Welcome& head, std::span<const std::byte> body) {
  return joined(head, body);
}

Result<Hello> decode_hello(std::span<const std::byte> message) {
  const auto hello = beginning_of<Hello>(message);
  if (hello.magic != kMagic || hello.version != kVersion) {
    return make_error(ErrorCode::kVersionMismatch,
                      fmt::format("this server speaks protocol version {}; use a client of the "
                                  "same release",
                                  kVersion));
  }
  if (message.size() < sizeof hello || !all_zero(hello.padding) || !all_zero(hello.reserved)) {
    return make_error(ErrorCode::kProtocol, "a malformed hello");
  }
  if (!hello.client.is_somebody()) {
    return make_error(ErrorCode::kInvalidArgument, "a client's id is not 0");
  }
  if (hello.secret.id() != hello.client) {
    return make_error(ErrorCode::kAccess,
                      fmt::format("the secret is not that of client {}: connect with the secret "
                                  "that it was made with, or as a new client",
                                  hello.client.to_string()));
  }
  return hello;
}

Result<Welcome> decode_welcome(std::span<const std::byte> message, ServiceId service) {
  const auto welcome = beginning_of<Welcome>(message);
  if (message.size() < offsetof(Welcome, epoch)) return bad_welcome("is too short");
  if (welcome.magic != kMagic) return bad_welcome("does not start with pmstore's magic");
  if (welcome.version != kVersion) {
    return make_error(ErrorCode::kVersionMismatch,
                      fmt::format("the server speaks protocol version {}, this client {}; use the "
                                  "same release on both sides",
                                  welcome.version, kVersion));
  }
  if (message.size() < sizeof welcome) return bad_welcome("has the wrong length");
  if (welcome.service != service) return bad_welcome("is another service's");
  if (welcome.domain > static_cast<uint8_t>(persist::Domain::kCpuCache) ||
      welcome.landing > static_cast<uint8_t>(persist::WriteLanding::kCpu)) {
    return bad_welcome("names no persistence domain");
  }
  return welcome;
}

}  // namespace pmstore::service
