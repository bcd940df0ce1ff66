#include "ddio/state_file.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace pmstore::ddio {
namespace {

State example() {
  State state{"boot-1", {}};
  state.changes.push_back({*parse_register("0000:16:02.0+0x180"), 0x88, 0x91, 0x11});
  state.changes.push_back({*parse_register("cpu0+msr0xc8b"), 0x7ff, 0x600, 0x780});
  return state;
}

TEST(StateFile, ComesBackAsItWas) {
  const auto back = decode_state(encode_state(example()));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(back->boot, "boot-1");
  EXPECT_EQ(back->changes, example().changes);
}

TEST(StateFile, EveryCutAndEveryChangedByteIsRefused) {
  const std::string whole = encode_state(example());
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(decode_state(whole.substr(0, length))) << length;
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 4);
    EXPECT_FALSE(decode_state(changed)) << at;
  }
  EXPECT_FALSE(decode_state(whole + "\n"));
}

class Folder : public testing::Test {
 protected:
  Folder() {
    std::string name = testing::TempDir() + "pmstore-ddio.XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~Folder() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};
using StateFileFolder = Folder;

TEST_F(StateFileFolder, IsKeptOnlyWhileSomethingIsChanged) {
  const std::string path = folder_ + "/below/ddio.state";
  const auto file = StateFile::open(path);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE((*file)->load()->changes.empty());
  ASSERT_TRUE((*file)->save(example()));
  EXPECT_EQ(StateFile::read(path)->changes, example().changes);
  ASSERT_TRUE((*file)->save({}));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(StateFileFolder, OneProcessAtATime) {
  const std::string path = folder_ + "/ddio.state";
  auto first = StateFile::open(path);
  ASSERT_TRUE(first);
  EXPECT_EQ(StateFile::open(path).code(), ErrorCode::kBusy);
  first->reset();
  EXPECT_TRUE(StateFile::open(path));
}

}  // namespace
}  // namespace pmstore::ddio
