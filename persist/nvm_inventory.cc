#include "persist/nvm_inventory.h"

#include <daxctl/libdaxctl.h>
#include <fmt/format.h>
#include <linux/ndctl.h>
#include <ndctl/libndctl.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

namespace pmstore::persist {
namespace {

std::optional<std::string> health_of(ndctl_dimm* dimm) {
  const std::unique_ptr<ndctl_cmd, decltype(&ndctl_cmd_unref)> command(
      ndctl_dimm_cmd_new_smart(dimm), &ndctl_cmd_unref);
  if (!command || ndctl_cmd_submit(command.get()) < 0) return std::nullopt;
  if (!(ndctl_cmd_smart_get_flags(command.get()) & ND_SMART_HEALTH_VALID)) return std::nullopt;
  const unsigned health = ndctl_cmd_smart_get_health(command.get());
  if (health & ND_SMART_FATAL_HEALTH) return "fatal";
  if (health & ND_SMART_CRITICAL_HEALTH) return "critical";
  if (health & ND_SMART_NON_CRITICAL_HEALTH) return "non-critical";
  return "ok";
}

NvmNamespace describe(ndctl_namespace* space) {
  NvmNamespace found;
  found.name = ndctl_namespace_get_devname(space);
  found.bytes = ndctl_namespace_get_size(space);
  if (ndctl_dax* const dax = ndctl_namespace_get_dax(space)) {
    found.mode = "devdax";
    found.bytes = ndctl_dax_get_size(dax);
    found.alignment = ndctl_dax_get_align(dax);
    if (daxctl_region* const region = ndctl_dax_get_daxctl_region(dax)) {
      if (daxctl_dev* const device = daxctl_dev_get_first(region)) {
        found.device = fmt::format("/dev/{}", daxctl_dev_get_devname(device));
      }
    }
  } else if (ndctl_pfn* const pfn = ndctl_namespace_get_pfn(space)) {
    found.mode = "fsdax";
    found.bytes = ndctl_pfn_get_size(pfn);
    found.alignment = ndctl_pfn_get_align(pfn);
    const char* const block = ndctl_pfn_get_block_device(pfn);
    if (block != nullptr && *block != '\0') found.device = fmt::format("/dev/{}", block);
  } else if (ndctl_namespace_get_btt(space) != nullptr) {
    found.mode = "sector";
  } else {
    found.mode = "raw";
    const char* const block = ndctl_namespace_get_block_device(space);
    if (block != nullptr && *block != '\0') found.device = fmt::format("/dev/{}", block);
  }
  return found;
}

std::optional<Domain> domain_of(ndctl_region* region) {
  // libndctl gives PERSISTENCE_NONE both for "none" and for a kernel that has no such attribute.
  const auto attribute =
      fmt::format("/sys/bus/nd/devices/{}/persistence_domain", ndctl_region_get_devname(region));
  if (access(attribute.c_str(), R_OK) != 0) return std::nullopt;
  switch (ndctl_region_get_persistence_domain(region)) {
    case PERSISTENCE_CPU_CACHE: return Domain::kCpuCache;
    case PERSISTENCE_MEM_CTRL: return Domain::kMemoryController;
    case PERSISTENCE_NONE: return Domain::kNone;
    default: return std::nullopt;
  }
}

NvmRegion describe(ndctl_region* region) {
  NvmRegion found;
  found.name = ndctl_region_get_devname(region);
  found.bytes = ndctl_region_get_size(region);
  const int node = ndctl_region_get_numa_node(region);
  if (node >= 0) found.numa_node = node;
  found.interleaved_dimms = ndctl_region_get_interleave_ways(region);
  found.domain = domain_of(region);
  badblock* bad;
  ndctl_region_badblock_foreach(region, bad) { ++found.bad_blocks; }
  ndctl_dimm* dimm;
  ndctl_dimm_foreach_in_region(region, dimm) {
    found.dimms.push_back(
        {ndctl_dimm_get_devname(dimm), health_of(dimm), ndctl_dimm_get_handle(dimm)});
  }
  ndctl_namespace* space;
  ndctl_namespace_foreach(region, space) {
    if (ndctl_namespace_get_size(space) > 0) found.namespaces.push_back(describe(space));
  }
  return found;
}

}  // namespace

Result<std::vector<NvmRegion>> list_nvm_regions() {
  ndctl_ctx* raw = nullptr;
  if (ndctl_new(&raw) != 0) {
    return make_error(ErrorCode::kIo,
                      "cannot look for persistent memory: libndctl does not start: check that "
                      "/sys is mounted");
  }
  const std::unique_ptr<ndctl_ctx, decltype(&ndctl_unref)> context(raw, &ndctl_unref);
  std::vector<NvmRegion> found;
  ndctl_bus* bus;
  ndctl_bus_foreach(context.get(), bus) {
    ndctl_region* region;
    ndctl_region_foreach(bus, region) {
      if (ndctl_region_get_type(region) == ND_DEVICE_REGION_PMEM) found.push_back(describe(region));
    }
  }
  std::sort(found.begin(), found.end(),
            [](const NvmRegion& a, const NvmRegion& b) { return a.name < b.name; });
  return found;
}

}  // namespace pmstore::persist
