#include <gtest/gtest.h>

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
          config.sharding.param_dtype == FloatType::fp32;  // else parameters are gathered in the narrow type
      EXPECT_EQ(train::training_precision(config), wide ? row.training : none) << param_dtype;
      EXPECT_EQ(train::evaluation_precision(config), wide ? row.evaluation : none) << param_dtype;
    }
}

}  // namespace
