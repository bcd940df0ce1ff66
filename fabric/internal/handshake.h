// Handshake messages of tcp and shm: how two processes set up a connection.
//
//   client                              listener
//     Hello   {endpoint name, hello}  ->
//                                     <-  Accept {endpoint name, hello}
//                                         or Refuse {ErrorCode, text}
//     Ready   {}                      ->
//                                     <-  Welcome {}: the listener's owner has the connection
//
// Little endian. The magic, the version and the kind keep their offsets in every later version, so
// that any two versions recognize each other. docs/fabric-tcp.md has the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace pmstore::fabric::internal {

inline constexpr uint32_t kHandshakeMagic = 0x46534d50;  // "PMSF"
inline constexpr uint16_t kHandshakeVersion = 4;

enum class MessageKind : uint16_t {
  kHello = 1,
  kAccept = 2,
  kRefuse = 3,
  kReady = 4,
  kWelcome = 5
};

struct HandshakeHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t kind;
  uint32_t error_code;  // Refuse: an ErrorCode; otherwise 0
  uint16_t endpoint_bytes;
  uint16_t body_bytes;  // the hello, or the text of a Refuse
};
static_assert(sizeof(HandshakeHeader) == 16);

inline constexpr size_t kMaxEndpointBytes = 64;
inline constexpr size_t kMaxBodyBytes = 4096;
inline constexpr size_t kMaxMessageBytes =
    sizeof(HandshakeHeader) + kMaxEndpointBytes + kMaxBodyBytes;

struct HandshakeMessage {
  MessageKind kind;
  std::string endpoint;  // shm: the layout of the client's segment; else empty
  std::vector<std::byte> body;
  ErrorCode refusal = ErrorCode::kProtocol;

  // For a Refuse.
  Error to_error() const;
};

std::vector<std::byte> encode(const HandshakeMessage& message);
// The message that carries `error`; its text is truncated if it does not fit.
std::vector<std::byte> encode_refusal(const Error& error);

// Whether the sender of `bytes` says that they are a Refuse; only decode() tells whether it is one.
bool is_refusal(std::span<const std::byte> bytes);

// VersionMismatch for a message of another version, or of another program; Protocol for a malformed
// one.
Result<HandshakeMessage> decode(std::span<const std::byte> bytes);

}  // namespace pmstore::fabric::internal
