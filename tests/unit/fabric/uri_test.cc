#include "fabric/uri.h"

#include <gtest/gtest.h>

namespace pmstore::fabric {
namespace {

struct Good {
  const char* text;
  Scheme scheme;
  const char* name;
  uint16_t port;
};

class GoodUri : public ::testing::TestWithParam<Good> {};

TEST_P(GoodUri, IsTakenApartAndPutTogetherAgain) {
  const auto [text, scheme, name, port] = GetParam();
  const Result<Uri> uri = parse_uri(text);
  ASSERT_TRUE(uri) << uri.error().message;
  EXPECT_EQ(uri->scheme, scheme);
  EXPECT_EQ(uri->name, name);
  EXPECT_EQ(uri->port, port);
  EXPECT_EQ(uri->to_string(), text);
}

INSTANTIATE_TEST_SUITE_P(
    Uri, GoodUri,
    ::testing::Values(Good{"verbs://10.77.0.1:7471", Scheme::kVerbs, "10.77.0.1", 7471},
                      Good{"tcp://localhost:0", Scheme::kTcp, "localhost", 0},
                      Good{"tcp://h:65535", Scheme::kTcp, "h", 65535},
                      Good{"shm://bank", Scheme::kShm, "bank", 0},
                      Good{"shm://a:1", Scheme::kShm, "a:1", 0},
                      Good{"local:/dev/dax0.0", Scheme::kLocal, "/dev/dax0.0", 0},
                      Good{"local:relative/pool", Scheme::kLocal, "relative/pool", 0},
                      Good{"local:a://b", Scheme::kLocal, "a://b", 0}));

class BadUri : public ::testing::TestWithParam<const char*> {};

TEST_P(BadUri, IsRefusedWithTheValidForms) {
  const Result<Uri> uri = parse_uri(GetParam());
  ASSERT_FALSE(uri);
  EXPECT_EQ(uri.code(), ErrorCode::kInvalidArgument);
  const std::string& message = uri.error().message;
  EXPECT_NE(message.find(std::string("'") + GetParam() + "'"), std::string::npos) << message;
  for (const char* form : {"verbs://HOST:PORT", "tcp://HOST:PORT", "shm://NAME", "local:PATH"}) {
    EXPECT_NE(message.find(form), std::string::npos) << message;
  }
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(Uri, BadUri,
                         ::testing::Values("", "local", "local:", "host:1", "/a/path", "://",
                                           "http://host:1", "TCP://host:1", "tcp:host:1", "tcp://",
                                           "tcp://host", "tcp://:1", "tcp://host:", "tcp://host:x",
                                           "tcp://host:1x", "tcp://host:-1", "tcp://host: 1",
                                           "tcp://host:65536", "verbs://host",
                                           "verbs://host:99999999999999999999", "shm://",
                                           "shm://a/b", "shm:///"));

}  // namespace
}  // namespace pmstore::fabric
