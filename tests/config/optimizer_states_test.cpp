#include <gtest/gtest.h>

#include <tessera/config/rules/optimizer_states.h>
#include <tessera/config/sections/optimization_config.h>

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

TEST(OptimizerStates, TablesStayWide) {
  const auto bytes = [](OptimizerKind optim) {
    OptimizationConfig config;
    config.optim = optim;
    return config::wide_state_bytes(config);
  };
  EXPECT_EQ(bytes(OptimizerKind::adamw_8bit), 8);
  EXPECT_EQ(bytes(OptimizerKind::lion_8bit), 4);
  EXPECT_EQ(bytes(OptimizerKind::lars), 4);
}

TEST(OptimizerStates, BytesAreThoseOfTheMoments) {
  const auto bytes = [](OptimizerKind optim, bool narrow = false, double momentum = 0) {
    OptimizationConfig config;
    config.optim = optim;
    config.bf16_optimizer_states = narrow;
    config.momentum = momentum;
    return config::optimizer_state_bytes(config);
  };
  EXPECT_EQ(bytes(OptimizerKind::adamw), 8);
  EXPECT_EQ(bytes(OptimizerKind::adamw, true), 4);
  EXPECT_EQ(bytes(OptimizerKind::sgd), 0);
  EXPECT_EQ(bytes(OptimizerKind::sgd, false, 0.9), 4);
  EXPECT_EQ(bytes(OptimizerKind::lion), 4);
  EXPECT_EQ(bytes(OptimizerKind::rmsprop), 4);
  EXPECT_EQ(bytes(OptimizerKind::adafactor), 0);
  EXPECT_EQ(bytes(OptimizerKind::adamw_8bit), 2.125);  // one byte per element, and four per 64 elements
  EXPECT_EQ(bytes(OptimizerKind::lion_8bit), 1.0625);
}

}  // namespace
