#include "tools/cli/log_framing.h"

#include <fmt/format.h>

#include <cstring>

#include "log/log_types.h"

namespace pmstore::tools {

namespace {

constexpr size_t kLengthBytes = 4;

uint32_t length_at(const char* bytes) {
  uint32_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length |= uint32_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return length;
}

}  // namespace

std::string_view framing_name(Framing framing) {
  switch (framing) {
    case Framing::kLines: return "lines";
    case Framing::kLength: return "length";
    case Framing::kWhole: return "whole";
  }
  return "?";
}

Result<Framing> parse_framing(std::string_view text) {
  for (const Framing framing : {Framing::kLines, Framing::kLength, Framing::kWhole}) {
    if (text == framing_name(framing)) return framing;
  }
  return make_error(ErrorCode::kInvalidArgument,
                    "'" + std::string(text) + "' is not a framing; use lines, length or whole");
}

void EntrySplitter::feed(std::string_view bytes) {
  if (used_ > 0) {
    buffer_.erase(0, used_);
    used_ = 0;
  }
  buffer_.append(bytes);
}

Error EntrySplitter::wrong(ErrorCode code, std::string_view why) const {
  return make_error(code, fmt::format("entry {} of the input {}", taken_ + 1, why));
}

Result<std::optional<std::string>> EntrySplitter::take(size_t skip, size_t bytes, size_t trailer) {
  if (bytes == 0) {
    return wrong(ErrorCode::kInvalidArgument, "is empty; an entry has at least 1 byte");
  }
  std::optional<std::string> entry = buffer_.substr(used_ + skip, bytes);
  used_ += skip + bytes + trailer;
  ++taken_;
  return entry;
}

Result<std::optional<std::string>> EntrySplitter::next() {
  switch (framing_) {
    case Framing::kLines: return next_line();
    case Framing::kLength: return next_of_length();
    case Framing::kWhole: break;
  }
  return next_whole();
}

Result<std::optional<std::string>> EntrySplitter::next_line() {
  const size_t end = buffer_.find('\n', used_);
  const size_t bytes = end == std::string::npos ? waiting() : end - used_;
  if (bytes > log::kMaxEntryBytes) {
    return wrong(ErrorCode::kTooLarge,
                 fmt::format("has more than {} bytes without a newline", log::kMaxEntryBytes));
  }
  if (end != std::string::npos) return take(0, bytes, 1);
  if (!finished_ || bytes == 0) return std::optional<std::string>();
  return take(0, bytes, 0);
}

Result<std::optional<std::string>> EntrySplitter::next_of_length() {
  if (waiting() < kLengthBytes) {
    if (!finished_ || waiting() == 0) return std::optional<std::string>();
    return wrong(ErrorCode::kInvalidArgument, "ends within its length");
  }
  const uint32_t bytes = length_at(buffer_.data() + used_);
  if (bytes > log::kMaxEntryBytes) {
    return wrong(ErrorCode::kTooLarge, fmt::format("says that it has {} bytes; at most {} can be",
                                                   bytes, log::kMaxEntryBytes));
  }
  if (waiting() - kLengthBytes < bytes) {
    if (!finished_) return std::optional<std::string>();
    return wrong(ErrorCode::kInvalidArgument,
                 fmt::format("says that it has {} bytes, but only {} follow", bytes,
                             waiting() - kLengthBytes));
  }
  return take(kLengthBytes, bytes, 0);
}

Result<std::optional<std::string>> EntrySplitter::next_whole() {
  if (waiting() > log::kMaxEntryBytes) {
    return wrong(ErrorCode::kTooLarge, fmt::format("has more than {} bytes", log::kMaxEntryBytes));
  }
  if (!finished_ || taken_ > 0) return std::optional<std::string>();
  return take(0, waiting(), 0);
}

std::string framed(Framing framing, std::string_view payload) {
  std::string text;
  text.reserve(payload.size() + kLengthBytes);
  if (framing == Framing::kLength) {
    for (size_t i = 0; i < kLengthBytes; ++i) {
      text.push_back(static_cast<char>(payload.size() >> (8 * i) & 0xff));
    }
  }
  text.append(payload);
  if (framing == Framing::kLines) text.push_back('\n');
  return text;
}

}  // namespace pmstore::tools
