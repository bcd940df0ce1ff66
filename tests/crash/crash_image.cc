#include "tests/crash/crash_image.h"

#include <fmt/format.h>

#include "base/random.h"

namespace pmstore::crash {

std::optional<std::string> CrashSearch::run(const Trace& trace, const Check& check) {
  CrashStates states(trace);
  Random random(seed);
  std::optional<std::string> complaint;
  do {
    if (states.events_done() < first_event) continue;
    const bool fine = states.visit(images_per_point, random, [&](CrashImage& image) {
      ++images_seen;
      complaint = check(image, states.marks());
      return !complaint;
    });
    if (!fine) {
      return fmt::format("crash before {}, after {} marks: {}",
                         trace.describe(states.events_done()), states.marks(), *complaint);
    }
  } while (states.step());
  return std::nullopt;
}

}  // namespace pmstore::crash
