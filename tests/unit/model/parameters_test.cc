#include "model/parameters.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace pmstore::model {
namespace {

TEST(ModelParameters, EveryFieldSaysWhereItComesFrom) {
  const auto parameters = named_parameters("optane-cx5");
  ASSERT_TRUE(parameters);
  const auto all = describe(*parameters);
  EXPECT_GT(all.size(), 5u);
  for (const ParameterInfo& info : all) {
    EXPECT_TRUE(info.source.starts_with("published: ") || info.source.starts_with("derived: ") ||
                info.source.starts_with("fitted: ") || info.source.starts_with("assumed: "))
        << info.name;
  }
}

TEST(ModelParameters, AnUnknownMachineNamesThoseThatThereAre) {
  const auto parameters = named_parameters("optane");
  ASSERT_FALSE(parameters);
  EXPECT_NE(parameters.error().message.find("optane-cx5"), std::string::npos);
}

TEST(ModelParameters, AFileChangesSingleFields) {
  auto parameters = *named_parameters("optane-cx5");
  ASSERT_TRUE(override_parameters_text(parameters, "[dimm]\nper_socket = 1\n", "test"));
  EXPECT_EQ(parameters.dimm.per_socket, 1);
  EXPECT_EQ(parameters.dimm.interleave_bytes, 4096);
}

TEST(ModelParameters, WrongFilesAreRefusedWithTheValidChoices) {
  auto parameters = *named_parameters("optane-cx5");
  const auto refusal = [&](std::string_view text) {
    const Status status = override_parameters_text(parameters, text, "test.toml");
    return status ? std::string("accepted") : status.error().message;
  };
  EXPECT_NE(refusal("[dimm]\nper_soket = 1\n").find("per_socket"), std::string::npos);
  EXPECT_NE(refusal("[dim]\nper_socket = 1\n").find("dimm"), std::string::npos);
  EXPECT_NE(refusal("per_socket = 1\n").find("section"), std::string::npos);
  EXPECT_NE(refusal("[dimm]\nper_socket = 0\n").find("from 1"), std::string::npos);
  EXPECT_NE(refusal("[dimm]\nper_socket = \"six\"\n").find("number"), std::string::npos);
  EXPECT_NE(refusal("[dimm\n").find("line 1"), std::string::npos);
  EXPECT_EQ(parameters.dimm.per_socket, 6);
}

}  // namespace
}  // namespace pmstore::model
