#pragma once
/// \file
/// Determines the accuracy of a prediction, and chooses among plans that it cannot distinguish.

#include <tessera/plan/search.h>

#include <string>
#include <vector>

namespace tessera::plan {

/// Relative error of predicted times compared with measured ones, and its source.
struct Sureness {
  double median = 0;   ///< half of the runs have at most this error
  double most = 0;     ///< nine of ten have at most this error
  double equal = 0;    ///< plans whose times differ by less count as equal
  std::string source;  ///< description of the runs behind these numbers, for users
};
/// There are three cases: this machine's own calibration; devices for which published runs were compared
/// (bench/plan_published.py); and other devices, known only from their data sheets.
Sureness sureness(const Cluster& cluster, const Engine& engine = {});

/// Messages per rank and step: collectives of tensor, context and expert parallelism for each block and micro-batch,
/// forward and backward; messages of a pipeline; and collectives of data parallelism for each unit.
double messages_of_step(const Model& model, const Plan& plan);

/// Among the candidates that are slower than the fastest by less than `tolerance`, moves the one with the fewest
/// messages to the front (on ties, the one that leaves the most memory); the others keep their order. `best` is sorted
/// by time. Returns the number of equal candidates, and the reason for the choice in words; empty: only one is fastest.
struct Tie {
  std::size_t equal = 1;
  std::string reason;
};
Tie break_tie(const Model& model, std::vector<Candidate>& best, double tolerance);

}  // namespace tessera::plan
