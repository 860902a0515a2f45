#include <gtest/gtest.h>

#include <tessera/config/rules/optimizer_states.h>

namespace {

using namespace tessera;

TEST(OptimizerStates, RmspropKeepsWhatItsArgumentsAskFor) {
  const auto states = [](const char* arguments) {
    OptimizationConfig config;
    config.optim = OptimizerKind::rmsprop;
    config.optim_args = arguments;
    return config::rmsprop_states(config);
  };
  EXPECT_EQ(states(""), 1);
  EXPECT_EQ(states("alpha=0.9,momentum=0,centered=false"), 1);
  EXPECT_EQ(states("momentum=0.9"), 2);
  EXPECT_EQ(states("centered=true"), 2);
  EXPECT_EQ(states(R"({"momentum": 0.5, "centered": true})"), 3);
}

}  // namespace
