// Who a client is: its id, which everybody may see, and the secret behind it, which it alone has.
//
// A client draws its secret once, and its id follows from the secret: the first 128 bits of its
// SHA-256. So a server knows the owner of an id by its hello, which carries both: without a list of
// clients, and after a restart as well. An id alone, which logs and transactions show, opens
// nothing. The secret goes to servers only, and is never printed. Threads: values.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/random.h"
#include "base/result.h"

namespace pmstore {

// 128 bits. The low ones of a client's id are not 0, so that 0 is nobody's.
struct ClientId {
  uint64_t low = 0;
  uint64_t high = 0;

  constexpr ClientId() = default;
  // Implicit from 64 bits: what earlier releases wrote into pools is the id of that number.
  constexpr ClientId(uint64_t low_bits, uint64_t high_bits = 0) : low(low_bits), high(high_bits) {}
  auto operator<=>(const ClientId&) const = default;
  constexpr bool is_somebody() const { return low != 0; }
  // 32 hexadecimal digits, the high bits first; parse_client_id() reads them back.
  std::string to_string() const;
};
static_assert(sizeof(ClientId) == 16);
// InvalidArgument: `text` is not the output of ClientId::to_string().
Result<ClientId> parse_client_id(std::string_view text);

class ClientSecret {
 public:
  // The empty secret, which no client has.
  constexpr ClientSecret() = default;
  // From the operating system.
  static ClientSecret random();
  // The same for the same number, so that a run can be repeated. Who can guess the number has the
  // secret: for tests and simulations.
  static ClientSecret of_number(uint64_t number);

  bool empty() const { return *this == ClientSecret(); }
  ClientId id() const;
  bool operator==(const ClientSecret&) const = default;

 private:
  constexpr ClientSecret(uint64_t first, uint64_t second) : bits_{first, second} {}
  uint64_t bits_[2] = {};
};
static_assert(sizeof(ClientSecret) == 16);

// For tables of clients in memory.
struct HashOfClientId {
  size_t operator()(const ClientId& id) const { return base::mix64(id.low ^ base::mix64(id.high)); }
};

}  // namespace pmstore
