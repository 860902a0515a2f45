// The settings that a checkpoint records, and the reports of changes to them.

#include <tessera/config/record/former_settings.h>

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/config/convert/convert.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/run_config.h>

namespace tessera::config {
namespace {

Value after_a_file(const RunConfig& config) { return parse_json(dump_json(stored_configuration(config), 2), "stored"); }

TEST(StoredConfiguration, HoldsEverySettingButThoseThatOnlyDescribe) {
  const Value stored = stored_configuration(RunConfig());
  std::size_t settings = 0;
  for (const Field& field : fields()) {
    const Value* found = stored.at(section_key(field.section)).find(field.name);
    EXPECT_EQ(found == nullptr, only_describes(field.name)) << field.name;
    settings += found != nullptr;
  }
  EXPECT_GT(settings, 100u);
}

TEST(StoredConfiguration, NothingHasChangedInTheSameRun) {
  RunConfig config;
  config.optimization.learning_rate = 1.0 / 3;
  config.optimization.seed = 7;
  config.data.train_file = "a \"b\".txt";
  EXPECT_TRUE(changed_since(after_a_file(config), config).empty());
}

TEST(StoredConfiguration, WhatNumbersDependOnIsToldWithBothValues) {
  RunConfig before, now;
  now.optimization.learning_rate = 1e-4;
  now.optimization.bf16 = true;
  now.data.block_size = 64;
  now.output.ignore_data_skip = true;
  now.output.output_dir = "elsewhere";           // no report: the user changes the
  now.sharding.strategy = Strategy::full_shard;  // output folder and sharding on purpose
  EXPECT_EQ(changed_since(after_a_file(before), now),
            (std::vector<std::string>{"block_size 64 (was 0)", "learning_rate 1e-04 (was 5e-05)",
                                      "bf16 true (was false)", "ignore_data_skip true (was false)"}));
}

TEST(StoredConfiguration, WhateverAFileHoldsIsTaken) {
  for (const char* text : {"null", "3", "[]", "{}", R"({"optimization": 4})", R"({"optimization": {"nonsense": 1}})"})
    EXPECT_TRUE(changed_since(parse_json(text, "stored"), RunConfig()).empty()) << text;
  EXPECT_EQ(
      changed_since(parse_json(R"({"optimization": {"learning_rate": {"a": [1]}}})", "stored"), RunConfig()).size(),
      1u);
}

}  // namespace
}  // namespace tessera::config
