#include "ddio/pci_address.h"

#include <gtest/gtest.h>

#include "ddio/register.h"

namespace pmstore::ddio {
namespace {

TEST(PciAddress, IsReadInBothForms) {
  EXPECT_EQ(parse_pci_address("0000:17:00.1")->text(), "0000:17:00.1");
  EXPECT_EQ(parse_pci_address("af:1f.7")->text(), "0000:af:1f.7");
  EXPECT_EQ(parse_pci_address("10000:01:00.0")->text(), "10000:01:00.0");
}

TEST(PciAddress, EverythingElseIsRefused) {
  for (const char* text : {"", "17", "17:00", "17:00.8", "17:20.0", "1:00.0", "17:00.0x", "x7:00.0",
                           "0000:0000:17:00.0", "00:17:00.0", ":17:00.0", "17.00:0", "mlx5_0"}) {
    EXPECT_FALSE(parse_pci_address(text)) << text;
  }
}

TEST(Register, IsReadAsItIsWritten) {
  for (const char* text : {"0000:16:02.0+0x180", "cpu12+msr0xc8b"}) {
    ASSERT_TRUE(parse_register(text)) << text;
    EXPECT_EQ(parse_register(text)->text(), text);
  }
  for (const char* text : {"", "+", "0000:16:02.0", "0000:16:02.0+180", "0000:16:02.0+0x181",
                           "0000:16:02.0+0x1000", "cpu+msr0xc8b", "cpu1+msr", "cpu-1+msr0x1"}) {
    EXPECT_FALSE(parse_register(text)) << text;
  }
}

}  // namespace
}  // namespace pmstore::ddio
