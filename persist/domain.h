// The persistence domain: how far a store must have travelled to survive a power cut.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pmstore::persist {

enum class Domain : uint8_t {
  kNone,              // an ordinary file, tmpfs too: only msync makes it durable
  kMemoryController,  // ADR: lines must be flushed from the CPU caches
  kCpuCache,          // eADR: the caches are inside; fences only
};

// "none", "adr", "eadr".
std::string_view domain_name(Domain domain);
// InvalidArgument naming the valid ones.
Result<Domain> parse_domain(std::string_view text);

// What was found about the memory behind a path, and how.
struct DomainReport {
  Domain domain = Domain::kNone;
  std::string
      source;  // for people: "libpmem2 granularity byte; region0 persistence_domain cpu_cache"
};

// Asks libpmem2 for the store granularity of the file or DAX device `path`, and libndctl for the
// region's declared domain where there is one; when they differ the weaker one counts. Io when the
// path cannot be opened.
Result<DomainReport> detect_domain(const std::string& path);

}  // namespace pmstore::persist
