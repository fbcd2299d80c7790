#include "guest/processor_files.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace multigrain::guest {
namespace {

constexpr Processors kFour{.all = 4, .of_a_node = 2};

// Describes a machine of three processors.
std::string machine(const std::string& path) {
  if (path == "/proc/stat") return "cpu  9 9\ncpu0 1 1\ncpu1 2 2\ncpu2 3 3\nintr 5 0\ncpu_like 7\n";
  std::string text;
  for (const char* const number : {"0", "1", "2"})
    text += std::string("processor\t: ") + number + "\nmodel name\t: of\t processor " + number +
            "\nphysical id\t: 7\ncore id\t\t: 5\ncpu cores\t: 3\nsiblings\t: 3\npower management:\n\n";
  return text;
}

std::string file(std::string_view path, const Processors& processors = kFour) {
  return processor_file(path, processors, &machine).value_or("as it is");
}

TEST(ProcessorFiles, MasksAreWrittenAsTheSystemDoes) {
  EXPECT_EQ(mask_text({0x3}, 2), "3");
  EXPECT_EQ(mask_text({0x5}, 9), "005");
  EXPECT_EQ(mask_text({uint64_t{1} << 33 | 2, 1}, 65), "1,00000002,00000002");
  EXPECT_EQ(list_text({0b1011'0110}, 8), "1-2,4-5,7");
  EXPECT_EQ(list_text({~uint64_t{0}, 1}, 65), "0-64");
  EXPECT_EQ(list_text({0}, 8), "");
}

TEST(ProcessorFiles, CountsAreTheGuests) {
  for (const char* const name : {"online", "possible", "present"})
    EXPECT_EQ(file(std::string("/sys/devices/system/cpu/") + name), "0-3\n");
  EXPECT_EQ(file("/sys/devices/system/cpu/online", {.all = 1, .of_a_node = 1}), "0\n");
  EXPECT_EQ(file("/proc/stat"), "cpu  9 9\ncpu0 1 1\ncpu1 2 2\ncpu2 3 3\ncpu3 1 1\nintr 5 0\ncpu_like 7\n");
  EXPECT_EQ(file("/proc/stat", {.all = 1, .of_a_node = 1}), "cpu  9 9\ncpu0 1 1\nintr 5 0\ncpu_like 7\n");
  EXPECT_EQ(file("/sys/devices/system/node/node0/cpulist"), "0-3\n");
  EXPECT_EQ(file("/proc/meminfo"), "as it is");
}

TEST(ProcessorFiles, ANodeIsAPackage) {
  EXPECT_EQ(file("/sys/devices/system/cpu/cpu3/topology/physical_package_id"), "1\n");
  EXPECT_EQ(file("/sys/devices/system/cpu/cpu3/topology/core_id"), "1\n");
  EXPECT_EQ(file("/sys/devices/system/cpu/cpu2/topology/core_siblings_list"), "2-3\n");
  EXPECT_EQ(file("/sys/devices/system/cpu/cpu2/topology/thread_siblings"), "4\n");
  EXPECT_EQ(file("/sys/devices/system/cpu/cpu4/topology/core_id"), "as it is");
  const std::string info = file("/proc/cpuinfo");
  EXPECT_EQ(std::ranges::count(info, '\n'), 4 * 8);
  EXPECT_NE(info.find("processor\t: 3\nmodel name\t: of\t processor 0\nphysical id\t: 1\ncore id\t\t: 1\ncpu cores\t: "
                      "2\nsiblings\t: 2\npower management:\n\n"),
            std::string::npos)
      << info;
}

TEST(ProcessorFiles, PathsOfProcessorsThatTheMachineDoesNotHave) {
  EXPECT_EQ(processor_path("/sys/devices/system/cpu/cpu0/online", kFour), "/sys/devices/system/cpu/cpu0/online");
  // There is one processor at least.
  EXPECT_NE(processor_path("/sys/devices/system/cpu/cpu3/cache", kFour), "");
  EXPECT_EQ(processor_path("/sys/devices/system/cpu/cpu4/cache", kFour), "");
  EXPECT_EQ(processor_path("/sys/devices/system/node/node1/meminfo", kFour), "");
  EXPECT_EQ(processor_path("/sys/devices/system/cpu/cpufreq", kFour), "/sys/devices/system/cpu/cpufreq");
}

}  // namespace
}  // namespace multigrain::guest
