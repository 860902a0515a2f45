#pragma once
/// \file
/// Published runs of others, read from a table (CSV), and what the planner says of them: for the test of the planner
/// and for bench/plan_published.py. A row says who published it and by which convention FLOP are counted in its
/// `source`: "hw-flops" counts recomputation (4 forwards), "model-flops" does not; "causal attention" counts half of
/// the scores, others all.

#include <tessera/plan/time.h>

#include <string>
#include <vector>

namespace tessera::testing {

struct PublishedRun {
  int line = 0;  ///< in the file
  std::string source, model, gpu, recompute, precision, verified;
  std::int64_t layers = 0, hidden = 0, heads = 0, key_heads = 0, inner = 0, vocabulary = 0, sequence = 0;
  std::int64_t gpus = 0, tp = 1, pp = 1, stages_per_rank = 1, dp = 1, cp = 1, ep = 1, zero = -1, rows = 0, batch = 0;
  double tflops = 0, mfu = 0, seconds = 0, tokens_per_second = 0;  ///< 0: not published
};

/// Throws InputError "file:line: ..." for a row that has not as many columns as the first.
std::vector<PublishedRun> read_published(const std::string& path);

/// Why the planner has nothing to say about it: "mixture", "fp8", "no batch". Empty: it has.
std::string left_out(const PublishedRun& run);

struct PublishedPrediction {
  plan::Model model;
  plan::Cluster cluster;
  plan::Plan plan;
  plan::StepTime time;
  double published = 0;     ///< seconds of a step, from the time, the tokens or the FLOP that the row has
  double other_figure = 0;  ///< the same from the row's second figure; 0: it has one only
  std::string family;       ///< who published it: the first word or two of the source
};
/// `without`: a trait of engines (engine.h) that is taken as ours, to see what it is worth: "attention", "passes",
/// "loss", "host", "slow_nodes", "messages", "sequence_parallel", "tensor_hidden", "data_hidden", "numerics". Empty:
/// none.
PublishedPrediction predict(const PublishedRun& run, const std::string& without = "");

}  // namespace tessera::testing
