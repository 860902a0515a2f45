#pragma once
/// \file
/// Accuracy of a prediction, and the choice among plans that it cannot distinguish.

#include <tessera/plan/search.h>

#include <string>
#include <vector>

namespace tessera::plan {

/// Relative error of predicted times compared with measured ones, and its source.
struct Sureness {
  double median = 0;   ///< half of the runs are within this error
  double most = 0;     ///< nine of ten are within this error
  double equal = 0;    ///< plans whose times differ by less count as equal
  std::string source;  ///< the runs that the numbers come from, for users
};
/// Three cases: this machine's own calibration; devices for which published runs were compared
/// (bench/plan_published.py); others, known only from their data sheet.
Sureness sureness(const Cluster& cluster, const Engine& engine = {});

/// Messages per rank and step: collectives of tensor, context and expert parallelism by block and micro-batch, forward
/// and backward, those of a pipeline, and those of data parallelism by unit.
double messages_of_step(const Model& model, const Plan& plan);

/// Among the candidates that are slower than the fastest by less than `tolerance`, moves the one with the fewest
/// messages to the front, and of several the one that leaves the most memory; the others keep their order. `best` is
/// sorted by time. Returns the number of equal ones, and the reason of the choice in words; empty: only one is fastest.
struct Tie {
  std::size_t equal = 1;
  std::string reason;
};
Tie break_tie(const Model& model, std::vector<Candidate>& best, double tolerance);

}  // namespace tessera::plan
