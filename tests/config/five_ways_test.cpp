// One run described five ways resolves to one configuration. The descriptions are in five_ways.h;
// tests/tool/config_command_test.cpp trains with them.

#include "five_ways.h"

#include <gtest/gtest.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/convert/convert.h>
#include <tessera/config/resolve/resolve.h>

namespace tessera::config {
namespace {

Resolved resolve(const testing::Way& way, const std::string& folder) {
  const auto none = [](const std::string&) -> std::optional<std::string> { return std::nullopt; };
  return resolve_flags(testing::flags_of(way, folder), none);
}

TEST(FiveWays, OfOneRunAreOneConfiguration) {
  const TemporaryFolder folder;
  for (const testing::Run& run : testing::runs_in_five_ways()) {
    ASSERT_EQ(run.ways.size(), 5u);
    const Resolved first = resolve(run.ways[0], folder.path());
    for (const testing::Way& way : run.ways) {
      const Resolved resolved = resolve(way, folder.path());
      EXPECT_EQ(join(differences(first.values, resolved.values)), "") << run.name << ", " << way.name;
    }
  }
}

TEST(FiveWays, EveryValueKnowsWhereItCameFrom) {
  const TemporaryFolder folder;
  const testing::Run run = testing::runs_in_five_ways()[0];
  std::vector<std::string> origins;
  for (const testing::Way& way : run.ways) {
    const std::string origin = resolve(way, folder.path()).origin("strategy").str();
    origins.push_back(origin.starts_with(folder.path()) ? origin.substr(folder.path().size() + 1) : origin);
  }
  EXPECT_EQ(origins[0], "derived (--fsdp full_shard)");
  EXPECT_EQ(origins[1], "accelerate.yaml:6");
  EXPECT_EQ(origins[2], concat("derived (", folder.path(), "/deepspeed.json:4 zero_stage 3)"));
  EXPECT_EQ(origins[3], concat("derived (", folder.path(), "/fsdp.json:2 sharding_strategy FULL_SHARD)"));
  EXPECT_EQ(origins[4], "tessera.yaml:4");
}

}  // namespace
}  // namespace tessera::config
