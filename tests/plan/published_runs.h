#pragma once
/// \file
/// Runs published by others, read from a table (CSV), and the planner's predictions for them: for the planner's test
/// and for bench/plan_published.py. The `source` of a row names its publisher and how FLOP are counted: "hw-flops"
/// includes recomputation (4 forwards), "model-flops" does not; "causal attention" counts half of the scores, other
/// sources count all.

#include <tessera/plan/time.h>

#include <string>
#include <vector>

namespace tessera::testing {

struct PublishedRun {
  int line = 0;  ///< line in the file
  std::string source, model, gpu, recompute, precision, verified;
  std::int64_t layers = 0, hidden = 0, heads = 0, key_heads = 0, inner = 0, vocabulary = 0, sequence = 0;
  std::int64_t gpus = 0, tp = 1, pp = 1, stages_per_rank = 1, dp = 1, cp = 1, ep = 1, zero = -1, rows = 0, batch = 0;
  double tflops = 0, mfu = 0, seconds = 0, tokens_per_second = 0;  ///< 0: not published
};

/// Throws InputError "file:line: ..." for a row with a different number of columns than the first.
std::vector<PublishedRun> read_published(const std::string& path);

/// Reason why the planner cannot predict the run: "mixture", "fp8", "no batch". Empty: it can.
std::string left_out(const PublishedRun& run);

struct PublishedPrediction {
  plan::Model model;
  plan::Cluster cluster;
  plan::Plan plan;
  plan::StepTime time;
  double published = 0;     ///< seconds per step, from the time, tokens or FLOP in the row
  double other_figure = 0;  ///< the same from the row's second figure; 0: not given
  std::string family;       ///< publisher: the first word or two of the source
};
/// `without`: an engine trait (engine.h) that is replaced by ours to measure its effect: "attention", "passes", "loss",
/// "host", "slow_nodes", "messages", "sequence_parallel", "tensor_hidden", "data_hidden", "numerics". Empty: none.
PublishedPrediction predict(const PublishedRun& run, const std::string& without = "");

}  // namespace tessera::testing
