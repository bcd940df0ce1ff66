// CrashSearch: checks what may be left of a recorded run (model/crash_states.h) at all its crash
// points, with a bounded number of images at each. The explorer (explorer.h) goes deeper; this one
// is for unit tests. Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "model/crash_recorder.h"
#include "model/crash_states.h"
#include "model/crash_trace.h"
#include "model/page_bytes.h"

namespace pmstore::crash {

using model::CrashImage;
using model::CrashRecorder;
using model::CrashStates;
using model::Event;
using model::EventKind;
using model::PageBytes;
using model::Trace;

// `check` gives the error of an image after `marks` marks, or nothing. Returns the first error,
// with the event at which it happened.
struct CrashSearch {
  uint64_t images_per_point = 200;
  uint64_t seed = 1;
  size_t first_event = 0;  // crash points before it are skipped
  uint64_t images_seen = 0;

  using Check = std::function<std::optional<std::string>(CrashImage& image, size_t marks)>;
  std::optional<std::string> run(const Trace& trace, const Check& check);
};

}  // namespace pmstore::crash
