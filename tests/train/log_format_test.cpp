#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <tessera/train/reporting/log_format.h>

namespace tessera::train {
namespace {

// The expected texts are Python 3.11's output.
TEST(PythonRepr, IsPythonsShortestForm) {
  EXPECT_EQ(python_repr(10.5949), "10.5949");
  EXPECT_EQ(python_repr(188.29347229003906), "188.29347229003906");
  EXPECT_EQ(python_repr(4.58e-05), "4.58e-05");
  EXPECT_EQ(python_repr(0.0), "0.0");
  EXPECT_EQ(python_repr(1.0), "1.0");
  EXPECT_EQ(python_repr(100.0), "100.0");
  EXPECT_EQ(python_repr(-2.5), "-2.5");
  EXPECT_EQ(python_repr(1e15), "1000000000000000.0");
  EXPECT_EQ(python_repr(1e16), "1e+16");
  EXPECT_EQ(python_repr(1.2345678901234568e17), "1.2345678901234568e+17");
  EXPECT_EQ(python_repr(1e-4), "0.0001");
  EXPECT_EQ(python_repr(9.999e-5), "9.999e-05");
  EXPECT_EQ(python_repr(0.1 + 0.2), "0.30000000000000004");
  EXPECT_EQ(python_repr(5e-324), "5e-324");
  EXPECT_EQ(python_repr(std::numeric_limits<double>::max()), "1.7976931348623157e+308");
  EXPECT_EQ(python_repr(std::nan("")), "nan");
  EXPECT_EQ(python_repr(-std::numeric_limits<double>::infinity()), "-inf");
}

TEST(PythonRepr, RoundsToDigitsAndPlaces) {
  EXPECT_EQ(python_repr(188.29347229003906, 6), "188.293");
  EXPECT_EQ(python_repr(4.583333333333334e-05, 6), "4.58333e-05");
  EXPECT_EQ(python_round(10.59493, 4), "10.5949");
  EXPECT_EQ(python_round(0.25, 2), "0.25");
  EXPECT_EQ(python_round(2.0, 2), "2.0");
  EXPECT_EQ(python_round(1e-9, 4), "0.0");
  EXPECT_EQ(python_round(std::nan(""), 4), "nan");
}

TEST(HfLine, OfAStep) {
  StepMetrics m;
  m.loss = 10.59487;
  m.grad_norm = 188.29;
  m.learning_rate = 4.58e-05;
  m.epoch = 0.2503;
  EXPECT_EQ(hf_line(m), "{'loss': 10.5949, 'grad_norm': 188.29, 'learning_rate': 4.58e-05, 'epoch': 0.25}");
}

// transformers 5: f"{value:.4g}" of every real.
TEST(HfLine, OfTransformers5) {
  StepMetrics m;
  m.loss = 10.59487;
  m.grad_norm = 188.29;
  m.learning_rate = 4.58e-05;
  m.epoch = 0.25;
  m.num_input_tokens_seen = 64;
  EXPECT_EQ(hf_line(m, true),
            "{'loss': '10.59', 'grad_norm': '188.3', 'learning_rate': '4.58e-05', 'epoch': '0.25', "
            "'num_input_tokens_seen': 64}");
  m.loss = std::nan("");
  EXPECT_TRUE(hf_line(m, true).starts_with("{'loss': 'nan', "));
  EvalMetrics e;
  e.loss = 3.25;
  e.epoch = 1;
  e.seconds = 2;
  e.rows = 25;
  e.batches = 4;
  EXPECT_EQ(hf_line(e, true),
            "{'eval_loss': '3.25', 'eval_runtime': '2', 'eval_samples_per_second': '12.5', 'eval_steps_per_second': "
            "'2', 'epoch': '1'}");
}

TEST(HfLine, OfAnEvaluation) {
  EvalMetrics m;
  m.loss = 3.25;
  m.epoch = 1;
  m.seconds = 2;
  m.rows = 25;
  m.batches = 4;
  EXPECT_EQ(hf_line(m),
            "{'eval_loss': 3.25, 'eval_runtime': 2.0, 'eval_samples_per_second': 12.5, 'eval_steps_per_second': 2.0, "
            "'epoch': 1.0}");
  m.classes = {.measured = true, .accuracy = 0.75, .f1 = 0.5};
  EXPECT_TRUE(hf_line(m).starts_with("{'eval_loss': 3.25, 'eval_accuracy': 0.75, 'eval_f1': 0.5, 'eval_runtime': 2.0"));
}

TEST(HfLine, OfTheEnd) {
  RunTotals t;
  t.seconds = 8;
  t.rows = 64;
  t.steps_here = 16;
  t.train_loss = 2.5;
  t.epoch = 0.5;
  EXPECT_EQ(hf_line(t),
            "{'train_runtime': 8.0, 'train_samples_per_second': 8.0, 'train_steps_per_second': 2.0, 'train_loss': 2.5, "
            "'epoch': 0.5}");
}

}  // namespace
}  // namespace tessera::train
