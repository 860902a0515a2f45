// Malicious accelerate files that try to make the reader slow.

#include <gtest/gtest.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/accelerate/accelerate_file.h>
#include <tests/growth.h>

#include <string>
#include <vector>

namespace tessera::config {
namespace {

// Large, deeply nested or error-ridden files are refused in time linear in their size and with a bounded number of
// messages.
TEST(AccelerateHostile, FilesAreRefusedQuickly) {
  const auto texts = [](std::size_t eighths) {
    const std::size_t size = 31'250 * eighths;
    std::string keys = "distributed_type: NO\n", nested = "distributed_type: FSDP\nfsdp_config:\n",
                deep = "distributed_type: ";
    while (keys.size() < size) keys += concat("num_process_", keys.size(), ": 1\n");
    while (nested.size() < size) nested += concat("  fsdp_shard_", nested.size(), ": 1\n");
    deep += std::string(size / 2 - 100, '[') + std::string(size / 2 - 100, ']');
    return std::vector<std::string>{
        keys, nested, deep, std::string(4 * size, 'x'), std::string(4 * size, '['), keys + keys + keys + keys + keys};
  };
  const TemporaryFolder folder;
  const std::string small_path = path_join(folder.path(), "small.yaml"),
                    large_path = path_join(folder.path(), "large.yaml");
  const auto small = texts(1), large = texts(8);
  for (std::size_t i = 0; i < large.size(); ++i) {
    write_file_atomically(small_path, small[i]);
    write_file_atomically(large_path, large[i]);
    Problems problems;
    const auto read = [&](const std::string& path) {
      problems = {};
      read_accelerate_file(path, problems);
    };
    EXPECT_LE(tessera::testing::growth([&] { read(small_path); }, [&] { read(large_path); }),
              tessera::testing::linear_growth)
        << large[i].substr(0, 40);
    EXPECT_FALSE(problems.lines.empty());
    EXPECT_LT(join(problems.lines).size(), 200'000u);
  }
}

}  // namespace
}  // namespace tessera::config
