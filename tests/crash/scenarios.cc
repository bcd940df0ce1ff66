#include "tests/crash/life.h"
#include "tests/crash/ring_life.h"
#include "tests/crash/store_life.h"

namespace pmstore::crash {

const std::vector<Scenario>& scenarios() {
  using persist::Domain;
  static const auto ring = [](std::string name, Domain domain, RingWriter writer) {
    return [=](uint64_t seed) { return ring_life(name, seed, domain, writer); };
  };
  static const auto store = [](std::string name, Domain domain) {
    return [=](uint64_t seed) { return store_life(name, seed, domain); };
  };
  static const std::vector<Scenario> all = {
      {"ring", "redo ring, appended by the owner's CPU, ADR",
       ring("ring", Domain::kMemoryController, RingWriter::kCpu)},
      {"ring-eadr", "the same, eADR", ring("ring-eadr", Domain::kCpuCache, RingWriter::kCpu)},
      {"ring-dma", "redo ring, appended by one-sided writes, ADR, DDIO off",
       ring("ring-dma", Domain::kMemoryController, RingWriter::kDevice)},
      {"ring-ddio", "redo ring, appended by one-sided writes, eADR, DDIO on",
       ring("ring-ddio", Domain::kCpuCache, RingWriter::kDevice)},
      {"store", "one-server commit, lock discipline cpu, ADR",
       store("store", Domain::kMemoryController)},
      {"store-eadr", "the same, eADR", store("store-eadr", Domain::kCpuCache)},
  };
  return all;
}

const Scenario* find_scenario(const std::string& name) {
  for (const Scenario& scenario : scenarios()) {
    if (scenario.name == name) return &scenario;
  }
  return nullptr;
}

}  // namespace pmstore::crash
