// Clients of tests have numbers: their secrets are made of them (ClientSecret::of_number()).
#pragma once

#include <cstdint>

#include "service/identity.h"

namespace pmstore::numbered {

inline ClientId id_of(uint64_t number) { return ClientSecret::of_number(number).id(); }

// Of the clients below `end`; `end`: it is none of them.
inline uint64_t number_of(ClientId id, uint64_t end = 1000) {
  uint64_t number = 0;
  while (number < end && id_of(number) != id) ++number;
  return number;
}

}  // namespace pmstore::numbered
