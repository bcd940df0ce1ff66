// Attempts: what is appended to a log, in which order, and what of that must be there.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "log/log_client.h"
#include "log/log_reader.h"

namespace pmstore::cancellation {

std::span<const std::byte> bytes_of(const std::string& text);
std::vector<std::span<const std::byte>> bytes_of(const std::vector<std::string>& texts);

// Entries that are appended together. Every payload is another one.
struct Attempt {
  std::vector<std::string> payloads;
  bool all_or_none = false;  // else any prefix of them may be there
  uint64_t last_index = 0;   // once it is acknowledged
};

struct FoundEntry {
  uint64_t index;
  std::string payload;
};

// From the oldest one to the tail.
base::Task<Result<std::vector<FoundEntry>>> read_all(log::LogReader& reader);
base::Task<Result<std::vector<FoundEntry>>> read_log(log::LogClient& client, uint64_t id,
                                                     log::LogReaderOptions options);

class Attempts {
 public:
  void clear() { attempts_.clear(); }
  // Stays where it is until clear().
  Attempt& add(std::vector<std::string> payloads, bool all_or_none) {
    return attempts_.emplace_back(Attempt{std::move(payloads), all_or_none});
  }
  // What was found is of the attempts, in their order, each once; with `all` also everything that
  // was acknowledged, but for entries at the start that were `trimmed`.
  void expect(const std::vector<FoundEntry>& found, bool all, bool trimmed) const;

 private:
  std::deque<Attempt> attempts_;
};

}  // namespace pmstore::cancellation
