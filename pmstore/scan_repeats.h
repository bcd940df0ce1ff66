// ScanRepeats: when a scan begins again that the server has ended because records have moved.
//
// After a pause, which grows to 5 s, and for three minutes in all: moves wait at least every other
// minute until a scan has ended (docs/store.md, "Scans amid moves"). Example:
//     ScanRepeats repeats(client.executor());
//     auto records = co_await scan_all(client, table);
//     while (!records && records.code() == ErrorCode::kTrimmed && co_await repeats.pause()) {
//       records = co_await scan_all(client, table);
//     }
// Threads: the executor's, which outlives it.
#pragma once

#include <cstdint>

#include "base/executor.h"
#include "base/task.h"

namespace pmstore {

class ScanRepeats {
 public:
  static constexpr uint64_t kMostNs = 180'000'000'000;

  // The scan begins now.
  explicit ScanRepeats(base::Executor& executor);
  // True, after a pause: begin the scan again. False, at once: it has had kMostNs.
  base::Task<bool> pause();

 private:
  base::Executor& executor_;
  uint64_t give_up_ns_;
  uint64_t pause_ns_;
};

}  // namespace pmstore
