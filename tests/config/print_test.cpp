// --print_config, --help and --config_overrides.

#include <tessera/config/resolve/print.h>

#include <gtest/gtest.h>
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/overrides.h>
#include <tessera/config/resolve/resolve.h>

#include <tests/error_of.h>

namespace tessera::config {
namespace {

std::optional<std::string> no_environment(const std::string&) { return std::nullopt; }

TEST(PrintConfig, IsJsonWithEverySettingAndItsOrigin) {
  const std::string text =
      print_config_json(resolve_flags({"--learning-rate=1e-3", "--eval_strategy", "steps"}, no_environment));
  ASSERT_EQ(text.back(), '\n');
  const Value value = parse_json(text, "printed");
  const Value& rate = value.at("optimization").at("learning_rate");
  EXPECT_EQ(rate.at("value").as_real(), 1e-3);
  EXPECT_EQ(rate.at("origin").as_string(), "--learning-rate");
  EXPECT_EQ(value.at("output").at("eval_steps").at("origin").as_string(), "derived (logging_steps)");
  EXPECT_EQ(value.at("parallel").at("device").at("value").as_string(), "cpu");
  std::size_t count = 0;
  for (const auto& [section, members] : value.members()) count += members.members().size();
  EXPECT_EQ(count, fields().size());
}

TEST(Help, NamesEveryFlagAndFitsTheLine) {
  const std::string text = help_text();
  for (const Field& field : fields())
    EXPECT_NE(text.find(concat("\n  --", field.name)), std::string::npos) << field.name;
  for (const std::string& line : split(text, '\n')) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_NE(text.find("[5e-05]"), std::string::npos);
  EXPECT_NE(text.find("--save_strategy no|steps|epoch|best\n"), std::string::npos);
  EXPECT_NE(text.find("--lr_scheduler_type WORD  "), std::string::npos) << "too many words on the line";
  EXPECT_NE(text.find("constant_with_warmup,"), std::string::npos);
}

TEST(Overrides, ReadsTypedPairsInOrder) {
  const auto pairs =
      parse_overrides(" n_layer=4, resid_pdrop = 0.1,scale=true,n_inner=null,activation_function=gelu_new");
  ASSERT_EQ(pairs.size(), 5u);
  EXPECT_EQ(pairs[0].first, "n_layer");
  EXPECT_EQ(pairs[0].second.as_int(), 4);
  EXPECT_EQ(pairs[0].second.where().str(), "--config_overrides");
  EXPECT_EQ(pairs[1].second.as_real(), 0.1);
  EXPECT_TRUE(pairs[2].second.as_bool());
  EXPECT_TRUE(pairs[3].second.is_null());
  EXPECT_EQ(pairs[4].second.as_string(), "gelu_new");
  EXPECT_TRUE(parse_overrides("  ").empty());
}

TEST(Overrides, RefusesWhatIsNotAPair) {
  const auto error_of = [](const char* text) { return tessera::testing::error_of([&] { parse_overrides(text); }); };
  const std::string rule = " (expected key=value,key=value)";
  EXPECT_EQ(error_of("n_layer"), "--config_overrides: 'n_layer' has no '='" + rule);
  EXPECT_EQ(error_of("n_layer=4,"), "--config_overrides: '' has no '='" + rule);
  EXPECT_EQ(error_of("=4"), "--config_overrides: '=4' does not begin with a key" + rule);
  EXPECT_EQ(error_of("n layer=4"), "--config_overrides: 'n layer=4' does not begin with a key" + rule);
  EXPECT_EQ(error_of("n_layer="), "--config_overrides: 'n_layer=' has no value" + rule);
  EXPECT_EQ(error_of("n_layer=4,n_layer=5"), "--config_overrides: 'n_layer=5' sets n_layer a second time" + rule);
}

}  // namespace
}  // namespace tessera::config
