#include "persist/domain.h"

#include <fmt/format.h>

namespace pmstore::persist {

std::string_view domain_name(Domain domain) {
  switch (domain) {
    case Domain::kNone: return "none";
    case Domain::kMemoryController: return "adr";
    case Domain::kCpuCache: return "eadr";
  }
  return "?";
}

Result<Domain> parse_domain(std::string_view text) {
  for (Domain domain : {Domain::kNone, Domain::kMemoryController, Domain::kCpuCache}) {
    if (text == domain_name(domain)) return domain;
  }
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("persistence domain '{}' is unknown: use none, adr or eadr", text));
}

}  // namespace pmstore::persist
