#include "persist/internal/instructions.h"

#include <cpuid.h>

namespace pmstore::persist::internal {

FlushInstruction best_flush_instruction() {
  // Intel SDM volume 2, CPUID leaf 7 subleaf 0: EBX bit 24 is CLWB, bit 23 is CLFLUSHOPT.
  constexpr unsigned kClwbBit = 1u << 24;
  constexpr unsigned kClflushoptBit = 1u << 23;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return FlushInstruction::kClflush;
  if (ebx & kClwbBit) return FlushInstruction::kClwb;
  if (ebx & kClflushoptBit) return FlushInstruction::kClflushopt;
  return FlushInstruction::kClflush;
}

const char* flush_instruction_name(FlushInstruction instruction) {
  switch (instruction) {
    case FlushInstruction::kClwb: return "clwb";
    case FlushInstruction::kClflushopt: return "clflushopt";
    case FlushInstruction::kClflush: return "clflush";
  }
  return "?";
}

}  // namespace pmstore::persist::internal
