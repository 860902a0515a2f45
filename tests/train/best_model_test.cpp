// Choosing the best evaluation, and its record in a checkpoint.

#include <tessera/config/sections/output_config.h>
#include <tessera/train/core/best_model.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <tessera/base/error.h>

namespace tessera::train {
namespace {

EvalMetrics metrics(std::int64_t step, double loss) {
  EvalMetrics m;
  m.step = step;
  m.loss = loss;
  return m;
}

OutputConfig asking() {
  OutputConfig config;
  config.load_best_model_at_end = true;
  return config;
}

TEST(BestModel, TheLowestLossIsTheBest) {
  BestModel best(asking(), nullptr);
  EXPECT_TRUE(best.update(metrics(2, 3.0)));
  EXPECT_FALSE(best.update(metrics(4, 3.0))) << "no better";
  EXPECT_FALSE(best.update(metrics(6, std::numeric_limits<double>::quiet_NaN())));
  EXPECT_TRUE(best.update(metrics(8, 2.5)));
  EXPECT_FALSE(best.update(metrics(10, 2.6)));
  EXPECT_EQ(best.step(), 8);
  EXPECT_EQ(best.value(), 2.5);
}

TEST(BestModel, GreaterMayBeBetter) {
  OutputConfig config = asking();
  config.metric_for_best_model = "eval_perplexity";
  config.greater_is_better = Choice::yes;
  BestModel best(config, nullptr);
  EXPECT_TRUE(best.update(metrics(1, 1.0)));
  EXPECT_FALSE(best.update(metrics(2, 0.5)));
  EXPECT_TRUE(best.update(metrics(3, 2.0)));
  EXPECT_NEAR(*best.value(), std::exp(2.0), 1e-12);
  EXPECT_EQ(metric_of(metrics(1, 2.0), ""), 2.0);
  EXPECT_THROW(metric_of(metrics(1, 2.0), "accuracy"), InputError);
}

TEST(BestModel, AnyMetricMayDecideAndItsNameSaysWhatIsBetter) {
  const auto greater = [](const std::string& metric, const std::string& word) {
    OutputConfig config;
    config.metric_for_best_model = metric;
    config.greater_is_better = *parse_word<Choice>(word);
    return greater_is_better(config);
  };
  for (const char* metric : {"", "loss", "eval_loss", "eval_perplexity", "my_loss"})
    EXPECT_FALSE(greater(metric, "auto")) << metric;
  EXPECT_TRUE(greater("accuracy", "auto"));
  EXPECT_FALSE(greater("accuracy", "false"));
  EXPECT_TRUE(greater("loss", "true"));
  OutputConfig config = asking();
  config.metric_for_best_model = "accuracy";
  BestModel best(config, nullptr);
  EXPECT_TRUE(best.update(0.5, 1));
  EXPECT_FALSE(best.update(0.4, 2));
  EXPECT_TRUE(best.update(0.6, 3));
  EXPECT_EQ(best.step(), 3);
}

TEST(BestModel, OnlyWhenAskedFor) {
  BestModel best(OutputConfig(), nullptr);
  EXPECT_FALSE(best.update(metrics(1, 1.0)));
  EXPECT_FALSE(best.value());
}

TEST(BestModel, ACheckpointOfAnotherStepIsNotTheBest) {
  BestModel best(asking(), nullptr);
  best.update(metrics(2, 3.0));
  best.saving(2, "out/checkpoint-2");
  best.update(metrics(3, 2.0));  // never saved
  best.saving(4, "out/checkpoint-4");
  EXPECT_EQ(best.checkpoint(), "out/checkpoint-2");
  checkpoint::RunState state;
  best.write_to(state);
  EXPECT_EQ(state.best_step, 3);
  EXPECT_EQ(state.best_metric, 2.0);
  EXPECT_EQ(state.best_model_checkpoint, "out/checkpoint-2");

  BestModel resumed(asking(), &state);
  EXPECT_FALSE(resumed.update(metrics(6, 2.5)));
  EXPECT_EQ(resumed.checkpoint(), "out/checkpoint-2");
  EXPECT_TRUE(resumed.update(metrics(8, 1.5)));
}

TEST(BestModel, ACheckpointThatCameToNothingIsNotTheBest) {
  BestModel best(asking(), nullptr);
  best.update(metrics(2, 3.0));
  best.saving(2, "out/checkpoint-2");
  best.update(metrics(4, 2.0));
  best.saving(4, "out/checkpoint-4");
  EXPECT_EQ(best.checkpoint(), "out/checkpoint-4");
  best.update(metrics(5, 1.0));  // while checkpoint-4 is being written
  best.not_saved("out/checkpoint-4");
  EXPECT_EQ(best.checkpoint(), "out/checkpoint-2");
  EXPECT_EQ(best.step(), 5);
  EXPECT_EQ(best.value(), 1.0) << "evaluations count even if their checkpoint is dropped";

  best.saving(6, "out/checkpoint-6");  // the checkpoint of a step other than the best
  best.not_saved("out/checkpoint-6");
  EXPECT_EQ(best.checkpoint(), "out/checkpoint-2");
}

}  // namespace
}  // namespace tessera::train
