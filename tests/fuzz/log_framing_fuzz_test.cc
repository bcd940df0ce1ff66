// The command line's streams of entries: however a stream is cut into pieces, the same entries come
// out, and together they are the stream.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "log/log_types.h"
#include "tests/fuzz/fuzzing.h"
#include "tools/cli/log_framing.h"

namespace pmstore::tools {
namespace {

constexpr Framing kFramings[] = {Framing::kLines, Framing::kLength, Framing::kWhole};

struct Split {
  std::vector<std::string> entries;
  std::optional<ErrorCode> error;
  std::string text;
  bool operator==(const Split&) const = default;
};

// In pieces of at most `most` bytes.
Split split(Framing framing, std::string_view stream, Random& random, uint64_t most) {
  EntrySplitter splitter(framing);
  Split result;
  bool finished = false;
  while (true) {
    auto entry = splitter.next();
    if (!entry) {
      result.error = entry.code();
      result.text = entry.error().message;
      return result;
    }
    if (*entry) {
      result.entries.push_back(std::move(**entry));
    } else if (finished) {
      return result;
    } else if (stream.empty()) {
      splitter.finish();
      finished = true;
    } else {
      const std::string_view piece = stream.substr(0, 1 + random.below(most));
      splitter.feed(piece);
      stream.remove_prefix(piece.size());
    }
  }
}

std::string random_stream(Framing framing, Random& random) {
  std::string stream;
  for (uint64_t entries = random.below(8); entries > 0; --entries) {
    std::string payload(random.below(40), '\0');
    for (char& c : payload) c = random.below(6) == 0 ? '\n' : static_cast<char>(random.next());
    const bool raw = random.below(4) == 0;
    stream += raw ? payload : framed(framing, payload);
  }
  if (random.below(8) == 0) stream.resize(random.below(stream.size() + 1));
  return stream;
}

std::string joined(Framing framing, const Split& split, std::string_view stream) {
  std::string text;
  for (const std::string& entry : split.entries) text += framed(framing, entry);
  // The last line may lack its newline.
  if (framing == Framing::kLines && !stream.empty() && stream.back() != '\n' && !text.empty()) {
    text.pop_back();
  }
  return text;
}

TEST(LogFramingFuzz, PiecesDoNotMatterAndNothingIsLost) {
  Random random(41);
  uint64_t refused = 0;
  const uint64_t count = fuzz::rounds(60000);
  for (uint64_t i = 0; i < count; ++i) {
    const Framing framing = kFramings[i % std::size(kFramings)];
    const std::string stream = random_stream(framing, random);
    const Split whole = split(framing, stream, random, stream.size() + 1);
    const Split pieces = split(framing, stream, random, 1 + random.below(9));
    ASSERT_EQ(pieces.entries, whole.entries) << i;
    ASSERT_EQ(pieces.error, whole.error) << i;
    ASSERT_EQ(pieces.text, whole.text) << i;
    for (const std::string& entry : whole.entries) ASSERT_FALSE(entry.empty()) << i;
    if (whole.error) {
      ++refused;
      ASSERT_EQ(*whole.error == ErrorCode::kTooLarge || *whole.error == ErrorCode::kInvalidArgument,
                true)
          << i;
      ASSERT_EQ(whole.text.find('\n'), std::string::npos) << i;
      ASSERT_EQ(stream.substr(0, joined(framing, whole, "\n").size()), joined(framing, whole, "\n"))
          << i;
    } else {
      ASSERT_EQ(joined(framing, whole, stream), stream) << i;
    }
  }
  EXPECT_GT(refused, count / 20);
  EXPECT_LT(refused, count * 9 / 10);
}

TEST(LogFramingFuzz, CanaryALostByteIsNoticed) {
  Random random(42);
  uint64_t noticed = 0;
  for (int i = 0; i < 300; ++i) {
    std::string stream = random_stream(Framing::kLines, random);
    const Split whole = split(Framing::kLines, stream, random, 5);
    if (whole.error || stream.empty()) continue;
    std::string less = stream;
    less.erase(random.below(less.size()), 1);
    if (joined(Framing::kLines, split(Framing::kLines, less, random, 5), stream) != stream)
      ++noticed;
  }
  EXPECT_GT(noticed, 20u);
}

}  // namespace
}  // namespace pmstore::tools
