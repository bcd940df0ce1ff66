// Nobody: of a life whose trace is empty, so that there is nothing to start on; it checks itself.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "persist/memory.h"
#include "tests/crash/life.h"

namespace pmstore::crash {

class Nobody final : public Restarted {
 public:
  Nobody(std::span<std::byte> memory, persist::Domain domain)
      : memory_(memory, {.domain = domain}) {}
  std::vector<persist::Memory*> memories() override { return {&memory_}; }
  Result<uint64_t> recover() override { return kNothing; }
  Result<uint64_t> work() override { return kNothing; }

 private:
  persist::Memory memory_;
};

}  // namespace pmstore::crash
