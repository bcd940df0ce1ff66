#include "persist/domain.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <libpmem2.h>
#include <ndctl/libndctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>

#include "persist/internal/pool_file.h"
#include "persist/padding.h"

namespace pmstore::persist {
namespace {

template <auto Delete>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    Delete(&object);
  }
};
using Source = std::unique_ptr<pmem2_source, Deleter<pmem2_source_delete>>;
using Config = std::unique_ptr<pmem2_config, Deleter<pmem2_config_delete>>;
using Map = std::unique_ptr<pmem2_map, Deleter<pmem2_map_delete>>;

struct Granularity {
  Domain domain;
  const char* name;
};

Error pmem2_error(const std::string& path, const char* what) {
  return make_error(
      ErrorCode::kIo,
      fmt::format("{}: cannot {}: libpmem2: {}: check that it is a file or a DAX device "
                  "that you may read",
                  path, what, pmem2_errormsg()));
}

// libpmem2 knows the granularity of a mapping only, so this maps the beginning, for reading.
Result<Granularity> ask_libpmem2(int fd, const internal::MediumFacts& facts,
                                 const std::string& path) {
  pmem2_source* raw_source = nullptr;
  if (pmem2_source_from_fd(&raw_source, fd) != 0) return pmem2_error(path, "look at it");
  const Source source(raw_source);
  pmem2_config* raw_config = nullptr;
  if (pmem2_config_new(&raw_config) != 0) return pmem2_error(path, "look at it");
  const Config config(raw_config);
  const uint64_t length = std::min(facts.bytes, facts.map_alignment);
  if (pmem2_config_set_required_store_granularity(config.get(), PMEM2_GRANULARITY_PAGE) != 0 ||
      pmem2_config_set_protection(config.get(), PMEM2_PROT_READ) != 0 ||
      pmem2_config_set_length(config.get(), length) != 0) {
    return pmem2_error(path, "look at it");
  }
  pmem2_map* raw_map = nullptr;
  if (pmem2_map_new(&raw_map, config.get(), source.get()) != 0) return pmem2_error(path, "map it");
  const Map map(raw_map);
  switch (pmem2_map_get_store_granularity(map.get())) {
    case PMEM2_GRANULARITY_BYTE: return Granularity{Domain::kCpuCache, "byte"};
    case PMEM2_GRANULARITY_CACHE_LINE: return Granularity{Domain::kMemoryController, "cache line"};
    case PMEM2_GRANULARITY_PAGE: break;
  }
  return Granularity{Domain::kNone, "page"};
}

// The number N of the ".../regionN/..." under which the kernel keeps the device that `fd` is, or
// that the file system of `fd` is on.
std::optional<unsigned> nvdimm_region_of(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return std::nullopt;
  const bool is_device = S_ISCHR(status.st_mode);
  const dev_t device = is_device ? status.st_rdev : status.st_dev;
  const auto link =
      fmt::format("/sys/dev/{}/{}:{}", is_device ? "char" : "block", major(device), minor(device));
  const std::unique_ptr<char, decltype(&std::free)> target(realpath(link.c_str(), nullptr),
                                                           &std::free);
  if (!target) return std::nullopt;
  const std::string_view text(target.get());
  const size_t bus = text.find("/ndbus");
  if (bus == std::string_view::npos) return std::nullopt;
  constexpr std::string_view kRegion = "/region";
  const size_t at = text.find(kRegion, bus);
  if (at == std::string_view::npos) return std::nullopt;
  return static_cast<unsigned>(std::strtoul(text.data() + at + kRegion.size(), nullptr, 10));
}

// What the platform declares for a region; nothing when it does not say.
std::optional<Granularity> ask_libndctl(unsigned region_number) {
  // libndctl gives PERSISTENCE_NONE both for "none" and for a kernel that has no such attribute.
  const auto attribute =
      fmt::format("/sys/bus/nd/devices/region{}/persistence_domain", region_number);
  if (access(attribute.c_str(), R_OK) != 0) return std::nullopt;
  ndctl_ctx* raw = nullptr;
  if (ndctl_new(&raw) != 0) return std::nullopt;
  const std::unique_ptr<ndctl_ctx, decltype(&ndctl_unref)> context(raw, &ndctl_unref);
  ndctl_bus* bus;
  ndctl_bus_foreach(context.get(), bus) {
    ndctl_region* region;
    ndctl_region_foreach(bus, region) {
      if (ndctl_region_get_id(region) != region_number) continue;
      switch (ndctl_region_get_persistence_domain(region)) {
        case PERSISTENCE_CPU_CACHE: return Granularity{Domain::kCpuCache, "cpu_cache"};
        case PERSISTENCE_MEM_CTRL:
          return Granularity{Domain::kMemoryController, "memory_controller"};
        case PERSISTENCE_NONE: return Granularity{Domain::kNone, "none"};
        default: return std::nullopt;
      }
    }
  }
  return std::nullopt;
}

}  // namespace

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

Result<DomainReport> detect_domain(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  const internal::FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return internal::system_error(path, "open it");
  auto facts = internal::probe_medium(fd.get(), path);
  if (!facts) return make_error(ErrorCode::kIo, std::move(facts.error().message));
  PMSTORE_TRY(const Granularity granularity, ask_libpmem2(fd.get(), *facts, path));

  DomainReport report{granularity.domain, fmt::format("libpmem2 granularity {}", granularity.name)};
  if (const auto region = nvdimm_region_of(fd.get())) {
    if (const auto declared = ask_libndctl(*region)) {
      report.domain = std::min(report.domain, declared->domain);
      report.source += fmt::format("; region{} persistence_domain {}", *region, declared->name);
    } else {
      report.source += fmt::format("; region{} persistence_domain unknown", *region);
    }
  }
  return report;
}

}  // namespace pmstore::persist
