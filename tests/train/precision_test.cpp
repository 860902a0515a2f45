#include <gtest/gtest.h>

#include <tessera/base/text.h>
#include <tessera/config/core/run_config.h>
#include <tessera/kernels/cpu/dispatch.h>
#include <tessera/train/core/precision.h>

namespace {

using namespace tessera;
using Type = std::optional<at::ScalarType>;

TEST(Precision, of_training_and_of_evaluation) {
  struct Row {
    bool bf16, fp16, bf16_full_eval, fp16_full_eval;
    Type training, evaluation;
  };
  const Type none, bf16 = at::kBFloat16, fp16 = at::kHalf;
  const Row rows[] = {{false, false, false, false, none, none}, {true, false, false, false, bf16, bf16},
                      {false, true, false, false, fp16, fp16},  {false, false, true, false, none, bf16},
                      {false, false, false, true, none, fp16},  {true, false, false, true, bf16, fp16},
                      {false, true, true, false, fp16, bf16},   {true, true, true, true, bf16, bf16}};
  for (const Row& row : rows)
    for (const FloatType param_dtype : {FloatType::fp32, FloatType::bf16, FloatType::fp16}) {
      RunConfig config;
      config.optimization.bf16 = row.bf16;
      config.optimization.fp16 = row.fp16;
      config.optimization.bf16_full_eval = row.bf16_full_eval;
      config.optimization.fp16_full_eval = row.fp16_full_eval;
      config.sharding.param_dtype = param_dtype;
      const bool wide =
          config.sharding.param_dtype == FloatType::fp32;  // otherwise parameters are gathered in the narrow type
      EXPECT_EQ(train::training_precision(config), wide ? row.training : none) << param_dtype;
      EXPECT_EQ(train::evaluation_precision(config), wide ? row.evaluation : none) << param_dtype;
    }
}

TEST(Precision, a_processor_without_instructions_is_told) {
  struct Row {
    const char* what;
    void (*set)(RunConfig&);
    bool is_fp16;
    const char* says;
  };
  const Row rows[] = {
      {"fp16", [](RunConfig& c) { c.optimization.fp16 = true; }, true, "the loss scale still applies"},
      {"fp16_full_eval", [](RunConfig& c) { c.optimization.fp16_full_eval = true; }, true, "multiply in fp32"},
      {"bf16", [](RunConfig& c) { c.optimization.bf16 = true; }, false, "multiply in fp32"},
      {"bf16_full_eval", [](RunConfig& c) { c.optimization.bf16_full_eval = true; }, false, "multiply in fp32"},
      {"param_dtype bf16", [](RunConfig& c) { c.sharding.param_dtype = FloatType::bf16; }, false, "many times"}};
  for (const Row& row : rows) {
    RunConfig config;
    EXPECT_EQ(train::precision_warning(config, c10::kCPU), "");
    row.set(config);
    EXPECT_EQ(train::precision_warning(config, c10::kCUDA), "");
    const std::string told = train::precision_warning(config, c10::kCPU);
    if (row.is_fp16 ? kernels::has_fp16_instructions() : kernels::has_bf16_instructions()) {
      EXPECT_EQ(told, "");
      continue;
    }
    EXPECT_TRUE(told.starts_with(concat("--", row.what, ": this processor has no "))) << told;
    EXPECT_NE(told.find(row.says), std::string::npos) << told;
  }
}

}  // namespace
