// What can be said about RDMA devices on a machine that has none.
#include "fabric/verbs/verbs_device.h"

#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/clock.h"
#include "fabric/verbs/internal/rdma_device.h"

namespace pmstore::fabric::verbs {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kMellanoxVendor = 0x02c9;

class SysfsTree : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "pmstore_sysfs.XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    fs::create_directories(root_ / "infiniband/dev0");
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string device() const { return root_ / "infiniband/dev0"; }
  void put_on_bus(const std::string& bus) {
    fs::create_directories(root_ / "bus" / bus);
    fs::create_directories(root_ / "parent0");
    fs::create_directory_symlink(root_ / "bus" / bus, root_ / "parent0/subsystem");
    fs::create_directory_symlink(root_ / "parent0", root_ / "infiniband/dev0/device");
  }

  fs::path root_;
};

TEST_F(SysfsTree, PciCardMovesDataByItself) {
  put_on_bus("pci");
  EXPECT_FALSE(is_cpu_moving_data(device(), kMellanoxVendor));
}

TEST_F(SysfsTree, DeviceWithoutParentIsSoftware) {
  EXPECT_TRUE(is_cpu_moving_data(device(), kMellanoxVendor));
}

TEST_F(SysfsTree, ParentOnAnotherBusIsSoftware) {
  put_on_bus("virtio");
  EXPECT_TRUE(is_cpu_moving_data(device(), kMellanoxVendor));
}

TEST_F(SysfsTree, SoftRoceOverPciCardIsSoftware) {
  put_on_bus("pci");
  EXPECT_TRUE(is_cpu_moving_data(device(), 0xffffff)) << "by rxe's vendor";
  EXPECT_TRUE(is_cpu_moving_data(device(), 0x626d74)) << "by siw's vendor";
  fs::create_directory(root_ / "infiniband/dev0/parent");
  EXPECT_TRUE(is_cpu_moving_data(device(), kMellanoxVendor)) << "by rxe's attribute";
}

TEST(VerbsWithoutDevice, OpeningSaysWhatToDo) {
  int count = 0;
  if (ibv_device** list = ibv_get_device_list(&count)) ibv_free_device_list(list);
  if (count > 0) GTEST_SKIP() << "this machine has an RDMA device";
  base::RealClock clock;
  base::Executor executor(clock);
  const auto device = open_verbs_device(executor);
  ASSERT_FALSE(device);
  EXPECT_EQ(device.code(), ErrorCode::kUnsupported);
  EXPECT_NE(device.error().message.find("rdma link add rxe0"), std::string::npos);
  EXPECT_EQ(device.error().message.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace pmstore::fabric::verbs
