// The first messages of a session: the client's hello and the server's welcome, the same for every
// service of a server; and what every request begins with.
//
// Fixed little-endian structs, each followed by a body that is the service's own. A message that
// does not decode exactly is refused. Both sides are of one release: another version is refused in
// one line. docs/service.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "fabric/memory_region.h"
#include "persist/strategy.h"
#include "service/identity.h"

namespace pmstore::service {

inline constexpr uint32_t kMagic = 0x43565350;  // "PSVC"
inline constexpr uint32_t kVersion = 13;        // above those of all hellos before

// Which service of a server a session is for. A new service takes the next number here.
enum class ServiceId : uint16_t {
  kStore = 1,     // pmstore/layout/protocol.h
  kLog = 2,       // log/log_protocol.h
  kProducer = 3,  // log/log_protocol.h
  kAdmin = 4,     // pmstore/layout/admin_protocol.h
  kFiles = 5,     // fs/files_protocol.h
  kFileData = 6,  // fs/file_data_protocol.h
};
constexpr uint16_t raw(ServiceId id) { return static_cast<uint16_t>(id); }

struct Hello {
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  ClientId client;      // the same when the client comes back
  ClientSecret secret;  // that it is the client: the id follows from it
  fabric::RemoteRegion reply_region;
  ServiceId service{};
  uint8_t padding[6] = {};
  uint64_t reserved[2] = {};  // 0
};
static_assert(sizeof(Hello) == 88 && offsetof(Hello, client) == 8 && offsetof(Hello, secret) == 24);

struct Welcome {
  uint32_t magic = kMagic;
  uint32_t version = kVersion;
  uint64_t epoch = 0;  // of what the service serves; in every request
  fabric::RemoteRegion request_region;
  uint32_t lease_ms = 0;  // a session that is silent this long is ended; 0: it has no lease
  ServiceId service{};
  uint8_t domain = 0;   // persist::Domain
  uint8_t landing = 0;  // persist::WriteLanding
  uint8_t native_flush = 0;
  uint8_t padding[7] = {};

  persist::PersistCapability persist_capability() const {
    return {static_cast<persist::Domain>(domain), static_cast<persist::WriteLanding>(landing),
            native_flush != 0};
  }
};
static_assert(sizeof(Welcome) == 56);

// ---- requests ----

// First in every request but persistent writes.
struct RequestPrefix {
  uint64_t epoch = 0;
  // The client has the outcomes of all its numbers in this session through this one, or wants none:
  // they need not be kept for it. 0 where a service numbers nothing. It does not fall.
  uint64_t known_through = 0;
};
static_assert(sizeof(RequestPrefix) == 16);

// Methods of every service; the others are the service's own.
inline constexpr uint16_t kPingMethod = 1;      // keeps the lease
inline constexpr uint16_t kGoodbyeMethod = 13;  // orderly end: nothing of this session is in doubt

// ---- the bytes of messages ----

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::as_bytes(std::span(&value, 1));
}

template <typename T>
std::vector<std::byte> message_of(const T& value) {
  const auto bytes = bytes_of(value);
  return {bytes.begin(), bytes.end()};
}
// The message `head`, then `body`.
std::vector<std::byte> encode(const Hello& head, std::span<const std::byte> body);
std::vector<std::byte> encode(const Welcome& head, std::span<const std::byte> body);

// What a hello is refused for before its service is asked. VersionMismatch: another release.
// Protocol: malformed. InvalidArgument: no client id. Access: the secret is not that of the id. The
// body is behind the first sizeof(Hello) bytes.
Result<Hello> decode_hello(std::span<const std::byte> message);
// VersionMismatch; Protocol: not a welcome to `service`, or one that makes no sense.
Result<Welcome> decode_welcome(std::span<const std::byte> message, ServiceId service);

}  // namespace pmstore::service
