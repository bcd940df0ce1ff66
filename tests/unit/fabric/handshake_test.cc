#include "fabric/internal/handshake.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/random.h"

namespace pmstore::fabric::internal {
namespace {

std::vector<std::byte> bytes_of(const std::string& text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

std::vector<std::byte> hello() {
  return encode({MessageKind::kHello, "pmstore-rings-1-262144", bytes_of("who I am"), {}});
}

HandshakeHeader header_of(const std::vector<std::byte>& message) {
  HandshakeHeader header;
  std::memcpy(&header, message.data(), sizeof header);
  return header;
}

void set_header(std::vector<std::byte>& message, const HandshakeHeader& header) {
  std::memcpy(message.data(), &header, sizeof header);
}

TEST(Handshake, WhatIsEncodedIsDecoded) {
  auto message = decode(hello());
  ASSERT_TRUE(message) << message.error().to_string();
  EXPECT_EQ(message->kind, MessageKind::kHello);
  EXPECT_EQ(message->endpoint, "pmstore-rings-1-262144");
  EXPECT_EQ(message->body, bytes_of("who I am"));
}

TEST(Handshake, ARefusalCarriesTheError) {
  auto message = decode(encode_refusal(make_error(ErrorCode::kBusy, "try the other one")));
  ASSERT_TRUE(message);
  EXPECT_EQ(message->kind, MessageKind::kRefuse);
  EXPECT_EQ(message->to_error().code, ErrorCode::kBusy);
  EXPECT_EQ(message->to_error().message, "try the other one");
}

TEST(Handshake, ARefusalWithALongTextIsCut) {
  auto message = decode(encode_refusal(make_error(ErrorCode::kIo, std::string(10'000, 'x'))));
  ASSERT_TRUE(message);
  EXPECT_EQ(message->to_error().message, std::string(kMaxBodyBytes, 'x'));
}

TEST(Handshake, TheLargestHelloFits) {
  const std::vector<std::byte> body(kMaxBodyBytes, std::byte{7});
  const auto encoded = encode({MessageKind::kHello, std::string(kMaxEndpointBytes, 'e'), body, {}});
  EXPECT_EQ(encoded.size(), kMaxMessageBytes);
  auto message = decode(encoded);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->body, body);
}

TEST(Handshake, EveryTruncationIsMalformed) {
  const auto whole = hello();
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    auto message = decode(std::span(whole).first(bytes));
    ASSERT_FALSE(message) << bytes << " bytes";
    EXPECT_EQ(message.code(), ErrorCode::kProtocol);
  }
}

TEST(Handshake, AnotherVersionIsNamedInTheError) {
  auto message = hello();
  HandshakeHeader header = header_of(message);
  header.version = 7;
  set_header(message, header);
  auto decoded = decode(message);
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.code(), ErrorCode::kVersionMismatch);
  EXPECT_NE(decoded.error().message.find("version 7"), std::string::npos);
}

TEST(Handshake, SomethingElseThanPmstoreIsAVersionMismatch) {
  auto decoded = decode(bytes_of("GET / HTTP/1.1\r\nHost: example\r\n\r\n"));
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.code(), ErrorCode::kVersionMismatch);
}

TEST(Handshake, FieldsOutOfRangeAreMalformed) {
  const auto expect_malformed = [](auto change) {
    auto message = hello();
    HandshakeHeader header = header_of(message);
    change(header);
    set_header(message, header);
    auto decoded = decode(message);
    ASSERT_FALSE(decoded);
    EXPECT_EQ(decoded.code(), ErrorCode::kProtocol);
  };
  expect_malformed([](HandshakeHeader& h) { h.kind = 0; });
  expect_malformed([](HandshakeHeader& h) { h.kind = 6; });
  expect_malformed([](HandshakeHeader& h) { h.error_code = 1000; });
  expect_malformed([](HandshakeHeader& h) { h.endpoint_bytes = 65; });
  expect_malformed([](HandshakeHeader& h) { h.body_bytes = 4097; });
  expect_malformed([](HandshakeHeader& h) { --h.body_bytes; });
  expect_malformed([](HandshakeHeader& h) { ++h.endpoint_bytes; });
}

// Whatever arrives is either refused or has the lengths that it says.
TEST(Handshake, DamagedMessagesAreNeverReadBeyondTheirEnd) {
  base::Random random(11);
  size_t decoded_count = 0;
  for (int round = 0; round < 20'000; ++round) {
    auto message = hello();
    for (uint64_t flips = random.below(4); flips > 0; --flips) {
      message[random.below(message.size())] ^= static_cast<std::byte>(1u << random.below(8));
    }
    message.resize(random.below(8) == 0 ? random.below(message.size() + 1) : message.size());
    // An exact copy on the heap, so that a sanitizer sees a read beyond it.
    const std::vector<std::byte> exact(message.begin(), message.end());
    auto decoded = decode(exact);
    if (!decoded) continue;
    ++decoded_count;
    EXPECT_EQ(sizeof(HandshakeHeader) + decoded->endpoint.size() + decoded->body.size(),
              exact.size());
  }
  EXPECT_GT(decoded_count, 1000u) << "the damage is too heavy to say anything";
}

}  // namespace
}  // namespace pmstore::fabric::internal
