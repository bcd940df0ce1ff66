#include "tools/tune/ipmctl_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tools/tune/dimm_source.h"

namespace pmstore::tools {
namespace {

using testing::HasSubstr;

class Ipmctl : public testing::Test {
 protected:
  ~Ipmctl() override { unsetenv("PMSTORE_FALSE_IPMCTL"); }
  void say(const char* what) { setenv("PMSTORE_FALSE_IPMCTL", what, 1); }
};

TEST_F(Ipmctl, HealthAndCountersOfEachDimm) {
  const auto library = IpmctlLibrary::open(FALSE_IPMCTL);
  ASSERT_TRUE(library) << library.error().message;
  const auto dimms = (*library)->dimms();
  ASSERT_TRUE(dimms);
  ASSERT_EQ(dimms->size(), 2u);
  EXPECT_EQ((*dimms)[0].handle, 0x1u);
  EXPECT_EQ((*dimms)[1].uid, "8089-a2-1837-00000002");
  EXPECT_EQ((*library)->health((*dimms)[0]), "ok");
  EXPECT_EQ((*library)->health((*dimms)[1]), "critical");
  EXPECT_EQ((*library)->health({0, "another"}), std::nullopt);
  const auto counted = (*library)->counters((*dimms)[1]);
  ASSERT_TRUE(counted);
  EXPECT_EQ(counted->name, "0x0011");
  EXPECT_EQ(counted->media_reads, 44 * counted->read_requests);
  EXPECT_EQ(counted->media_writes, 4 * counted->write_requests);
}

TEST_F(Ipmctl, WhatDoesNotWorkIsSaid) {
  const auto none = IpmctlLibrary::open("/nowhere/libipmctl.so.5");
  EXPECT_EQ(none.code(), ErrorCode::kNotFound);
  EXPECT_THAT(none.error().message, HasSubstr("apt-get install libipmctl5"));
  const auto another = IpmctlLibrary::open("libm.so.6");
  EXPECT_EQ(another.code(), ErrorCode::kIo);
  EXPECT_THAT(another.error().message, HasSubstr("libm.so.6 has no nvm_"));
  say("no init");
  EXPECT_THAT(IpmctlLibrary::open(FALSE_IPMCTL).error().message, HasSubstr("nvm_init has failed"));
  say("no root");
  EXPECT_THAT((*IpmctlLibrary::open(FALSE_IPMCTL))->dimms().error().message,
              HasSubstr("run this as root"));
}

TEST_F(Ipmctl, IsTheSourceOfSamples) {
  auto source = open_dimm_source(FALSE_IPMCTL, "");
  ASSERT_TRUE(source) << source.error().message;
  const auto before = (*source)->read(), after = (*source)->read();
  ASSERT_TRUE(before && after);
  const auto list = deltas(*before, *after);
  ASSERT_EQ(list.size(), 3u);
  // Each reading asks both DIMMs, and each question counts.
  EXPECT_EQ(list[2].write_requests, 2u * 2 * 1000);
  EXPECT_EQ(list[2].media_reads, 2u * 2 * 400);
  EXPECT_DOUBLE_EQ(list[2].write_amplification(), 4);
  EXPECT_DOUBLE_EQ(list[2].read_amplification(), 4);
  EXPECT_DOUBLE_EQ(list[2].reads_per_write(), 0.1);
  say("no counters");
  EXPECT_THAT((*source)->read().error().message, HasSubstr("nvm_get_device_performance"));
  say("no dimms");
  EXPECT_EQ((*source)->read().code(), ErrorCode::kNotFound);
  EXPECT_EQ(open_dimm_source("/nowhere/lib.so", "").code(), ErrorCode::kNotFound);
}

}  // namespace
}  // namespace pmstore::tools
