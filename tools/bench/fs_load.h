// FsLoad: clients that read and write files, or make and remove them, as fast as they can, and an
// audit of what they wrote.
//
// Data: a number of files of a fixed size, made and filled before the start; then each worker reads
// blocks of random files at random places, and writes blocks of its own: no two workers write the
// same block, so after the end every block must have what was acknowledged last. Metadata: each
// worker has a directory of its own and goes through the phases of mdtest: create, stat, readdir,
// rename, unlink; all workers begin a phase together. Everything lies in the directory /bench-fs,
// which is removed before the start and at the end.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/histogram.h"
#include "base/spin_window.h"
#include "fabric/capabilities.h"
#include "persist/strategy.h"
#include "tools/bench/model_options.h"
#include "tools/cli/session_options.h"

namespace pmstore::tools {

enum class FsLoadMode : uint8_t { kData, kMetadata };
std::string_view fs_load_mode_name(FsLoadMode mode);
Result<FsLoadMode> parse_fs_load_mode(std::string_view text);

struct FsLoadOptions {
  SessionOptions session;
  ModelOptions model;
  FsLoadMode mode = FsLoadMode::kData;
  uint32_t threads = 1;     // with a client each
  uint32_t coroutines = 1;  // workers of each client
  uint64_t files = 16;      // data: altogether; metadata: of each worker
  uint64_t seed = 1;
  base::PollMode poll = base::PollMode::kAdaptive;
  // Data only.
  double seconds = 5;
  uint64_t ops = 0;  // altogether; 0: by time
  uint64_t payload_bytes = 4096;
  uint64_t file_bytes = 4u << 20;  // a multiple of payload_bytes
  double read_share = 0.5;
  bool sequential = false;  // each worker goes through its files block by block
  bool one_sided = true;
  // Writes are durable by an fsync() of each worker after so many of them; 0: each by itself.
  uint64_t fsync_every = 0;
  bool atomic = false;  // each write happens as a whole
  persist::WriteStrategy strategy = persist::WriteStrategy::kAuto;

  uint64_t workers() const { return uint64_t{threads} * coroutines; }
  uint64_t blocks_per_file() const { return file_bytes / payload_bytes; }
  uint64_t blocks() const { return files * blocks_per_file(); }
};

struct FsLoadPhase {
  std::string name;
  Histogram latency_ns;
  double seconds = 0;         // from the first start to the last end
  fabric::Counters counters;  // of all clients meanwhile
};

struct FsLoadAudit {
  uint64_t checked = 0;  // data: blocks; metadata: names
  uint64_t wrong = 0;
  std::string first_problem;
  bool ok() const { return wrong == 0; }
};

struct FsLoadResult {
  std::vector<FsLoadPhase> phases;
  FsLoadAudit audit;
  bool interrupted = false;  // SIGINT or SIGTERM ended it early
  // On the modelled machine: what it was, and what it counted while there was work.
  nlohmann::ordered_json model_config;
  nlohmann::ordered_json model_counters;
};

// The first error of any worker; a PosixError comes as Io with its text.
Result<FsLoadResult> run_fs_load(const FsLoadOptions& options);

}  // namespace pmstore::tools
