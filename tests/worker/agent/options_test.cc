#include "worker/agent/options.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/data/test_images.h"

namespace tundish::agent {
namespace {

using ::testing::HasSubstr;

TEST(DescribeHostTest, ListsWhatIsOffered) {
  const auto host = DescribeHost("cpu:3", "");
  ASSERT_TRUE(host.ok()) << host.status();
  ASSERT_EQ(host->devices.size(), 3u);
  EXPECT_EQ(host->devices[2].name(), "cpu:2");
  EXPECT_EQ(host->devices[2].kind(), "cpu");
  EXPECT_EQ(host->topology, "");
  // The test's host has /proc/meminfo: three devices share what it says.
  EXPECT_GT(host->devices[0].memory_bytes(), 0u);
  EXPECT_EQ(host->devices[0].memory_bytes(), host->devices[2].memory_bytes());
}

TEST(DescribeHostTest, TakesLinksFromTheTopology) {
  const auto host = DescribeHost("neuron:32", TOPOLOGIES "/trn1.32xlarge.json");
  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_EQ(host->topology, "trn1.32xlarge");
  ASSERT_EQ(host->devices.size(), 32u);
  EXPECT_GT(host->devices[3].link_domains_size(), 0);
}

TEST(DescribeHostTest, NamesWhatIsWrong) {
  struct Case {
    const char* devices;
    const char* topology;
    const char* want;
  };
  const Case cases[] = {
      {"", "", "'' is not KIND:COUNT"},
      {"cpu", "", "'cpu' is not KIND:COUNT"},
      {"cpu:0", "", "'cpu:0'"},
      {"cpu:4x", "", "'cpu:4x'"},
      {"cpu:99999", "", "'cpu:99999'"},
      {"tpu:4", "", "'tpu:4'"},
      {"cpu:4", TOPOLOGIES "/gpu8-nvlink.json", "'cpu:4' does not fit topology 'gpu8-nvlink'"},
      {"cuda:9", TOPOLOGIES "/gpu8-nvlink.json", "8"},
      {"cpu:4", TOPOLOGIES "/none.json", "none"},
  };
  for (const Case& c : cases) {
    const auto host = DescribeHost(c.devices, c.topology);
    ASSERT_FALSE(host.ok()) << c.devices;
    EXPECT_THAT(std::string(host.status().message()), HasSubstr(c.want));
  }
}

TEST(CheckOptionsTest, NamesWhatIsWrong) {
  Options options{.node = "host-a.rack1"};
  EXPECT_TRUE(CheckOptions(options).ok());
  options.data_address = "host-a";
  EXPECT_THAT(std::string(CheckOptions(options).message()), HasSubstr("--data-address 'host-a'"));
  options = {.node = "Host A"};
  EXPECT_THAT(std::string(CheckOptions(options).message()), HasSubstr("--node 'Host A'"));
}

TEST(OptionsTest, OffersNoDeviceThatIsNotThere) {
  data::TempFolder dev;
  Host host;
  host.devices.resize(2);
  for (v1::Device& device : host.devices) device.set_kind("cuda");
  const auto add = [&](const std::string& name) { std::ofstream(dev.path() / name) << ""; };
  for (const char* other : {"nvidiactl", "nvidia", "nvidia-uvm", "neuron0", "nvidia0"}) add(other);
  const absl::Status one = CheckDevicesExist(host, dev.path());
  EXPECT_TRUE(absl::IsFailedPrecondition(one)) << one;
  EXPECT_NE(one.message().find("has 1 "), std::string::npos) << one;
  add("nvidia1");
  EXPECT_TRUE(CheckDevicesExist(host, dev.path()).ok());
  EXPECT_FALSE(CheckDevicesExist(host, dev.path() / "none").ok());
  for (v1::Device& device : host.devices) device.set_kind("neuron");
  EXPECT_TRUE(CheckDevicesExist(host, dev.path()).ok()) << "one device has several cores";
  for (v1::Device& device : host.devices) device.set_kind("cpu");
  EXPECT_TRUE(CheckDevicesExist(host, dev.path() / "none").ok());
}

}  // namespace
}  // namespace tundish::agent
