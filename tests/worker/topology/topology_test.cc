#include "worker/topology/topology.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/topology/host_memory.h"

namespace tundish::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// TUNDISH_TOPOLOGIES is the repository's deploy/topologies, set by the build.
const std::filesystem::path kFolder = TUNDISH_TOPOLOGIES;

TEST(TopologyTest, ShippedHostsHaveTheirDevicesAndDomains) {
  struct Case {
    const char* name;
    const char* kind;
    int devices;
    std::vector<int> domains_per_level;
  };
  const Case cases[] = {
      {"gpu8-nvlink", "cuda", 8, {1}},
      {"gpu8-pcie", "cuda", 8, {4, 2}},
      {"p4d.24xlarge", "cuda", 8, {1}},
      {"trn1.32xlarge", "neuron", 32, {16, 4, 1}},
      {"trn1.32xlarge-cpu", "cpu", 32, {16, 4, 1}},
      {"trn2.48xlarge", "neuron", 64, {16, 4, 1}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const auto topology = ReadTopology(kFolder, c.name);
    ASSERT_TRUE(topology.ok()) << topology.status();
    const auto devices = ListDevices(*topology, 0);
    ASSERT_TRUE(devices.ok()) << devices.status();
    ASSERT_EQ(devices->size(), static_cast<std::size_t>(c.devices));
    for (std::size_t level = 0; level < c.domains_per_level.size(); ++level) {
      std::map<std::string, int> members;
      for (const v1::Device& device : *devices) {
        EXPECT_EQ(device.kind(), c.kind);
        ASSERT_EQ(static_cast<std::size_t>(device.link_domains_size()), c.domains_per_level.size());
        ++members[device.link_domains(level)];
      }
      EXPECT_EQ(members.size(), static_cast<std::size_t>(c.domains_per_level[level]));
      for (const auto& [domain, count] : members) {
        EXPECT_EQ(count, c.devices / c.domains_per_level[level]) << domain;
      }
    }
  }
}

TEST(TopologyTest, EveryShippedFileParses) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    const auto topology = ReadTopology(kFolder, entry.path().stem().string());
    EXPECT_TRUE(topology.ok()) << topology.status();
    ++files;
  }
  EXPECT_EQ(files, 7);
}

TEST(TopologyTest, NamesDevicesAndTheirDomains) {
  const auto topology = ReadTopology(kFolder, "trn1.32xlarge");
  ASSERT_TRUE(topology.ok());
  const auto devices = ListDevices(*topology, 11);
  ASSERT_TRUE(devices.ok());
  ASSERT_EQ(devices->size(), 11u);
  EXPECT_EQ(devices->back().name(), "neuron:10");
  EXPECT_EQ(devices->back().memory_bytes(), std::uint64_t{16} << 30);
  EXPECT_EQ(devices->back().peak_flops(), 95e12);
  EXPECT_EQ(devices->back().efficiency(), 0.18);
  EXPECT_THAT(devices->back().link_domains(), ElementsAre("chip:5", "torus-row:1", "neuronlink:0"));
}

TEST(TopologyTest, CpuHostsOfferAsManyAsTold) {
  const auto topology = ReadTopology(kFolder, "cpu");
  ASSERT_TRUE(topology.ok()) << topology.status();
  EXPECT_EQ(ListDevices(*topology, 4)->size(), 4u);
  EXPECT_TRUE((*ListDevices(*topology, 4))[0].link_domains().empty());
  for (const int count : {0, -1, 1025}) {
    EXPECT_EQ(ListDevices(*topology, count).status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(ListDevices(*ReadTopology(kFolder, "gpu8-pcie"), 9).status().message(),
            "9 devices of topology gpu8-pcie: expected 1 to 8");
}

TEST(TopologyTest, SaysWhatIsWrongWithAText) {
  struct Case {
    const char* json;
    const char* message;
  };
  const Case cases[] = {
      {"{", "topology t: "},
      {R"({"name": "a", "device_kind": "cpu", "speed": 1})", "speed"},
      {R"({"name": "a/b", "device_kind": "cpu"})", "name 'a/b'"},
      {R"({"name": "a"})", "device_kind ''"},
      {R"({"name": "a", "device_kind": "gpu"})", "expected cpu, cuda or neuron"},
      {R"({"name": "a", "device_kind": "cpu", "device_count": 2000})", "device_count=2000"},
      {R"({"name": "a", "device_kind": "cpu", "device_peak_flops": -1})", "device_peak_flops=-1"},
      {R"({"name": "a", "device_kind": "cpu", "measured_efficiency": 2})", "expected 0 to 1"},
      {R"({"name": "a", "device_kind": "cpu", "host_dollars_per_hour": -1})",
       "host_dollars_per_hour=-1"},
      {R"({"name": "a", "device_kind": "cpu", "link_bytes_per_second": -1})",
       "link_bytes_per_second=-1"},
      {R"({"name": "a", "device_kind": "cpu", "levels": [{"devices": 2}]})", "level name ''"},
      {R"({"name": "a", "device_kind": "cpu", "levels": [{"name": "x"}]})", "devices=0"},
      {R"({"name": "a", "device_kind": "cpu",
          "levels": [{"name": "x", "devices": 4}, {"name": "y", "devices": 6}]})",
       "level y has devices=6: expected a multiple of the level below, 4"},
      {R"({"name": "a", "device_kind": "cpu",
          "levels": [{"name": "x", "devices": 2}, {"name": "x", "devices": 4}]})",
       "each once"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.json);
    const auto topology = ParseTopology(c.json, "t");
    EXPECT_EQ(topology.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(topology.status().message()), HasSubstr(c.message));
  }
}

TEST(HostMemoryTest, ReadsWhatTheKernelSays) {
  struct Case {
    const char* text;
    std::uint64_t bytes;
  };
  const Case cases[] = {
      {"MemTotal:       16384 kB\nMemFree:  1 kB\n", 16384ull * 1024},
      {"MemFree: 7 kB\nMemTotal:\t8 kB", 8192},
      {"MemTotal: 8 MB\n", 0},
      {"MemTotal: kB\n", 0},
      {"MemTotal: 99999999999999999999 kB\n", 0},
      {"MemTotal: 18446744073709551615 kB\n", 0},
      {"", 0},
  };
  for (const Case& c : cases) EXPECT_EQ(ParseMemTotal(c.text), c.bytes) << c.text;
  EXPECT_EQ(ParseMemoryMax("max\n"), 0u);
  EXPECT_EQ(ParseMemoryMax("1073741824\n"), 1073741824u);
  EXPECT_EQ(ParseMemoryMax(""), 0u);
  EXPECT_GT(HostMemoryBytes(), 0u);
}

TEST(TopologyTest, UnknownNamesListTheKnownOnes) {
  const auto topology = ReadTopology(kFolder, "trn3");
  EXPECT_EQ(topology.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(topology.status().message()), HasSubstr("cpu, gpu8-nvlink, gpu8-pcie"));
  for (const char* name : {"../topologies/cpu", "", ".hidden", "A"}) {
    EXPECT_EQ(ReadTopology(kFolder, name).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(TopologyTest, RefusesFilesThatAreTooLongOrMisnamed) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "topologies";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "big.json") << std::string(70000, ' ');
  std::ofstream(folder / "other.json") << R"({"name": "one", "device_kind": "cpu"})";
  EXPECT_THAT(std::string(ReadTopology(folder, "big").status().message()),
              HasSubstr("at most 65536 bytes"));
  EXPECT_THAT(std::string(ReadTopology(folder, "other").status().message()),
              HasSubstr("expected the file's, 'other'"));
}

}  // namespace
}  // namespace tundish::topology
