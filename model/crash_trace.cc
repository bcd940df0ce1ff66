#include "model/crash_trace.h"

#include <fmt/format.h>

#include "model/crash_states.h"

namespace pmstore::model {

Trace Trace::without(size_t event) const {
  Trace mutant = *this;
  if (mutant.events[event].kind == EventKind::kStore) {
    mutant.events[event].non_temporal = false;
  } else {
    mutant.events.erase(mutant.events.begin() + static_cast<ptrdiff_t>(event));
  }
  return mutant;
}

std::vector<size_t> Trace::barriers() const {
  std::vector<size_t> found;
  CrashStates states(*this);
  do {
    const size_t next = states.events_done();
    if (next == events.size()) break;
    const EventKind kind = events[next].kind;
    const bool barrier = kind == EventKind::kFlush || kind == EventKind::kDrain ||
                         kind == EventKind::kFence || kind == EventKind::kSync ||
                         events[next].non_temporal;
    if (barrier && states.next_has_effect()) found.push_back(next);
  } while (states.step());
  return found;
}

std::string Trace::describe(size_t event) const {
  if (event >= events.size()) return "the end";
  static constexpr const char* kNames[] = {
      "store", "flush", "drain", "mark", "DMA write", "packet", "end of the process",
      "fence", "msync"};
  static constexpr const char* kPackets[] = {"arrival", "acknowledgement", "completion",
                                             "immediate"};
  const Event& e = events[event];
  std::string text =
      fmt::format("event {} of {}: {}", event, events.size(), kNames[static_cast<size_t>(e.kind)]);
  if (e.kind == EventKind::kPacket) {
    return text + fmt::format(": {} of {} bytes, QP {}", kPackets[static_cast<size_t>(e.packet)],
                              e.bytes, e.qp);
  }
  if (e.bytes > 0) text += fmt::format(" of {} bytes at {}", e.bytes, e.offset);
  if (e.kind == EventKind::kDmaWrite) {
    text += e.landing == Landing::kMemory ? " into memory" : " into the last-level cache";
  }
  if (e.non_temporal) text += " (non-temporal)";
  return text;
}

}  // namespace pmstore::model
