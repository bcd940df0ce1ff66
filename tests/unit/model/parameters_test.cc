#include "model/parameters.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/executor.h"
#include "model/cluster.h"

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

// The numbers in a cell: "60, 260" gives two. Names are in backquotes.
std::vector<double> numbers_in(const std::string& cell) {
  std::vector<double> numbers;
  std::istringstream words(cell);
  for (std::string word; words >> word;) numbers.push_back(std::stod(word));
  return numbers;
}

std::vector<std::string> names_in(const std::string& cell) {
  std::vector<std::string> names;
  for (size_t open = cell.find('`'); open != std::string::npos;) {
    const size_t close = cell.find('`', open + 1);
    names.push_back(cell.substr(open + 1, close - open - 1));
    open = cell.find('`', close + 1);
  }
  return names;
}

TEST(ModelParameters, TheDocumentListsExactlyThoseThatWereFitted) {
  std::ifstream document(PMSTORE_MODEL_DOCUMENT);
  ASSERT_TRUE(document);
  std::map<std::string, double> listed;
  bool inside = false;
  for (std::string line; std::getline(document, line);) {
    if (line.starts_with("### ")) inside = line.starts_with("### Fitted parameters");
    if (!inside || !line.starts_with("| `")) continue;
    const size_t bar = line.find('|', 1);
    const auto names = names_in(line.substr(1, bar - 1));
    const auto values = numbers_in(line.substr(bar + 1, line.find('|', bar + 1) - bar - 1));
    ASSERT_EQ(names.size(), values.size()) << line;
    for (size_t i = 0; i < names.size(); ++i) listed[names[i]] = values[i];
  }
  std::map<std::string, double> fitted;
  for (const ParameterInfo& info : describe(*named_parameters("optane-cx5"))) {
    if (info.source.starts_with("fitted: ")) fitted[info.name] = info.value;
  }
  EXPECT_EQ(listed, fitted);
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
  EXPECT_NE(refusal("[dimm]\nper_socket = 2.5\n").find("whole number from 1 to 64"),
            std::string::npos);
  EXPECT_NE(refusal("[link]\nmtu_bytes = 300.7\n").find("whole number"), std::string::npos);
  EXPECT_NE(refusal("[dimm]\ninterleave_bytes = 300\n").find("multiple of 256"), std::string::npos);
  EXPECT_NE(refusal("[dimm]\ncrowd_begin = 30\ncrowd_full = 2\n").find("more than"),
            std::string::npos);
  EXPECT_NE(refusal("[llc]\nways = 3\nddio_ways = 4\n").find("at most"), std::string::npos);
  EXPECT_NE(refusal("[rnic]\ncache_bytes = 1073741824\n").find("to 67108864"), std::string::npos);
  EXPECT_EQ(parameters.dimm.per_socket, 6);
}

TEST(ModelParameters, TimesAndSharesMayHaveAFraction) {
  auto parameters = *named_parameters("optane-cx5");
  ASSERT_TRUE(override_parameters_text(
      parameters, "[dimm]\nmedia_write_ns = 99.5\ncrowd_loss = 0.25\n", "test"));
  EXPECT_EQ(parameters.dimm.media_write_ns, 99.5);
}

TEST(ModelParameters, AnEmptyFileChangesNothingAndAFolderIsNone) {
  auto parameters = *named_parameters("optane-cx5");
  const std::string path = testing::TempDir() + "parameters_test_empty.toml";
  std::ofstream(path).close();
  const Status empty = override_parameters(parameters, path);
  EXPECT_TRUE(empty) << empty.error().message;
  std::remove(path.c_str());
  EXPECT_EQ(override_parameters(parameters, path).code(), ErrorCode::kIo);
  EXPECT_EQ(override_parameters(parameters, testing::TempDir()).code(), ErrorCode::kIo);
}

TEST(ModelParameters, AHostWithTooManyCoresIsRefused) {
  base::VirtualClock clock;
  base::Executor executor(clock);
  auto parameters = *named_parameters("optane-cx5");
  parameters.cpu.cores_per_socket = 120;
  const auto cluster = Cluster::create(executor, parameters, {.hosts = 2, .sockets = 8});
  ASSERT_FALSE(cluster);
  EXPECT_EQ(cluster.code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(cluster.error().message.find("cpu.cores_per_socket"), std::string::npos);
}

}  // namespace
}  // namespace pmstore::model
