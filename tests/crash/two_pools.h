// TwoPools: the pools of a file system in one memory: that of the namespace, and that of another
// data server. restarted_files(): a process that starts on what a power cut has left of them.
//
// Threads: one. Lifetimes: the memory outlives the pools.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "persist/domain.h"
#include "persist/pool.h"
#include "tests/crash/recorded_run.h"

namespace pmstore::crash {

struct TwoPools {
  static const uint64_t kNamesBytes;  // the first part of the memory
  static const uint64_t kBytes;

  std::unique_ptr<persist::Pool> names;
  std::unique_ptr<persist::Pool> other;

  static Result<TwoPools> in(std::span<std::byte> memory, persist::Domain domain, bool is_new);
  // New ones, formatted, with the identities `identity` and the next.
  static TwoPools make(std::span<std::byte> memory, persist::Domain domain, uint64_t identity);
  std::vector<persist::Memory*> memories() const { return {&names->memory(), &other->memory()}; }
  // Of what FilesProcess::content() gives.
  static uint64_t digest_of(const std::string& content);
};

// Recovery: all files are as they were, and the space is sound. Work: what was being drained is
// emptied, and one more file is made.
std::unique_ptr<Restarted> restarted_files(TwoPools pools);

}  // namespace pmstore::crash
