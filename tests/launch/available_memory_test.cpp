// Memory available to a process, computed from made-up /proc and /sys trees.

#include <gtest/gtest.h>

#include <limits>

#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/launch/agent/available_memory.h>

namespace tessera::launch {
namespace {

class AvailableMemory : public ::testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) const {
    const std::string file = folder_.path() + path;
    make_folders(file.substr(0, file.find_last_of('/')));
    write_file_atomically(file, text);
  }
  std::int64_t bytes() const { return available_bytes(folder_.path()); }
  TemporaryFolder folder_;
};

TEST_F(AvailableMemory, IsWhatTheKernelHasLeft) {
  EXPECT_EQ(bytes(), std::numeric_limits<std::int64_t>::max()) << "nothing is known";
  put("/proc/meminfo", "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 600 kB\nHugePages_Total: 0\nBuffers: 3 kB\n");
  EXPECT_EQ(bytes(), 600 * 1024);
}

TEST_F(AvailableMemory, AndWhatTheControlGroupAllows) {
  put("/proc/meminfo", "MemAvailable: 600 kB\n");
  put("/proc/self/cgroup", "0::/job\n");
  const std::string group = "/sys/fs/cgroup/job/";
  put(group + "memory.events", "oom_kill 0\n");
  put(group + "memory.max", "max\n");
  put(group + "memory.current", "300000\n");
  EXPECT_EQ(bytes(), 600 * 1024) << "no limit";
  put(group + "memory.max", "400000\n");
  EXPECT_EQ(bytes(), 100000);
  put(group + "memory.stat", "anon 5\ninactive_file 50000\nactive_file 7\n");
  EXPECT_EQ(bytes(), 150000) << "pages of files are given back";
  put(group + "memory.max", "100000\n");
  EXPECT_EQ(bytes(), 0);
}

}  // namespace
}  // namespace tessera::launch
