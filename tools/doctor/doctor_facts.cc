// The sources of doctor's facts: this machine's libraries, or the inventory.json of a recorded
// machine.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/doctor/doctor.h"

namespace pmstore::tools {
namespace {

using Json = nlohmann::json;

fabric::VerbsDeviceFacts device_of(const Json& object) {
  fabric::VerbsDeviceFacts device;
  device.name = object.at("name");
  const std::string atomics = object.value("atomics", "device");
  device.atomics = atomics == "global" ? fabric::AtomicScope::kGlobal
                   : atomics == "none" ? fabric::AtomicScope::kNone
                                       : fabric::AtomicScope::kDevice;
  device.software = object.value("software", false);
  device.on_demand_paging = object.value("on_demand_paging", false);
  device.native_flush = object.value("native_flush", false);
  for (const Json& port : object.at("ports")) {
    device.ports.push_back({port.value("number", 1u), port.value("active", true),
                            port.value("ethernet", true), port.at("mtu"), port.at("most_mtu")});
  }
  return device;
}

persist::NvmRegion region_of(const Json& object) {
  persist::NvmRegion region;
  region.name = object.at("name");
  region.bytes = object.at("bytes");
  if (object.contains("numa_node")) region.numa_node = object.at("numa_node").get<int>();
  region.interleaved_dimms = object.at("interleaved_dimms");
  if (object.contains("domain")) {
    const auto domain = persist::parse_domain(object.at("domain").get<std::string>());
    if (domain) region.domain = *domain;
  }
  region.bad_blocks = object.value("bad_blocks", 0u);
  for (const Json& dimm : object.at("dimms")) {
    persist::NvmDimm one{dimm.at("name"), std::nullopt, dimm.value("handle", 0u)};
    if (dimm.contains("health")) one.health = dimm.at("health").get<std::string>();
    region.dimms.push_back(one);
  }
  for (const Json& space : object.at("namespaces")) {
    region.namespaces.push_back({space.at("name"), space.at("mode"), space.value("device", ""),
                                 space.at("bytes"), space.value("alignment", uint64_t{0})});
  }
  return region;
}

bool lacks_health(const std::vector<persist::NvmRegion>& regions) {
  for (const auto& region : regions) {
    for (const auto& dimm : region.dimms) {
      if (!dimm.health) return true;
    }
  }
  return false;
}

}  // namespace

void append(std::string& text, std::string_view more) {
  if (text == more || text.ends_with("; " + std::string(more))) return;
  if (!text.empty()) text += "; ";
  text += more;
}

void fill_health(std::vector<persist::NvmRegion>& regions, const IpmctlLibrary& library) {
  const auto known = library.dimms();
  if (!known) return;
  for (auto& region : regions) {
    for (auto& dimm : region.dimms) {
      const auto same = std::find_if(known->begin(), known->end(),
                                     [&](const auto& one) { return one.handle == dimm.handle; });
      if (!dimm.health && same != known->end()) dimm.health = library.health(*same);
    }
  }
}

Result<DoctorFacts> gather_facts(const std::string& recorded_machine) {
  DoctorFacts facts;
  if (recorded_machine.empty()) {
    facts.machine = ddio::this_machine();
    facts.rdma = fabric::list_verbs_devices();
    facts.nvm = persist::list_nvm_regions();
    // Loaded only when it is needed.
    if (!facts.nvm || !lacks_health(*facts.nvm)) return facts;
    const auto library = IpmctlLibrary::open();
    if (library) {
      fill_health(*facts.nvm, **library);
    } else {
      facts.no_ipmctl = library.error().message;
    }
    return facts;
  }
  PMSTORE_TRY(facts.machine, ddio::recorded_machine(recorded_machine));
  PMSTORE_TRY(const std::string text, facts.machine->read_text("/inventory.json"));
  try {
    const Json inventory = Json::parse(text);
    std::vector<fabric::VerbsDeviceFacts> devices;
    for (const Json& device : inventory.at("rdma")) devices.push_back(device_of(device));
    std::vector<persist::NvmRegion> regions;
    for (const Json& region : inventory.at("nvm")) regions.push_back(region_of(region));
    facts.rdma = std::move(devices);
    facts.nvm = std::move(regions);
  } catch (const Json::exception& error) {
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("cannot read {}/inventory.json: {}; docs/tuning.md has its form",
                                  recorded_machine, error.what()));
  }
  return facts;
}

}  // namespace pmstore::tools
