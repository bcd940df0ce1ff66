// The first messages: what is decoded is what was encoded, and everything else is refused.
#include "service/hello.h"

#include <gtest/gtest.h>

#include <functional>

namespace pmstore::service {
namespace {

constexpr ServiceId kService{3};

std::vector<std::byte> hello_of(const std::function<void(Hello&)>& spoil) {
  Hello hello;
  hello.secret = ClientSecret::of_number(7);
  hello.client = hello.secret.id();
  hello.service = kService;
  spoil(hello);
  return encode(hello, {});
}

std::vector<std::byte> welcome_of(const std::function<void(Welcome&)>& spoil) {
  Welcome welcome;
  welcome.service = kService;
  spoil(welcome);
  return encode(welcome, {});
}

TEST(HelloTest, GoodOneIsDecodedWithItsBody) {
  const std::byte body[3] = {};
  Hello hello;
  hello.secret = ClientSecret::of_number(7);
  hello.client = hello.secret.id();
  hello.service = kService;
  const auto bytes = encode(hello, body);
  EXPECT_EQ(bytes.size(), sizeof hello + 3);
  const auto decoded = decode_hello(bytes);
  ASSERT_TRUE(decoded) << decoded.error().to_string();
  EXPECT_EQ(decoded->client, ClientSecret::of_number(7).id());
  EXPECT_EQ(decoded->secret, ClientSecret::of_number(7));
  EXPECT_EQ(decoded->service, kService);
}

TEST(HelloTest, AnotherReleaseIsToldInOneLine) {
  const auto newer = decode_hello(hello_of([](Hello& hello) { ++hello.version; }));
  ASSERT_EQ(newer.code(), ErrorCode::kVersionMismatch);
  EXPECT_EQ(newer.error().message,
            "this server speaks protocol version 13; use a client of the same release");
  // The hellos of earlier releases had other magics.
  EXPECT_EQ(decode_hello(hello_of([](Hello& hello) { hello.magic = 0x504d5332; })).code(),
            ErrorCode::kVersionMismatch);
  for (const size_t bytes : {0, 1, 4}) {
    auto cut = hello_of([](Hello&) {});
    cut.resize(bytes);
    EXPECT_EQ(decode_hello(cut).code(), ErrorCode::kVersionMismatch) << bytes;
  }
}

TEST(HelloTest, MalformedOnesAreRefused) {
  for (size_t bytes = 8; bytes < sizeof(Hello); ++bytes) {
    auto cut = hello_of([](Hello&) {});
    cut.resize(bytes);
    EXPECT_EQ(decode_hello(cut).code(), ErrorCode::kProtocol) << bytes;
  }
  EXPECT_EQ(decode_hello(hello_of([](Hello& hello) { hello.padding[5] = 1; })).code(),
            ErrorCode::kProtocol);
  EXPECT_EQ(decode_hello(hello_of([](Hello& hello) { hello.reserved[1] = 1; })).code(),
            ErrorCode::kProtocol);
  EXPECT_EQ(decode_hello(hello_of([](Hello& hello) { hello.client = 0; })).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(decode_hello(hello_of([](Hello& hello) { ++hello.client.high; })).code(),
            ErrorCode::kAccess);
  EXPECT_EQ(decode_hello(hello_of([](Hello& hello) { hello.secret = {}; })).code(),
            ErrorCode::kAccess);
}

TEST(HelloTest, WelcomeIsCheckedForWhatTheClientUses) {
  const auto good = decode_welcome(welcome_of([](Welcome&) {}), kService);
  EXPECT_TRUE(good) << good.error().to_string();
  const std::function<void(Welcome&)> flaws[] = {
      [](Welcome& welcome) { welcome.magic = 1; },
      [](Welcome& welcome) { welcome.service = ServiceId{4}; },
      [](Welcome& welcome) { welcome.domain = 9; },
      [](Welcome& welcome) { welcome.landing = 9; },
  };
  for (const auto& flaw : flaws) {
    EXPECT_EQ(decode_welcome(welcome_of(flaw), kService).code(), ErrorCode::kProtocol);
  }
  EXPECT_EQ(
      decode_welcome(welcome_of([](Welcome& welcome) { welcome.version = 99; }), kService).code(),
      ErrorCode::kVersionMismatch);
  for (size_t bytes = 0; bytes < sizeof(Welcome); ++bytes) {
    auto cut = welcome_of([](Welcome&) {});
    cut.resize(bytes);
    EXPECT_EQ(decode_welcome(cut, kService).code(), ErrorCode::kProtocol) << bytes;
  }
}

}  // namespace
}  // namespace pmstore::service
