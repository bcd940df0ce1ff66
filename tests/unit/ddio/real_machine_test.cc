// What is read and written on a real host, with plain files in the place of its registers'.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "ddio/machine.h"
#include "ddio/register.h"

namespace pmstore::ddio {
namespace {

class RealMachineFiles : public testing::Test {
 protected:
  RealMachineFiles() {
    std::string name = testing::TempDir() + "pmstore-real.XXXXXX";
    folder_ = mkdtemp(name.data());
    machine_ = machine_below(folder_);
  }
  ~RealMachineFiles() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& path, const std::string& content) {
    std::filesystem::create_directories(std::filesystem::path(folder_ + path).parent_path());
    std::ofstream(folder_ + path, std::ios::binary) << content;
  }
  std::string content(const std::string& path) {
    std::ifstream file(folder_ + path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  static constexpr const char* kConfig = "/sys/bus/pci/devices/0000:16:02.0/config";
  static constexpr const char* kMsr = "/dev/cpu/4/msr";
  std::string folder_;
  std::unique_ptr<Machine> machine_;
  const PciAddress port_ = *parse_pci_address("0000:16:02.0");
};

TEST_F(RealMachineFiles, ConfigurationSpaceIsFourBytesLeastFirst) {
  std::string space(4096, '\x11');
  write(kConfig, space);
  ASSERT_TRUE(machine_->write_config(port_, 0x180, 0xa1b2c3d4));
  EXPECT_EQ(machine_->read_config(port_, 0x180).value(), 0xa1b2c3d4u);
  EXPECT_EQ(machine_->read_config(port_, 0x184).value(), 0x11111111u);
  space.replace(0x180, 4, "\xd4\xc3\xb2\xa1");
  EXPECT_EQ(content(kConfig), space);
}

TEST_F(RealMachineFiles, AModelSpecificRegisterIsEightBytesAtItsNumber) {
  write(kMsr, std::string(0xc8b, 'x') + std::string(8, '\0') + "y");
  ASSERT_TRUE(machine_->write_msr(4, 0xc8b, 0x0102030405060708));
  EXPECT_EQ(machine_->read_msr(4, 0xc8b).value(), 0x0102030405060708u);
  EXPECT_EQ(content(kMsr), std::string(0xc8b, 'x') + "\x08\x07\x06\x05\x04\x03\x02\x01y");
}

TEST_F(RealMachineFiles, WhatIsNotThereIsSaid) {
  write(kConfig, std::string(256, '\0'));
  const auto beyond = machine_->read_config(port_, 0x180);
  ASSERT_FALSE(beyond);
  EXPECT_NE(beyond.error().message.find("boot without pci=nommconf"), std::string::npos);
  const auto gone = machine_->read_config(*parse_pci_address("0000:17:00.0"), 0);
  ASSERT_FALSE(gone);
  EXPECT_NE(gone.error().message.find("0000:17:00.0+0x0: No such file"), std::string::npos)
      << gone.error().message;
  const auto no_msr = machine_->read_msr(4, 0xc8b);
  ASSERT_FALSE(no_msr);
  EXPECT_NE(no_msr.error().message.find("modprobe msr"), std::string::npos);
  EXPECT_FALSE(machine_->write_msr(4, 0xc8b, 1));
  EXPECT_FALSE(machine_->write_config(*parse_pci_address("0000:17:00.0"), 0, 1));
  EXPECT_FALSE(std::filesystem::exists(folder_ + kMsr));
}

TEST_F(RealMachineFiles, ARegisterThatIsNotThereAnyMoreIsAllBits) {
  write(kConfig, std::string(4096, '\xff'));
  Register where;
  where.address = port_;
  where.number = 0x180;
  const auto value = read_register(*machine_, where);
  ASSERT_FALSE(value);
  EXPECT_NE(value.error().message.find("nothing answers"), std::string::npos);
}

}  // namespace
}  // namespace pmstore::ddio
