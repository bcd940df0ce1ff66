#include "tests/unit/cancellation/attempts.h"

#include <gtest/gtest.h>

namespace pmstore::cancellation {

using base::Task;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::vector<std::span<const std::byte>> bytes_of(const std::vector<std::string>& texts) {
  std::vector<std::span<const std::byte>> spans;
  for (const std::string& text : texts) spans.push_back(bytes_of(text));
  return spans;
}

Task<Result<std::vector<FoundEntry>>> read_all(log::LogReader& reader) {
  std::vector<FoundEntry> found;
  reader.seek(0);
  while (true) {
    const auto entry = co_await reader.next();
    if (!entry && (entry.code() == ErrorCode::kNotFound || entry.code() == ErrorCode::kSealed)) {
      co_return std::move(found);
    }
    if (!entry) co_return Error(entry.error());
    found.push_back({entry->index, std::string(reinterpret_cast<const char*>(entry->payload.data()),
                                               entry->payload.size())});
  }
}

Task<Result<std::vector<FoundEntry>>> read_log(log::LogClient& client, uint64_t id,
                                               log::LogReaderOptions options) {
  PMSTORE_CO_TRY(const auto reader, co_await log::LogReader::open(client, id, options));
  co_return co_await read_all(*reader);
}

void Attempts::expect(const std::vector<FoundEntry>& found, bool all, bool trimmed) const {
  for (size_t i = 0; i + 1 < found.size(); ++i) {
    EXPECT_EQ(found[i + 1].index, found[i].index + 1) << "a gap";
  }
  if (!found.empty() && !trimmed) {
    EXPECT_EQ(found.front().index, 1u) << "the oldest one is gone";
  }
  size_t at = 0;
  bool begun = !trimmed;
  for (const Attempt& each : attempts_) {
    size_t present = 0;
    for (size_t i = 0; i < each.payloads.size() && at < found.size(); ++i) {
      if (found[at].payload != each.payloads[i]) continue;
      if (begun) {
        EXPECT_EQ(present, i) << "one entry in the middle of an append is missing";
      }
      begun = true;
      present = i + 1;
      if (present == each.payloads.size() && each.last_index != 0) {
        EXPECT_EQ(found[at].index, each.last_index) << "it has another index than was said";
      }
      ++at;
    }
    const bool whole = present == each.payloads.size();
    if (each.last_index != 0 && all && begun) {
      EXPECT_TRUE(whole) << "what was acknowledged is lost: " << each.payloads.front().substr(0, 9);
    }
    if (each.all_or_none) {
      EXPECT_TRUE(whole || present == 0);
    }
  }
  ASSERT_EQ(at, found.size()) << "it has an entry twice, late, or of nobody: "
                              << found[at].payload.substr(0, 9);
}

}  // namespace pmstore::cancellation
