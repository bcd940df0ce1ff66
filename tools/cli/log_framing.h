// How entries follow each other in a stream: one per line, each behind its length, or one alone.
//
// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pmstore::tools {

enum class Framing : uint8_t {
  kLines,   // an entry, then a newline; the last one may lack it
  kLength,  // 4 bytes little endian: how many; then so many
  kWhole,   // all there is is one entry; written one behind the other
};
std::string_view framing_name(Framing framing);
Result<Framing> parse_framing(std::string_view text);

// Splits a stream into entries: feed() the bytes that have arrived, next() until there is no entry,
// finish() at the end.
class EntrySplitter {
 public:
  explicit EntrySplitter(Framing framing) : framing_(framing) {}

  void feed(std::string_view bytes);
  void finish() { finished_ = true; }
  // The next whole entry; nullopt: feed more, or, after finish(), there is none.
  // InvalidArgument: an empty one, or the stream ends in one; TooLarge. Says which entry, from 1.
  Result<std::optional<std::string>> next();

 private:
  Result<std::optional<std::string>> next_line();
  Result<std::optional<std::string>> next_of_length();
  Result<std::optional<std::string>> next_whole();
  Result<std::optional<std::string>> take(size_t skip, size_t bytes, size_t trailer);
  Error wrong(ErrorCode code, std::string_view why) const;
  size_t waiting() const { return buffer_.size() - used_; }

  Framing framing_;
  std::string buffer_;
  size_t used_ = 0;
  uint64_t taken_ = 0;
  bool finished_ = false;
};

// `payload` as a piece of such a stream.
std::string framed(Framing framing, std::string_view payload);

}  // namespace pmstore::tools
