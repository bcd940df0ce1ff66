// Uri: the address of a server, as users type it.
//
//   verbs://HOST:PORT   an RDMA device, connected through the RDMA connection manager
//   tcp://HOST:PORT     a TCP socket
//   shm://NAME          shared memory, same host
//   local:PATH          this process: the pool PATH is opened here, no server
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pmstore::fabric {

enum class Scheme { kLocal, kTcp, kShm, kVerbs };

std::string_view scheme_name(Scheme scheme);

struct Uri {
  Scheme scheme;
  std::string name;   // HOST, NAME or PATH
  uint16_t port = 0;  // tcp and verbs only

  std::string to_string() const;
};

// InvalidArgument with the four valid forms when `text` is none of them.
Result<Uri> parse_uri(std::string_view text);

}  // namespace pmstore::fabric
