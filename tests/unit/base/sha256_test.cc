#include "base/sha256.h"

#include <gtest/gtest.h>

#include <string>

namespace pmstore::base {
namespace {

std::string digest_of(std::string_view message) {
  std::string text;
  for (const uint8_t byte : sha256(std::as_bytes(std::span(message)))) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

// The examples of FIPS 180-2 and of NIST's validation tests.
TEST(Sha256, GivesTheDigestsOfTheStandard) {
  EXPECT_EQ(digest_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest_of("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
                      "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu"),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(digest_of(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// Around the lengths at which the last block has room for the message's length, or not.
TEST(Sha256, EveryByteOfEveryLengthCounts) {
  std::string message;
  std::string before = digest_of(message);
  for (size_t bytes = 1; bytes <= 130; ++bytes) {
    message += 'x';
    const std::string digest = digest_of(message);
    EXPECT_NE(digest, before) << bytes;
    std::string other = message;
    other.back() = 'y';
    EXPECT_NE(digest_of(other), digest) << bytes;
    before = digest;
  }
}

}  // namespace
}  // namespace pmstore::base
